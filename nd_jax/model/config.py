"""What one model is (its shape, how it computes, formulas for its cost) and how many devices share it."""

import math
from dataclasses import dataclass, field
from typing import Literal

from nd_jax.errors import UserError

AXES = ("replica", "fsdp", "sequence", "tensor")
"""The axes of the device mesh; those that move most between devices last, where links are shortest."""


@dataclass(frozen=True)
class BaseWidths:
    """The widths of the model that learning rate and initialisation were tuned on, for muP."""

    d_model: int = 0
    """Its `d_model`; 0: standard parametrisation, no muP."""
    d_ff: int = 0
    """Its `d_ff`; 0: in the same proportion as `d_model`."""
    n_heads: int = 0
    """Its `n_heads`; 0: so that its heads together are in the same proportion as `d_model`."""
    head_dim: int = 0
    """Its `head_dim`; 0: this model's."""


@dataclass(frozen=True)
class ModelConfig:
    """The shape of a decoder-only transformer and how it computes (Llama layout; Qwen3's with `qk_norm`)."""

    vocab_size: int = 1024
    """Tokens the model knows; must be the tokenizer's `vocab_size`."""
    d_model: int = 128
    """Width of the residual stream."""
    n_layers: int = 3
    """Transformer blocks."""
    n_heads: int = 2
    """Query heads."""
    n_kv_heads: int = 2
    """Key and value heads, each shared by `n_heads / n_kv_heads` query heads (grouped-query attention)."""
    head_dim: int = 64
    """Size of one head; even, since RoPE turns its two halves."""
    d_ff: int = 256
    """Width of the SwiGLU feed-forward layer."""
    rope_theta: float = 10_000.0
    """Base of RoPE's wavelengths."""
    qk_norm: bool = False
    """RMS-normalise queries and keys per head before RoPE, as Qwen3 does."""
    tied_embeddings: bool = True
    """Use the token embedding as the output head too."""
    norm_eps: float = 1e-5
    """Added to the mean square inside every RMSNorm."""
    embedding_std: float = 0.02
    """Standard deviation of the initial embedding (and of the output head when it is not tied)."""
    mup: BaseWidths = field(default_factory=BaseWidths)
    """muP ("Tensor Programs V", arXiv 2203.03466, table 8): with the widths of a smaller base model, the
    learning rate that is best there is best here. Equal to the standard parametrisation at the base."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Type of matmuls and activations: auto is bfloat16 on accelerators, float32 on CPU. Parameters, norms,
    softmax and the loss are float32 always."""
    scan_layers: bool = False
    """Loop over layers with one compiled body (fast to compile, for deep models) instead of writing them out
    (a quarter faster on CPU). The parameters are the same either way."""
    remat: Literal["none", "dots", "full"] = "none"
    """What the backward pass recomputes per layer: nothing, all but matmul results, or everything."""
    attention: Literal["auto", "xla", "blocked", "splash", "triton"] = "auto"
    """Attention backend: the plain reference, causal query blocks, a kernel for TPU, or one for GPU. auto:
    the kernel of the accelerator where it can do what is asked, blocked on CPU, else the reference."""
    attention_block: int = 128
    """Query positions a block of the `blocked` backend handles at once."""
    loss_chunk: int = 256
    """Positions of every row whose logits exist at once in the loss (of a device's part of the row, where a
    sequence axis splits it)."""

    def validate(self) -> None:
        """Raise UserError where the sizes contradict each other."""
        for name in ("vocab_size", "d_model", "n_layers", "n_heads", "n_kv_heads", "head_dim", "d_ff",
                     "attention_block", "loss_chunk"):  # fmt: skip
            if getattr(self, name) < 1:
                raise UserError(f"model.{name} must be at least 1, not {getattr(self, name)}")
        if self.n_heads % self.n_kv_heads:
            raise UserError(
                f"model.n_kv_heads={self.n_kv_heads} does not divide model.n_heads={self.n_heads}; "
                f"use one of {[k for k in range(1, self.n_heads + 1) if self.n_heads % k == 0]}"
            )
        for name in ("d_model", "d_ff", "n_heads", "head_dim"):
            if getattr(self.mup, name) < 0:
                raise UserError(f"model.mup.{name} must be at least 0, not {getattr(self.mup, name)}")
        if self.head_dim % 2:
            raise UserError(f"model.head_dim={self.head_dim} must be even: RoPE turns its two halves")
        choices = {
            "dtype": ("auto", "float32", "bfloat16"),
            "remat": ("none", "dots", "full"),
            "attention": ("auto", "xla", "blocked", "splash", "triton"),
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise UserError(
                    f"model.{name}={getattr(self, name)!r} is unknown; use one of {', '.join(known)}"
                )

    def width(self, axis: str) -> float:
        """How many times as wide as its muP base the model is along a logical axis; 1 without muP."""
        base = self.mup
        if not base.d_model:
            return 1.0
        wide = self.d_model / base.d_model
        if axis == "mlp" and base.d_ff:
            return self.d_ff / base.d_ff
        if axis in ("heads", "kv_heads") and base.n_heads:  # keys and values grow as the queries do
            return self._queries / (base.n_heads * (base.head_dim or self.head_dim))
        return wide

    def score_factor(self) -> float:
        """The factor on attention scores besides 1/sqrt(head_dim): under muP they shrink as 1/head_dim."""
        known = self.mup.d_model and self.mup.head_dim
        return math.sqrt(self.mup.head_dim / self.head_dim) if known else 1.0

    def matrix_parameters(self) -> int:
        """Numbers in the layers' matrices: attention's four and the feed-forward's three (Muon's share)."""
        return self.n_layers * (
            2 * self.d_model * (self._queries + self._keys) + 3 * self.d_model * self.d_ff
        )

    def parameters(self) -> int:
        """Trainable numbers, embeddings included; equals the size of a real initialisation."""
        norms = self.n_layers * (2 * self.d_model + (2 * self.head_dim if self.qk_norm else 0)) + self.d_model
        embeddings = self.vocab_size * self.d_model * (1 if self.tied_embeddings else 2)
        return embeddings + self.matrix_parameters() + norms

    def parameter_bytes(self) -> int:
        """Memory of the parameters, float32 always; so much again while gradients exist."""
        return 4 * self.parameters()

    def flops_per_token(self, row_length: int) -> float:
        """Floating-point operations of one training step per token of a row of `row_length` tokens.

        The one convention behind every utilisation this project prints: a multiply-add counts 2, the
        backward pass twice the forward; all matmuls count, the output head included; the embedding lookup,
        norms, softmax and whatever is recomputed do not. Attention is causal, so a query meets half of
        `row_length` keys; segments are not subtracted.
        """
        head = self.vocab_size * self.d_model
        attention = self.n_layers * 2 * self._queries * row_length / 2
        return 3.0 * 2.0 * (self.matrix_parameters() + head + attention)

    def activation_bytes(self, rows: int, row_length: int) -> float:
        """Estimate the most memory that activations take at once while so many rows are worked off.

        What the layers keep for the backward pass under `remat`, one layer at work (its values and their
        gradients), and one chunk of the loss. `auto` counts as bfloat16. Compilers fuse and copy as they
        like: it is an estimate, within 2x of XLA's own figure on CPU (tests/planning/test_plan.py);
        `nd plan` asks the compiler.
        """
        size = 4 if self.dtype == "float32" else 2
        q, k, D, F = self._queries, self._keys, self.d_model, self.d_ff
        # Two normed inputs, two outputs; queries and keys before and after RoPE; gate, up, their product.
        numbers = 4 * D + 3 * q + 3 * k + 3 * F
        # The plain reference keeps float32 scores, the blocked one half of them; kernels keep none.
        kept_share = {"xla": 1.0, "blocked": 0.5}.get(self.attention, 0.0)
        layer = size * numbers + 4 * self.n_heads * row_length * kept_share
        kept = {
            "none": layer,
            "dots": size * (D + 2 * D + q + 2 * k + 2 * F),
            "full": size * D,
        }[self.remat]
        at_work = 2 * layer
        stream = 2 * size * D  # what the loss reads, and its gradient
        chunk = min(self.loss_chunk, row_length) * self.vocab_size * (4 + size)
        return rows * (row_length * (self.n_layers * kept + at_work + stream) + chunk)

    @property
    def _queries(self) -> int:
        return self.n_heads * self.head_dim

    @property
    def _keys(self) -> int:
        return self.n_kv_heads * self.head_dim


@dataclass(frozen=True)
class MeshConfig:
    """How many devices share each kind of work; their product is the number of devices used."""

    replica: int = 1
    """Copies of the model, each training on its own rows (between slices or hosts); -1: all that remain."""
    fsdp: int = -1
    """Devices that split parameters and optimizer state and train on their own rows; -1: all that remain."""
    sequence: int = 1
    """Devices that split the positions of a row (context parallelism: each attends from its own queries to
    gathered keys and values), and the parameters as `fsdp` does; -1: all that remain."""
    tensor: int = 1
    """Devices that split heads, feed-forward and vocabulary of one row; -1: all that remain."""

    def sizes(self, devices: int) -> tuple[int, ...]:
        """The size of each of `AXES` over so many devices, -1 filled in; UserError where they do not fit."""
        given = [getattr(self, axis) for axis in AXES]
        shown = ", ".join(f"{name}={size}" for name, size in zip(AXES, given, strict=True))
        if given.count(-1) > 1 or any(size < 1 and size != -1 for size in given):
            raise UserError(
                f"mesh {shown}: every size must be at least 1, and one of them may be -1 (the rest)"
            )
        known = math.prod(size for size in given if size != -1)
        if -1 in given:
            if devices % known:
                raise UserError(
                    f"mesh {shown}: {known} does not divide the {devices} devices; nearest that do: "
                    f"{nearest_divisors(known, devices)}"
                )
            given[given.index(-1)] = devices // known
        elif known != devices:
            widest = max(range(len(given)), key=given.__getitem__)
            rest = known // given[widest]
            fits = f"{AXES[widest]}={devices // rest}" if devices % rest == 0 else f"fsdp={devices} alone"
            raise UserError(
                f"mesh {shown} needs {known} devices, but there are {devices}; the nearest that fits: "
                f"{fits}; -1 takes all that remain"
            )
        return tuple(given)


def nearest_multiples(number: int, size: int) -> str:
    """The multiples of `size` next below and above `number`, as text for an error message."""
    below = number // size * size
    return " or ".join(map(str, [below, below + size] if below else [size]))


def nearest_divisors(wanted: int, number: int) -> str:
    """The divisors of `number` next below and above `wanted`, as text for an error message."""
    divisors = [d for d in range(1, number + 1) if number % d == 0]
    below = [d for d in divisors if d < wanted][-1:]
    above = [d for d in divisors if d > wanted][:1]
    return " or ".join(map(str, below + above))
