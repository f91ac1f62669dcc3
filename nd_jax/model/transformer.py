"""The decoder-only transformer (Flax NNX): RMSNorm, RoPE, grouped-query attention, SwiGLU.

The parameters are those of Hugging Face's Llama (Qwen3 with `qk_norm`), with its RoPE halves: exporting is
reshaping. All layers are stacked along a first axis. Training state is a pure dict of arrays (`init`), bound
to a module inside `jax.jit` (`bind`).
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.ad_checkpoint import checkpoint_name

from nd_jax.model.attention import attention
from nd_jax.model.config import ModelConfig
from nd_jax.model.partition import constrain, platform

Attend = Callable[[jax.Array, jax.Array, jax.Array], jax.Array]
"""Queries `[B, T, H, Dh]`, keys and values `[B, T, K, Dh]` (RoPE applied) -> `[B, T, H, Dh]`."""


def compute_dtype(config: ModelConfig) -> jnp.dtype:
    """The type of matmuls and activations; `auto` looks at the accelerator."""
    if config.dtype == "auto":
        return jnp.dtype(jnp.float32 if platform() == "cpu" else jnp.bfloat16)
    return jnp.dtype(config.dtype)


def rms_norm(x: jax.Array, scale: jax.Array, eps: float) -> jax.Array:
    """Normalise the last axis by its root mean square (in float32), times `scale`, in x's type."""
    x32 = x.astype(jnp.float32)
    inverse = jax.lax.rsqrt(jnp.mean(jnp.square(x32), axis=-1, keepdims=True) + eps)
    return (x32 * inverse * scale).astype(x.dtype)


def rotations(positions_BxT: jax.Array, config: ModelConfig) -> tuple[jax.Array, jax.Array]:
    """RoPE's cosines and signed sines for `rotate`, each `[B, T, 1, Dh]` float32."""
    half = config.head_dim // 2
    frequencies = config.rope_theta ** (-jnp.arange(half, dtype=jnp.float32) / half)
    angles_BxTx1xE = positions_BxT[:, :, None, None].astype(jnp.float32) * frequencies
    cos, sin = jnp.cos(angles_BxTx1xE), jnp.sin(angles_BxTx1xE)
    rope = jnp.concatenate([cos, cos], axis=-1), jnp.concatenate([-sin, sin], axis=-1)
    # The barrier keeps XLA from fusing, and so repeating, them in every layer and head.
    return jax.lax.optimization_barrier(rope)


