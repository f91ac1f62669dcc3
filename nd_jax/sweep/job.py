"""Do one job of a study, in a process of its own, and tell from its folder how far it is.

A job's folder holds ``job.json`` (what it was begun with), ``lock`` (held while it is worked on), ``log.txt``
and, at the end, ``done.json`` or ``failed.json``. So whatever stops a sweep, what is done stays done.
"""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TextIO

from nd_jax.console import console
from nd_jax.errors import UserError
from nd_jax.files import write_json
from nd_jax.sweep.study import Job
from nd_jax.training.config import diff, from_dict, to_dict

BEGUN, LOCK, LOG, DONE, FAILED = "job.json", "lock", "log.txt", "done.json", "failed.json"
LAST_LINES = 5
"""Lines of a failed command's output that are told."""


class State(NamedTuple):
    """How far a job is.

    Attributes:
      kind: what it is.
      progress: share of the training that is done, 0 to 1; None where there is none yet.
      loss: newest loss of the training.
      seconds: what a job that is done took.
      reason: why it failed: the command, and its last lines.
    """

    kind: Literal["waiting", "unfinished", "running", "failed", "done"]
    progress: float | None = None
    loss: float | None = None
    seconds: float | None = None
    reason: str = ""


def state(job: Job) -> State:
    """Read a job's folder."""
    if (done := _read(job.folder / DONE)) is not None:
        return State("done", 1.0, _read_metrics(job)[1], done["seconds"])
    progress, loss = _read_metrics(job)
    if _locked(job.folder):
        return State("running", progress, loss)
    if (failed := _read(job.folder / FAILED)) is not None:
        return State("failed", progress, loss, reason=failed["reason"])
    return State("unfinished" if (job.folder / BEGUN).exists() else "waiting", progress, loss)


def refuse_other(job: Job) -> None:
    """Refuse a folder that was begun with other settings.

    Raises:
      UserError: it was; says what differs.
    """
    before = _read(job.folder / BEGUN)
    if before is None or before == _record(job):
        return
    changed = (before["commands"] != _record(job)["commands"] and ["commands"]) or []
    if job.experiment and before["experiment"]:
        changed = diff(from_dict(before["experiment"]), job.experiment) or changed
    raise UserError(
        f"{job.folder} was begun with other settings ({'; '.join(changed)}): give another --out, or remove it"
    )


def do(job: Job) -> State:
    """Do a job, going on where a call before this one stopped; waits where another process is at it.

    SIGTERM and Ctrl-C are passed on to the command under way, which saves.

    Returns:
      Its state: done or failed.

    Raises:
      UserError: the folder was begun with other settings.
      KeyboardInterrupt: it was stopped by a signal; called again, it goes on.
    """
    job.folder.mkdir(parents=True, exist_ok=True)
    with _lock(job.folder) as lock, (job.folder / LOG).open("a+", encoding="utf-8", errors="replace") as log:
        if (job.folder / DONE).exists():
            return state(job)
        refuse_other(job)
        write_json(job.folder / BEGUN, _record(job))
        (job.folder / FAILED).unlink(missing_ok=True)
        seconds = 0.0
        for words in job.commands:
            begin = log.seek(0, os.SEEK_END)
            log.write(f"$ nd {' '.join(words)}\n")
            log.flush()
            start = time.perf_counter()
            returned = call(words, log, pass_fds=(lock,))
            passed = time.perf_counter() - start
            if returned:
                reason = _reason(words, returned, log, begin)
                write_json(job.folder / FAILED, {"reason": reason})
                return State("failed", *_read_metrics(job), reason=reason)
            if words[0] == "train":
                figures = _read(job.folder / "train.json") or {}
                if figures.get("stopped") != "finished":
                    raise KeyboardInterrupt
                passed = max(passed, figures["seconds"])
            seconds += passed
        write_json(job.folder / DONE, {"seconds": seconds})
        return state(job)


def call(
    words: Sequence[str],
    output: TextIO | None = None,
    pass_fds: Sequence[int] = (),
    watch: Callable[[], None] = lambda: None,
) -> int:
    """Run a command of `nd` in a process of its own, and give what it returned.

    Args:
      words: the command, without the word `nd`.
      output: where its output goes; None: where ours does.
      pass_fds: open files that it keeps open too.
      watch: called about twice a second while it runs.

    Raises:
      KeyboardInterrupt: SIGTERM or SIGINT came; it was passed on, and the command has ended.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "nd_jax", *words], stdin=subprocess.DEVNULL, stdout=output,
        stderr=subprocess.STDOUT if output else None, pass_fds=pass_fds,
    )  # fmt: skip
    received: list[int] = []

    def pass_on(number: int, frame: object) -> None:
        received.append(number)
        process.send_signal(signal.SIGTERM)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                returned = process.wait(timeout=0.5)
                break
            watch()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if received:
        raise KeyboardInterrupt
    return returned


def keep_failure(job: Job, returned: int) -> None:
    """Note the failure of a job whose process ended without a word."""
    if not (job.folder / FAILED).exists():
        log = job.folder / LOG
        with (log if log.exists() else Path(os.devnull)).open(encoding="utf-8", errors="replace") as lines:
            reason = _reason(("sweep", "run", job.name), returned, lines, 0)
        write_json(job.folder / FAILED, {"reason": reason})


def _record(job: Job) -> dict[str, Any]:
    experiment = to_dict(job.experiment) if job.experiment else None
    return {"commands": [list(words) for words in job.commands], "experiment": experiment}


def _reason(words: Sequence[str], returned: int, log: TextIO, begin: int) -> str:
    log.seek(begin)
    lines = [line for line in log.read().splitlines() if line.strip() and not line.startswith("$ nd")]
    ended = f"was killed by {signal.Signals(-returned).name}" if returned < 0 else f"returned {returned}"
    return "\n".join([f"nd {words[0]} {ended}", *lines[-LAST_LINES:]])


def _read_metrics(job: Job) -> tuple[float | None, float | None]:
    """(share of the training that is done, newest loss), from the end of the run's metrics."""
    path = job.folder / "metrics.jsonl"
    if job.experiment is None or not path.exists():
        return None, None
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 8192))
        lines = file.read().decode(errors="replace").splitlines()
    for line in reversed(lines):
        with contextlib.suppress(json.JSONDecodeError, KeyError, TypeError):
            record = json.loads(line)
            loss, step, progress = record["loss"], record["step"], record["progress"]
            steps = job.experiment.train.steps
            return ((step - job.first_step) / (steps - job.first_step) if steps else progress), loss
    return None, None


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[int]:
    """Hold a job's lock; commands that inherit the open file hold it too, should this process be killed."""
    with (folder / LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.print(f"{folder}: another process is at it; waiting until it ends")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def _locked(folder: Path) -> bool:
    if not (folder / LOCK).exists():
        return False
    with (folder / LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _read(path: Path) -> dict[str, Any] | None:
    """Read a file of JSON; None where it is not there, or was cut off."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return None
