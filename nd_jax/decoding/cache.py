"""The key-value cache, and the two ways to run with it: over whole prompts, and over what comes after."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from nd_jax.model.attention import attention
from nd_jax.model.config import ModelConfig
from nd_jax.model.partition import constrain
from nd_jax.model.transformer import Attend, Block, Transformer

Array = jax.Array | np.ndarray | np.integer
"""What jax takes for an array."""


class Cache(NamedTuple):
    """Keys (RoPE applied) and values of S slots: one array per layer, so that each is updated in place."""

    keys: tuple[jax.Array, ...]
    """Per layer `[B, K, S, Dh]`."""
    values: tuple[jax.Array, ...]
    """Per layer `[B, K, S, Dh]`."""


def empty(config: ModelConfig, batch: int, slots: int, dtype: jnp.dtype) -> Cache:
    """A cache that holds nothing yet."""
    shape = (batch, config.n_kv_heads, slots, config.head_dim)
    keys, values = (  # arrays of their own each: they are donated
        tuple(_pinned(jnp.zeros(shape, dtype)) for _ in range(config.n_layers)) for _ in range(2)
    )
    return Cache(keys, values)


def _pinned(x_BxKxSxDh: jax.Array) -> jax.Array:
    """A layer's keys or values where the mesh says."""
    return constrain(x_BxKxSxDh, "batch", "kv_heads", "length", "head_dim")


def prefill(model: Transformer, tokens_BxP: jax.Array, dtype: jnp.dtype) -> tuple[jax.Array, Cache]:
    """Run left-aligned prompts from their beginning; what pads write after a prompt's end must stay masked.

    Returns:
      Features `[B, P, D]`, and the cache of the P slots.
    """
    config = model.config
    positions_BxP = jnp.broadcast_to(jnp.arange(tokens_BxP.shape[1]), tokens_BxP.shape)
    keys, values = [], []

    def attend(q_BxPxHxDh: jax.Array, k_BxPxKxDh: jax.Array, v_BxPxKxDh: jax.Array) -> jax.Array:
        keys.append(_pinned(k_BxPxKxDh.transpose(0, 2, 1, 3).astype(dtype)))
        values.append(_pinned(v_BxPxKxDh.transpose(0, 2, 1, 3).astype(dtype)))
        one_BxP = jnp.ones_like(tokens_BxP)  # pads come after the prompt, where causality hides them
        return attention(
            q_BxPxHxDh,
            k_BxPxKxDh,
            v_BxPxKxDh,
            one_BxP,
            backend=config.attention,
            block=config.attention_block,
        )

    x_BxPxD = model.features_with(model.layers(), tokens_BxP, positions_BxP, [attend] * config.n_layers)
    return x_BxPxD, Cache(tuple(keys), tuple(values))


def place(cache: Cache, new: Cache, rows_R: Array) -> Cache:
    """Write R rows of P slots over the first P of the rows named; a row that is not there is dropped."""

    def write(old_BxKxSxDh: jax.Array, new_RxKxPxDh: jax.Array) -> jax.Array:
        P = new_RxKxPxDh.shape[2]
        return _pinned(old_BxKxSxDh.at[rows_R, :, :P].set(new_RxKxPxDh, mode="drop"))

    return jax.tree.map(write, cache, new)


def extend(
    model: Transformer,
    blocks: Sequence[Block],
    tokens_BxT: jax.Array,
    positions_BxT: jax.Array,
    slot: jax.Array,
    seen_BxTxS: jax.Array,
    cache: Cache,
) -> tuple[jax.Array, Cache]:
    """Run tokens that follow what is cached, writing them to slots `slot .. slot + T - 1`.

    Args:
      model: bound to its parameters.
      blocks: its `layers` or `decoding_layers`, taken before the loop that this is called in.
      tokens_BxT: token ids.
      positions_BxT: each token's place in its own document (for RoPE).
      slot: scalar; the slots must exist (`dynamic_update_slice` would shift the write, not refuse it).
      seen_BxTxS: which slots each token attends to, its own included.
      cache: donated by the callers' jit, so updated in place.

    Returns:
      Features `[B, T, D]` and the new cache.
    """
    keys, values = list(cache.keys), list(cache.values)

    def attend_at(layer: int) -> Attend:
        def attend(q_BxTxHxDh: jax.Array, k_BxTxKxDh: jax.Array, v_BxTxKxDh: jax.Array) -> jax.Array:
            at = (0, 0, slot, 0)
            for store, new in ((keys, k_BxTxKxDh), (values, v_BxTxKxDh)):
                new = new.transpose(0, 2, 1, 3).astype(store[layer].dtype)
                store[layer] = _pinned(jax.lax.dynamic_update_slice(store[layer], new, at))
            return _attend_cached(q_BxTxHxDh, keys[layer], values[layer], seen_BxTxS)

        return attend

    attends = [attend_at(layer) for layer in range(model.config.n_layers)]
    x_BxTxD = model.features_with(blocks, tokens_BxT, positions_BxT, attends)
    return x_BxTxD, Cache(tuple(keys), tuple(values))


def _attend_cached(
    q_BxTxHxDh: jax.Array, k_BxKxSxDh: jax.Array, v_BxKxSxDh: jax.Array, seen_BxTxS: jax.Array
) -> jax.Array:
    B, T, H, Dh = q_BxTxHxDh.shape
    K = k_BxKxSxDh.shape[1]
    q_BxTxKxGxDh = q_BxTxHxDh.reshape(B, T, K, H // K, Dh) * Dh**-0.5
    scores_BxKxGxTxS = jnp.einsum(
        "btkgd,bksd->bkgts", q_BxTxKxGxDh, k_BxKxSxDh, preferred_element_type=jnp.float32
    )
    scores_BxKxGxTxS = jnp.where(seen_BxTxS[:, None, None], scores_BxKxGxTxS, -jnp.inf)
    weights_BxKxGxTxS = jax.nn.softmax(scores_BxKxGxTxS, axis=-1).astype(v_BxKxSxDh.dtype)
    mixed_BxTxKxGxDh = jnp.einsum("bkgts,bksd->btkgd", weights_BxKxGxTxS, v_BxKxSxDh)
    return mixed_BxTxKxGxDh.reshape(B, T, H, Dh).astype(q_BxTxHxDh.dtype)
