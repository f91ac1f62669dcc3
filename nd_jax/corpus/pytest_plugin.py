"""Records calls of a package's functions while its own tests run.

``pytest --nd-trace OUT --nd-trace-package PKG``. Each process of the test run (with xdist several) writes to
the folder OUT:

- ``calls-WORKER.jsonl``: traces, one a line, as `nd_jax.tracing.schema` has them; a call of a function is
  the entry call, the source of the functions that ran is the program (`nd_jax.corpus.context`).
- ``dropped-WORKER.jsonl``: ``{"id", "reason", "detail"}`` of calls that were followed and gave no trace.

`nd corpus import OUT` makes a trace dataset of them. A test that fails while it is recorded is run again
without recording, and that outcome counts. Runs in the environment of the package: standard library and
pytest only.
"""

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from nd_jax.corpus.calls import CallLimits, CallRecorder
from nd_jax.tracing.schema import Trace, encode_json, to_json


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options; their defaults are `CallLimits`'."""
    group = parser.getgroup("nd-trace", "record calls for neural debuggers (nd_jax)")
    limits = CallLimits()
    group.addoption(
        "--nd-trace", metavar="OUT", help="folder for the recorded calls; an older one is replaced"
    )
    group.addoption("--nd-trace-package", metavar="PKG", help="importable name of the package to record")
    group.addoption(
        "--nd-trace-calls", type=int, default=limits.per_function, metavar="N",
        help="most calls of one function that are followed (default: %(default)s)",
    )  # fmt: skip
    group.addoption(
        "--nd-trace-events", type=int, default=limits.events, metavar="N",
        help="drop calls of more events (default: %(default)s)",
    )  # fmt: skip
    group.addoption(
        "--nd-trace-share", type=float, default=0.7, metavar="X",
        help="skip recording while it has taken more than this share of the time; 1 records the same calls "
        "however busy the machine is (default: %(default)s)",
    )  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Register the recorder where ``--nd-trace`` asks for one."""
    out = config.getoption("--nd-trace")
    if not out:
        return
    package = config.getoption("--nd-trace-package")
    if not package:
        raise pytest.UsageError("--nd-trace needs --nd-trace-package, the name of the package to record")
    folder = Path(config.invocation_params.dir, out)
    worker = getattr(config, "workerinput", {}).get("workerid")
    if worker is None:  # the process that the user started: the others come later
        if folder.is_dir() and not all(_is_ours(path) for path in folder.iterdir()):
            raise pytest.UsageError(f"--nd-trace {folder} holds other files; give a new folder")
        shutil.rmtree(folder, ignore_errors=True)
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise pytest.UsageError(f"--nd-trace {folder}: {error.strerror}") from None
    options: Any = config.option
    limits = CallLimits(per_function=options.nd_trace_calls, events=options.nd_trace_events)
    recorder = _Plugin(package, folder, worker or "main", limits, options.nd_trace_share)
    config.pluginmanager.register(recorder, "nd_trace_recorder")


def _is_ours(path: Path) -> bool:
    return path.suffix == ".jsonl" and path.stem.partition("-")[0] in ("calls", "dropped")


class _Plugin:
    """What records while the tests of one process run."""

    def __init__(self, package: str, folder: Path, worker: str, limits: CallLimits, share: float) -> None:
        self.package, self.folder, self.worker, self.limits = package, folder, worker, limits
        self.share, self.begun, self.spent = share, perf_counter(), 0.0
        self.process = os.getpid()
        self.recorder: CallRecorder | None = None
        self.wanted = self.recorded = False

    def pytest_collection_finish(self) -> None:
        """Find the package, which the tests have imported by now."""
        path = _path_of(self.package)
        if path is not None:
            self.recorder = CallRecorder(self.package, path, self.limits)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Run a test with recording; once more without, should it fail."""
        recorder = self.recorder
        overdue = self.spent > self.share * (perf_counter() - self.begun)
        if recorder is None or overdue or not isinstance(item, pytest.Function):
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        self.wanted, self.recorded = True, False
        reports = runtestprotocol(item, log=False, nextitem=nextitem)
        self.wanted = False
        if self.recorded and any(report.failed and report.when == "call" for report in reports):
            item._initrequest()
            reports = runtestprotocol(item, log=False, nextitem=nextitem)
        begun = perf_counter()
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        if os.getpid() == self.process:
            self.write(recorder)
        self.spent += perf_counter() - begun
        return True

    @pytest.hookimpl(hookwrapper=True, trylast=True)
    def pytest_runtest_call(self) -> Iterator[None]:
        """Record while the test itself runs, not its fixtures."""
        recorder = self.recorder
        if recorder is None or not self.wanted or not recorder.begin():
            yield
            return
        self.recorded = True
        begun = perf_counter()
        yield
        recorder.end()
        self.spent += perf_counter() - begun

    def write(self, recorder: CallRecorder) -> None:
        """Append what the last test gave: whole lines, so that a killed run loses none before."""
        traces, dropped = [], []
        for id, outcome in recorder.take():
            if isinstance(outcome, Trace):
                traces.append(to_json(outcome))
            else:
                dropped.append(encode_json({"id": id, "reason": outcome.reason, "detail": outcome.detail}))
        self._append("calls", traces)
        self._append("dropped", dropped)

    def _append(self, kind: str, lines: list[str]) -> None:
        if not lines:
            return
        text = "".join(f"{line}\n" for line in lines)
        try:
            with open(self.folder / f"{kind}-{self.worker}.jsonl", "ab") as file:
                file.write(text.encode("utf-8", "backslashreplace"))
        except OSError as error:  # no test fails because a disk is full
            self.recorder = None
            sys.stderr.write(f"nd-trace: recording ends: {error}\n")


def _path_of(package: str) -> str | None:
    """Give the folder of a package, or the file of a module."""
    file = getattr(sys.modules.get(package), "__file__", None)
    if file is None:
        try:
            spec = importlib.util.find_spec(package)
        except (ImportError, ValueError):
            spec = None
        file = None if spec is None else spec.origin
    if file is None:
        return None
    file = os.path.abspath(file)
    return os.path.dirname(file) if os.path.basename(file) == "__init__.py" else file
