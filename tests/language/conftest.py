"""Traces of the hard programs, and of some of CRUXEval and MBPP; a tokenizer trained on the former."""

import json
import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from nd_jax.debugger.policy import PolicyConfig
from nd_jax.language.symbols import TokenizerSpec
from nd_jax.language.tokenizer import Tokenizer
from nd_jax.language.training import train, training_texts
from nd_jax.programs.jsonl import read_programs
from nd_jax.programs.program import Program
from nd_jax.tracing.recorder import TraceLimits, trace_program
from nd_jax.tracing.schema import Trace

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("ND_DATA", ROOT.parent / "shared" / "data"))
SPEC = TokenizerSpec(vocab_size=480, lines=48, frames=12)


def record(programs: Iterable[object]) -> list[Trace]:
    recorded = (trace_program(p, TraceLimits(events=400)) for p in programs if isinstance(p, Program))
    return [trace for trace in recorded if isinstance(trace, Trace)]


@pytest.fixture(scope="session")
def traces() -> list[Trace]:
    """One trace of each hard program."""
    lines = (ROOT / "tests" / "hard_programs.jsonl").read_text(encoding="utf-8").splitlines()
    programs = []
    for r in map(json.loads, lines):
        entry, _, arguments = r["call"].partition("(")
        programs.append(Program(r["id"], r["code"], entry, arguments.removesuffix(")")))
    recorded = record(programs)
    assert len(recorded) == len(lines)
    return recorded


@pytest.fixture(scope="session")
def found_traces() -> list[Trace]:
    """Every 16th CRUXEval program and every 32nd MBPP program."""
    files = {DATA / "cruxeval.jsonl": 16, DATA / "mbpp.jsonl": 32}
    if missing := [str(path) for path in files if not path.exists()]:
        pytest.skip(f"no {', '.join(missing)}; ND_DATA names their folder")
    return record(p for path, every in files.items() for p in list(read_programs(path))[::every])


@pytest.fixture(scope="session")
def texts(traces: list[Trace]) -> list[str]:
    return list(training_texts(traces * 3, SPEC, PolicyConfig(), seed=0, max_states=64))


@pytest.fixture(scope="session")
def tokenizer(texts: list[str]) -> Tokenizer:
    return train(texts, SPEC, {"for": "tests"})
