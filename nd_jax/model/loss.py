"""Cross-entropy over packed rows, as sums that add up over microbatches and devices."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from nd_jax.model.partition import constrain, shards
from nd_jax.model.transformer import Transformer


class Losses(NamedTuple):
    """Sums over a batch, and what they were made of; only `loss_sum` carries a gradient.

    The mean loss is `loss_sum / weight_sum`, after each was added up over microbatches and devices.
    """

    loss_sum: jax.Array
    """Weighted negative log-likelihood, in nats."""
    weight_sum: jax.Array
    """Sum of the weights."""
    nll_BxT: jax.Array
    """Unweighted negative log-likelihood of each target, float32 (also where the weight is 0)."""
    correct_BxT: jax.Array
    """Whether the most likely token is the target, bool (also where the weight is 0)."""


def next_token_losses(
    model: Transformer,
    tokens_BxT: jax.Array,
    targets_BxT: jax.Array,
    weights_BxT: jax.Array,
    segments_BxT: jax.Array,
    positions_BxT: jax.Array,
) -> Losses:
    """Run the model on a batch of packed rows and compare with the targets.

    Args:
      model: bound to the parameters that are differentiated.
      tokens_BxT: token ids.
      targets_BxT: the token that follows each, any id where the weight is 0.
      weights_BxT: float32, 0 where nothing is predicted (ends of segments, pads).
      segments_BxT: document numbers from 1, pads 0.
      positions_BxT: places within the document, from 0.
    """
    x_BxTxD = model.features(tokens_BxT, segments_BxT, positions_BxT)
    return cross_entropy(x_BxTxD, model.output_VxD(), targets_BxT, weights_BxT, model.config.loss_chunk)


def cross_entropy(
    x_BxTxD: jax.Array, output_VxD: jax.Array, targets_BxT: jax.Array, weights_BxT: jax.Array, chunk: int
) -> Losses:
    """Weighted cross-entropy of softmax(x @ output.T), in chunks of `chunk` positions of every row.

    Logits `[B, chunk, V]` exist for one chunk at a time, in float32; the gradient is computed beside the
    loss, so that they are computed once (Liger's "fused linear cross-entropy").
    """
    # Where devices split the positions, each part is a row of its own here: no chunk spans two devices.
    shape, parts = targets_BxT.shape, shards("length")
    rows = (_part_rows(array, parts) for array in (x_BxTxD, targets_BxT, weights_BxT))
    x_RxPxD, targets_RxP, weights_RxP = rows
    outputs: Any = _cross_entropy(x_RxPxD, output_VxD, targets_RxP, weights_RxP, chunk)
    loss_sum, nll_RxP, correct_RxP = outputs
    return Losses(loss_sum, weights_BxT.sum(), nll_RxP.reshape(shape), correct_RxP.reshape(shape))


def _part_rows(array_BxTx_: jax.Array, parts: int) -> jax.Array:
    """Cut rows into as many equal parts, ``[B * parts, T / parts, ...]``."""
    if parts == 1:
        return array_BxTx_
    B, T, *rest = array_BxTx_.shape
    return constrain(
        array_BxTx_.reshape(B * parts, T // parts, *rest), "row_parts", None, *[None] * len(rest)
    )


def _chunks(length: int, chunk: int) -> list[slice]:
    return [slice(start, min(start + chunk, length)) for start in range(0, length, chunk)]


def _chunk_losses(
    x_BxCxD: jax.Array, output_VxD: jax.Array, targets_BxC: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Logits, their log normaliser, and per position the loss and whether the target came first."""
    logits_BxCxV = jnp.einsum("bcd,vd->bcv", x_BxCxD, output_VxD, preferred_element_type=jnp.float32)
    top_BxC = logits_BxCxV.max(-1)
    normaliser_BxC = top_BxC + jnp.log(jnp.exp(logits_BxCxV - top_BxC[..., None]).sum(-1))
    target_BxC = jnp.take_along_axis(logits_BxCxV, targets_BxC[..., None], axis=-1)[..., 0]
    return logits_BxCxV, normaliser_BxC, normaliser_BxC - target_BxC, target_BxC >= top_BxC


@functools.partial(jax.custom_vjp, nondiff_argnums=(4,))
def _cross_entropy(
    x_BxTxD: jax.Array, output_VxD: jax.Array, targets_BxT: jax.Array, weights_BxT: jax.Array, chunk: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    parts = []
    for at in _chunks(x_BxTxD.shape[1], chunk):
        parts.append(_chunk_losses(x_BxTxD[:, at], output_VxD, targets_BxT[:, at])[2:])
    nll_BxT, correct_BxT = (jnp.concatenate(part, axis=1) for part in zip(*parts, strict=True))
    return (weights_BxT * nll_BxT).sum(), nll_BxT, correct_BxT


def _forward(x_BxTxD, output_VxD, targets_BxT, weights_BxT, chunk):
    V = output_VxD.shape[0]
    split = shards("row_parts") if x_BxTxD.shape[0] % shards("row_parts") == 0 else 1
    parts, dx, doutput_DxV = [], [], jnp.float32(0.0)
    for at in _chunks(x_BxTxD.shape[1], chunk):
        x_BxCxD, targets_BxC = x_BxTxD[:, at], targets_BxT[:, at]
        logits_BxCxV, normaliser_BxC, *rest = _chunk_losses(x_BxCxD, output_VxD, targets_BxC)
        hit_BxCxV = targets_BxC[..., None] == jnp.arange(V)
        dlogits_BxCxV = jnp.exp(logits_BxCxV - normaliser_BxC[..., None]) - hit_BxCxV
        dlogits_BxCxV = (dlogits_BxCxV * weights_BxT[:, at, None]).astype(x_BxTxD.dtype)
        dx.append(jnp.einsum("bcv,vd->bcd", dlogits_BxCxV, output_VxD))
        doutput_DxV += _outer(x_BxCxD, dlogits_BxCxV, split)
        parts.append(rest)
    if split > 1:
        doutput_DxV = doutput_DxV.sum(0)
    nll_BxT, correct_BxT = (jnp.concatenate(part, axis=1) for part in zip(*parts, strict=True))
    value = (weights_BxT * nll_BxT).sum(), nll_BxT, correct_BxT
    return value, (jnp.concatenate(dx, axis=1), doutput_DxV.T.astype(output_VxD.dtype))


def _outer(x_BxCxD: jax.Array, dlogits_BxCxV: jax.Array, split: int) -> jax.Array:
    """The head's gradient `[D, V]` of some positions; `[split, D, V]` where devices split the rows.

    Then each adds up its own part over all chunks, and they are reduced once, not once a chunk.
    """
    # x first and transposed after: the other order copies the wide dlogits to transpose them on CPU.
    both, deal = ((0, 1), (0, 1)), ((), ())
    if split > 1:
        x_BxCxD, dlogits_BxCxV = (
            constrain(a.reshape(split, -1, *a.shape[1:]), "row_parts", None, None, axis)
            for a, axis in ((x_BxCxD, None), (dlogits_BxCxV, "vocab"))
        )
        both, deal = ((1, 2), (1, 2)), ((0,), (0,))
    outer = jax.lax.dot_general(x_BxCxD, dlogits_BxCxV, (both, deal), preferred_element_type=jnp.float32)
    return constrain(outer, "row_parts", None, "vocab") if split > 1 else outer


def _backward(chunk, residuals, cotangents):
    dx_BxTxD, doutput_VxD = residuals
    scale = cotangents[0]  # the other outputs are for the log
    return dx_BxTxD * scale.astype(dx_BxTxD.dtype), doutput_VxD * scale.astype(doutput_VxD.dtype), None, None


_cross_entropy.defvjp(_forward, _backward)
