"""Record programs into a trace dataset, with progress, counting what is dropped by reason."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from nd_jax.console import console, table, track
from nd_jax.programs.jsonl import Rejected
from nd_jax.programs.program import Program
from nd_jax.tracing.dataset import TraceWriter, read_info
from nd_jax.tracing.pool import WorkerLimits, record
from nd_jax.tracing.schema import Trace


def collect(
    programs: Iterable[Program | Rejected],
    out: Path,
    limits: WorkerLimits,
    workers: int,
    verify: bool,
    total: int | None = None,
) -> dict[str, Any]:
    """Run programs in limited workers and write their traces to a new dataset.

    Args:
      programs: what to run; what a reader rejected is counted among the dropped.
      out: the dataset's directory.
      limits: what one program may use.
      workers: processes that record at the same time.
      verify: run every program twice and drop it where its traces differ.
      total: how many programs there are, where that is known, for the time left.

    Returns:
      ``{recorded, dropped: {reason: n}}``.
    """
    with TraceWriter(out, limits=limits) as writer:

        def accepted() -> Iterator[Program]:
            for program in programs:
                if isinstance(program, Program):
                    yield program
                else:
                    writer.drop(program.place, program.reason, program.detail)

        for outcome in track(record(accepted(), limits, workers, verify), "recording", total):
            if outcome.trace is None:
                writer.drop(outcome.program_id, outcome.reason or "", outcome.detail)
            else:
                writer.add(outcome.trace)
    return _show(out)


def bring_in(traces: Iterable[Trace | Rejected], out: Path) -> dict[str, Any]:
    """Write traces that were collected elsewhere to a new dataset; returns what `collect` does."""
    with TraceWriter(out) as writer:
        for trace in track(traces, "importing"):
            if isinstance(trace, Trace):
                writer.add(trace)
            else:
                writer.drop(trace.place, trace.reason, trace.detail)
    return _show(out)


def _show(out: Path) -> dict[str, Any]:
    """Print what a dataset holds and what was dropped, with one example of each reason."""
    info = read_info(out)
    splits = ", ".join(f"{name} {count}" for name, count in info["splits"].items())
    console.print(f"recorded {info['recorded']} traces into {out} ({splits})")
    if info["dropped"]:
        examples: dict[str, str] = {}
        for drop in info["drops"]:
            examples.setdefault(drop["reason"], f"{drop['id']} {drop['detail']}".strip()[:70])
        rows = [[reason, n, examples.get(reason, "")] for reason, n in sorted(info["dropped"].items())]
        table("dropped", ["reason", "programs", "for example"], rows)
    return {"recorded": info["recorded"], "dropped": info["dropped"]}
