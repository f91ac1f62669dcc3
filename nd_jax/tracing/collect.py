"""Record programs into a trace dataset, with progress, counting what is dropped by reason."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from nd_jax.console import console, table, track
from nd_jax.programs.jsonl import Rejected
from nd_jax.programs.program import Program
from nd_jax.programs.splits import Split
from nd_jax.tracing.dataset import TraceDataset, TraceWriter, open_traces
from nd_jax.tracing.pool import WorkerLimits, record
from nd_jax.tracing.schema import Trace

T = TypeVar("T", Program | Rejected, Trace | Rejected)


def collect(
    programs: Iterable[Program | Rejected],
    out: Path,
    limits: WorkerLimits,
    workers: int,
    verify: bool,
    total: int | None = None,
) -> TraceDataset:
    """Run programs in limited workers, write their traces to a dataset; goes on where a killed call stopped.

    Args:
      programs: what to run; what a reader rejected is counted among the dropped.
      out: the dataset's directory.
      limits: what one program may use.
      workers: processes that record at the same time.
      verify: run every program twice and drop it where its traces differ.
      total: how many programs there are, where that is known, for the time left.

    Raises:
      UserError: `out` holds a finished dataset, something else, or one begun with other limits.
    """
    with TraceWriter(out, settings={"limits": asdict(limits), "verify": verify}) as writer:
        done = writer.seen.total()
        if done:
            console.print(f"{out}: going on after {done} programs")

        def left(items: Iterator[Program | Rejected]) -> Iterator[Program]:
            for program in items:
                if isinstance(program, Program):
                    yield program
                else:
                    writer.drop(program.place, program.reason, program.detail)

        remaining = None if total is None else total - done
        for outcome in track(
            record(left(_not_yet(programs, writer)), limits, workers, verify), "recording", remaining
        ):
            if outcome.trace is None:
                writer.drop(outcome.program_id, outcome.reason or "", outcome.detail)
            else:
                writer.add(outcome.trace, outcome.split, outcome.json)
    return open_traces(out, "all")


def bring_in(
    traces: Iterable[Trace | Rejected],
    out: Path,
    total: int | None = None,
    split: Callable[[Trace], Split | None] = lambda trace: None,
) -> TraceDataset:
    """Write traces that were collected elsewhere to a new dataset.

    Args:
      traces: the traces, and what could not be read.
      out: the dataset's directory.
      total: how many there are, where that is known, for the time left.
      split: tells a trace's split; None: by its program.
    """
    with TraceWriter(out) as writer:
        remaining = None if total is None else total - writer.seen.total()
        for trace in track(_not_yet(traces, writer), "importing", remaining):
            if isinstance(trace, Trace):
                writer.add(trace, split(trace))
            else:
                writer.drop(trace.place, trace.reason, trace.detail)
    return open_traces(out, "all")


def _not_yet(items: Iterable[T], writer: TraceWriter) -> Iterator[T]:
    """Leave out what a killed call has written."""
    for item in items:
        if not writer.has(item.place if isinstance(item, Rejected) else item.id):
            yield item


def show_counts(dataset: TraceDataset) -> dict[str, Any]:
    """Print what a dataset holds, and what was dropped with one example of each reason.

    Returns:
      ``{recorded, dropped: {reason: n}}``.
    """
    info = dataset.info
    splits = ", ".join(f"{name} {count}" for name, count in info["traces"].items())
    console.print(f"recorded {info['recorded']} traces into {dataset.directory} ({splits})")
    if info["dropped"]:
        examples: dict[str, str] = {}
        for drop in dataset.dropped():
            examples.setdefault(drop["reason"], f"{drop['id']} {drop['detail']}".strip()[:70])
        rows = [[reason, n, examples.get(reason, "")] for reason, n in info["dropped"].items()]
        table("dropped", ["reason", "programs", "for example"], rows)
    return {"recorded": info["recorded"], "dropped": info["dropped"]}
