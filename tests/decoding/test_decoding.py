"""Cached decoding says what a full recomputation says, whatever the batch around a prompt."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nd_jax.decoding import engine
from nd_jax.decoding.engine import DecodeConfig, Decoder
from nd_jax.decoding.session import DebugSession
from nd_jax.errors import UserError
from nd_jax.model.config import ModelConfig
from nd_jax.model.transformer import bind, init

MODELS = {
    "multi-head": ModelConfig(
        vocab_size=61, d_model=16, n_layers=2, n_heads=2, n_kv_heads=2, head_dim=8, d_ff=24
    ),
    "grouped-query, QK-norm, untied": ModelConfig(
        vocab_size=61, d_model=16, n_layers=2, n_heads=4, n_kv_heads=2, head_dim=8, d_ff=24, qk_norm=True,
        tied_embeddings=False, scan_layers=True,
    ),
}  # fmt: skip
DECODE = DecodeConfig(batch_size=3, buckets=(8, 16), max_new_tokens=12)


def parameters(model: ModelConfig) -> dict:
    """Random, and large enough that continuations wander instead of repeating one id."""
    params = init(model, jax.random.key(3))
    return jax.tree.map(lambda x: x * 4 if x.ndim > 2 else x, params)


def prompts(count: int, longest: int = 16) -> list[list[int]]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, 61, rng.integers(1, longest + 1)).tolist() for _ in range(count)]


@functools.lru_cache
def full_forward(model: ModelConfig):
    """Logits of a whole sequence without a cache, at a fixed length (pads behind are causally invisible)."""
    params = parameters(model)

    @jax.jit
    def logits(tokens_1xT):
        ones = jnp.ones_like(tokens_1xT)
        return bind(model, params)(tokens_1xT, ones, jnp.arange(tokens_1xT.shape[1])[None])

    return logits


def recompute(model: ModelConfig, prompt: list[int], stop_ids: set[int], limit: int) -> list[int]:
    ids = list(prompt)
    while len(ids) - len(prompt) < limit and not (len(ids) > len(prompt) and ids[-1] in stop_ids):
        padded = np.zeros((1, 40), np.int32)
        padded[0, : len(ids)] = ids
        ids.append(int(full_forward(model)(padded)[0, len(ids) - 1].argmax()))
    return ids[len(prompt) :]


@pytest.mark.parametrize("name", MODELS)
def test_greedy_is_full_recomputation_token_for_token(name):
    model = MODELS[name]
    given = prompts(7)
    stop_ids = {5, 6, 7, 8}
    got = Decoder(model, parameters(model), DECODE).greedy(given, stop_ids)
    want = [recompute(model, prompt, stop_ids, DECODE.max_new_tokens) for prompt in given]
    assert got == want
    assert len({id for ids in want for id in ids}) > 10, "the test's model only repeats itself"
    assert {ids[-1] in stop_ids for ids in want} == {True, False}, "both ways to end must occur"


def test_ids_do_not_depend_on_batch_size_slot_or_neighbours():
    model = MODELS["multi-head"]
    params, given = parameters(model), prompts(7)
    base = Decoder(model, params, DECODE).greedy(given, {5})
    assert Decoder(model, params, DECODE).greedy(given[::-1], {5}) == base[::-1]
    assert Decoder(model, params, DecodeConfig(batch_size=1, buckets=(8, 16), max_new_tokens=12)).greedy(
        given, {5}
    ) == base  # fmt: skip
    assert Decoder(model, params, DecodeConfig(batch_size=8, buckets=(16,), max_new_tokens=12)).greedy(
        given, {5}
    ) == base  # fmt: skip
    assert [Decoder(model, params, DECODE).greedy([prompt], {5})[0] for prompt in given] == base


def test_a_shorter_limit_gives_a_prefix_without_compiling_again():
    model = MODELS["multi-head"]
    decoder = Decoder(model, parameters(model), DECODE)
    long = decoder.greedy(prompts(5), set())
    assert {len(ids) for ids in long} == {12}
    compiled = engine._generate._cache_size()
    assert decoder.greedy(prompts(5), set(), max_new_tokens=4) == [ids[:4] for ids in long]
    assert decoder.greedy(prompts(5), {int(long[0][1])})[0] == long[0][: long[0].index(long[0][1]) + 1]
    assert engine._generate._cache_size() == compiled
    assert decoder.compilations == 2


def test_what_cannot_be_decoded_is_refused():
    model = MODELS["multi-head"]
    decoder = Decoder(model, parameters(model), DECODE)
    with pytest.raises(UserError, match="17 tokens is longer"):
        decoder.greedy([[1] * 17], set())
    with pytest.raises(UserError, match="prompt 1 is empty"):
        decoder.greedy([[1], []], set())
    with pytest.raises(UserError, match=r"outside 0\.\.60"):
        decoder.greedy([[61]], set())
    with pytest.raises(UserError, match="max_new_tokens=13"):
        decoder.greedy([[1]], set(), max_new_tokens=13)
    with pytest.raises(UserError, match="must grow"):
        DecodeConfig(buckets=(16, 8)).validate()
    assert decoder.greedy([], set()) == []


@pytest.mark.parametrize("name", MODELS)
def test_a_session_is_full_recomputation_also_after_rewinding(name):
    model = MODELS[name]
    session = DebugSession(model, parameters(model), max_length=40)
    stop_ids = {5, 6, 7, 8}
    session.feed([1, 2, 3])
    first = session.generate(stop_ids, 6)
    assert first == recompute(model, [1, 2, 3], stop_ids, 6)
    session.feed([9, 10])
    second = session.generate(stop_ids, 6)
    assert second == recompute(model, [1, 2, 3, *first, 9, 10], stop_ids, 6)
    assert session.ids == [1, 2, 3, *first, 9, 10, *second]
    session.rewind(3 + len(first))
    session.feed([11])
    assert session.generate(stop_ids, 6) == recompute(model, [1, 2, 3, *first, 11], stop_ids, 6)
    session.rewind(3)  # nothing new to read: the last id's features must come back
    assert session.generate(stop_ids, 6) == first


def test_a_session_ends_where_its_room_does():
    model = MODELS["multi-head"]
    session = DebugSession(model, parameters(model), max_length=70)
    session.feed([1] * 66)  # more than one chunk
    assert len(session.generate(set(), 10)) == 4
    with pytest.raises(UserError, match="nothing can follow 70"):
        session.generate(set(), 10)
    with pytest.raises(UserError, match="71 tokens, more than its 70"):
        session.feed([1])
