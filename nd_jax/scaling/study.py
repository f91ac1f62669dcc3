"""What a study says: the law, its check on the largest size, iso-FLOP parabolas, the frontier, scores."""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np

from nd_jax.errors import UserError
from nd_jax.scaling.law import CONSTANTS, Fit, FitConfig, Law, fit, interval
from nd_jax.scaling.points import Point

FEWEST_POINTS = 8
"""Points that five constants and an idea of their noise need."""
FEWEST_LEVELS = 3
"""Different sizes, and different numbers of tokens, that an exponent and a floor need."""
SAME_FLOPS = 0.1
"""Runs whose compute differs by less than this share count as one iso-FLOP group."""
AHEAD = 100.0
"""The frontier goes on to so many times the study's largest compute."""


def analyse(points: Sequence[Point], config: FitConfig = FitConfig()) -> dict[str, Any]:
    """Fit everything that the points allow.

    Returns:
      ``{points, law: {constant: {value, interval}}, error, held_out, iso_flop, frontier, scores}``; a part
      that the points do not allow is ``{skipped: reason}``.

    Raises:
      UserError: the points are too few, or too much alike, for the law.
    """
    if reason := lacking(points):
        raise UserError(f"the study cannot be fitted: {reason}")
    whole = _fit(points, config)
    return {
        "points": len(points),
        "law": {
            name: {"value": getattr(whole.law, name), "interval": _of(whole, config, attrgetter(name))}
            for name in CONSTANTS
        },
        "error": whole.error,
        "held_out": _held_out(points, config),
        "iso_flop": _iso_flop(points, config),
        "frontier": _frontier(points, whole, config),
        "scores": _scores(points),
    }  # fmt: skip


def lacking(points: Sequence[Point]) -> str | None:
    """Say what the points lack for the law L(N, D) to be fitted; None where nothing."""
    sizes, budgets = _levels([p.parameters for p in points]), _levels([p.tokens for p in points])
    if len(points) < FEWEST_POINTS:
        return f"{len(points)} points, at least {FEWEST_POINTS} are needed for five constants: add runs"
    if sizes < FEWEST_LEVELS or budgets < FEWEST_LEVELS:
        return (
            f"{sizes} different sizes and {budgets} different numbers of tokens, at least {FEWEST_LEVELS} of "
            "each are needed: add runs"
        )
    logs = np.log([[p.parameters, p.tokens] for p in points])
    if np.linalg.matrix_rank(logs - logs.mean(0), tol=0.05) < 2:
        return "tokens go with parameters in all runs, so their effects cannot be told apart: vary one alone"
    return None


def _levels(values: Sequence[float]) -> int:
    """How many values there are that differ by more than a hundredth."""
    logs = np.sort(np.log(values))
    return int(1 + (np.diff(logs) > 0.01).sum()) if len(logs) else 0


def _arrays(points: Sequence[Point]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    array_Px3 = np.array([[p.parameters, p.tokens, p.loss] for p in points], float)
    return array_Px3[:, 0], array_Px3[:, 1], array_Px3[:, 2]


def _fit(points: Sequence[Point], config: FitConfig) -> Fit:
    return fit(*_arrays(points), config)


def _of(fitted: Fit, config: FitConfig, tell: Callable[[Law], Any]) -> list[Any]:
    """The interval of what a law tells."""
    return interval(np.array([tell(law) for law in fitted.resampled]), config.level)


def _held_out(points: Sequence[Point], config: FitConfig) -> dict[str, Any]:
    """Fit without the largest size, and compare what that says of it with what was measured."""
    largest = max(p.parameters for p in points)
    rest = [p for p in points if p.parameters < largest / 1.01]
    if reason := lacking(rest):
        return {"skipped": f"without the largest size: {reason}"}
    fitted = _fit(rest, config)
    # A new run scatters about the law as those that were fitted do.
    degrees = max(1, len(rest) - len(CONSTANTS))
    scatter = fitted.error * np.sqrt(len(rest) / degrees)
    rng = np.random.default_rng(config.seed)
    noise_R = np.exp(scatter * rng.normal(size=len(fitted.resampled)))
    rows = []
    for p in points:
        if p not in rest:
            predicted = float(fitted.law.loss(p.parameters, p.tokens))
            drawn_R = np.array([law.loss(p.parameters, p.tokens) for law in fitted.resampled]) * noise_R
            rows.append({
                "name": p.name, "tokens": p.tokens, "loss": p.loss, "predicted": predicted,
                "interval": interval(drawn_R, config.level), "off": predicted / p.loss - 1,
            })  # fmt: skip
    return {"parameters": largest, "runs": rows}


def _iso_flop(points: Sequence[Point], config: FitConfig) -> dict[str, Any]:
    """A parabola of the loss over log N for every compute that three or more sizes were trained with."""
    groups: list[list[Point]] = []
    for p in sorted(points, key=lambda p: p.flops):
        if groups and p.flops <= groups[-1][0].flops * (1 + SAME_FLOPS):
            groups[-1].append(p)
        else:
            groups.append([p])
    groups = [group for group in groups if _levels([p.parameters for p in group]) >= FEWEST_LEVELS]
    if not groups:
        return {"skipped": f"no compute was given to {FEWEST_LEVELS} sizes"}
    rows = [_parabola(group, config) for group in groups]
    found = [row for row in rows if row["parameters"]]
    exponent = None
    if len(found) > 1:
        logs = np.log([[row["flops"], row["parameters"]] for row in found])
        exponent = float(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])
    return {"groups": rows, "exponent": exponent}


