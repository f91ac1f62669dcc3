"""One debugger session that goes on: ids are fed, states generated, and the cache remembers both."""

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nd_jax.decoding.cache import Cache, empty, extend
from nd_jax.decoding.choosing import (
    GREEDY,
    Chosen,
    Rules,
    Sampling,
    checksum,
    choose,
    make_rules,
    prompt_key,
)
from nd_jax.decoding.engine import cache_dtype, check_ids
from nd_jax.decoding.grammar import Constraint
from nd_jax.errors import UserError
from nd_jax.model.config import ModelConfig
from nd_jax.model.transformer import Block, Transformer, bind

CHUNK = 64
"""Tokens fed at once: longer feeds take several passes, shorter ones are filled up: one program for all."""


@functools.partial(jax.jit, static_argnames=("model",), donate_argnames=("cache",))
def _feed(
    model: ModelConfig,
    params: dict[str, Any],
    tokens_T: jax.Array,
    length: jax.Array,
    last: jax.Array,
    cache: Cache,
) -> tuple[jax.Array, Cache]:
    """Read tokens from place `length` on; the features `[D]` of the one at index `last`."""
    module = bind(model, params)
    x_TxD, cache = _features(module, module.layers(), tokens_T, length, cache)
    return x_TxD[last], cache


def _features(
    module: Transformer, blocks: Sequence[Block], tokens_T: jax.Array, length: jax.Array, cache: Cache
) -> tuple[jax.Array, Cache]:
    """Features `[T, D]` of tokens at places `length ..`, which are their slots."""
    places_T = length + jnp.arange(len(tokens_T))
    seen_1xTxS = (jnp.arange(cache.keys[0].shape[2]) <= places_T[:, None])[None]
    x_1xTxD, cache = extend(module, blocks, tokens_T[None], places_T[None], length, seen_1xTxS, cache)
    return x_1xTxD[0], cache


@functools.partial(jax.jit, static_argnames=("model", "room"), donate_argnames=("cache",))
def _generate(
    model: ModelConfig,
    room: int,
    params: dict[str, Any],
    x_D: jax.Array,
    length: jax.Array,
    key: jax.Array,
    allowed_1xV: jax.Array | None,
    rules: Rules,
    cache: Cache,
) -> tuple[jax.Array, jax.Array, Cache]:
    """Ids `[room]`, how many there are, and the cache, which holds all of them but the last."""
    module = bind(model, params)
    blocks = module.decoding_layers()

    def next_one(x_D: jax.Array, count: jax.Array, place_1: jax.Array) -> Chosen:
        return choose(module.logits(x_D[None]), key[None], count[None], place_1, allowed_1xV, rules)

    def unfinished(carry: tuple[Any, ...]) -> jax.Array:
        count, token_1, _, _, _ = carry
        return (count < rules.limit) & ~rules.stops_V[token_1[0]]

    def step(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        count, token_1, place_1, out_N, cache = carry
        x_1xD, cache = _features(module, blocks, token_1, length + count - 1, cache)
        chosen = next_one(x_1xD[0], count, place_1)
        return count + 1, chosen.token_B, chosen.place_B, out_N.at[count].set(chosen.token_B[0]), cache

    first = next_one(x_D, jnp.int32(0), jnp.zeros(1, jnp.int32))
    out_N = jnp.zeros(room, jnp.int32).at[0].set(first.token_B[0])
    start = jnp.int32(1), first.token_B, first.place_B, out_N, cache
    count, _, _, out_N, cache = jax.lax.while_loop(unfinished, step, start)
    return out_N, count, cache


class DebugSession:
    """A growing sequence of ids with the model's cache of it; batch of one, for stepping with a person."""

    def __init__(self, model: ModelConfig, params: dict[str, Any], max_length: int):
        """Args:
        model: the shape of the model.
        params: its parameters.
        max_length: ids the session may hold; what the model was trained on (the row length) is a good choice.
        """
        self.model = model
        self.params = params
        self.max_length = max_length
        self.ids: list[int] = []
        """Everything fed and generated so far."""
        self._cached = 0  # how many of `ids` the cache holds
        # Filled-up chunks may write past the last id, so there is room for one.
        self._cache = empty(model, 1, max_length + CHUNK, cache_dtype("auto", model))

    def feed(self, ids: Sequence[int]) -> None:
        """Append ids; the model reads them at the next `generate`."""
        check_ids(ids, self.model.vocab_size, "what is fed")
        if len(self.ids) + len(ids) > self.max_length:
            raise UserError(
                f"the session would hold {len(self.ids) + len(ids)} tokens, more than its {self.max_length}"
            )
        self.ids.extend(ids)

    def continue_from(self, ids: Sequence[int]) -> None:
        """Hold these ids; what they share with those held before is not read again."""
        pairs = enumerate(zip(ids, self.ids, strict=False))
        shared = next((k for k, (new, old) in pairs if new != old), min(len(ids), len(self.ids)))
        self.rewind(shared)
        if shared < len(ids):
            self.feed(ids[shared:])

    def rewind(self, length: int) -> None:
        """Forget all but the first `length` ids, as if the others had never been."""
        self.ids = self.ids[:length]
        self._cached = min(self._cached, length)

    def generate(
        self,
        stop_ids: Iterable[int],
        max_new_tokens: int,
        sampling: Sampling = GREEDY,
        constraint: Constraint | None = None,
    ) -> list[int]:
        """Append a continuation and return it: up to and including the first stop id.

        It is shorter where `max_new_tokens` or the session's end is reached before.

        Args:
          stop_ids: the continuation ends with the first of these.
          max_new_tokens: or after so many.
          sampling: greedy, or how to draw (one sample).
          constraint: what the grammar allows after what the session holds; its `shown` has this one entry.
        """
        limit = min(max_new_tokens, self.max_length - len(self.ids))
        if not self.ids or limit < 1:
            raise UserError(f"nothing can follow {len(self.ids)} tokens (max_length={self.max_length})")
        sampling.validate()
        x_D = self._read()
        moves_QxV = None if constraint is None else constraint.moves_QxV
        rules = make_rules(stop_ids, self.model.vocab_size, limit, sampling, moves_QxV)
        out_N, count, self._cache = _generate(
            self.model,
            self.max_length,
            self.params,
            x_D,
            len(self.ids),
            prompt_key(jax.random.key(sampling.seed), np.uint32(checksum(self.ids)), np.uint32(0)),
            None if constraint is None else constraint.allowed_V(0)[None],
            rules,
            self._cache,
        )
        generated = jax.device_get(out_N)[: int(count)].tolist()
        self.ids.extend(generated)
        self._cached = len(self.ids) - 1
        return generated

    def _read(self) -> jax.Array:
        """Bring the cache up to date; the features of the last id, `[D]`."""
        # Where the last id is cached already (after a rewind) it is read again: its features are needed.
        self._cached = min(self._cached, len(self.ids) - 1)
        x_D = jnp.zeros(self.model.d_model)
        while self._cached < len(self.ids):
            chunk = self.ids[self._cached : self._cached + CHUNK]
            tokens_T = np.array(chunk + [0] * (CHUNK - len(chunk)), np.int32)
            last = len(chunk) - 1
            x_D, self._cache = _feed(self.model, self.params, tokens_T, self._cached, last, self._cache)
            self._cached += len(chunk)
        return x_D
