"""Verbs of scaling studies."""

from collections.abc import Callable
from pathlib import Path

import tyro


def scaling_ladder(
    config: tyro.conf.Positional[Path],
    chip: str = "v5e",
    peak_flops: float | None = None,
    utilisation: float = 0.4,
    json: Path | None = None,
) -> None:
    """List the sizes of a ladder: parameters, tokens, FLOPs, and estimated hours of a chip.

    Examples:
      nd scaling ladder configs/ladder.py
      nd scaling ladder configs/ladder.py --chip h100 --utilisation 0.5
      nd train configs/ladder.py:162k

    Args:
      config: config file with `configs = {name: Experiment(...)}`.
      chip: whose peak FLOP/s (bfloat16) the hours are estimated with, by the names of `nd plan --chip`.
      peak_flops: or this peak, in FLOP/s.
      utilisation: share of the peak that training reaches.
      json: also write {chip, peak_flops, utilisation, rungs: {name: {parameters, tokens, flops, ...}}}.
    """
    from nd_jax.console import write_json
    from nd_jax.scaling.verbs import ladder
    from nd_jax.training.config import load_configs

    write_json(json, ladder(load_configs(config), chip, peak_flops, utilisation))


def scaling_fit(
    runs: tyro.conf.Positional[tuple[Path, ...]],
    out: Path = Path("scaling"),
    huber: float = 1e-2,
    resamples: int = 200,
    seed: int = 0,
    json: Path | None = None,
) -> None:
    """Fit L(N, D) = E + A/N^alpha + B/D^beta to the final losses of runs, and what follows from it.

    Bootstrap intervals; the largest size predicted by the others; iso-FLOP parabolas; the compute-optimal
    frontier; next-state accuracy and CRUXEval against compute, where runs were evaluated.

    Examples:
      nd scaling fit runs/ladder-*
      nd scaling fit studies/cpu --out fitted
      nd scaling fit points.jsonl          (lines of {"parameters": N, "tokens": D, "loss": L})

    Args:
      runs: runs, folders of runs, or files of points.
      out: directory of scaling.json, scaling.png and points.jsonl (all that the fit needs of the runs).
      huber: difference of log losses beyond which a run counts linearly.
      resamples: of the bootstrap.
      seed: seeds it.
      json: also write the figures to this file.
    """
    from nd_jax.console import write_json
    from nd_jax.scaling.law import FitConfig
    from nd_jax.scaling.verbs import fit

    write_json(json, fit(runs, out, FitConfig(huber=huber, resamples=resamples, seed=seed)))


VERBS: dict[str, Callable[..., None]] = {
    "scaling ladder": scaling_ladder,
    "scaling fit": scaling_fit,
}
