"""The formulas of ModelConfig against a real initialisation and a compiled forward pass; refusals."""

import dataclasses
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from models import PLAIN

from nd_jax.errors import UserError
from nd_jax.model.config import AXES, MeshConfig, ModelConfig
from nd_jax.model.partition import check_fit
from nd_jax.model.transformer import bind, init

SHAPES = [
    PLAIN,
    dataclasses.replace(PLAIN, qk_norm=True, tied_embeddings=False),
    ModelConfig(),
]


@pytest.mark.parametrize("config", SHAPES)
def test_parameters_is_the_size_of_a_real_initialisation(config):
    shapes = jax.eval_shape(lambda key: init(config, key), jax.random.key(0))
    assert config.parameters() == sum(leaf.size for leaf in jax.tree.leaves(shapes))


@pytest.mark.parametrize("config", SHAPES)
def test_flops_per_token_is_what_the_compiled_forward_multiplies(config):
    """By XLA's own count; the reference attention multiplies masked keys too, so its half is added back."""
    T = 128
    config = dataclasses.replace(config, attention="xla")
    tokens = jnp.zeros((1, T), jnp.int32)
    forward = jax.jit(lambda params: bind(config, params)(tokens, tokens, tokens))
    params = jax.eval_shape(lambda key: init(config, key), jax.random.key(0))
    counted = forward.lower(params).compile().cost_analysis()["flops"] / T
    masked = config.n_layers * 2 * config.n_heads * config.head_dim * T
    expected = config.flops_per_token(T) / 3 + masked
    assert expected < counted < 1.35 * expected  # the rest is norms, softmax, RoPE


def test_contradictions_are_refused():
    for change, message in [
        ({"n_heads": 4, "n_kv_heads": 3}, "n_kv_heads=3 does not divide model.n_heads=4"),
        ({"head_dim": 7}, "head_dim=7 must be even"),
        ({"n_layers": 0}, "n_layers must be at least 1"),
        ({"remat": "some"}, "remat='some' is unknown"),
        ({"attention": "flash"}, "attention='flash' is unknown"),
    ]:
        with pytest.raises(UserError, match=message):
            dataclasses.replace(PLAIN, **change).validate()


def test_meshes_that_do_not_fit_are_refused_naming_both_numbers():
    assert MeshConfig(replica=2, fsdp=-1, tensor=2).sizes(8) == (2, 2, 1, 2)
    with pytest.raises(UserError, match=r"3 does not divide the 8 devices; nearest that do: 2 or 4"):
        MeshConfig(replica=3, fsdp=-1).sizes(8)
    with pytest.raises(UserError, match=r"needs 4 devices, but there are 8; the nearest that fits: "):
        MeshConfig(replica=1, fsdp=2, tensor=2).sizes(8)
    for sizes, message in [
        ((1, 1, 1, 4), r"tensor=4 does not divide model.n_kv_heads=2"),
        ((1, 3, 1, 1), r"fsdp=3 does not divide model.d_model=16"),
        ((1, 4, 8, 1), r"fsdp x sequence=32 does not divide model.d_model=16; nearest sizes that do: 16"),
        ((8, 1, 1, 1), r"the batch=12; nearest sizes that do: 6 or 12; it would divide the batch=8 or 16"),
        ((2, 4, 1, 1), "replica x fsdp=8 does not divide the batch=12"),
        ((1, 1, 8, 1), "sequence=8 does not divide data.row_length=12"),
    ]:
        with pytest.raises(UserError, match=message):
            check_fit(dict(zip(AXES, sizes, strict=True)), PLAIN, batch_size=12, row_length=12)


def test_the_config_needs_no_jax():
    code = "import sys, nd_jax.model.config; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