def _parabola(group: Sequence[Point], config: FitConfig) -> dict[str, Any]:
    """Of one compute: the parabola's coefficients, and its minimum where it has one between the sizes."""
    sizes = np.log([p.parameters for p in group])
    losses = np.array([p.loss for p in group])
    middle = sizes.mean()
    coefficients = np.polyfit(sizes - middle, losses, 2)

    def minimum(coefficients: np.ndarray) -> float | None:
        a, b, _ = coefficients
        place = -b / (2 * a) + middle if a > 0 else np.inf
        return float(np.exp(place)) if sizes.min() <= place <= sizes.max() else None

    predicted = np.polyval(coefficients, sizes - middle)
    between = None
    if len(group) > 3:  # three points leave no residuals
        residuals = (losses - predicted) * np.sqrt(len(group) / (len(group) - 3))
        rng = np.random.default_rng(config.seed)
        drawn = (predicted + rng.choice(residuals, len(group)) for _ in range(config.resamples))
        places = [place for y in drawn if (place := minimum(np.polyfit(sizes - middle, y, 2)))]
        between = interval(np.array(places), config.level) if places else None
    best = minimum(coefficients)
    return {
        "flops": float(np.exp(np.mean(np.log([p.flops for p in group])))),
        "sizes": len(group),
        "parameters": best,
        "interval": between if best else None,
        "loss": None if best is None else float(np.polyval(coefficients, np.log(best) - middle)),
        "coefficients": coefficients.tolist(),
        "middle": float(middle),
    }


def _frontier(points: Sequence[Point], fitted: Fit, config: FitConfig) -> dict[str, Any]:
    """The best size and number of tokens by compute, for whole powers of ten from the study's on."""
    flops = np.array([p.flops for p in points])
    per_product = float(np.exp(np.mean(np.log([p.flops / (p.parameters * p.tokens) for p in points]))))
    first, last = np.floor(np.log10(flops.min())), np.ceil(np.log10(flops.max() * AHEAD))
    budgets = 10.0 ** np.arange(first, last + 1)

    def best(law: Law) -> np.ndarray:
        sizes, tokens = law.optimum(budgets, per_product)
        return np.stack([sizes, tokens, law.loss(sizes, tokens)])

    values_3xC, (low_3xC, high_3xC) = best(fitted.law), np.array(_of(fitted, config, best))
    rows = []
    for c, budget in enumerate(budgets):
        row: dict[str, Any] = {"flops": float(budget), "measured": bool(flops.min() <= budget <= flops.max())}
        for k, name in enumerate(("parameters", "tokens", "loss")):
            row[name] = float(values_3xC[k, c])
            row[f"{name}_interval"] = [float(low_3xC[k, c]), float(high_3xC[k, c])]
        rows.append(row)

    def exponent(law: Law) -> float:
        return law.beta / (law.alpha + law.beta)

    return {
        "flops_per_parameter_and_token": per_product,
        "exponent": {"value": exponent(fitted.law), "interval": _of(fitted, config, exponent)},
        "budgets": rows,
    }


def _scores(points: Sequence[Point]) -> dict[str, Any]:
    """Other figures against compute: their rank correlation, and the best of every tenfold compute."""
    told = {}
    for name in sorted({name for p in points for name in p.scores}):
        scored = [p for p in points if name in p.scores]
        flops, values = np.array([p.flops for p in scored]), np.array([p.scores[name] for p in scored])
        best: dict[int, float] = {}
        for decade, value in zip(
            np.floor(np.log10(flops)).astype(int).tolist(), values.tolist(), strict=True
        ):
            best[decade] = max(value, best.get(decade, 0.0))
        told[name] = {
            "n": len(scored),
            "rank_correlation": _rank_correlation(flops, values),
            "best_by_flops": {f"1e{decade}": value for decade, value in sorted(best.items())},
        }
    return told


def _rank_correlation(x: np.ndarray, y: np.ndarray) -> float | None:
    from scipy.stats import spearmanr

    if len(x) < FEWEST_LEVELS or len(set(y.tolist())) == 1:
        return None
    return float(np.asarray(spearmanr(x, y)[0]))
