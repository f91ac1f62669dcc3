"""Causal attention within segments, behind one function.

Queries see keys of their own segment at or before their own place. Every backend must give a packed row the
outputs and gradients its documents have alone (tests/model/test_attention.py holds them to it).
"""

import jax
import jax.numpy as jnp

from nd_jax.errors import UserError

BACKENDS = ("xla", "blocked")


def resolve(backend: str) -> str:
    """The backend that `auto` means here; UserError for a name that is none."""
    if backend == "auto":
        return "blocked" if jax.default_backend() == "cpu" else "xla"
    if backend not in BACKENDS:
        raise UserError(f"attention backend {backend!r} is unknown; use auto or one of {', '.join(BACKENDS)}")
    return backend


def attention(
    q_BxTxHxDh: jax.Array,
    k_BxTxKxDh: jax.Array,
    v_BxTxKxDh: jax.Array,
    segments_BxT: jax.Array,
    *,
    backend: str,
    block: int,
) -> jax.Array:
    """Attend causally within segments; scores are scaled by 1/sqrt(Dh), softmax is float32.

    Args:
      q_BxTxHxDh: queries; query head h reads key head h // (H / K).
      k_BxTxKxDh: keys.
      v_BxTxKxDh: values.
      segments_BxT: which document each place belongs to (pads, 0, are a document of their own).
      backend: "xla" (reference, O(T^2) memory), "blocked", or "auto".
      block: queries per block of "blocked".

    Returns:
      `[B, T, H, Dh]` in q's type.
    """
    if q_BxTxHxDh.shape[2] % k_BxTxKxDh.shape[2]:
        raise UserError(f"{k_BxTxKxDh.shape[2]} key heads do not divide {q_BxTxHxDh.shape[2]} query heads")
    if resolve(backend) == "xla":
        same_Bx1xTxT = segments_BxT[:, None, :, None] == segments_BxT[:, None, None, :]
        return jax.nn.dot_product_attention(
            q_BxTxHxDh, k_BxTxKxDh, v_BxTxKxDh, mask=same_Bx1xTxT, is_causal=True
        )
    return blocked(q_BxTxHxDh, k_BxTxKxDh, v_BxTxKxDh, segments_BxT, block)


def blocked(
    q_BxTxHxDh: jax.Array, k_BxTxKxDh: jax.Array, v_BxTxKxDh: jax.Array, segments_BxT: jax.Array, block: int
) -> jax.Array:
    """Attention in query blocks that read only the keys up to their end: half the work, small temporaries."""
    B, T, H, Dh = q_BxTxHxDh.shape
    K = k_BxTxKxDh.shape[2]
    q_BxKxGxTxDh = (q_BxTxHxDh * Dh**-0.5).reshape(B, T, K, H // K, Dh).transpose(0, 2, 3, 1, 4)
    k_BxKxTxDh, v_BxKxTxDh = k_BxTxKxDh.transpose(0, 2, 1, 3), v_BxTxKxDh.transpose(0, 2, 1, 3)
    blocks = []
    for start in range(0, T, block):
        end = min(start + block, T)
        causal_QxS = jnp.arange(start, end)[:, None] >= jnp.arange(end)
        seen_BxQxS = (segments_BxT[:, start:end, None] == segments_BxT[:, None, :end]) & causal_QxS
        q_BxKxGxQxDh = q_BxKxGxTxDh[:, :, :, start:end]
        blocks.append(_attend(q_BxKxGxQxDh, k_BxKxTxDh[:, :, :end], v_BxKxTxDh[:, :, :end], seen_BxQxS))
    out_BxKxGxTxDh = jnp.concatenate(blocks, axis=3)
    return out_BxKxGxTxDh.transpose(0, 3, 1, 2, 4).reshape(B, T, H, Dh)


@jax.custom_vjp
def _attend(
    q_BxKxGxQxDh: jax.Array, k_BxKxSxDh: jax.Array, v_BxKxSxDh: jax.Array, seen_BxQxS: jax.Array
) -> jax.Array:
    """softmax(q @ k.T) @ v of one query block, with a backward pass that touches the scores only once."""
    return _attend_forward(q_BxKxGxQxDh, k_BxKxSxDh, v_BxKxSxDh, seen_BxQxS)[0]


def _attend_forward(q_BxKxGxQxDh, k_BxKxSxDh, v_BxKxSxDh, seen_BxQxS):
    f32 = jnp.float32
    scores_BxKxGxQxS = jnp.einsum("bkgqd,bksd->bkgqs", q_BxKxGxQxDh, k_BxKxSxDh, preferred_element_type=f32)
    scores_BxKxGxQxS = jnp.where(seen_BxQxS[:, None, None], scores_BxKxGxQxS, -jnp.inf)
    weights_BxKxGxQxS = jnp.exp(scores_BxKxGxQxS - scores_BxKxGxQxS.max(-1, keepdims=True))
    inverse_BxKxGxQx1 = 1 / weights_BxKxGxQxS.sum(-1, keepdims=True)
    weights_BxKxGxQxS = weights_BxKxGxQxS.astype(v_BxKxSxDh.dtype)
    # Normalising the outputs is a pass over Dh numbers a query instead of S.
    out_BxKxGxQxDh = jnp.einsum("bkgqs,bksd->bkgqd", weights_BxKxGxQxS, v_BxKxSxDh) * inverse_BxKxGxQx1
    out_BxKxGxQxDh = out_BxKxGxQxDh.astype(q_BxKxGxQxDh.dtype)
    saved = q_BxKxGxQxDh, k_BxKxSxDh, v_BxKxSxDh, weights_BxKxGxQxS, inverse_BxKxGxQx1, out_BxKxGxQxDh
    return out_BxKxGxQxDh, saved


def _attend_backward(saved, dout_BxKxGxQxDh):
    q_BxKxGxQxDh, k_BxKxSxDh, v_BxKxSxDh, weights_BxKxGxQxS, inverse_BxKxGxQx1, out_BxKxGxQxDh = saved
    f32, dtype = jnp.float32, q_BxKxGxQxDh.dtype
    dout_BxKxGxQxDh = dout_BxKxGxQxDh * inverse_BxKxGxQx1
    delta_BxKxGxQx1 = (dout_BxKxGxQxDh * out_BxKxGxQxDh).sum(-1, keepdims=True)
    dout_BxKxGxQxDh = dout_BxKxGxQxDh.astype(dtype)
    dv_BxKxSxDh = jnp.einsum("bkgqs,bkgqd->bksd", weights_BxKxGxQxS, dout_BxKxGxQxDh)
    dweights = jnp.einsum("bkgqd,bksd->bkgqs", dout_BxKxGxQxDh, v_BxKxSxDh, preferred_element_type=f32)
    dscores_BxKxGxQxS = (weights_BxKxGxQxS * (dweights - delta_BxKxGxQx1)).astype(dtype)
    dq_BxKxGxQxDh = jnp.einsum("bkgqs,bksd->bkgqd", dscores_BxKxGxQxS, k_BxKxSxDh)
    dk_BxKxSxDh = jnp.einsum("bkgqs,bkgqd->bksd", dscores_BxKxGxQxS, q_BxKxGxQxDh)
    return dq_BxKxGxQxDh, dk_BxKxSxDh, dv_BxKxSxDh, None


_attend.defvjp(_attend_forward, _attend_backward)
