"""What `nd corpus dedup`, `nd corpus decontaminate` and `nd corpus mutate` do."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import tyro

from nd_jax.corpus.deduplicate import DeduplicationConfig
from nd_jax.corpus.mutation import MutationConfig
from nd_jax.tracing.pool import WorkerLimits


def dedup(
    traces: tyro.conf.Positional[tuple[Path, ...]],
    out: Path,
    config: Annotated[DeduplicationConfig, tyro.conf.arg(name="")] = DeduplicationConfig(),
    json: Path | None = None,
) -> None:
    """Copy trace datasets into one, leaving out what repeats an earlier trace.

    What is left out stands in OUT/dropped.jsonl, each with the one it repeats.

    Examples:
      nd corpus dedup traces/synthetic traces/mbpp --out traces/distinct
      nd corpus dedup traces/packages --by source --most 8 --out traces/distinct
      nd corpus dedup traces/packages --by exact --out traces/distinct

    Args:
      traces: trace datasets, in the order in which the first one counts.
      out: directory of the new dataset.
      config: what counts as a repetition.
      json: also write {recorded, dropped: {reason: n}} to this file.
    """
    from nd_jax.console import write_json
    from nd_jax.corpus.deduplicate import Duplicates
    from nd_jax.corpus.filtering import filter_traces
    from nd_jax.tracing.collect import show_counts

    settings = {"deduplicated": asdict(config)}
    write_json(json, show_counts(filter_traces(traces, out, Duplicates(config), settings)))


def decontaminate(
    traces: tyro.conf.Positional[tuple[Path, ...]],
    against: tuple[Path, ...],
    out: Path,
    json: Path | None = None,
) -> None:
    """Copy trace datasets into one, leaving out what shares code with benchmarks.

    A program goes if its normalised source (names and literals abstracted, layout gone) shares a function's
    body, or 30 tokens one after another, with a benchmark's. What is left out stands in OUT/dropped.jsonl,
    each with its match.

    Examples:
      nd corpus decontaminate traces/synthetic --against cruxeval.jsonl mbpp.jsonl --out traces/clean

    Args:
      traces: trace datasets.
      against: benchmark files: JSON lines in CRUXEval or MBPP form, or Python source (.py).
      out: directory of the new dataset.
      json: also write {recorded, dropped: {reason: n}, removed: [{id, kind, benchmark, text}]} to this file.
    """
    from nd_jax.console import table, write_json
    from nd_jax.corpus.decontaminate import Benchmarks, Match
    from nd_jax.corpus.filtering import Removal, filter_traces
    from nd_jax.errors import UserError
    from nd_jax.tracing.collect import show_counts
    from nd_jax.tracing.schema import Trace

    if not against:
        raise UserError("name at least one benchmark file: --against cruxeval.jsonl")
    benchmarks = Benchmarks.read(against)
    removed: list[tuple[str, Match]] = []

    def rule(trace: Trace) -> Removal | None:
        try:
            match = benchmarks.match(trace.source)
        except ValueError as error:
            return Removal("not comparable", str(error))
        if match is None:
            return None
        removed.append((trace.id, match))
        return Removal(f"shares a benchmark's {match.kind}", match.detail)

    settings = {"decontaminated": [_digest(path) for path in against]}
    figures = show_counts(filter_traces(traces, out, rule, settings))
    rows = [[name, match.benchmark, match.kind, match.text[:60]] for name, match in removed[:SHOWN]]
    if rows:
        more = f", the first {SHOWN}" if len(removed) > SHOWN else ""
        table(f"{len(removed)} removed{more}", ["program", "benchmark", "shares", "text"], rows)
    write_json(json, {**figures, "removed": [{"id": name, **match._asdict()} for name, match in removed]})


SHOWN = 20
"""Most removed programs that are printed; all stand in dropped.jsonl and in the file of ``--json``."""


def _digest(path: Path) -> str:
    return hashlib.blake2b(path.read_bytes(), digest_size=8).hexdigest()


def mutate(
    traces: tyro.conf.Positional[tuple[Path, ...]],
    out: Path,
    config: Annotated[MutationConfig, tyro.conf.arg(name="")] = MutationConfig(),
    workers: int = 2,
    verify: bool = True,
    limits: WorkerLimits = WorkerLimits(),
    json: Path | None = None,
) -> None:
    """Run recorded programs again on variations of their inputs: one function gives many traces.

    The new dataset holds the variations alone; train on both.

    Examples:
      nd corpus mutate traces/packages --each 8 --out traces/varied

    Args:
      traces: trace datasets whose programs are varied.
      out: directory of the new dataset.
      config: how inputs are varied.
      workers: processes that record at the same time.
      verify: run each program a second time, under another hash seed, and drop it if its trace differs.
      limits: what one program may use.
      json: also write {recorded, dropped: {reason: n}} to this file.
    """
    from nd_jax.console import write_json
    from nd_jax.corpus.mutation import mutate as variations
    from nd_jax.tracing.collect import collect, show_counts

    programs = variations(_programs(traces), config)
    write_json(json, show_counts(collect(programs, out, limits, workers, verify)))


def _programs(datasets: Sequence[Path]) -> Iterator[Any]:
    """Give the programs that were recorded."""
    from nd_jax.programs.program import Program
    from nd_jax.tracing.dataset import open_traces

    for path in datasets:
        for trace in open_traces(path, "all"):
            yield Program(trace.id, trace.source, trace.entry, trace.arguments)


VERBS = {"corpus dedup": dedup, "corpus decontaminate": decontaminate, "corpus mutate": mutate}