def rotate(x_BxTxNxDh: jax.Array, rope: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Turn the pairs (i, i + Dh/2) of every head, Hugging Face's convention."""
    cos_BxTx1xDh, sin_BxTx1xDh = rope
    x32 = x_BxTxNxDh.astype(jnp.float32)
    turned = x32 * cos_BxTx1xDh + jnp.roll(x32, x32.shape[-1] // 2, axis=-1) * sin_BxTx1xDh
    return turned.astype(x_BxTxNxDh.dtype)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class OutputsFirst:
    """A matrix turned to `[*Out, *In]`, which meets a few rows as columns (`Transformer.decoding_layers`)."""

    weights: jax.Array

    def astype(self, dtype: jnp.dtype) -> "OutputsFirst":
        """The same in another type."""
        return OutputsFirst(self.weights.astype(dtype))

    def __call__(self, x: jax.Array) -> jax.Array:
        """What `project` gives."""
        ins = x.ndim - 2
        outs = self.weights.shape[: self.weights.ndim - ins]
        size = math.prod(x.shape[2:])
        out_NxO = columns(self.weights.reshape(-1, size), x.reshape(-1, size), x.dtype)
        return out_NxO.reshape(*x.shape[:2], *outs)


def _turned(weights: jax.Array, axes: tuple[str, ...]) -> OutputsFirst:
    """A matrix that reads the stream (its first axis is `embed`) or writes to it (its last one is)."""
    ins = 1 if axes[0] == "embed" else weights.ndim - 1
    order = (*range(ins, weights.ndim), *range(ins))
    return OutputsFirst(jax.lax.optimization_barrier(weights.transpose(order)))


def columns(weights_OxI: jax.Array, x_NxI: jax.Array, dtype: jnp.dtype) -> jax.Array:
    """`x @ weights.T`, `[N, O]`, computed as `weights @ x.T`.

    For some 16 rows XLA's CPU kernels are 1.2 to 1.9 times as fast with the weights on the left, as they lie;
    the barriers keep XLA from turning the product round again.
    """
    x_IxN = jax.lax.optimization_barrier(x_NxI.T)
    return jax.lax.optimization_barrier(jnp.matmul(weights_OxI, x_IxN, preferred_element_type=dtype)).T


FEW_ROWS = 64
"""Rows up to which `columns` is the faster way on CPU."""


def project(x: jax.Array, weights: jax.Array | OutputsFirst) -> jax.Array:
    """Contract x's axes from the third on with the weights' first ones: `[B, T, *In] x [*In, *Out]`.

    Its gradient is its own: jax's rule for the weights puts dy first, and copies dy (on CPU) to transpose it.
    With it, one matmul per matrix is as fast as fused ones, whose outputs had to be split and joined.
    """
    if isinstance(weights, OutputsFirst):
        return weights(x)
    # By its name `REMAT` knows it: a policy about dots sees none within a function with its own gradient.
    return checkpoint_name(_project(x, weights), "projected")


@jax.custom_vjp
def _project(x: jax.Array, weights: jax.Array) -> jax.Array:
    n = x.ndim - 2
    return jax.lax.dot_general(x, weights, ((tuple(range(2, x.ndim)), tuple(range(n))), ((), ())))


def _project_backward(saved, dy):
    x, weights = saved
    n = x.ndim - 2
    outs_dy, outs_weights = tuple(range(2, dy.ndim)), tuple(range(n, weights.ndim))
    dx = jax.lax.dot_general(dy, weights, ((outs_dy, outs_weights), ((), ())))
    dweights = jax.lax.dot_general(x, dy, (((0, 1), (0, 1)), ((), ())))
    return dx, dweights


_project.defvjp(lambda x, weights: (_project(x, weights), (x, weights)), _project_backward)


def normal(rngs: nnx.Rngs, shape: tuple[int, ...], std: float, axes: tuple[str, ...]) -> nnx.Param:
    """A float32 parameter with its logical axes (see `partition.RULES`)."""
    return nnx.Param(std * jax.random.normal(rngs.params(), shape, jnp.float32), axes=axes)


class Attention(nnx.Module):
    """Grouped-query self-attention; how queries meet keys is handed in: training and decoding share it."""

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs):
        D, H, K, Dh = config.d_model, config.n_heads, config.n_kv_heads, config.head_dim
        self.config = config
        std = D**-0.5
        self.query_DxHxDh = normal(rngs, (D, H, Dh), std, ("embed", "heads", "head_dim"))
        self.key_DxKxDh = normal(rngs, (D, K, Dh), std, ("embed", "kv_heads", "head_dim"))
        self.value_DxKxDh = normal(rngs, (D, K, Dh), std, ("embed", "kv_heads", "head_dim"))
        std = (H * Dh * 2 * config.n_layers) ** -0.5
        self.out_HxDhxD = normal(rngs, (H, Dh, D), std, ("heads", "head_dim", "embed"))
        if config.qk_norm:
            self.q_norm = nnx.Param(jnp.ones(Dh), axes=("norm",))
            self.k_norm = nnx.Param(jnp.ones(Dh), axes=("norm",))

    def __call__(self, x_BxTxD: jax.Array, rope: tuple[jax.Array, jax.Array], attend: Attend) -> jax.Array:
        """Mix positions; `rope` from `rotations`."""
        config, dtype = self.config, x_BxTxD.dtype
        q_BxTxHxDh = project(x_BxTxD, self.query_DxHxDh.astype(dtype))
        k_BxTxKxDh = project(x_BxTxD, self.key_DxKxDh.astype(dtype))
        v_BxTxKxDh = project(x_BxTxD, self.value_DxKxDh.astype(dtype))
        q_BxTxHxDh = constrain(q_BxTxHxDh, "batch", "length", "heads", "head_dim")
        k_BxTxKxDh = constrain(k_BxTxKxDh, "batch", "length", "kv_heads", "head_dim")
        v_BxTxKxDh = constrain(v_BxTxKxDh, "batch", "length", "kv_heads", "head_dim")
        if config.qk_norm:
            q_BxTxHxDh = rms_norm(q_BxTxHxDh, self.q_norm[...], config.norm_eps)
            k_BxTxKxDh = rms_norm(k_BxTxKxDh, self.k_norm[...], config.norm_eps)
        if (factor := config.score_factor()) != 1:
            q_BxTxHxDh *= factor
        mixed_BxTxHxDh = attend(rotate(q_BxTxHxDh, rope), rotate(k_BxTxKxDh, rope), v_BxTxKxDh)
        return project(mixed_BxTxHxDh, self.out_HxDhxD.astype(dtype))


class FeedForward(nnx.Module):
    """SwiGLU: down(silu(gate(x)) * up(x))."""

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs):
        D, F = config.d_model, config.d_ff
        self.gate_DxF = normal(rngs, (D, F), D**-0.5, ("embed", "mlp"))
        self.up_DxF = normal(rngs, (D, F), D**-0.5, ("embed", "mlp"))
        self.down_FxD = normal(rngs, (F, D), (F * 2 * config.n_layers) ** -0.5, ("mlp", "embed"))

    def __call__(self, x_BxTxD: jax.Array) -> jax.Array:
        """Transform every position by itself."""
        dtype = x_BxTxD.dtype
        gate_BxTxF = project(x_BxTxD, self.gate_DxF.astype(dtype))
        up_BxTxF = project(x_BxTxD, self.up_DxF.astype(dtype))
        hidden_BxTxF = constrain(jax.nn.silu(gate_BxTxF) * up_BxTxF, "batch", "length", "mlp")
        return project(hidden_BxTxF, self.down_FxD.astype(dtype))


