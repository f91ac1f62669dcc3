"""What `nd corpus beam` and `nd corpus gather` do."""

import itertools
from pathlib import Path

import tyro

from nd_jax.programs.synthetic import SyntheticConfig
from nd_jax.tracing.pool import WorkerLimits


def beam(
    out: str,
    programs: tuple[Path, ...] = (),
    synthetic: int = 0,
    seed: int = 0,
    verify: bool = True,
    limits: WorkerLimits = WorkerLimits(),
    generator: SyntheticConfig = SyntheticConfig(),
    options: tuple[str, ...] = (),
) -> None:
    """Record programs on a cluster, as an Apache Beam pipeline; `nd corpus gather` makes a dataset of it.

    Needs Apache Beam, which has an environment of its own: `make beam`, then .venv-beam/bin/nd.
    The cluster's workers need nd_jax installed. Without options all runs on this machine.

    Examples:
      nd corpus beam --synthetic 20000 --out outcomes
      nd corpus beam --programs mbpp.jsonl --out outcomes --options=--direct_num_workers=4
      nd corpus beam --synthetic 9000000 --out hdfs://data/outcomes --options=--runner=FlinkRunner

    Args:
      out: new folder of what became of each program, of any file system that Beam writes to.
      programs: JSON lines files, in CRUXEval form (code, input) or MBPP form (code, test_list).
      synthetic: how many synthetic programs to generate, after those.
      seed: seeds the synthetic programs.
      verify: run each program a second time, under another hash seed, and drop it if its trace differs.
      limits: what one program may use.
      generator: what the synthetic programs are made of.
      options: Beam's own pipeline options, each as --options=--name=value.
    """
    from nd_jax.console import console
    from nd_jax.corpus.beam import collect_with_beam
    from nd_jax.errors import UserError
    from nd_jax.programs.jsonl import read_programs

    if not programs and not synthetic:
        raise UserError("nothing to record: give --programs or --synthetic")
    read = itertools.chain.from_iterable(read_programs(path) for path in programs)
    total = collect_with_beam(read, synthetic, out, limits, verify, generator, seed, options)
    console.print(f"{total} programs recorded into {out}; nd corpus gather {out} makes a dataset of them")


def gather(outcomes: tyro.conf.Positional[Path], out: Path, json: Path | None = None) -> None:
    """Make a trace dataset of what `nd corpus beam` wrote: the records that `nd trace` gives, in its order.

    Examples:
      nd corpus gather outcomes --out traces/large

    Args:
      outcomes: folder that `nd corpus beam` wrote.
      out: directory of the new dataset.
      json: also write {recorded, dropped: {reason: n}} to this file.
    """
    from nd_jax.console import write_json
    from nd_jax.corpus.beam import gather as gather_outcomes
    from nd_jax.tracing.collect import show_counts

    write_json(json, show_counts(gather_outcomes(outcomes, out)))


VERBS = {"corpus beam": beam, "corpus gather": gather}
