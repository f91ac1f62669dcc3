"""How fast one training step of the nano shape is on this machine, and how near to its matmul ceiling.

    python -m benchmarks.train_step [--rows 32] [--microbatches 4] [--rounds 5] [--variants] [--json FILE]

Forward, backward, clipping and AdamW on packed rows, in one process. Variants run interleaved, one step
each in turn, and each figure is the fastest step: other load on the machine only ever adds time.
"""

import argparse
import dataclasses
import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from nd_jax.console import table, write_json
from nd_jax.model.config import ModelConfig
from nd_jax.model.loss import next_token_losses
from nd_jax.model.transformer import bind, init

LENGTH = 256
NANO = ModelConfig()


def packed_rows(rows: int, config: ModelConfig, seed: int = 0) -> dict[str, jax.Array]:
    """Random tokens in documents of 60 to 180, as the quickstart's rows hold."""
    rng = np.random.default_rng(seed)
    segments, positions = np.zeros((rows, LENGTH), np.int32), np.zeros((rows, LENGTH), np.int32)
    for row in range(rows):
        start, number = 0, 1
        while start < LENGTH:
            end = min(start + int(rng.integers(60, 181)), LENGTH)
            segments[row, start:end], positions[row, start:end] = number, np.arange(end - start)
            start, number = end, number + 1
    tokens = rng.integers(0, config.vocab_size, (rows, LENGTH)).astype(np.int32)
    arrays = {"tokens_BxT": tokens, "targets_BxT": np.roll(tokens, -1, 1), "segments_BxT": segments,
              "weights_BxT": np.ones((rows, LENGTH), np.float32), "positions_BxT": positions}  # fmt: skip
    return {name: jnp.asarray(array) for name, array in arrays.items()}


def make_step(config: ModelConfig, batch: dict[str, jax.Array], microbatches: int) -> Callable[[], Any]:
    """A function that takes one optimizer step on the batch and waits for it."""
    tx = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
    params = jax.jit(functools.partial(init, config))(jax.random.key(0))
    state = [params, jax.jit(tx.init)(params)]

    def gradient(params: Any, rows: dict[str, jax.Array]) -> tuple[Any, jax.Array]:
        def loss(params: Any) -> tuple[jax.Array, jax.Array]:
            losses = next_token_losses(bind(config, params), **rows)
            return losses.loss_sum, losses.weight_sum

        (_, weight), grads = jax.value_and_grad(loss, has_aux=True)(params)
        return grads, weight

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(params: Any, opt: Any, batch: dict[str, jax.Array]) -> tuple[Any, Any]:
        parts = jax.tree.map(lambda x: x.reshape(microbatches, -1, *x.shape[1:]), batch)
        zero = jax.tree.map(jnp.zeros_like, params), jnp.zeros(())

        def add(total: Any, rows: dict[str, jax.Array]) -> tuple[Any, None]:
            return jax.tree.map(jnp.add, total, gradient(params, rows)), None

        grads, weight = jax.lax.scan(add, zero, parts)[0]
        updates, opt = tx.update(jax.tree.map(lambda g: g / weight, grads), opt, params)
        return optax.apply_updates(params, updates), opt

    def run() -> None:
        state[:] = step(state[0], state[1], batch)
        jax.block_until_ready(state)

    return run


def make_ceiling(config: ModelConfig, tokens: int) -> tuple[Callable[[], Any], float]:
    """The forward matmuls of one feed-forward layer and the output head alone, and their operations."""
    D, F, V = config.d_model, config.d_ff, config.vocab_size
    shapes = [(D, F), (D, F), (F, D), (D, V)]
    pairs = [(jnp.ones((tokens, n)), jnp.ones((n, m))) for n, m in shapes]
    multiply = jax.jit(lambda pairs: [x @ w for x, w in pairs])
    return lambda: jax.block_until_ready(multiply(pairs)), float(sum(2 * tokens * n * m for n, m in shapes))


def fastest(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Seconds of the fastest of `rounds` runs of each, interleaved, after one that compiles."""
    for run in runs.values():
        run()
    seconds = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            seconds[name] = min(seconds[name], time.perf_counter() - start)
    return seconds


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=32, help="rows of one batch")
    parser.add_argument("--microbatches", type=int, default=4, help="parts of a batch computed in turn")
    parser.add_argument("--rounds", type=int, default=5, help="timed steps of each variant")
    parser.add_argument("--variants", action="store_true", help="also other ways to compute the same step")
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    changes: dict[str, tuple[dict[str, Any], int]] = {"default": ({}, options.microbatches)}
    if options.variants:
        changes |= {
            "one batch": ({}, 1),
            "xla attention": ({"attention": "xla"}, options.microbatches),
            "attention blocks of 64": ({"attention_block": 64}, options.microbatches),
            "scan over layers": ({"scan_layers": True}, options.microbatches),
            "loss chunks of 64": ({"loss_chunk": 64}, options.microbatches),
        }
    tokens = options.rows * LENGTH
    batch = packed_rows(options.rows, NANO)
    ceiling, operations = make_ceiling(NANO, tokens // options.microbatches)
    runs = {name: make_step(dataclasses.replace(NANO, **change), batch, parts)
            for name, (change, parts) in changes.items()}  # fmt: skip
    seconds = fastest(runs | {"ceiling": ceiling}, options.rounds)
    peak = operations / seconds["ceiling"] / 1e9
    figures = {}
    for name in runs:
        rate = tokens / seconds[name]
        gflops = rate * NANO.flops_per_token(LENGTH) / 1e9
        figures[name] = {"tokens_per_s": rate, "gflop_per_s": gflops, "share_of_ceiling": gflops / peak}
    shape = f"{NANO.parameters():,} parameters, {options.rows} rows of {LENGTH}"
    title = f"{shape}; matmul ceiling {peak:.0f} GFLOP/s"
    rows = [(name, f"{f['tokens_per_s']:,.0f}", f["gflop_per_s"], f["share_of_ceiling"])
            for name, f in figures.items()]  # fmt: skip
    table(title, ["step", "tokens/s", "GFLOP/s", "share of ceiling"], rows)
    write_json(options.json, {"ceiling_gflop_per_s": peak, "steps": figures})


if __name__ == "__main__":
    main()
