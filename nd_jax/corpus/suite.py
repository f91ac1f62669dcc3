"""Runs a package's test suite inside walls, in its own environment: ``python -m nd_jax.corpus.suite``.

Reads a job, one line of JSON (`Job`), from its standard input, and writes its `Outcome` as JSON to its
standard output. The tests run in a child behind `nd_jax.tracing.sandbox`: no network, no other processes,
files readable only in the environment, writable only in a folder of its own, limited memory and time. It ends
when its standard input closes: with the process that asked for it. Standard library and pytest only.
"""

import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from nd_jax.tracing.sandbox import Limits, Sandbox, remove_folder

_NETWORK = frozenset(("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"))
_TO_BEGIN = 300.0  # seconds until the first test runs: imports and collection
_INTERNET = (2, 10)  # AF_INET and, on Linux, AF_INET6


class Job(NamedTuple):
    """What to run.

    Attributes:
      tree: folder with the unpacked source archive; the suite runs in a copy.
      readable: folders that the tests may read: the environment, this package.
      out: folder for what the plugin writes, and the suite's output (``log.txt``); must exist.
      arguments: for pytest.
      seconds: wall-clock time of the suite, from its first test on.
      memory_mb: memory of the process.
    """

    tree: str
    readable: list[str]
    out: str
    arguments: list[str]
    seconds: float
    memory_mb: int


class Outcome(NamedTuple):
    """What came of a suite.

    Attributes:
      exit: pytest's exit status, negative for a signal, None if it ran out of time.
      tests: number of tests by outcome (passed, failed, skipped, error).
      network: how often something asked for the network.
      running: the test that had begun last, of a suite that did not end.
      walls: what `Sandbox.enforced` says.
    """

    exit: int | None
    tests: dict[str, int]
    network: int
    running: str
    walls: list[str]


class _Tally:
    """Tells the parent of each test, as it goes: a suite that hangs is counted too."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe

    def tell(self, kind: str, text: str = "") -> None:
        os.write(self.pipe, f"{kind} {text[:400]!r}\n".encode("ascii", "backslashreplace"))

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.tell("begin", nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or not report.passed:
            wrong = report.failed and report.when != "call"
            self.tell("test", "error" if wrong else report.outcome)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.tell("test", "error")

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in _NETWORK or (event == "socket.__new__" and arguments[1] in _INTERNET):
            self.tell("network")


def run(job: Job, stopped: int) -> Outcome:
    """Run a suite; ends early when the descriptor ``stopped`` can be read or is closed."""
    out = Path(job.out)
    limits = Limits(cpu_s=0, memory_mb=job.memory_mb, file_mb=1024, open_files=256, processes=64)
    folder = tempfile.mkdtemp(prefix="nd-suite-")  # where another user can get to, unlike `out` perhaps
    box = Sandbox(folder, limits, job.readable)
    own = box.new_folder("suite")
    shutil.copytree(job.tree, f"{own}/tree", symlinks=True)
    for name in ("tmp", "calls"):
        os.mkdir(f"{own}/{name}")
    if box.uid is not None:
        for path in _below(own):
            os.chown(path, box.uid, box.uid, follow_symlinks=False)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        _child(job, box, own, writer)
    os.close(writer)
    exit, lines = _watch(child, reader, stopped, job.seconds)
    os.close(reader)
    tests, network, running = _count(lines)
    _take(Path(own, "calls"), out)
    remove_folder(own)
    os.rmdir(folder)
    return Outcome(exit, tests, network, running if exit not in (0, 1) else "", box.enforced)


def _below(folder: str) -> Iterator[str]:
    for path, folders, files in os.walk(folder):
        yield path
        yield from (os.path.join(path, name) for name in (*folders, *files))


def _child(job: Job, box: Sandbox, own: str, pipe: int) -> None:
    code = 70
    try:
        log = os.open(os.path.join(job.out, "log.txt"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.environ.update(HOME=own, TMPDIR=f"{own}/tmp")
        tempfile.tempdir = None  # found out already, for the parent
        sys.dont_write_bytecode = True
        seconds = int(job.seconds + _TO_BEGIN) + 1
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
        import pytest

        box.enter(own)
        os.chdir(f"{own}/tree")
        tally = _Tally(pipe)
        sys.addaudithook(tally.audit)
        sys.path.insert(0, os.getcwd())
        # By itself it draws a seed of the system's: what agrees in both runs would do so by luck.
        random.seed(os.environ.get("PYTHONHASHSEED"))
        folders = ("--rootdir", f"{own}/tree", "--nd-trace", f"{own}/calls")
        code = int(pytest.main([*job.arguments, *folders], plugins=[tally]))
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def _watch(child: int, reader: int, stopped: int, seconds: float) -> tuple[int | None, list[bytes]]:
    """Read what the child tells until it ends; kill it, and its group, when late or stopped."""
    told, late = bytearray(), False
    deadline = time.monotonic() + _TO_BEGIN
    while True:
        ready, _, _ = select.select([reader, stopped], [], [], max(0, deadline - time.monotonic()))
        if reader in ready:
            piece = os.read(reader, 1 << 16)
            if piece and not told:
                deadline = time.monotonic() + seconds
            told += piece
            if piece:
                continue
        late = reader not in ready
        break
    # It is its own group's leader once it has entered the walls.
    for kill in (os.killpg, os.kill):
        try:
            if late or kill is os.killpg:
                kill(child, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return None if late else status, bytes(told).splitlines()


def _count(lines: list[bytes]) -> tuple[dict[str, int], int, str]:
    tests: Counter[str] = Counter()
    network, running = 0, ""
    for line in lines:
        kind, _, text = line.decode("ascii", "replace").partition(" ")
        text = text[1:-1]
        if kind == "test":
            tests[text] += 1
        elif kind == "network":
            network += 1
        elif kind == "begin":
            running = text
    return dict(tests), network, running


def _take(calls: Path, out: Path) -> None:
    """Move out what the plugin wrote; nothing that is no plain file."""
    if not calls.is_dir() or calls.is_symlink():
        return
    for path in sorted(calls.iterdir()):
        if path.suffix == ".jsonl" and path.is_file() and not path.is_symlink():
            os.replace(path, out / path.name)


if __name__ == "__main__":
    made = Job(**json.loads(sys.stdin.buffer.readline()))
    print(json.dumps(run(made, sys.stdin.fileno())._asdict()), flush=True)
