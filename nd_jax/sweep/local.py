"""Run a study on this machine, one job after the other, with the time that is left."""

import contextlib
import datetime
import time
from collections.abc import Callable, Iterator

from rich.progress import BarColumn, Progress, TextColumn

from nd_jax.console import console
from nd_jax.sweep import job as jobs
from nd_jax.sweep.job import State, call, keep_failure
from nd_jax.sweep.study import Job, Plan
from nd_jax.sweep.times import Times

LINE_SECONDS = 60.0
"""Where the output is no terminal: seconds between two lines about the job under way."""


def run_all(plan: Plan, times: Times) -> dict[str, State]:
    """Do what is left of a study; a job that fails is told about, and those that do not need it go on.

    Returns:
      The state of every job by its name; one that needs a failed one is "waiting".
    """
    states: dict[str, State] = {}
    for number, job in enumerate(plan.jobs, 1):
        states[job.name] = before = jobs.state(job)
        title = f"{number} of {len(plan.jobs)}: {job.name}"
        if before.kind == "done":
            console.print(f"{title}: done before")
            continue
        if missing := [name for name in job.after if states[name].kind != "done"]:
            states[job.name] = State("waiting", reason=f"it needs {missing[-1]}")
            console.print(f"{title}: left out, it needs {missing[-1]}")
            continue
        left = times.left(plan.jobs[number - 1 :])
        console.rule(f"{title}{f', about {duration(left)} left in all' if left else ''}", align="left")
        words = ("sweep", "run", str(plan.file), job.name, "--out", str(plan.out))
        with _progress(job, lambda share, job=job: times.left([job], share)) as watch:
            returned = call(words, watch=watch)
        if returned:
            keep_failure(job, returned)
        states[job.name] = after = jobs.state(job)
        if after.kind == "done":
            times.measured(job, after.seconds or 0.0)
            console.print(f"{job.name}: done in {duration(after.seconds or 0.0)}{_loss(after)}")
        else:
            console.print(f"{job.name} failed: {after.reason}", style="red", soft_wrap=True)
    return states


def duration(seconds: float) -> str:
    """Hours, minutes and seconds."""
    return str(datetime.timedelta(seconds=round(seconds)))


def _loss(state: State) -> str:
    return "" if state.loss is None else f", loss {state.loss:.4f}"


@contextlib.contextmanager
def _progress(job: Job, left: Callable[[float], float | None]) -> Iterator[Callable[[], None]]:
    """Show a bar, or lines, of the job under way whenever what this gives is called."""
    columns = (TextColumn(job.name), BarColumn(), TextColumn("{task.description}"))
    last = time.monotonic()
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=1.0)

        def watch() -> None:
            nonlocal last
            now = jobs.state(job)
            if now.progress is None:
                return
            seconds = left(now.progress)
            text = f"{now.progress:.0%}{_loss(now)}{f', {duration(seconds)} left' if seconds else ''}"
            bar.update(task, completed=now.progress, description=text)
            if not console.is_terminal and time.monotonic() - last >= LINE_SECONDS:
                last = time.monotonic()
                console.print(f"{job.name}: {text}")

        yield watch
