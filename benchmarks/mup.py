"""Does the best learning rate stay where it is as the model grows: a sweep over widths under muP.

    python -m benchmarks.mup --traces runs/quickstart/traces --tokenizer runs/quickstart/tokenizer
                             [--widths 32 64 128] [--steps 120] [--seeds 1] [--standard] [--out mup]

Models of two layers whose widths all grow together, the smallest being the base of muP, each trained alike at
learning rates a factor of 2 apart. Writes OUT/mup.json and OUT/mup.png, also after every run: a sweep that is
called again goes on where it was stopped. An optimum is the vertex of the parabola through the best point of
the grid and its neighbours, in log2 of the learning rate: it is to move by less than 1, a step of the grid.
With --standard the same without muP, for comparison.
"""

import argparse
import functools
import itertools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure

from nd_jax.__main__ import restart_with_allocator
from nd_jax.console import console, table, write_json
from nd_jax.data.config import DataConfig
from nd_jax.data.pipeline import RowStream, global_batches, open_rows
from nd_jax.model.config import BaseWidths, ModelConfig
from nd_jax.model.loss import next_token_losses
from nd_jax.model.transformer import bind, init
from nd_jax.training.config import OptimizerConfig, ScheduleConfig
from nd_jax.training.optimizer import make_optimizer, schedule
from nd_jax.training.step import FIELDS

HEAD, LENGTH, ROWS = 16, 64, 16
LAST = 0.2
"""The share of a run at its end whose mean loss is its result (on unseen rows, as all are fresh)."""


def shape(width: int, base: int | None, vocab_size: int) -> ModelConfig:
    """A model of this width; heads keep their size and grow in number."""
    heads = width // HEAD
    return ModelConfig(
        vocab_size=vocab_size, d_model=width, n_layers=2, n_heads=heads, n_kv_heads=heads, head_dim=HEAD,
        d_ff=2 * width, qk_norm=True, dtype="float32", mup=BaseWidths(d_model=base or 0),
    )  # fmt: skip


def read_rows(stream: RowStream, data: DataConfig, steps: int) -> dict[str, jax.Array]:
    """The rows of a run, `[steps, rows, length]`."""
    batches = list(itertools.islice(global_batches(stream, data), steps))
    return {name: jnp.asarray(np.stack([batch[name] for batch in batches])) for name in FIELDS}


def make_run(model: ModelConfig, steps: int) -> Any:
    """The jitted ``(learning rate, key, rows) -> loss of every step``."""
    optimizer = make_optimizer(OptimizerConfig(name="adamw"), model)
    shape = ScheduleConfig(warmup_steps=0, warmup_share=0.1)

    def loss(params: Any, batch: dict[str, jax.Array]) -> jax.Array:
        losses = next_token_losses(bind(model, params), *(batch[name] for name in FIELDS))
        return losses.loss_sum / jnp.maximum(losses.weight_sum, 1.0)

    def step(rate: jax.Array, carry: Any, batch_and_step: Any) -> Any:
        (params, state), (batch, number) = carry, batch_and_step
        value, grads = jax.value_and_grad(loss)(params, batch)
        updates, state = optimizer.update(grads, state, params)
        rate *= schedule(number / steps, number, shape)
        return (jax.tree.map(lambda p, u: p + rate * u, params, updates), state), value

    @jax.jit
    def run(rate: jax.Array, key: jax.Array, rows: dict[str, jax.Array]) -> jax.Array:
        params = init(model, key)
        carry = params, optimizer.init(params)
        return jax.lax.scan(functools.partial(step, rate), carry, (rows, jnp.arange(steps)))[1]

    return run


def optimum(losses: dict[float, float]) -> float | None:
    """log2 of the best learning rate; None where the best is at an end of the grid."""
    rates = sorted(losses)
    best = min(range(len(rates)), key=lambda i: losses[rates[i]])
    if best in (0, len(rates) - 1):
        return None
    left, middle, right = (losses[rates[best + step]] for step in (-1, 0, 1))
    return float(np.log2(rates[best]) + 0.5 * (left - right) / (left - 2 * middle + right))


