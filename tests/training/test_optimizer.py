from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiny_run import MODEL

from nd_jax.model import transformer
from nd_jax.training.config import OptimizerConfig, ScheduleConfig
from nd_jax.training.optimizer import logical_axes, make_optimizer, schedule

PLAIN = ScheduleConfig(warmup_steps=0, floor=0.1)
LATE = 10**6
"""A step after every warm-up."""


def factors(config, progress, step=LATE):
    return [round(float(schedule(p, step, config)), 4) for p in progress]


def test_cosine_falls_from_one_to_the_floor():
    assert factors(PLAIN, [0, 0.5, 1, 1.5]) == [1.0, 0.55, 0.1, 0.1]


def test_wsd_is_stable_then_decays():
    linear = replace(PLAIN, shape="wsd", decay_share=0.2)
    assert factors(linear, [0, 0.5, 0.8, 0.85, 1]) == [1.0, 1.0, 1.0, 0.775, 0.1]
    assert factors(replace(linear, decay_shape="sqrt"), [0.8, 0.85, 1]) == [1.0, 0.55, 0.1]


def test_warmup_counts_steps_or_share():
    by_steps = ScheduleConfig(shape="constant", warmup_steps=4)
    assert [factors(by_steps, [0.5], step)[0] for step in (0, 1, 3, 4)] == [0.25, 0.5, 1.0, 1.0]
    by_share = ScheduleConfig(shape="constant", warmup_steps=0, warmup_share=0.1)
    assert factors(by_share, [0, 0.05, 0.1, 0.5]) == [0.0, 0.5, 1.0, 1.0]


@pytest.fixture
def params():
    return jax.jit(partial(transformer.init, MODEL))(jax.random.key(0))


def names(tree):
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf
            for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}  # fmt: skip


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_only_matrices_decay(params, name):
    optimizer = make_optimizer(OptimizerConfig(name=name, weight_decay=0.5), MODEL)
    nothing = jax.tree.map(jnp.zeros_like, params)
    updates, _ = jax.jit(optimizer.update)(nothing, optimizer.init(params), params)
    for (path, update), param in zip(names(updates).items(), jax.tree.leaves(params), strict=True):
        expected = -0.5 * param if "norm" not in path else jnp.zeros_like(param)
        np.testing.assert_allclose(update, expected, rtol=1e-6, err_msg=path)


def test_gradients_are_clipped_by_their_global_norm(params):
    moments = {}
    for scale in (1.0, 1000.0):
        optimizer = make_optimizer(OptimizerConfig(clip_norm=1.0), MODEL)
        grads = jax.tree.map(lambda p, scale=scale: jnp.full_like(p, scale), params)
        _, state = jax.jit(optimizer.update)(grads, optimizer.init(params), params)
        moments[scale] = optax.tree.get(state, "mu")
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), moments[1.0], moments[1000.0])
    assert float(optax.tree.norm(moments[1.0])) == pytest.approx(0.1, rel=1e-5)  # (1 - b1) * clip_norm


def test_muon_orthogonalises_each_layers_matrices_on_their_own(params):
    optimizer = make_optimizer(OptimizerConfig(name="muon", weight_decay=0.0, clip_norm=1e9), MODEL)
    keys = jax.random.split(jax.random.key(1), 2)
    grads = jax.tree.map(lambda p: jax.random.normal(keys[0], p.shape), params)
    update = jax.jit(lambda grads: optimizer.update(grads, optimizer.init(params), params)[0]["blocks"])
    updates = update(grads)

    D = MODEL.d_model
    for layer in range(MODEL.n_layers):
        for path, update_LxIxO in names(updates).items():
            if "norm" in path:
                continue
            matrix = np.asarray(update_LxIxO[layer], np.float64)
            matrix = matrix.reshape((-1, D) if "out" in path or "down" in path else (D, -1))
            singular = np.linalg.svd(matrix, compute_uv=False) / (0.2 * max(matrix.shape) ** 0.5)
            # Newton-Schulz brings all but the smallest near 1; a random matrix's reach from 0 to beyond 2.
            assert np.quantile(singular, 0.15) > 0.5, path
            assert singular.max() < 1.3, path
    other = jax.tree.map(
        lambda g: g.at[1].multiply(3.0), grads["blocks"]
    )  # a layer's scale does not reach another
    again = update({**grads, "blocks": other})
    np.testing.assert_allclose(
        again["feed_forward"]["down_FxD"][0], updates["feed_forward"]["down_FxD"][0], rtol=1e-5, atol=1e-7
    )


def test_stacked_parameters_and_their_axes_are_told(params):
    axes = logical_axes(MODEL)
    assert {".".join(path) for path, (names, _) in axes.items() if len(names) == 1} == {
        "norm", "blocks.attention_norm", "blocks.feed_forward_norm"
    }  # fmt: skip
    assert {path[0] for path, (_, stacked) in axes.items() if stacked} == {"blocks"}
    assert {".".join(path) for path in axes} == set(names(params))