class Block(nnx.Module):
    """One layer: attention and feed-forward, each on the normalised stream and added to it."""

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs):
        self.eps = config.norm_eps
        self.attention_norm = nnx.Param(jnp.ones(config.d_model), axes=("norm",))
        self.attention = Attention(config, rngs=rngs)
        self.feed_forward_norm = nnx.Param(jnp.ones(config.d_model), axes=("norm",))
        self.feed_forward = FeedForward(config, rngs=rngs)

    def __call__(self, x_BxTxD: jax.Array, rope: tuple[jax.Array, jax.Array], attend: Attend) -> jax.Array:
        """The stream after this layer."""
        x_BxTxD += self.attention(rms_norm(x_BxTxD, self.attention_norm[...], self.eps), rope, attend)
        x_BxTxD = constrain(x_BxTxD, "batch", "length", "features")
        x_BxTxD += self.feed_forward(rms_norm(x_BxTxD, self.feed_forward_norm[...], self.eps))
        return constrain(x_BxTxD, "batch", "length", "features")


REMAT = {
    "none": lambda run: run,
    "dots": functools.partial(
        jax.checkpoint, policy=jax.checkpoint_policies.save_only_these_names("projected")
    ),
    "full": jax.checkpoint,
}


class Transformer(nnx.Module):
    """Tokens in, features or logits out. `blocks` holds every layer's parameters stacked along axis 0."""

    def __init__(self, config: ModelConfig, *, rngs: nnx.Rngs):
        config.validate()
        self.config = config
        shape, axes = (config.vocab_size, config.d_model), ("vocab", "embed")
        self.embedding_VxD = normal(rngs, shape, config.embedding_std, axes)

        @nnx.split_rngs(splits=config.n_layers)
        @nnx.vmap(in_axes=0, out_axes=0, transform_metadata={nnx.PARTITION_NAME: None})
        def stack(rngs: nnx.Rngs) -> Block:
            return Block(config, rngs=rngs)

        self.blocks = stack(rngs)
        self.norm = nnx.Param(jnp.ones(config.d_model), axes=("norm",))
        if not config.tied_embeddings:
            self.head_VxD = normal(rngs, shape, config.embedding_std, axes)

    def __call__(self, tokens_BxT: jax.Array, segments_BxT: jax.Array, positions_BxT: jax.Array) -> jax.Array:
        """Logits of the next token, `[B, T, V]` float32."""
        return self.logits(self.features(tokens_BxT, segments_BxT, positions_BxT))

    def embed(self, tokens_BxT: jax.Array) -> jax.Array:
        """The stream before the first layer, `[B, T, D]`."""
        # Gathered over fsdp first: rows are split over it too, and a lookup cannot split both.
        table_VxD = constrain(self.embedding_VxD.astype(compute_dtype(self.config)), "vocab", "features")
        x_BxTxD = table_VxD[tokens_BxT]
        return constrain(x_BxTxD, "batch", "length", "features")

    def layers(self) -> list[Block]:
        """Every layer as a module of its own, first to last."""
        graphdef, state = nnx.split(self.blocks)
        leaves, tree = jax.tree.flatten(state)
        # One split per stacked array, whose transpose is one concatenation.
        split = [jax.lax.split(leaf, (1,) * self.config.n_layers) for leaf in leaves]
        return [
            nnx.merge(graphdef, jax.tree.unflatten(tree, [parts[layer][0] for parts in split]))
            for layer in range(self.config.n_layers)
        ]

    def decoding_layers(self) -> list[Block]:
        """`layers` for a loop that reads a few tokens at a time: on CPU with every matrix `OutputsFirst`.

        Take them before the loop: turning them costs as much as a step.
        """
        blocks = self.layers()
        if platform() == "cpu":
            for _, variable in [node for block in blocks for node in nnx.iter_graph(block)]:
                if isinstance(variable, nnx.Param) and variable.get_value().ndim > 1:
                    variable.set_value(_turned(variable.get_value(), variable.get_metadata("axes")))
        return blocks

    def features(self, tokens_BxT: jax.Array, segments_BxT: jax.Array, positions_BxT: jax.Array) -> jax.Array:
        """The normalised stream after the last layer, `[B, T, D]`: what `logits` and the loss take.

        Args:
          tokens_BxT: token ids.
          segments_BxT: document numbers from 1, pads 0; documents never see each other.
          positions_BxT: place of each token in its own document, from 0.
        """
        config = self.config
        tokens_BxT, positions_BxT = (constrain(x, "batch", "length") for x in (tokens_BxT, positions_BxT))
        rope = rotations(positions_BxT, config)
        graphdef, state = nnx.split(self.blocks)

        def attend(q: jax.Array, k: jax.Array, v: jax.Array) -> jax.Array:
            return attention(q, k, v, segments_BxT, backend=config.attention, block=config.attention_block)

        def run(x_BxTxD: jax.Array, layer: nnx.State) -> jax.Array:
            return nnx.merge(graphdef, layer)(x_BxTxD, rope, attend)

        run = REMAT[config.remat](run)
        x_BxTxD = self.embed(tokens_BxT)
        if config.scan_layers:
            x_BxTxD, _ = jax.lax.scan(lambda x, layer: (run(x, layer), None), x_BxTxD, state)
        else:
            for block in self.layers():
                x_BxTxD = run(x_BxTxD, nnx.state(block))
        return self.normalise(x_BxTxD)

    def features_with(
        self,
        blocks: Sequence[Block],
        tokens_BxT: jax.Array,
        positions_BxT: jax.Array,
        attends: Sequence[Attend],
    ) -> jax.Array:
        """`features`, with each layer's attention handed in: how decoding reads and writes its cache.

        So are the `layers`: a decoding loop that split them itself would copy all of them at every step.
        """
        rope = rotations(positions_BxT, self.config)
        x_BxTxD = self.embed(tokens_BxT)
        for block, attend in zip(blocks, attends, strict=True):
            x_BxTxD = block(x_BxTxD, rope, attend)
        return self.normalise(x_BxTxD)

    def normalise(self, x_BxTxD: jax.Array) -> jax.Array:
        """The stream as the output head reads it; under muP shrunk by the width, as its logits must be."""
        scale_D = self.norm[...] / self.config.width("embed")
        return rms_norm(x_BxTxD, scale_D, self.config.norm_eps)

    def output_VxD(self) -> jax.Array:
        """The output head (the embedding where they are tied), in the compute type."""
        weights = self.embedding_VxD if self.config.tied_embeddings else self.head_VxD
        return constrain(weights.astype(compute_dtype(self.config)), "vocab", "features")

    def logits(self, x_BxTxD: jax.Array) -> jax.Array:
        """Scores of every next token, `[..., V]` float32, from `features`."""
        *lead, D = x_BxTxD.shape
        if platform() == "cpu" and math.prod(lead) <= FEW_ROWS:
            logits_NxV = columns(self.output_VxD(), x_BxTxD.reshape(-1, D), jnp.dtype(jnp.float32))
            return logits_NxV.reshape(*lead, -1)
        return jnp.einsum("...d,vd->...v", x_BxTxD, self.output_VxD(), preferred_element_type=jnp.float32)


@functools.lru_cache(maxsize=64)
def abstract(config: ModelConfig) -> tuple[nnx.GraphDef, nnx.State]:
    """The module's structure, and the shapes and logical axes of its parameters; allocates nothing."""
    return nnx.split(nnx.eval_shape(lambda: Transformer(config, rngs=nnx.Rngs(0))))


def init(config: ModelConfig, key: jax.Array) -> dict[str, Any]:
    """Fresh parameters as a pure dict of float32 arrays, from `jax.random.key(seed)`.

    On a mesh: `jax.jit(functools.partial(init, config), out_shardings=params_shardings(...))(key)`.
    """
    return nnx.to_pure_dict(nnx.state(Transformer(config, rngs=nnx.Rngs(params=key))))


def bind(config: ModelConfig, params: dict[str, Any]) -> Transformer:
    """The module with these parameters; differentiable with respect to them. Call it inside `jax.jit`."""
    graphdef, state = abstract(config)
    state = jax.tree.map(lambda leaf: leaf, state)  # a copy: the cached one stays abstract
    nnx.replace_by_pure_dict(state, params)
    return nnx.merge(graphdef, state)
