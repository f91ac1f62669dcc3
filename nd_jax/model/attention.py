"""Causal attention within segments, behind one function.

Queries see keys of their own segment at or before their own place. Every backend must give a packed row the
outputs and gradients its documents have alone (tests/model/test_attention.py holds them to it). Where a
sequence axis splits the queries, each device holds all keys and values of its rows.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp

from nd_jax.errors import UserError
from nd_jax.model.partition import constrain, platform, shards, spec

BACKENDS = ("xla", "blocked", "splash", "triton")
"""xla: the reference, `[T, T]` scores in memory. blocked: causal query blocks, for CPU. splash: jax's Pallas
kernel for TPU. triton: jax's Pallas kernel for GPU."""

KERNELS = {"tpu": "splash", "gpu": "triton"}
"""The backend made for a platform."""

TILE = 128
"""Positions that the kernels work off together; a row is cut into such."""


def resolve(backend: str, row_length: int, interpret: bool = False) -> str:
    """The backend to use for rows of this length on the mesh's devices: the one given, or what `auto` means.

    Raises:
      UserError: a name that is none, or a backend that cannot do this, with the reason.
    """
    if backend == "auto":
        kernel = KERNELS.get(platform(), "blocked")
        return "xla" if _refusal(kernel, row_length, interpret) else kernel
    if backend not in BACKENDS:
        raise UserError(f"attention backend {backend!r} is unknown; use auto or one of {', '.join(BACKENDS)}")
    if reason := _refusal(backend, row_length, interpret):
        raise UserError(f"attention backend {backend!r} {reason}; use auto or xla")
    return backend


def _refusal(backend: str, row_length: int, interpret: bool) -> str | None:
    """Why a backend cannot work here; None where it can."""
    parts = shards("length")
    if backend in KERNELS.values():
        made_for = next(name for name, kernel in KERNELS.items() if kernel == backend)
        if not interpret and platform() != made_for:
            return f"is a kernel for {made_for.upper()}, and this is a {platform().upper()}"
        if row_length % (parts * TILE):
            shared = f" x {parts} devices" if parts > 1 else ""
            return f"needs rows of a multiple of {TILE}{shared} tokens, not {row_length}"
    if backend in ("blocked", "triton") and parts > 1:
        return f"cannot split the positions of a row over devices (mesh sequence={parts})"
    return None


def attention(
    q_BxTxHxDh: jax.Array,
    k_BxTxKxDh: jax.Array,
    v_BxTxKxDh: jax.Array,
    segments_BxT: jax.Array,
    *,
    backend: str,
    block: int,
    interpret: bool = False,
) -> jax.Array:
    """Attend causally within segments; scores are scaled by 1/sqrt(Dh), softmax is float32.

    Args:
      q_BxTxHxDh: queries; query head h reads key head h // (H / K).
      k_BxTxKxDh: keys.
      v_BxTxKxDh: values.
      segments_BxT: which document each place belongs to (pads, 0, are a document of their own).
      backend: one of `BACKENDS`, or "auto".
      block: queries per block of "blocked".
      interpret: run kernels in Pallas's interpreter, on any device: slow, for tests.

    Returns:
      `[B, T, H, Dh]` in q's type.

    Raises:
      UserError: a backend that cannot do what is asked; heads that do not divide.
    """
    if q_BxTxHxDh.shape[2] % k_BxTxKxDh.shape[2]:
        raise UserError(f"{k_BxTxKxDh.shape[2]} key heads do not divide {q_BxTxHxDh.shape[2]} query heads")
    backend = resolve(backend, q_BxTxHxDh.shape[1], interpret)
    k_BxTxKxDh, v_BxTxKxDh = (
        constrain(x_BxTxKxDh, "batch", "keys", "kv_heads", "head_dim")
        for x_BxTxKxDh in (k_BxTxKxDh, v_BxTxKxDh)
    )
    if backend == "blocked":
        return blocked(q_BxTxHxDh, k_BxTxKxDh, v_BxTxKxDh, segments_BxT, block)
    if backend == "xla":
        same_Bx1xTxT = segments_BxT[:, None, :, None] == segments_BxT[:, None, None, :]
        return jax.nn.dot_product_attention(
            q_BxTxHxDh, k_BxTxKxDh, v_BxTxKxDh, mask=same_Bx1xTxT, is_causal=True
        )
    kernel = splash if backend == "splash" else triton
    return kernel(q_BxTxHxDh, k_BxTxKxDh, v_BxTxKxDh, segments_BxT, interpret)


