"""Cached decoding says what a full recomputation says, whatever the batch around a prompt."""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding

from nd_jax.decoding import engine
from nd_jax.decoding.choosing import GREEDY, Sampling, choose, make_rules, nucleus, prompt_key
from nd_jax.decoding.engine import DecodeConfig, Decoder
from nd_jax.decoding.session import DebugSession
from nd_jax.errors import UserError
from nd_jax.model.config import MeshConfig, ModelConfig
from nd_jax.model.partition import make_mesh, spec
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
DECODE = DecodeConfig(batch_size=3, refill=2, buckets=(16,), max_new_tokens=12)


@functools.lru_cache
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
    decoder = Decoder(model, parameters(model), replace(DECODE, buckets=(8, 16)))
    got = decoder.greedy(given, stop_ids)
    assert decoder.compilations == 4
    want = [recompute(model, prompt, stop_ids, DECODE.max_new_tokens) for prompt in given]
    assert got == want
    assert len({id for ids in want for id in ids}) > 10, "the test's model only repeats itself"
    assert {ids[-1] in stop_ids for ids in want} == {True, False}, "both ways to end must occur"


DRAWN = Sampling(temperature=0.8, top_p=0.9, samples=2, seed=4)


@pytest.mark.parametrize("sampling", [GREEDY, DRAWN], ids=["greedy", "sampled"])
def test_ids_do_not_depend_on_batch_size_slot_or_neighbours(sampling):
    model = MODELS["multi-head"]
    params, given = parameters(model), prompts(9)

    def ids(config: DecodeConfig, some: list[list[int]]) -> list[list[list[int]]]:
        rows = Decoder(model, params, config).generate(some, {5}, sampling=sampling)
        return [[generation.ids for generation in row] for row in rows]

    base = ids(DECODE, given)
    assert ids(DECODE, given[::-1]) == base[::-1]
    assert ids(replace(DECODE, batch_size=1, refill=1), given) == base
    assert ids(replace(DECODE, batch_size=8, refill=8), given) == base
    assert [ids(DECODE, [prompt])[0] for prompt in given[:3]] == base[:3]


def test_a_finished_slot_takes_the_next_prompt_without_compiling_again():
    model = MODELS["multi-head"]
    decoder = Decoder(model, parameters(model), DECODE)
    given = prompts(40)
    want = [decoder.greedy([prompt], {5, 6, 7, 8})[0] for prompt in given[:3]]
    compiled = engine._refill._cache_size(), engine._advance._cache_size()
    got = decoder.greedy(given, {5, 6, 7, 8})
    assert got[:3] == want
    assert len({len(ids) for ids in got}) > 3, "all slots finish at once: nothing is refilled"
    decoder.greedy(given[:5], {9}, max_new_tokens=4)
    assert (engine._refill._cache_size(), engine._advance._cache_size()) == compiled
    assert decoder.compilations == 2
    assert decoder.log()["tokens"] == sum(map(len, [*want, *got])) + 5 * 4


def test_a_shorter_limit_gives_a_prefix():
    model = MODELS["multi-head"]
    decoder = Decoder(model, parameters(model), DECODE)
    long = decoder.greedy(prompts(5), set())
    assert {len(ids) for ids in long} == {12}
    assert decoder.greedy(prompts(5), set(), max_new_tokens=4) == [ids[:4] for ids in long]
    assert decoder.greedy(prompts(5), set(), max_new_tokens=1) == [ids[:1] for ids in long]
    assert decoder.greedy(prompts(5), {int(long[0][1])})[0] == long[0][: long[0].index(long[0][1]) + 1]
    assert decoder.compilations == 2


def test_log_probabilities_are_those_of_a_full_recomputation():
    model = MODELS["multi-head"]
    decoder = Decoder(model, parameters(model), DECODE)
    for prompt, row in zip(prompts(4), decoder.generate(prompts(4), {5}, sampling=DRAWN), strict=True):
        for generation in row:
            padded = np.zeros((1, 40), np.int32)
            ids = [*prompt, *generation.ids]
            padded[0, : len(ids)] = ids
            logprobs_TxV = jax.nn.log_softmax(full_forward(model)(padded)[0])
            want = [logprobs_TxV[t - 1, ids[t]] for t in range(len(prompt), len(ids))]
            np.testing.assert_allclose(generation.logprobs, want, rtol=1e-4, atol=1e-4)


