"""Where the time of a training step goes: its parts compiled alone, beside the whole.

    python -m benchmarks.train_split [--rows 8] [--length 512] [--rounds 5] [--json FILE]

The 5M model on CPU as `benchmarks.train` measures it; settings by their dotted names, as there. A part alone
reads its inputs from memory and writes its results there, which in the step it may share with its neighbours,
so the parts need not add up. They take turns, and each figure is the fastest turn, in seconds of processor
time of all cores together.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import optax

from benchmarks.train import Case, random_rows, read_experiment
from nd_jax.__main__ import restart_with_allocator
from nd_jax.console import table, write_json
from nd_jax.model.attention import attention
from nd_jax.model.config import ModelConfig
from nd_jax.model.loss import cross_entropy, next_token_losses
from nd_jax.model.transformer import bind, init, project
from nd_jax.training.config import Experiment
from nd_jax.training.optimizer import make_optimizer
from nd_jax.training.step import FIELDS

Part = tuple[Callable[..., Any], tuple[Any, ...]]


def with_gradient(function: Callable[..., jax.Array], *places: int) -> Callable[..., Any]:
    """The function's value and its gradients by the arguments at these places."""
    return jax.value_and_grad(function, argnums=places)


def make_parts(experiment: Experiment) -> dict[str, Part]:
    """Functions of the step's parts, with the arguments to call them with."""
    model, rows = experiment.model, random_rows(experiment)
    arrays = {name: jnp.asarray(rows[name]) for name in FIELDS}
    B, T = arrays["tokens"].shape
    params = jax.jit(lambda key: init(model, key))(jax.random.key(0))
    optimizer = make_optimizer(experiment.optimizer, model)
    opt_state = jax.jit(optimizer.init)(params)

    def loss(params: Any, arrays: Any) -> jax.Array:
        return next_token_losses(bind(model, params), *(arrays[name] for name in FIELDS)).loss_sum / (B * T)

    def update(grads: Any, opt_state: Any, params: Any) -> Any:
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    def step(params: Any, opt_state: Any, arrays: Any) -> Any:
        return update(jax.grad(loss)(params, arrays), opt_state, params)

    def random(*shape: int) -> jax.Array:
        return jax.random.normal(jax.random.key(len(shape)), shape)

    q_BxTxHxDh, k_BxTxKxDh, v_BxTxKxDh = (
        random(B, T, heads, model.head_dim) for heads in (model.n_heads, model.n_kv_heads, model.n_kv_heads)
    )

    def attend(q: jax.Array, k: jax.Array, v: jax.Array, segments_BxT: jax.Array) -> jax.Array:
        out = attention(q, k, v, segments_BxT, backend=model.attention, block=model.attention_block)
        return (out * out).sum()

    def head(x_BxTxD: jax.Array, output_VxD: jax.Array, targets: jax.Array, weights: jax.Array) -> jax.Array:
        return cross_entropy(x_BxTxD, output_VxD, targets, weights, model.loss_chunk).loss_sum

    x_BxTxD, output_VxD = random(B, T, model.d_model), random(model.vocab_size, model.d_model)
    inputs, matrices = layer_matmuls(model, B, T)
    return {
        "step": (step, (params, opt_state, arrays)),
        "loss and gradients": (with_gradient(loss, 0), (params, arrays)),
        "loss alone": (loss, (params, arrays)),
        "optimizer": (update, (params, opt_state, params)),
        "cross-entropy with its gradient": (
            with_gradient(head, 0, 1),
            (x_BxTxD, output_VxD, arrays["targets"], arrays["weights"]),
        ),
        "attention of one layer with its gradient": (
            with_gradient(attend, 0, 1, 2),
            (q_BxTxHxDh, k_BxTxKxDh, v_BxTxKxDh, arrays["segments"]),
        ),
        "projections of one layer with their gradients": (
            with_gradient(lambda xs, ws: sum((project(x, w) ** 2).sum() for x, w in zip(xs, ws, strict=True)),
                          0, 1),
            (inputs, matrices),
        ),
    }  # fmt: skip


def layer_matmuls(model: ModelConfig, rows: int, length: int) -> tuple[list[jax.Array], list[jax.Array]]:
    """The inputs and weights of a layer's seven matrices."""
    D, F, Q, K = model.d_model, model.d_ff, model.n_heads * model.head_dim, model.n_kv_heads * model.head_dim
    shapes = [(D, Q), (D, K), (D, K), (Q, D), (D, F), (D, F), (F, D)]
    return [jnp.ones((rows, length, n)) for n, _ in shapes], [jnp.ones(shape) for shape in shapes]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--length", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options, overrides = parser.parse_known_args()
    experiment = read_experiment("cpu", Case("nd_5m", options.rows, options.length, 1), overrides)
    parts = {
        name: (jax.jit(function), arguments) for name, (function, arguments) in make_parts(experiment).items()
    }
    seconds = dict.fromkeys(parts, float("inf"))
    for number in range(options.rounds + 1):
        for name, (function, arguments) in parts.items():
            start = time.process_time()
            jax.block_until_ready(function(*arguments))
            if number:  # the first round compiles
                seconds[name] = min(seconds[name], time.process_time() - start)
    layers = experiment.model.n_layers
    counted = {name: taken * (layers if "one layer" in name else 1) for name, taken in seconds.items()}
    shown = [
        (name.replace("one layer", f"{layers} layers"), taken, taken / seconds["step"])
        for name, taken in counted.items()
    ]
    title = f"{experiment.model.parameters():,} parameters, {options.rows} rows of {options.length}"
    table(title, ["part", "CPU seconds", "share of the step"], shown)
    write_json(options.json, {"seconds": counted})


if __name__ == "__main__":
    restart_with_allocator()  # as `nd train` does
    main()
