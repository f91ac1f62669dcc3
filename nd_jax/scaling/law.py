"""The parametric scaling law L(N, D) = E + A / N^alpha + B / D^beta, fitted to final losses.

The method is that of "Training Compute-Optimal Large Language Models" (arXiv 2203.15556, approach 3): the
Huber loss of the difference of logarithms, minimised by L-BFGS from the best of a grid of starts. Intervals
come from a bootstrap of the residuals, since the sizes and budgets of a study are chosen, not drawn.
"""

import itertools
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

Numbers = float | np.ndarray
CONSTANTS = ("E", "A", "B", "alpha", "beta")


class Law(NamedTuple):
    """The constants of L(N, D) = E + A / N^alpha + B / D^beta.

    Attributes:
      E: loss that no size or amount of data goes below, in nats per token.
      A, alpha: of the term that parameters bring down.
      B, beta: of the term that tokens bring down.
    """

    E: float
    A: float
    B: float
    alpha: float
    beta: float

    def loss(self, parameters: Numbers, tokens: Numbers) -> Any:
        """The loss of models of so many parameters, trained on so many tokens; a number or an array."""
        return self.E + self.A * parameters**-self.alpha + self.B * tokens**-self.beta

    def optimum(self, flops: Numbers, per_product: float) -> tuple[Any, Any]:
        """(parameters, tokens) of the lowest loss for so much compute, where FLOPs = per_product * N * D."""
        product = flops / per_product
        ratio = (self.alpha * self.A / (self.beta * self.B)) ** (1 / (self.alpha + self.beta))
        parameters = ratio * product ** (self.beta / (self.alpha + self.beta))
        return parameters, product / parameters


@dataclass(frozen=True)
class FitConfig:
    """How the law is fitted."""

    huber: float = 1e-2
    """Difference of logarithms beyond which a point counts linearly, so that outliers pull less. The paper's
    1e-3 lies below the noise of small runs, of which it would fit the median: wider intervals."""

    starts: int = 24
    """How many of the grid's best starts L-BFGS goes on from."""

    resamples: int = 200
    """Bootstrap resamples behind every interval."""

    level: float = 0.95
    """Share of the resamples that an interval holds."""

    seed: int = 0
    """Seeds the resampling."""


@dataclass(frozen=True)
class Fit:
    """A fitted law.

    Attributes:
      law: the constants.
      resampled: the constants fitted to each bootstrap resample.
      error: root mean square of the differences of logarithms.
    """

    law: Law
    resampled: list[Law]
    error: float


def fit(
    parameters: np.ndarray, tokens: np.ndarray, losses: np.ndarray, config: FitConfig = FitConfig()
) -> Fit:
    """Fit the law to points `[P]` each.

    Args:
      parameters: N of each.
      tokens: D of each.
      losses: final losses, nats per token.
      config: how.
    """
    logs = np.log(parameters), np.log(tokens)
    log_losses = np.log(losses)
    best = _minimise(_best_starts(*logs, log_losses, config), *logs, log_losses, config.huber)
    law = _law(best)
    predicted = np.log(law.loss(parameters, tokens))
    residuals = log_losses - predicted
    # A fit of five constants leaves residuals that are too small for the noise by this factor.
    spread = np.sqrt(len(losses) / max(1, len(losses) - len(CONSTANTS)))
    rng = np.random.default_rng(config.seed)
    resampled = []
    for _ in range(config.resamples):
        drawn = predicted + spread * rng.choice(residuals - residuals.mean(), len(residuals))
        resampled.append(_law(_minimise([best], *logs, drawn, config.huber)))
    return Fit(law, resampled, float(np.sqrt(np.mean(residuals**2))))


def interval(values: np.ndarray, level: float) -> list[float]:
    """The middle `level` of the values along the first axis: (low, high)."""
    return np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0).tolist()


def _law(x: np.ndarray) -> Law:
    a, b, e, alpha, beta = map(float, x)
    return Law(E=np.exp(e).item(), A=np.exp(a).item(), B=np.exp(b).item(), alpha=alpha, beta=beta)


def _objective(
    x: np.ndarray, log_n: np.ndarray, log_d: np.ndarray, log_losses: np.ndarray, huber: float
) -> tuple[float, np.ndarray]:
    """Sum of Huber losses and its gradient at x = (log A, log B, log E, alpha, beta)."""
    a, b, e, alpha, beta = x
    terms_3xP = np.stack([a - alpha * log_n, b - beta * log_d, np.full_like(log_n, e)])
    top_P = terms_3xP.max(0)
    shares_3xP = np.exp(terms_3xP - top_P)
    total_P = shares_3xP.sum(0)
    shares_3xP /= total_P
    off_P = top_P + np.log(total_P) - log_losses
    value = np.where(np.abs(off_P) <= huber, off_P**2 / 2, huber * (np.abs(off_P) - huber / 2)).sum()
    slope_P = np.clip(off_P, -huber, huber)
    gradient = np.array([
        slope_P @ shares_3xP[0],
        slope_P @ shares_3xP[1],
        slope_P @ shares_3xP[2],
        -slope_P @ (shares_3xP[0] * log_n),
        -slope_P @ (shares_3xP[1] * log_d),
    ])  # fmt: skip
    # Scaled so that L-BFGS's absolute tolerances see differences of the Huber loss's size.
    return value / huber**2, gradient / huber**2


def _best_starts(
    log_n: np.ndarray, log_d: np.ndarray, log_losses: np.ndarray, config: FitConfig
) -> list[np.ndarray]:
    """The best points of a grid: exponents, and shares of the mean loss that each term takes there."""
    exponents = (0.1, 0.25, 0.4, 0.6, 0.9, 1.3)
    shares = (0.1, 0.3, 0.5, 0.7)
    mean_n, mean_d, mean_loss = log_n.mean(), log_d.mean(), log_losses.mean()
    starts = [
        np.array([
            mean_loss + np.log(by_n) + alpha * mean_n, mean_loss + np.log(by_d) + beta * mean_d,
            mean_loss + np.log(1 - by_n - by_d), alpha, beta,
        ])
        for alpha, beta in itertools.product(exponents, exponents)
        for by_n, by_d in itertools.product(shares, shares)
        if by_n + by_d < 1
    ]  # fmt: skip
    values = [_objective(x, log_n, log_d, log_losses, config.huber)[0] for x in starts]
    return [starts[k] for k in np.argsort(values)[: config.starts]]


def _minimise(
    starts: list[np.ndarray], log_n: np.ndarray, log_d: np.ndarray, log_losses: np.ndarray, huber: float
) -> np.ndarray:
    # In logarithms centred on the data, the constants and exponents hardly depend on each other, so that
    # L-BFGS converges in a fraction of the steps.
    mean_n, mean_d = log_n.mean(), log_d.mean()
    centred = log_n - mean_n, log_d - mean_d
    bounds = [(None, None)] * 3 + [(1e-3, 4.0)] * 2
    best, lowest = starts[0], np.inf
    for start in starts:
        a, b, e, alpha, beta = start
        found = minimize(
            _objective, np.array([a - alpha * mean_n, b - beta * mean_d, e, alpha, beta]),
            args=(*centred, log_losses, huber), jac=True, method="L-BFGS-B", bounds=bounds,
            options={"maxiter": 2000, "maxfun": 4000, "ftol": 1e-12, "gtol": 1e-8},
        )  # fmt: skip
        if found.fun < lowest:
            a, b, e, alpha, beta = found.x
            best, lowest = np.array([a + alpha * mean_n, b + beta * mean_d, e, alpha, beta]), found.fun
    return best
