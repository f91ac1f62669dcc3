"""Collecting into a dataset: what is dropped is counted, and a kill at any moment costs nothing."""

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from traced_programs import program, traced

from nd_jax.errors import UserError
from nd_jax.programs.jsonl import Rejected, read_programs
from nd_jax.programs.program import Program
from nd_jax.tracing import tfds_format
from nd_jax.tracing.collect import bring_in, collect, show_counts
from nd_jax.tracing.dataset import TraceDataset, open_traces
from nd_jax.tracing.pool import WorkerLimits
from nd_jax.tracing.schema import to_json

LIMITS = WorkerLimits(batch=3)


def programs() -> Iterator[Program | Rejected]:
    """Programs that are recorded, dropped or rejected, and two of one id."""
    for i in range(40):
        yield program(f"def f(x):\n    return [x] * {i}", "1", id=f"p{i}")
        if i % 5 == 0:
            yield program(f"def f(x): return {i} / 0", "", id=f"does not bind {i}")
            yield Rejected(f"mine.jsonl:{i}", "malformed JSON", "there")
        if i % 9 == 0:
            yield program(f"def f(x):\n    return -x * {i}", "1", id="twice")


def content(dataset: TraceDataset) -> tuple[list[str], list[str], dict[str, int]]:
    dropped = sorted(json.dumps(drop) for drop in dataset.dropped())
    return sorted(map(to_json, dataset)), dropped, dataset.info["dropped"]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> TraceDataset:
    return collect(programs(), tmp_path_factory.mktemp("whole") / "traces", LIMITS, 2, verify=False)


def test_every_program_is_recorded_or_counted(uninterrupted: TraceDataset):
    assert len(uninterrupted) == 45
    assert uninterrupted.info["dropped"] == {"does not bind": 8, "malformed JSON": 8}


COLLECT = """import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from test_collect import LIMITS, collect, programs
collect(programs(), Path(sys.argv[2]), LIMITS, 2, verify=False)
"""


def test_a_collector_killed_at_any_moment_goes_on(uninterrupted: TraceDataset, tmp_path: Path):
    """Kill it when its journal has reached a random size, again and again."""
    out, rng = tmp_path / "traces", random.Random(5)
    journal = out / "unfinished" / "journal"
    size = sum(len(to_json(trace)) for trace in uninterrupted)
    kills = 0
    for until in sorted(rng.randrange(size) for _ in range(4)):
        command = [sys.executable, "-c", COLLECT, str(Path(__file__).parent), str(out)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as collector:
            while collector.poll() is None:
                if journal.exists() and journal.stat().st_size > until:
                    collector.kill()
                with suppress(subprocess.TimeoutExpired):
                    collector.wait(0.002)
            kills += collector.returncode == -9
    assert kills > 1
    assert content(collect(programs(), out, LIMITS, 2, verify=False)) == content(uninterrupted)


def read(out: Path) -> str:
    """What a folder of traces holds, or why it cannot be read."""
    try:
        return str(content(open_traces(out, "all")))
    except UserError as error:
        return str(error).partition(":")[0]


class Killed(BaseException):
    """Stands for the kill of the process: nothing catches it."""


def test_a_collector_killed_while_it_finishes_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Kill it before each change to the folder, one after the other."""
    traces = [traced(f"def f(x):\n    return x + {i}", "1", id=f"t{i}") for i in range(40)]
    expected = content(bring_in(traces, tmp_path / "whole"))
    out, changes, states = tmp_path / "traces", 0, set()

    def killed_before(limit: int, owner: object, name: str) -> None:
        whole = getattr(owner, name)

        def change(*args: object, **kwargs: object) -> object:
            nonlocal changes
            if changes == limit:
                raise Killed
            changes += 1
            return whole(*args, **kwargs)

        monkeypatch.setattr(owner, name, change)

    for limit in range(100):
        changes = 0
        with monkeypatch.context() as monkeypatch:
            for owner, name in (
                (Path, "replace"),
                (Path, "unlink"),
                (shutil, "rmtree"),
                (tfds_format, "write_json"),
            ):
                killed_before(limit, owner, name)
            try:
                bring_in(traces, out)
                break
            except Killed:
                pass
            except UserError:  # it was killed after the folder was whole
                break
        states.add(state := read(out))
        assert state in (str(expected), f"{out} is unfinished")
    assert limit > 4
    assert len(states) == 2
    assert content(open_traces(out, "all")) == expected


BAD = {
    "syntax error": b'{"code": "def f(:", "test_list": ["assert f(1)"]}',
    "does not compile": b'{"code": "def f(:", "input": "1"}',
    "does not bind": b'{"code": "def f(x): return x", "input": "1, 2"}',
    "arguments": b'{"code": "def f(x): return x", "input": "1; 2"}',
    "no entry": b'{"code": "def g(x): return x", "input": "1"}',
    "module raises": b'{"code": "raise ValueError(\'[/red]\')", "input": "1"}',
    "malformed JSON": b'{"code": "def f(',
    "not an object": b"[1]",
    "not UTF-8": '{"code": "def f(x): return \'\xe9\'", "input": "1"}'.encode("latin-1"),
    "NUL character": b'{"code": "def f(x): return 1\\u0000", "input": "1"}',
    "missing field": b'{"code": "def f(x): return 1"}',
    "wrong type": b'{"code": 3, "input": "1"}',
}
GOOD = [
    b'\xef\xbb\xbf{"code": "\\ufeffdef f(x):\\r\\n\\treturn x\\r", "input": "1"}\r',
    b'{"code": "def f(x):\\r  return (x,\\r\\n\\n 2)", "input": "\\r\\n1"}',
    b"  \r",
]


def test_bad_input_is_dropped_with_its_place_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    file = tmp_path / "mixed.jsonl"
    file.write_bytes(b"\n".join([GOOD[0], *BAD.values(), *GOOD[1:]]))
    dataset = collect(read_programs(file), tmp_path / "traces", LIMITS, 1, verify=True)
    assert [trace.result for trace in dataset] == ["1", "(1, 2)"]
    assert dataset.info["dropped"] == dict.fromkeys(BAD, 1)
    places = {drop["reason"]: drop["id"] for drop in dataset.dropped()}
    for line, reason in enumerate(BAD, start=2):
        assert places[reason] in (f"mixed.jsonl:{line}", f"mixed_{line}")
    assert show_counts(dataset)["dropped"] == dataset.info["dropped"]
    assert "[/red]" in capsys.readouterr().out