def _tile(length: int) -> int:
    """The largest tile up to 4 x TILE that divides a length, itself a multiple of TILE."""
    return next(size for size in (4 * TILE, 2 * TILE, TILE) if length % size == 0)


def splash(
    q_BxTxHxDh: jax.Array,
    k_BxTxKxDh: jax.Array,
    v_BxTxKxDh: jax.Array,
    segments_BxT: jax.Array,
    interpret: bool,
) -> jax.Array:
    """Attend by jax's splash attention: hidden blocks are never computed, scores never stored."""
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernels
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    T, H, Dh = q_BxTxHxDh.shape[1:]
    parts = shards("length")
    size = _tile(T // parts)
    sizes = kernels.BlockSizes(
        block_q=size, block_kv=size, block_q_dkv=size, block_kv_dkv=size, block_q_dq=size, block_kv_dq=size
    )
    mask = masks.MultiHeadMask([masks.CausalMask((T, T), shard_count=parts)] * H)
    kernel = kernels.make_splash_mha(
        mask, block_sizes=sizes, head_shards=shards("heads"), q_seq_shards=parts, interpret=interpret
    )
    # TPU's lanes hold 128 numbers; zeros behind a smaller head change no score and no output.
    room = [(0, 0), (0, 0), (0, 0), (0, -Dh % 128)]
    q_BxHxTxE, k_BxKxTxE, v_BxKxTxE = (
        jnp.pad(x_BxTxNxDh, room).transpose(0, 2, 1, 3)
        for x_BxTxNxDh in (q_BxTxHxDh * Dh**-0.5, k_BxTxKxDh, v_BxTxKxDh)
    )

    def attend(kernel, q_BxHxTxE, k_BxKxTxE, v_BxKxTxE, queries_BxT, keys_BxT):
        return jax.vmap(kernel)(q_BxHxTxE, k_BxKxTxE, v_BxKxTxE, kernels.SegmentIds(queries_BxT, keys_BxT))

    mesh, on_mesh = jax.sharding.get_abstract_mesh(), attend
    if mesh.size > 1:
        by_part = jax.sharding.NamedSharding(mesh, spec(("heads", "length")))
        on_mesh = jax.shard_map(
            attend,
            in_specs=(
                kernel.manual_sharding_spec(by_part),
                spec(("batch", "heads", "length")),
                spec(("batch", "kv_heads", "keys")),
                spec(("batch", "kv_heads", "keys")),
                spec(("batch", "length")),
                spec(("batch", "keys")),
            ),
            out_specs=spec(("batch", "heads", "length")),
            check_vma=False,
        )
    out_BxHxTxE: Any = on_mesh(kernel, q_BxHxTxE, k_BxKxTxE, v_BxKxTxE, segments_BxT, segments_BxT)
    return out_BxHxTxE[..., :Dh].transpose(0, 2, 1, 3)


def triton(
    q_BxTxHxDh: jax.Array,
    k_BxTxKxDh: jax.Array,
    v_BxTxKxDh: jax.Array,
    segments_BxT: jax.Array,
    interpret: bool,
) -> jax.Array:
    """Attend by jax's flash attention for GPU in Pallas's Triton. It shares no key heads: they are repeated.

    (cuDNN's has segments only as a mask `[T, T]` in memory in jax's public interface, and runs nowhere else.)
    """
    from jax.experimental.pallas.ops.gpu.attention import BlockSizes, mha

    group = q_BxTxHxDh.shape[2] // k_BxTxKxDh.shape[2]
    k_BxTxHxDh, v_BxTxHxDh = (jnp.repeat(x, group, axis=2) for x in (k_BxTxKxDh, v_BxTxKxDh))
    attend = functools.partial(
        mha, sm_scale=q_BxTxHxDh.shape[3] ** -0.5, causal=True, block_sizes=BlockSizes.get_default(),
        interpret=interpret,
    )  # fmt: skip
    if jax.sharding.get_abstract_mesh().size > 1:
        heads = spec(("batch", "keys", "heads"))
        attend = jax.shard_map(
            attend, in_specs=(heads, heads, heads, spec(("batch",))), out_specs=heads, check_vma=False
        )
    return attend(q_BxTxHxDh, k_BxTxHxDh, v_BxTxHxDh, segments_BxT)


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