def summary(runs: dict[str, dict[str, dict[str, float]]]) -> dict[str, Any]:
    """Optimum by width, and by how much it moves, for each parametrisation."""
    told: dict[str, Any] = {}
    for name, by_width in runs.items():
        best = {
            width: optimum({float(r): loss for r, loss in row.items()}) for width, row in by_width.items()
        }
        known = [value for value in best.values() if value is not None]
        whole = len(known) == len(best)
        told[name] = {"log2_optimum": best, "moves_by": max(known) - min(known) if known and whole else None}
    return told


def plot(runs: dict[str, dict[str, dict[str, float]]], path: Path) -> None:
    """Loss against learning rate, a line per width."""
    figure = Figure(figsize=(5 * len(runs), 3.6), dpi=120, layout="constrained")
    panels = figure.subplots(1, len(runs), sharey=True, squeeze=False)[0]
    for axes, (name, by_width) in zip(panels, runs.items(), strict=True):
        for width, row in by_width.items():
            points = sorted((float(rate), loss) for rate, loss in row.items())
            axes.plot(*zip(*points, strict=True), marker="o", label=f"width {width}")
        axes.set(title=name, xlabel="learning rate")
        axes.set_xscale("log", base=2)
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8)
    panels[0].set_ylabel(f"loss over the last {LAST:.0%}, nats per token")
    figure.savefig(path)


def main() -> None:
    """Sweep, print, plot."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--traces", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--widths", type=int, nargs="+", default=[32, 64, 128])
    parser.add_argument("--exponents", type=int, nargs="+", default=[-9, -8, -7, -6, -5, -4])
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--seeds", type=int, default=1, help="runs whose losses are averaged")
    parser.add_argument("--standard", action="store_true", help="also without muP")
    parser.add_argument("--out", type=Path, default=Path("mup"))
    options = parser.parse_args()
    data = DataConfig(
        traces=(options.traces,), tokenizer=options.tokenizer, row_length=LENGTH, global_batch=ROWS
    )
    stream = open_rows(data)
    rows = read_rows(stream, data, options.steps)
    path = options.out / "mup.json"
    settings = {"steps": options.steps, "seeds": options.seeds, "rows": ROWS, "length": LENGTH}
    runs: dict[str, dict[str, dict[str, float]]] = {}
    if path.exists():
        before = json.loads(path.read_text(encoding="utf-8"))
        if before["settings"] == settings:
            runs = before["losses"]
    for name in ("muP", "standard") if options.standard else ("muP",):
        for width in options.widths:
            base = options.widths[0] if name == "muP" else None
            run = make_run(shape(width, base, stream.tokenizer.vocab_size), options.steps)
            row = runs.setdefault(name, {}).setdefault(str(width), {})
            for exponent in options.exponents:
                if (rate := str(2.0**exponent)) in row:
                    continue
                losses = [
                    run(jnp.float32(2.0**exponent), jax.random.key(seed), rows)[-int(LAST * options.steps) :]
                    for seed in range(options.seeds)
                ]
                row[rate] = float(np.mean(losses))
                console.print(f"{name} width {width} learning rate 2^{exponent}: {row[rate]:.4f}")
                write_json(path, {"settings": settings, "losses": runs, **summary(runs)})
                plot(runs, options.out / "mup.png")
    for name, told in summary(runs).items():
        columns = [f"2^{exponent}" for exponent in options.exponents]
        shown = [
            [width, *(row[str(2.0**e)] for e in options.exponents), told["log2_optimum"][width]]
            for width, row in runs[name].items()
        ]
        table(f"{name}: the optimum moves by {told['moves_by']} steps of the grid",
              ["width", *columns, "log2 of the optimum"], shown)  # fmt: skip


if __name__ == "__main__":
    restart_with_allocator()
    main()
