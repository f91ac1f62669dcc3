"""Real programs, recorded with the default limits."""

import os
from pathlib import Path

import pytest

from nd_jax.programs.jsonl import read_programs
from nd_jax.programs.program import Program
from nd_jax.tracing.pool import Outcome, WorkerLimits, record

DATA = Path(os.environ.get("ND_DATA", Path(__file__).parents[3] / "shared" / "data"))


def recorded(name: str) -> list[tuple[Program, Outcome]]:
    file = DATA / name
    if not file.exists():
        pytest.skip(f"no {file}; ND_DATA names the folder that has it")
    programs = [made for made in read_programs(file) if isinstance(made, Program)]
    return list(zip(programs, record(programs, WorkerLimits(), workers=2, verify=False), strict=True))


def test_all_of_cruxeval_is_recorded():
    outcomes = recorded("cruxeval.jsonl")
    assert len(outcomes) == 800
    assert [outcome for _, outcome in outcomes if outcome.trace is None] == []
    assert all(outcome.trace and outcome.trace.result == made.output for made, outcome in outcomes)
    assert sum(len(outcome.trace.events) for _, outcome in outcomes if outcome.trace) > 10_000


def test_nearly_all_of_mbpp_is_recorded():
    outcomes = recorded("mbpp.jsonl")
    dropped = {made.id: outcome.reason for made, outcome in outcomes if outcome.trace is None}
    assert len(dropped) <= len(outcomes) // 100, dropped
    assert set(dropped.values()) <= {"too many events", "module raises", "result cut"}
