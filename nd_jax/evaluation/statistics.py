"""The two statistics behind every published figure: pass@k from n samples, and bootstrap intervals."""

from collections.abc import Sequence

import numpy as np

from nd_jax.errors import UserError

BOOTSTRAPS = 1000
"""Resamplings that an interval is read from."""


def pass_at_k(right: int, samples: int, k: int) -> float:
    """Chance that one of k answers drawn without replacement from `samples`, `right` of them right, is right.

    The unbiased estimator of Chen et al. 2021, 1 - C(n - c, k) / C(n, k).

    Raises:
      UserError: there are fewer samples than k, of which no such estimate can be made.
    """
    if not 1 <= k <= samples:
        raise UserError(
            f"pass@{k} cannot be estimated from {samples} answers to a program: sample at least {k}"
        )
    wrong = np.arange(samples - right + 1, samples + 1)
    return 1.0 if samples - right < k else float(1.0 - np.prod(1.0 - k / wrong))


def interval(
    values: Sequence[float] | np.ndarray, groups: Sequence[int] | np.ndarray, seed: int
) -> list[float]:
    """Bootstrap 95 % interval of the mean of `values`; groups (programs) are drawn, with all their values."""
    _, number = np.unique(groups, return_inverse=True)
    counts, sums = np.bincount(number), np.bincount(number, weights=values)
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(len(counts), np.full(len(counts), 1 / len(counts)), size=BOOTSTRAPS)
    low, high = np.quantile(drawn @ sums / (drawn @ counts), (0.025, 0.975))
    return [float(low), float(high)]
