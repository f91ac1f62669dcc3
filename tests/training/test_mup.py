"""muP: nothing changed at the base, activations that do not grow with width."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from nd_jax.model import transformer
from nd_jax.model.attention import attention
from nd_jax.model.config import BaseWidths, ModelConfig
from nd_jax.model.loss import next_token_losses
from nd_jax.training.config import OptimizerConfig
from nd_jax.training.optimizer import make_optimizer

BASE, STEPS, ROWS, LENGTH = 32, 4, 8, 16
WIDTHS = (BASE, 16 * BASE)
RATE = {"adamw": 3e-3, "muon": 1e-2}


def shape(width: int, mup: bool) -> ModelConfig:
    return ModelConfig(
        vocab_size=64, d_model=width, n_layers=2, n_heads=width // 16, n_kv_heads=width // 16, head_dim=16,
        d_ff=2 * width, attention="xla", mup=BaseWidths(d_model=BASE if mup else 0),
    )  # fmt: skip


def rows():
    tokens = np.random.default_rng(0).integers(0, 64, (ROWS, LENGTH)).astype(np.int32)
    ones = np.ones_like(tokens)
    return {
        "tokens_BxT": tokens, "targets_BxT": np.roll(tokens, -1, 1), "weights_BxT": ones.astype(np.float32),
        "segments_BxT": ones, "positions_BxT": np.tile(np.arange(LENGTH, dtype=np.int32), (ROWS, 1)),
    }  # fmt: skip


def activations(model: ModelConfig, params, row):
    """The stream after each layer, and the logits."""
    module = transformer.bind(model, params)
    rope = transformer.rotations(row["positions_BxT"], model)
    attend = functools.partial(_attend, row["segments_BxT"])
    x, seen = module.embed(row["tokens_BxT"]), {}
    for layer, block in enumerate(module.layers()):
        x = block(x, rope, attend)
        seen[f"layer {layer}"] = x
    return seen | {"logits": module.logits(module.normalise(x))}


def _attend(segments, q, k, v):
    return attention(q, k, v, segments, backend="xla", block=8)


@functools.cache
def moved(name: str, width: int, mup: bool) -> dict[str, float]:
    """By how much (root mean square) a few steps move each activation."""
    model, row = shape(width, mup), rows()
    optimizer = make_optimizer(OptimizerConfig(name=name, weight_decay=0.0), model)

    @jax.jit
    def run(key):
        params = transformer.init(model, key)
        before = activations(model, params, row)

        def loss(params):
            return next_token_losses(transformer.bind(model, params), **row).loss_sum / (ROWS * LENGTH)

        def step(carry, _):
            params, state = carry
            updates, state = optimizer.update(jax.grad(loss)(params), state, params)
            return (jax.tree.map(lambda p, u: p + RATE[name] * u, params, updates), state), None

        (params, _), _ = jax.lax.scan(step, (params, optimizer.init(params)), length=STEPS)
        after = activations(model, params, row)
        return jax.tree.map(lambda a, b: jnp.sqrt(jnp.mean((a - b) ** 2)), after, before)

    return {name: float(rms) for name, rms in run(jax.random.key(0)).items()}


def growth(name: str, mup: bool) -> dict[str, float]:
    """The power of the width that each activation's move grows by, over a 16x range."""
    small, large = (moved(name, width, mup) for width in WIDTHS)
    return {at: float(np.log(large[at] / small[at]) / np.log(WIDTHS[1] / WIDTHS[0])) for at in small}


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_activations_move_as_much_at_any_width(name):
    powers, standard = growth(name, True), growth(name, False)
    assert max(map(abs, powers.values())) < 0.25, (powers, standard)
    assert max(standard.values()) > 0.4, standard  # without muP they grow: the test sees it


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_at_the_base_nothing_changes(name):
    model = shape(BASE, True)
    config = OptimizerConfig(name=name)
    params = jax.jit(functools.partial(transformer.init, model))(jax.random.key(0))
    gradients = jax.tree.map(lambda p: jnp.cos(100 * p), params)

    @functools.partial(jax.jit, static_argnums=0)
    def updates(model):
        optimizer = make_optimizer(config, model)
        return optimizer.update(gradients, optimizer.init(params), params)[0]

    some, others = updates(model), updates(shape(BASE, False))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), some, others)


def test_widths_are_told_by_axis():
    model = replace(shape(128, True), mup=BaseWidths(d_model=32, d_ff=128, n_heads=4, head_dim=4))
    assert (model.width("embed"), model.width("mlp"), model.width("heads")) == (4.0, 2.0, 8.0)
    assert model.score_factor() == 0.5
    assert shape(128, False).width("mlp") == shape(128, False).score_factor() == 1.0
    assert shape(128, True).width("heads") == 4.0


def test_decay_does_not_depend_on_the_width():
    model = shape(4 * BASE, True)
    optimizer = make_optimizer(OptimizerConfig(weight_decay=0.5), model)
    params = jax.jit(functools.partial(transformer.init, model))(jax.random.key(0))
    nothing = jax.tree.map(jnp.zeros_like, params)
    updates, _ = optimizer.update(nothing, optimizer.init(params), params)
    decayed, held = (optax.tree.norm(tree["blocks"]["feed_forward"]) for tree in (updates, params))
    np.testing.assert_allclose(decayed, 0.5 * held, rtol=1e-5)
