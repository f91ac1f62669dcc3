"""One debugger session that goes on: ids are fed, states generated, and the cache remembers both."""

import functools
from collections.abc import Iterable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nd_jax.decoding.cache import Cache, empty, extend
from nd_jax.decoding.engine import cache_dtype, check_ids, stop_mask
from nd_jax.errors import UserError
from nd_jax.model.config import ModelConfig
from nd_jax.model.transformer import bind

CHUNK = 64
"""Tokens fed at once: longer feeds take several passes, shorter ones are filled up: one program for all."""


@functools.partial(jax.jit, static_argnames=("model",), donate_argnames=("cache",))
def _feed(
    model: ModelConfig,
    params: dict[str, Any],
    tokens_T: jax.Array,
    length: jax.Array,
    last: jax.Array | int,
    cache: Cache,
) -> tuple[jax.Array, Cache]:
    """Read tokens at places `length ..` (slots are places); the features `[D]` of the one at index `last`."""
    places_T = length + jnp.arange(len(tokens_T))
    seen_1xTxS = (jnp.arange(cache.keys[0].shape[2]) <= places_T[:, None])[None]
    module = bind(model, params)
    x_1xTxD, cache = extend(module, tokens_T[None], places_T[None], length, seen_1xTxS, cache)
    return x_1xTxD[0, last], cache


@functools.partial(jax.jit, static_argnames=("model", "room"), donate_argnames=("cache",))
def _generate(
    model: ModelConfig,
    room: int,
    params: dict[str, Any],
    x_D: jax.Array,
    length: jax.Array,
    stops_V: jax.Array,
    limit: jax.Array,
    cache: Cache,
) -> tuple[jax.Array, jax.Array, Cache]:
    """Greedy ids `[room]`, how many there are, and the cache, which holds all of them but the last."""
    module = bind(model, params)

    def best(x_D: jax.Array) -> jax.Array:
        return jnp.argmax(module.logits(x_D)).astype(jnp.int32)

    def unfinished(carry: tuple[Any, ...]) -> jax.Array:
        i, token, _, _ = carry
        return (i < limit) & ~stops_V[token]

    def step(carry: tuple[Any, ...]) -> tuple[Any, ...]:
        i, token, out_N, cache = carry
        x_D, cache = _feed(model, params, token[None], length + i - 1, 0, cache)
        token = best(x_D)
        return i + 1, token, out_N.at[i].set(token), cache

    first = best(x_D)
    start = jnp.int32(1), first, jnp.zeros(room, jnp.int32).at[0].set(first), cache
    count, _, out_N, cache = jax.lax.while_loop(unfinished, step, start)
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

    def rewind(self, length: int) -> None:
        """Forget all but the first `length` ids, as if the others had never been."""
        self.ids = self.ids[:length]
        self._cached = min(self._cached, length)

    def generate(self, stop_ids: Iterable[int], max_new_tokens: int) -> list[int]:
        """Append the greedy continuation and return it: up to and including the first stop id.

        It is shorter where `max_new_tokens` or the session's end is reached before.
        """
        limit = min(max_new_tokens, self.max_length - len(self.ids))
        if not self.ids or limit < 1:
            raise UserError(f"nothing can follow {len(self.ids)} tokens (max_length={self.max_length})")
        x_D = self._read()
        stops_V = stop_mask(stop_ids, self.model.vocab_size)
        out_N, count, self._cache = _generate(
            self.model, self.max_length, self.params, x_D, len(self.ids), stops_V, limit, self._cache
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
