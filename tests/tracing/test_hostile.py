"""Each hostile program costs itself only: not its neighbours, no process and no file outlives it."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hostile_programs import HOSTILE, WALLED
from traced_programs import program

from nd_jax.tracing import sandbox
from nd_jax.tracing.pool import Outcome, WorkerLimits, record
from nd_jax.tracing.schema import to_json

LIMITS = WorkerLimits(cpu_s=1, memory_mb=300)
PLAIN = "def f(a):\n    b = [c for c in a]\n    return b, len(b), sorted(b), str(b), '\\d'"
USES_THE_LIBRARY = """import re
import copy
from collections import Counter
from collections.abc import Sequence
def f(a):
    return copy.deepcopy([a]), re.findall('a', a + 'A'), repr(Counter(a)), isinstance({1}, Sequence)
"""
NEIGHBOURS = [
    program(PLAIN, "'abca'", id="before"),
    program(USES_THE_LIBRARY, "'abca'", id="after"),
    program(PLAIN, "'bcab'", id="last"),
]
LINUX = sys.platform == "linux"
PROGRAMS = HOSTILE | (WALLED if LINUX else {})


def result(outcome: Outcome) -> str | None:
    """The drop reason, or the result of the trace, or the exception it died of."""
    if outcome.trace is None:
        return outcome.reason
    return [e.value for e in outcome.trace.events if e.value is not None and not e.depth][-1]


def as_bytes(outcome: Outcome) -> str:
    assert outcome.trace is not None, outcome
    return to_json(outcome.trace)


def descendants() -> set[int]:
    """Processes below this one."""
    with subprocess.Popen(["ps", "-eo", "pid=,ppid="], stdout=subprocess.PIPE, text=True) as ps:
        listed = ps.communicate()[0]
    children: dict[int, list[int]] = {}
    for line in listed.splitlines():
        pid, parent = map(int, line.split())
        if pid != ps.pid:
            children.setdefault(parent, []).append(pid)
    found, left = set(), [os.getpid()]
    while left:
        below = children.get(left.pop(), [])
        found.update(below)
        left += below
    return found


class Surroundings:
    """Where a program could leave something: temporary files, and a folder that anybody may write to."""

    def __init__(self, room: Path) -> None:
        self.temporary, self.outside = room / "temporary", room / "outside"
        for folder in (room, self.temporary, self.outside):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o777)
        kept = self.outside / "kept"
        kept.write_text("kept")
        kept.chmod(0o666)

    def files(self) -> dict[str, tuple[object, ...]]:
        """All that is there, and how it is."""
        places = (self.temporary, Path("/tmp"), Path("/var/tmp"), Path("/dev/shm"), Path.home(), Path.cwd())
        found = {str(path): path.lstat() for path in (self.outside, *self.outside.rglob("*"))}
        found |= {str(path): path.lstat() for place in places for path in place.glob("*nd_evil*")}
        found |= {str(path): path.lstat() for path in self.temporary.rglob("*")}
        return {
            path: (stat.st_mode, stat.st_uid, stat.st_size, stat.st_mtime_ns, stat.st_nlink)
            for path, stat in found.items()
        }


@pytest.fixture(scope="module")
def surroundings() -> Iterator[Surroundings]:
    if LINUX:
        sandbox.adopt_orphans()  # so that a process which is left behind becomes a child of this one
    with tempfile.TemporaryDirectory(prefix="nd-hostile-") as room:
        yield Surroundings(Path(room))


@pytest.fixture(scope="module")
def alone() -> list[str]:
    """The neighbours' traces without any hostile program."""
    return [as_bytes(outcome) for outcome in record(NEIGHBOURS, LIMITS, workers=1, verify=True)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_hostile_program_costs_itself_only(
    name: str, surroundings: Surroundings, alone: list[str], monkeypatch: pytest.MonkeyPatch
):
    source, results = PROGRAMS[name]
    hostile = program(source.replace("OUTSIDE", str(surroundings.outside)), id=name)
    first, *others = NEIGHBOURS
    monkeypatch.setattr(tempfile, "tempdir", str(surroundings.temporary))
    processes, files = descendants(), surroundings.files()
    # Only what waits for ever is to meet the clock, and only what differs from run to run needs the gate.
    limits = replace(LIMITS, wall_s=3.0 if "timeout" in results else 60.0)
    verify = "nondeterministic" in results
    before, outcome, *after = record([first, hostile, *others], limits, workers=1, verify=verify)
    assert result(outcome) in results, outcome
    assert [as_bytes(neighbour) for neighbour in (before, *after)] == alone
    assert descendants() <= processes
    assert surroundings.files() == files
