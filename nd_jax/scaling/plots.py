"""The picture of a fitted study: losses with the law, the iso-FLOP parabolas, the frontier, other scores."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from nd_jax.scaling.law import CONSTANTS, Law
from nd_jax.scaling.points import Point


def draw(path: Path, points: Sequence[Point], figures: dict[str, Any]) -> None:
    """Write the picture (PNG) of points and of what `nd_jax.scaling.study.analyse` says of them."""
    panels = [_losses, _frontier]
    if "groups" in figures["iso_flop"]:
        panels.append(_parabolas)
    if figures["scores"]:
        panels.append(_scores)
    plot = Figure(figsize=(6 * len(panels), 4.5), dpi=120, layout="constrained")
    for panel, axes in zip(panels, plot.subplots(1, len(panels)), strict=True):
        panel(axes, points, figures)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    plot.savefig(path)


def _law(figures: dict[str, Any]) -> Law:
    return Law(**{name: figures["law"][name]["value"] for name in CONSTANTS})


def _losses(axes: Any, points: Sequence[Point], figures: dict[str, Any]) -> None:
    law = _law(figures)
    for colour, size in _coloured(sorted({p.parameters for p in points})):
        own = sorted((p for p in points if p.parameters == size), key=lambda p: p.tokens)
        tokens = np.geomspace(own[0].tokens, own[-1].tokens, 50)
        axes.plot(tokens, law.loss(size, tokens), color=colour, linewidth=1)
        axes.plot([p.tokens for p in own], [p.loss for p in own], "o", color=colour, label=_short(size))
    axes.set(
        xscale="log", xlabel="tokens", ylabel="loss (nats per token)", title="Runs, and L(N, D) as fitted"
    )


def _frontier(axes: Any, points: Sequence[Point], figures: dict[str, Any]) -> None:
    rows = figures["frontier"]["budgets"]
    flops = [row["flops"] for row in rows]
    low, high = zip(*(row["parameters_interval"] for row in rows), strict=True)
    axes.fill_between(flops, low, high, alpha=0.2, label="its interval")
    axes.plot(flops, [row["parameters"] for row in rows], label="compute-optimal N")
    axes.plot([p.flops for p in points], [p.parameters for p in points], "o", color="0.6", label="runs")
    for row in figures["iso_flop"].get("groups", ()):
        if row["parameters"]:
            axes.plot(row["flops"], row["parameters"], "k*", markersize=10)
    axes.set(
        xscale="log", yscale="log", xlabel="FLOPs", ylabel="parameters", title="Compute-optimal frontier"
    )


def _parabolas(axes: Any, points: Sequence[Point], figures: dict[str, Any]) -> None:
    for colour, row in _coloured(figures["iso_flop"]["groups"]):
        near = [p for p in points if 0.85 < p.flops / row["flops"] < 1.15]
        sizes = np.geomspace(min(p.parameters for p in near), max(p.parameters for p in near), 50)
        axes.plot(
            sizes, np.polyval(row["coefficients"], np.log(sizes) - row["middle"]), color=colour, linewidth=1
        )
        label = f"{row['flops']:.1e} FLOPs"
        axes.plot([p.parameters for p in near], [p.loss for p in near], "o", color=colour, label=label)
        if row["parameters"]:
            axes.plot(row["parameters"], row["loss"], "k*", markersize=10)
    axes.set(xscale="log", xlabel="parameters", ylabel="loss (nats per token)", title="Iso-FLOP parabolas")


def _scores(axes: Any, points: Sequence[Point], figures: dict[str, Any]) -> None:
    for name in figures["scores"]:
        scored = sorted((p for p in points if name in p.scores), key=lambda p: p.flops)
        axes.plot([p.flops for p in scored], [p.scores[name] for p in scored], "o", label=name)
    axes.set(xscale="log", xlabel="FLOPs", ylabel="share right", title="Scores against compute")


def _coloured(items: Sequence[Any]) -> list[tuple[Any, Any]]:
    from matplotlib import colormaps

    colours = colormaps["viridis"](np.linspace(0, 0.9, max(1, len(items))))
    return list(zip(colours, items, strict=True))


def _short(size: float) -> str:
    return f"{size / 1e6:.3g}M" if size < 1e9 else f"{size / 1e9:.3g}B"