def test_samples_differ_by_number_and_seed_and_follow_the_temperature():
    model = MODELS["multi-head"]
    decoder = Decoder(model, parameters(model), DECODE)
    many = Sampling(temperature=1.0, samples=20)

    def drawn(sampling: Sampling) -> list[tuple[int, ...]]:
        return [tuple(generation.ids) for generation in decoder.generate([[1, 2]], {5}, 4, sampling)[0]]

    assert len(set(drawn(many))) > 5
    assert drawn(many) == drawn(many)
    assert drawn(many) != drawn(replace(many, seed=1))
    (greedy,) = decoder.greedy([[1, 2]], {5}, 4)
    assert set(drawn(replace(many, temperature=1e-4))) == {tuple(greedy)}
    assert set(drawn(replace(many, top_p=1e-6))) == {tuple(greedy)}
    with pytest.raises(UserError, match="temperature 0"):
        decoder.generate([[1]], {5}, sampling=Sampling(samples=2))
    with pytest.raises(UserError, match="top_p=0"):
        decoder.generate([[1]], {5}, sampling=Sampling(temperature=1.0, top_p=0.0))


def test_draws_have_the_probabilities_of_the_scores():
    logits_V = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    count = 4000
    keys = jax.vmap(prompt_key, (None, None, 0))(jax.random.key(0), np.uint32(7), np.arange(count))
    rules = make_rules((), 4, 1, Sampling(temperature=1.0, top_p=0.9), None)
    zeros = np.zeros(count, np.int32)
    tokens = choose(np.tile(logits_V, (count, 1)), keys, zeros, zeros, None, rules).token_B
    shares = np.bincount(tokens, minlength=4) / count
    np.testing.assert_allclose(shares, np.array([0.5, 0.3, 0.15, 0]) / 0.95, atol=0.03)
    assert shares[3] == 0
    kept = nucleus(np.log(np.array([[0.4, 0.4, 0.2]], np.float32)), 0.3) > -np.inf
    assert kept.tolist() == [[True, True, False]]  # equals are kept together


def test_in_bf16_a_token_differs_only_where_the_two_best_are_within_rounding():
    model = replace(MODELS["multi-head"], dtype="bfloat16")
    given = prompts(12)
    got = Decoder(model, parameters(model), DECODE).greedy(given, set())
    for prompt, ids in zip(given, got, strict=True):
        padded = np.zeros((1, 40), np.int32)
        padded[0, : len(prompt) + len(ids)] = prompt + ids
        logits_TxV = np.asarray(full_forward(model)(padded)[0])
        for t, token in enumerate(ids, len(prompt) - 1):
            gap = logits_TxV[t].max() - logits_TxV[t, token]
            assert gap <= 4 * 2**-8 * np.abs(logits_TxV[t]).max(), (prompt, ids, t)


def test_a_mesh_shares_the_cache_out_and_changes_no_id():
    model = MODELS["grouped-query, QK-norm, untied"]
    model = replace(model, vocab_size=62)
    given = prompts(9)
    config = replace(DECODE, batch_size=8, refill=4)
    want = Decoder(model, parameters(model), config).greedy(given, {5})
    mesh = make_mesh(MeshConfig(replica=2, fsdp=2, tensor=2), model)
    decoder = Decoder(model, parameters(model), config, mesh=mesh)
    assert decoder.greedy(given, {5}) == want
    with jax.set_mesh(mesh):
        slots = engine._open(model, config, 16, False)
    shared_out = NamedSharding(mesh, spec(("batch", "kv_heads", "length", "head_dim")))
    assert slots.cache.keys[0].sharding.is_equivalent_to(shared_out, 4)
    assert len(slots.cache.keys[0].sharding.device_set) == 8
    with pytest.raises(UserError, match="does not divide the batch"):
        Decoder(model, parameters(model), replace(config, refill=2), mesh=mesh)


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
    with pytest.raises(UserError, match="refill=9 is more"):
        DecodeConfig(batch_size=8, refill=9).validate()
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
