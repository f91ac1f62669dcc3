"""Verbs that record programs and show what was recorded."""

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import tyro

from nd_jax.errors import UserError
from nd_jax.programs.splits import Selection
from nd_jax.programs.synthetic import SyntheticConfig
from nd_jax.tracing.pool import WorkerLimits


def trace(
    out: Path,
    programs: tuple[Path, ...] = (),
    synthetic: int = 0,
    seed: int = 0,
    workers: int = os.cpu_count() or 1,
    verify: bool = True,
    limits: WorkerLimits = WorkerLimits(),
    generator: SyntheticConfig = SyntheticConfig(),
    json: Path | None = None,
) -> None:
    """Record programs into a trace dataset.

    Programs run in limited worker processes; one that misbehaves costs itself only and is counted by reason.
    More: nd trace import --help, nd trace show --help

    Examples:
      nd trace --synthetic 20000 --out traces/synthetic
      nd trace --programs mbpp.jsonl --out traces/mbpp --json counts.json
      nd trace show traces/mbpp --id mbpp/602

    Args:
      out: directory of the new dataset.
      programs: JSON lines files, in CRUXEval form (code, input) or MBPP form (code, test_list).
      synthetic: how many synthetic programs to generate; 20,000 if neither this nor --programs is given.
      seed: seeds the synthetic programs.
      workers: processes that record at the same time.
      verify: run each program a second time, under another hash seed, and drop it if its trace differs.
      limits: what one program may use.
      generator: what the synthetic programs are made of.
      json: also write {recorded, dropped: {reason: n}} to this file.
    """
    from nd_jax.console import write_json
    from nd_jax.programs.jsonl import read_programs
    from nd_jax.programs.synthetic import generate
    from nd_jax.tracing.collect import collect, show_counts

    count = synthetic or (0 if programs else 20_000)
    read = itertools.chain.from_iterable(read_programs(path) for path in programs)
    items = itertools.chain(read, generate(generator, seed, 0, count))
    total = count + sum(map(_count_lines, programs))
    dataset = collect(items, out, limits, workers, verify, total)
    write_json(json, show_counts(dataset))


def _count_lines(path: Path) -> int:
    """Lines of a file that is there, to tell the time left; a missing one is the reader's to report."""
    if not path.is_file():
        return 0
    with path.open("rb") as file:
        return sum(1 for _ in file)


def trace_import(
    file: tyro.conf.Positional[Path],
    out: Path,
    format: Literal["nd", "cwm"] = "nd",
    json: Path | None = None,
) -> None:
    """Bring in traces that were collected elsewhere.

    Each is checked against the invariants of a state tree; what breaks them is dropped with its reason.

    Examples:
      nd trace import traces.jsonl --out traces/mine
      nd trace import published.jsonl --format cwm --out traces/cwm

    Args:
      file: JSON lines of the trace schema (nd), or with CWM's published text (cwm).
      out: directory of the new dataset.
      format: which of the two.
      json: also write {recorded, dropped: {reason: n}} to this file.
    """
    from nd_jax.console import write_json
    from nd_jax.tracing.collect import bring_in, show_counts
    from nd_jax.tracing.importer import import_traces

    write_json(json, show_counts(bring_in(import_traces(file, format), out, _count_lines(file))))


def trace_show(
    traces: tyro.conf.Positional[Path],
    id: str | None = None,
    index: int = 0,
    split: Selection = "all",
    format: Literal["text", "cwm", "json"] = "text",
    json: Path | None = None,
) -> None:
    """Show one trace of a dataset.

    Examples:
      nd trace show traces/mbpp --id mbpp/602
      nd trace show traces/synthetic --index 7 --format cwm

    Args:
      traces: directory of the dataset.
      id: the program's id; else --index counts.
      index: which trace of the split, from 0.
      split: where to look.
      format: for people, in CWM's published format, or as the schema's JSON.
      json: also write the trace as JSON to this file.
    """
    import json as json_module

    from nd_jax.console import write_json
    from nd_jax.tracing.cwm import to_cwm
    from nd_jax.tracing.dataset import open_traces
    from nd_jax.tracing.pretty import show_trace
    from nd_jax.tracing.schema import to_json

    dataset = open_traces(traces, split)
    if id is not None:
        shown = next((trace for trace in dataset if trace.id == id), None)
        if shown is None:
            raise UserError(f"{traces} has no trace {id!r} in split {split}; ids look like {dataset[0].id!r}")
    elif 0 <= index < len(dataset):
        shown = dataset[index]
    else:
        raise UserError(
            f"{traces} has {len(dataset)} traces in split {split}: --index 0 to {len(dataset) - 1}"
        )
    print({"text": show_trace, "cwm": to_cwm, "json": to_json}[format](shown))
    write_json(json, json_module.loads(to_json(shown)))


VERBS: dict[str, Callable[..., None]] = {
    "trace": trace,
    "trace import": trace_import,
    "trace show": trace_show,
}
