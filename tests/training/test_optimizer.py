from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tiny_run import MODEL

from nd_jax.model import transformer
from nd_jax.training.config import OptimizerConfig, ScheduleConfig
from nd_jax.training.optimizer import is_matrix, make_optimizer, schedule

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
    return transformer.init(MODEL, jax.random.key(0))


def names(tree):
    return {jax.tree_util.keystr(path, simple=True, separator="."): leaf
            for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}  # fmt: skip


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_only_matrices_decay(params, name):
    optimizer = make_optimizer(OptimizerConfig(name=name, weight_decay=0.5))
    nothing = jax.tree.map(jnp.zeros_like, params)
    updates, _ = optimizer.update(nothing, optimizer.init(params), params)
    for (path, update), param in zip(names(updates).items(), jax.tree.leaves(params), strict=True):
        expected = -0.5 * param if "norm" not in path else jnp.zeros_like(param)
        np.testing.assert_allclose(update, expected, rtol=1e-6, err_msg=path)


def test_gradients_are_clipped_by_their_global_norm(params):
    moments = {}
    for scale in (1.0, 1000.0):
        optimizer = make_optimizer(OptimizerConfig(clip_norm=1.0))
        grads = jax.tree.map(lambda p, scale=scale: jnp.full_like(p, scale), params)
        _, state = optimizer.update(grads, optimizer.init(params), params)
        moments[scale] = optax.tree.get(state, "mu")
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), moments[1.0], moments[1000.0])
    assert float(optax.tree.norm(moments[1.0])) == pytest.approx(0.1, rel=1e-5)  # (1 - b1) * clip_norm


def test_muon_orthogonalises_each_layers_matrices_on_their_own(params):
    optimizer = make_optimizer(OptimizerConfig(name="muon", weight_decay=0.0, clip_norm=1e9))
    keys = jax.random.split(jax.random.key(1), 2)
    grads = jax.tree.map(lambda p: jax.random.normal(keys[0], p.shape), params)
    updates = optimizer.update(grads, optimizer.init(params), params)[0]["blocks"]

    def values_of(matrix):
        return np.linalg.svd(np.asarray(matrix, np.float64), compute_uv=False)

    for layer in range(MODEL.n_layers):
        qkv_DxKxGxDh = updates["attention"]["qkv_DxKxGxDh"][layer]
        D, _, G, _ = qkv_DxKxGxDh.shape
        matrices = [qkv_DxKxGxDh[:, :, g].reshape(D, -1) for g in range(G)]
        matrices.append(updates["attention"]["out_HxDhxD"][layer].reshape(-1, D))
        matrices += [updates["feed_forward"]["gate_up_Dx2xF"][layer][:, c] for c in range(2)]
        matrices.append(updates["feed_forward"]["down_FxD"][layer])
        for matrix in matrices:
            singular = values_of(matrix) / (0.2 * max(matrix.shape) ** 0.5)
            assert np.quantile(singular, 0.1) > 0.5  # Newton-Schulz ends near 1, for all but the smallest
            assert singular.max() < 1.3
    other = jax.tree.map(lambda g: g.at[1].multiply(3.0), grads["blocks"])  # a layer's scale does not reach another
    again = optimizer.update({**grads, "blocks": other}, optimizer.init(params), params)[0]["blocks"]
    np.testing.assert_allclose(
        again["feed_forward"]["down_FxD"][0], updates["feed_forward"]["down_FxD"][0], rtol=1e-5, atol=1e-7
    )


def test_matrices_are_told_from_stacked_vectors(params):
    stacked = {path: is_matrix(tuple(path.split(".")), leaf) for path, leaf in names(params).items()}
    assert {path for path, matrix in stacked.items() if not matrix} == {
        "norm", "blocks.attention_norm", "blocks.feed_forward_norm"
    }  # fmt: skip
