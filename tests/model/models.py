"""Small models and packed rows that the model's tests share."""

import functools

import jax
import numpy as np

from nd_jax.model.config import ModelConfig
from nd_jax.model.transformer import init

PLAIN = ModelConfig(
    vocab_size=64, d_model=16, n_layers=2, n_heads=4, n_kv_heads=2, head_dim=8, d_ff=24,
    attention_block=12, loss_chunk=12,
)  # fmt: skip
DOCUMENTS = (7, 11, 3)
LENGTH = 24


def parameters(config: ModelConfig) -> dict:
    """Random parameters, the norms' scales around 1; by numpy: jax's generators take seconds to compile."""
    rng = np.random.default_rng(0)
    shapes = jax.eval_shape(functools.partial(init, config), jax.random.key(0))
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: rng.normal("norm" in str(path[-1]), 0.3, leaf.shape).astype(np.float32), shapes
    )


def packed_row(rows: int = 1, seed: int = 0) -> dict[str, np.ndarray]:
    """Rows of `LENGTH` tokens that hold documents of the lengths `DOCUMENTS`, then pads."""
    rng = np.random.default_rng(seed)
    segments, positions, weights = np.zeros(LENGTH, np.int32), np.zeros(LENGTH, np.int32), np.zeros(LENGTH)
    start = 0
    for number, length in enumerate(DOCUMENTS, 1):
        segments[start : start + length] = number
        positions[start : start + length] = np.arange(length)
        weights[start : start + length - 1] = rng.uniform(0.5, 1.5, length - 1)
        start += length
    tokens = rng.integers(0, 64, (rows, LENGTH)).astype(np.int32)
    return {
        "tokens_BxT": tokens,
        "targets_BxT": np.roll(tokens, -1, axis=1),
        "weights_BxT": np.tile(weights.astype(np.float32), (rows, 1)),
        "segments_BxT": np.tile(segments, (rows, 1)),
        "positions_BxT": np.tile(positions, (rows, 1)),
    }
