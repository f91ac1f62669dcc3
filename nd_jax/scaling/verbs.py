"""What `nd scaling` does."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nd_jax.console import console, table, write_json
from nd_jax.errors import UserError
from nd_jax.scaling.ladder import chip_hours, flops, tokens
from nd_jax.scaling.law import FitConfig
from nd_jax.scaling.plots import draw
from nd_jax.scaling.points import POINTS_FILE, read_points, write_points
from nd_jax.scaling.study import analyse
from nd_jax.training.chips import CHIPS
from nd_jax.training.config import Experiment


def ladder(
    configs: Mapping[str, Experiment], chip: str, peak_flops: float | None, utilisation: float
) -> dict[str, Any]:
    """Show what each rung costs; the arguments are those of `nd scaling ladder`."""
    if peak_flops is None and chip not in CHIPS:
        raise UserError(f"no chip {chip!r}; use one of {', '.join(CHIPS)}, or give --peak-flops")
    peak = peak_flops or CHIPS[chip].peak_flops
    rows = {
        name: {
            "parameters": rung.model.parameters(),
            "layers": rung.model.n_layers,
            "width": rung.model.d_model,
            "heads": rung.model.n_heads,
            "learning_rate": rung.optimizer.learning_rate,
            "global_batch": rung.data.global_batch,
            "steps": rung.train.steps,
            "tokens": tokens(rung),
            "flops": flops(rung),
            "chip_hours": chip_hours(rung, peak, utilisation),
        }
        for name, rung in configs.items()
    }
    of = "a chip" if peak_flops else chip
    formats = {"learning_rate": "{:.2g}", "flops": "{:.2e}", "chip_hours": "{:.3g}"}
    shape = ["parameters", "layers", "width", "heads", "learning_rate", "global_batch"]
    cost = ["steps", "tokens", "flops", "chip_hours"]
    hours = f"Cost; hours of {of} at {utilisation:.0%} of {peak / 1e12:.3g} TFLOP/s"
    for title, columns in (("Rungs", shape), (hours, cost)):
        shown = [
            [name, *(formats.get(c, "{:,}").format(row[c] or 0) for c in columns)]
            for name, row in rows.items()
        ]
        table(title, ["rung", *(column.replace("_", " ") for column in columns)], shown)
    return {"chip": of, "peak_flops": peak, "utilisation": utilisation, "rungs": rows}


def fit(paths: Sequence[Path], out: Path, config: FitConfig) -> dict[str, Any]:
    """Fit a study and write ``scaling.json``, ``scaling.png`` and its points; as `nd scaling fit` says."""
    points, left_out = read_points(paths)
    for reason in left_out:
        console.print(f"left out: {reason}")
    figures = {**analyse(points, config), "left_out": left_out}
    percent = f"{config.level:.0%}"
    rows = [
        [name, f"{told['value']:.4g}", _between(told["interval"])] for name, told in figures["law"].items()
    ]
    title = f"L(N, D) = E + A/N^alpha + B/D^beta on {len(points)} runs, off by {figures['error']:.2%}"
    table(title, ["constant", "value", percent], rows)
    held_out = figures["held_out"]
    if "skipped" in held_out:
        console.print(f"held-out largest size: skipped, {held_out['skipped']}")
    else:
        rows = [
            [
                f"{row['tokens']:.3g}",
                row["loss"],
                row["predicted"],
                _between(row["interval"]),
                f"{row['off']:+.2%}",
            ]
            for row in held_out["runs"]
        ]
        title = f"The largest size ({held_out['parameters']:,.0f} parameters), predicted by the others"
        table(title, ["tokens", "loss", "predicted", percent, "off"], rows)
    if "skipped" in figures["iso_flop"]:
        console.print(f"iso-FLOP parabolas: skipped, {figures['iso_flop']['skipped']}")
    else:
        rows = [
            [
                f"{row['flops']:.2e}",
                row["sizes"],
                _number(row["parameters"]),
                _between(row["interval"]),
                row["loss"],
            ]
            for row in figures["iso_flop"]["groups"]
        ]
        table("Iso-FLOP parabolas", ["FLOPs", "runs", "best parameters", percent, "loss"], rows)
    exponent = figures["frontier"]["exponent"]
    rows = [
        [f"{row['flops']:.0e}{'' if row['measured'] else ' (beyond)'}", _number(row["parameters"]),
         _between(row["parameters_interval"]), _number(row["tokens"]), row["loss"],
         _between(row["loss_interval"])]
        for row in figures["frontier"]["budgets"]
    ]  # fmt: skip
    power = f"{exponent['value']:.3f} ({_between(exponent['interval'])})"
    title = f"Compute-optimal: parameters grow as FLOPs to the {power}"
    table(title, ["FLOPs", "parameters", percent, "tokens", "loss", percent], rows)
    if scores := figures["scores"]:
        rows = [
            [name, s["n"], s["rank_correlation"], max(s["best_by_flops"].values())]
            for name, s in scores.items()
        ]
        table("Scores against compute", ["score", "runs", "rank correlation", "best"], rows)
    write_json(out / "scaling.json", figures)
    write_points(out / POINTS_FILE, points)
    draw(out / "scaling.png", points, figures)
    console.print(f"wrote {out}/scaling.json, scaling.png and {POINTS_FILE}")
    return figures


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.3g}"


def _between(interval: Sequence[float] | None) -> str | None:
    return f"{interval[0]:.3g}–{interval[1]:.3g}" if interval else None
