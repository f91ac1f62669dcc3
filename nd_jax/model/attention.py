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
    outputs = []
    for start in range(0, T, block):
        end = min(start + block, T)
        scores_BxKxGxQxS = jnp.einsum(
            "bkgqd,bksd->bkgqs",
            q_BxKxGxTxDh[:, :, :, start:end],
            k_BxKxTxDh[:, :, :end],
            preferred_element_type=jnp.float32,
        )
        causal_QxS = jnp.arange(start, end)[:, None] >= jnp.arange(end)
        seen_BxQxS = (segments_BxT[:, start:end, None] == segments_BxT[:, None, :end]) & causal_QxS
        scores_BxKxGxQxS = jnp.where(seen_BxQxS[:, None, None], scores_BxKxGxQxS, -jnp.inf)
        # Softmax does not depend on the subtracted maximum, so neither does its gradient: spare that path.
        top = jax.lax.stop_gradient(scores_BxKxGxQxS.max(-1, keepdims=True))
        weights = jnp.exp(scores_BxKxGxQxS - top)
        weights = (weights / weights.sum(-1, keepdims=True)).astype(v_BxTxKxDh.dtype)
        outputs.append(jnp.einsum("bkgqs,bksd->bkgqd", weights, v_BxKxTxDh[:, :, :end]))
    out_BxKxGxTxDh = jnp.concatenate(outputs, axis=3)
    return out_BxKxGxTxDh.transpose(0, 3, 1, 2, 4).reshape(B, T, H, Dh)
