"""Batched greedy decoding: ragged prompts in, generated ids out, one compilation per prompt-length bucket."""

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from nd_jax.console import track
from nd_jax.decoding.cache import extend, prefill
from nd_jax.errors import UserError
from nd_jax.model.config import ModelConfig
from nd_jax.model.transformer import Transformer, bind, compute_dtype


@dataclass(frozen=True)
class DecodeConfig:
    """How prompts are batched and how much may be generated."""

    batch_size: int = 32
    """Prompts decoded at once; the last batch of a bucket is filled up, so that shapes never change."""
    buckets: tuple[int, ...] = (64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
    """Prompt lengths that programs are compiled for; a prompt takes the smallest that holds it."""
    max_new_tokens: int = 64
    """Room for generated tokens behind every prompt; a call may ask for fewer."""
    cache_dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Type of cached keys and values; auto is the model's compute type."""

    def validate(self) -> None:
        """Raise UserError for sizes that cannot be."""
        if min(self.batch_size, self.max_new_tokens, *self.buckets) < 1 or not self.buckets:
            raise UserError("decode.batch_size, max_new_tokens and buckets must all be at least 1")
        if list(self.buckets) != sorted(set(self.buckets)):
            raise UserError(f"decode.buckets must grow: {self.buckets}")
        if self.cache_dtype not in ("auto", "float32", "bfloat16"):
            raise UserError(
                f"decode.cache_dtype={self.cache_dtype!r} is unknown; use auto, float32 or bfloat16"
            )


def cache_dtype(name: str, model: ModelConfig) -> jnp.dtype:
    """The type that a `cache_dtype` field means for this model."""
    return compute_dtype(model) if name == "auto" else jnp.dtype(name)


def stop_mask(stop_ids: Iterable[int], vocab_size: int) -> np.ndarray:
    """`[V]` bool, true for the ids that end a generation; an array, so that other sets do not recompile."""
    mask_V = np.zeros(vocab_size, bool)
    mask_V[list(stop_ids)] = True
    return mask_V


def check_ids(ids: Sequence[int], vocab_size: int, what: str) -> None:
    """Raise UserError for ids that the model lacks: a lookup under jit would silently take another's row."""
    if len(ids) == 0:
        raise UserError(f"{what} is empty: a generation needs at least one token to follow")
    if min(ids) < 0 or max(ids) >= vocab_size:
        raise UserError(f"{what} has an id outside 0..{vocab_size - 1}: another tokenizer than the model's?")


@functools.partial(jax.jit, static_argnames=("model", "room", "dtype"))
def _generate(
    model: ModelConfig,
    room: int,
    dtype: jnp.dtype,
    params: dict[str, Any],
    tokens_BxP: jax.Array,
    lengths_B: jax.Array,
    stops_V: jax.Array,
    limit: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    """Greedy continuations `[B, room]` and how many of their ids count; rows of length 0 are fillers."""
    B, P = tokens_BxP.shape
    module = bind(model, params)
    x_BxPxD, cache = prefill(module, tokens_BxP, P + room, dtype)
    last_B = jnp.maximum(lengths_B - 1, 0)
    first_B = _best(module, jnp.take_along_axis(x_BxPxD, last_B[:, None, None], axis=1))
    active_B = lengths_B > 0
    out_BxN = jnp.zeros((B, room), jnp.int32).at[:, 0].set(first_B)
    slots_S = jnp.arange(P + room)

    def unfinished(carry: tuple[Any, ...]) -> jax.Array:
        i, _, _, _, active_B, _ = carry
        return (i < limit) & active_B.any()

    def step(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        i, token_B, out_BxN, counts_B, active_B, cache = carry
        # Generated token i - 1 takes slot P + i - 1 in every row (one in-place write), whatever the prompt's
        # length; only its position, for RoPE, is the row's own.
        slot = P + i - 1
        seen_BxS = (slots_S < lengths_B[:, None]) | ((slots_S >= P) & (slots_S <= slot))
        positions_B = lengths_B + i - 1
        x_Bx1xD, cache = extend(
            module, token_B[:, None], positions_B[:, None], slot, seen_BxS[:, None], cache
        )
        token_B = _best(module, x_Bx1xD)
        out_BxN = jax.lax.dynamic_update_slice(out_BxN, token_B[:, None], (0, i))
        counts_B = counts_B + active_B
        return i + 1, token_B, out_BxN, counts_B, active_B & ~stops_V[token_B], cache

    start = 1, first_B, out_BxN, active_B.astype(jnp.int32), active_B & ~stops_V[first_B], cache
    _, _, out_BxN, counts_B, _, _ = jax.lax.while_loop(unfinished, step, start)
    return out_BxN, counts_B


def _best(module: Transformer, x_Bx1xD: jax.Array) -> jax.Array:
    return jnp.argmax(module.logits(x_Bx1xD)[:, 0], axis=-1).astype(jnp.int32)


class Decoder:
    """Greedy decoding with fixed parameters.

    What is generated for a prompt depends on that prompt alone: its bucket follows from its length, and
    batches always have the same shape.
    """

    def __init__(
        self, model: ModelConfig, params: dict[str, Any], config: DecodeConfig, progress: str | None = None
    ):
        config.validate()
        model.validate()
        self.model = model
        self.params = params
        self.config = config
        self.progress = progress
        """Label of a progress bar over a call's batches; none without it."""
        self.shapes: set[tuple[int, int]] = set()
        """(batch, bucket) of every program used so far; each was compiled once."""

    @property
    def compilations(self) -> int:
        """How many programs this decoder has needed; at most one per bucket."""
        return len(self.shapes)

    def greedy(
        self,
        prompts: Sequence[Sequence[int]],
        stop_ids: Iterable[int],
        max_new_tokens: int | None = None,
    ) -> list[list[int]]:
        """The most likely continuation of every prompt, token by token.

        Args:
          prompts: token ids, each at least one; any lengths up to the largest bucket.
          stop_ids: a continuation ends with the first of these.
          max_new_tokens: or after so many ids; default and maximum: the config's.

        Returns:
          For each prompt, in order, the generated ids up to and including the stop id.

        Raises:
          UserError: a prompt is empty, too long, or holds ids that the model lacks.
        """
        limit = self.config.max_new_tokens if max_new_tokens is None else max_new_tokens
        if not 1 <= limit <= self.config.max_new_tokens:
            raise UserError(
                f"max_new_tokens={limit} is outside 1..{self.config.max_new_tokens} (decode.max_new_tokens)"
            )
        stops_V = stop_mask(stop_ids, self.model.vocab_size)
        batches = list(self._batches(prompts))
        results: list[list[int]] = [[] for _ in prompts]
        for bucket, indices in track(batches, self.progress) if self.progress else batches:
            for index, ids in zip(indices, self._run(bucket, indices, prompts, stops_V, limit), strict=True):
                results[index] = ids
        return results

    def bucket(self, length: int) -> int:
        """The prompt length that a prompt of `length` tokens is filled up to."""
        for bucket in self.config.buckets:
            if length <= bucket:
                return bucket
        raise UserError(
            f"a prompt of {length} tokens is longer than decode.buckets allow ({self.config.buckets[-1]})"
        )

    def _batches(self, prompts: Sequence[Sequence[int]]) -> Iterator[tuple[int, list[int]]]:
        """(bucket, indices of its prompts), of similar lengths: they need similar numbers of steps."""
        by_bucket: dict[int, list[int]] = {}
        for index, prompt in enumerate(prompts):
            check_ids(prompt, self.model.vocab_size, f"prompt {index}")
            by_bucket.setdefault(self.bucket(len(prompt)), []).append(index)
        for bucket, indices in sorted(by_bucket.items()):
            indices.sort(key=lambda index: len(prompts[index]))
            for start in range(0, len(indices), self.config.batch_size):
                yield bucket, indices[start : start + self.config.batch_size]

    def _run(
        self,
        bucket: int,
        indices: list[int],
        prompts: Sequence[Sequence[int]],
        stops_V: np.ndarray,
        limit: int,
    ) -> list[list[int]]:
        B = self.config.batch_size
        self.shapes.add((B, bucket))
        tokens_BxP, lengths_B = np.zeros((B, bucket), np.int32), np.zeros(B, np.int32)
        for row, index in enumerate(indices):
            prompt = prompts[index]
            tokens_BxP[row, : len(prompt)] = prompt
            lengths_B[row] = len(prompt)
        dtype = cache_dtype(self.config.cache_dtype, self.model)
        out_BxN, counts_B = jax.device_get(
            _generate(
                self.model,
                self.config.max_new_tokens,
                dtype,
                self.params,
                tokens_BxP,
                lengths_B,
                stops_V,
                limit,
            )
        )
        return [out_BxN[row, : counts_B[row]].tolist() for row in range(len(indices))]
