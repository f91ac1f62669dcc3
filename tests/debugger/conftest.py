"""Traces to step through: the hard programs, and a sample of CRUXEval and MBPP where those files are."""

import json
import os
from pathlib import Path

import pytest
from recorded import trace, traces

from nd_jax.debugger.tree import StateTree
from nd_jax.programs.jsonl import read_programs

ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("ND_DATA", ROOT.parent / "shared" / "data"))


@pytest.fixture(scope="session")
def hard_records() -> list[dict[str, str]]:
    lines = (ROOT / "tests" / "hard_programs.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="session")
def hard_trees(hard_records: list[dict[str, str]]) -> dict[str, StateTree]:
    return {r["id"]: StateTree(trace(r["code"], r["call"], r["id"])) for r in hard_records}


@pytest.fixture(scope="session")
def found_trees() -> list[StateTree]:
    """Every 16th CRUXEval program and every 32nd MBPP program."""
    files = {DATA / "cruxeval.jsonl": 16, DATA / "mbpp.jsonl": 32}
    if missing := [str(path) for path in files if not path.exists()]:
        pytest.skip(f"no {', '.join(missing)}; ND_DATA names their folder")
    return [
        StateTree(trace)
        for path, every in files.items()
        for trace in traces(list(read_programs(path))[::every])
    ]
