"""The Beam pipeline: the same records as the plain collector. The pipeline's own test needs ``make beam``."""

import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from nd_jax.corpus.beam import collect_with_beam, gather, pieces, record_piece
from nd_jax.errors import UserError
from nd_jax.programs.jsonl import Rejected, read_programs
from nd_jax.programs.program import Program
from nd_jax.programs.synthetic import SyntheticConfig, generate
from nd_jax.tracing.collect import collect
from nd_jax.tracing.dataset import open_traces
from nd_jax.tracing.pool import WorkerLimits

ROOT = Path(__file__).parents[2]
BEAM = Path(os.environ.get("ND_BEAM", ROOT / ".venv-beam"))
ROWS = [
    {"id": "a", "code": "def f(x):\n    return x + 1\n", "input": "1"},
    {"id": "b", "code": "def f(", "input": ""},
    {"code": 3, "input": ""},
    {"id": "é\u2028", "code": "def f(s):\n    return s + '\\ud800\u2028'\n", "input": "'x'"},
]
GIVEN = [
    Program("a", "def f(x):\n    return x + 1\n", "f", "1"),
    Rejected("rows.jsonl:3", "wrong type", "code is a int, not a string"),
    Program("b", "def f(", "f", ""),
]
LIMITS = WorkerLimits()


def plain(tmp_path: Path, programs, synthetic: int):
    items = [*programs, *generate(SyntheticConfig(), 7, 0, synthetic)]
    return collect(items, tmp_path / "plain", LIMITS, 1, verify=True)


def same(one, other) -> None:
    assert other.info == one.info
    # The plain collector notes a line that gives no program when it reads it, ahead of those being recorded.
    assert sorted(map(str, other.dropped())) == sorted(map(str, one.dropped()))
    assert [trace.id for trace in other] == [trace.id for trace in one]


def write(folder: Path, parts, total: int, order: int = 1) -> None:
    """Write what a runner would, in one file a piece, a line twice."""
    folder.mkdir()
    for number, part in enumerate(list(parts)[::order]):
        lines = list(record_piece(part, LIMITS, True, SyntheticConfig(), 7))
        (folder / f"outcomes-{number}.jsonl").write_text("\n".join([*lines, lines[0]]) + "\n")
    settings = {"limits": asdict(LIMITS), "verify": True}
    (folder / "collection.json").write_text(json.dumps({"programs": total, "settings": settings}))


def test_pieces_hold_every_program_once():
    parts = list(pieces(GIVEN, 5, size=2))
    assert [part.first for part in parts] == [0, 2, 3, 5, 7]
    assert [item for part in parts for item in part.programs] == GIVEN
    assert [part.synthetic for part in parts] == [(0, 0), (0, 0), (0, 2), (2, 4), (4, 5)]
    assert list(pieces([], 0)) == []


def test_gathered_outcomes_are_the_plain_collectors_records(tmp_path: Path):
    write(tmp_path / "outcomes", pieces(GIVEN, 20, size=6), 23, order=-1)
    same(plain(tmp_path, GIVEN, 20), gather(tmp_path / "outcomes", tmp_path / "gathered"))


def test_an_incomplete_collection_is_refused(tmp_path: Path):
    with pytest.raises(UserError, match=r"collection\.json is missing"):
        gather(tmp_path, tmp_path / "out")
    write(tmp_path / "outcomes", pieces(GIVEN, 0, size=2), 3)
    (tmp_path / "outcomes" / "outcomes-1.jsonl").unlink()
    with pytest.raises(UserError, match="lacks the outcomes of 1 programs, the first number 2"):
        gather(tmp_path / "outcomes", tmp_path / "out")


def test_without_beam_the_user_is_told_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(UserError, match="make beam"):
        collect_with_beam([], 1, tmp_path / "out", LIMITS, True, SyntheticConfig(), 0)


@pytest.mark.skipif(not (BEAM / "installed").exists(), reason="no Apache Beam: make beam, or set ND_BEAM")
def test_the_local_runner_gives_the_plain_collectors_records(tmp_path: Path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    words = ["-m", "nd_jax", "corpus", "beam", "--programs", rows, "--synthetic", 300, "--seed", 7]
    command = [BEAM / "bin/python", *words, "--out", tmp_path / "outcomes"]
    path = f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    run = subprocess.run(
        list(map(str, command)), env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert run.returncode == 0, run.stderr[-3000:]
    gathered = gather(tmp_path / "outcomes", tmp_path / "gathered")
    expected = plain(tmp_path, read_programs(rows), 300)
    same(expected, gathered)
    assert len(open_traces(tmp_path / "gathered", "all")) == 302
