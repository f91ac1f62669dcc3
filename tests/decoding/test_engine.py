"""Decoding with a cache equals recomputing every token from the whole sequence."""

import jax
import numpy as np
import pytest

from nd_jax.decoding.engine import DecodeConfig, Decoder
from nd_jax.errors import UserError
from nd_jax.model import transformer
from nd_jax.model.config import ModelConfig

TINY = {
    "vocab_size": 64,
    "d_model": 32,
    "n_layers": 2,
    "n_heads": 4,
    "n_kv_heads": 2,
    "head_dim": 8,
    "d_ff": 48,
}
SMALL_BUCKETS = DecodeConfig(batch=4, prompt_bucket=8, new_bucket=8)


def model_of(**changes):
    # Embeddings large enough that the most likely token is clear, and varies.
    config = ModelConfig(**{**TINY, "embedding_std": 1.0, **changes})
    return config, transformer.init(config, jax.random.key(3))


def prompts_of(lengths, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.integers(1, 64, length).tolist() for length in lengths]


def recompute(config, params, prompt, stops, count):
    """Greedy decoding without a cache: the whole sequence again for every token."""
    run = jax.jit(lambda ids, segments, positions: transformer.bind(config, params)(ids, segments, positions))
    ids = list(prompt)
    width = len(prompt) + count
    for _ in range(count):
        padded = np.zeros((1, width), np.int32)
        padded[0, : len(ids)] = ids
        segments = (np.arange(width) < len(ids)).astype(np.int32)[None]
        logits = run(padded, segments, np.arange(width, dtype=np.int32)[None])
        ids.append(int(np.argmax(logits[0, len(ids) - 1])))
        if ids[-1] in stops:
            break
    return ids[len(prompt) :]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"qk_norm": True, "n_kv_heads": 1},
        {"n_kv_heads": 4, "tied_embeddings": False},
        {"scan_layers": True},
    ],
    ids=["gqa", "qk_norm_mqa", "mha_untied", "scan"],
)
def test_equals_full_recompute_on_ragged_prompts(changes):
    config, params = model_of(**changes)
    prompts = prompts_of([1, 13, 5, 8, 2, 20])
    written = Decoder(config, params, 0, SMALL_BUCKETS).greedy(prompts, [], 11)
    for prompt, ids in zip(prompts, written, strict=True):
        assert ids == recompute(config, params, prompt, [], 11)


def test_ends_at_the_first_stop_token_and_includes_it():
    config, params = model_of()
    prompts = prompts_of([6, 9, 4, 11, 3])
    free = Decoder(config, params, 0, SMALL_BUCKETS).greedy(prompts, [], 10)
    stops = [free[0][3], free[1][0]]
    for ids, whole in zip(
        Decoder(config, params, 0, SMALL_BUCKETS).greedy(prompts, stops, 10), free, strict=True
    ):
        end = next((k + 1 for k, token in enumerate(whole) if token in stops), len(whole))
        assert ids == whole[:end]


def test_a_result_depends_on_its_prompt_alone():
    config, params = model_of()
    prompts = prompts_of([7, 3, 12, 5, 5, 9, 30])
    expected = Decoder(config, params, 0, SMALL_BUCKETS).greedy(prompts, [], 9)
    for batch in (1, 3, 16):
        decoder = Decoder(config, params, 0, DecodeConfig(batch=batch, prompt_bucket=16, new_bucket=16))
        assert decoder.greedy(prompts, [], 9) == expected
        assert decoder.greedy(prompts[::-1], [], 9) == expected[::-1]


def test_compiles_once_for_each_bucket():
    config, params = model_of()
    decoder = Decoder(config, params, 0, SMALL_BUCKETS)
    decoder.greedy(prompts_of([3, 4, 5, 6, 7, 8]), [], 5)
    decoder.greedy(prompts_of([2, 1]), [], 8)
    assert decoder.compilations == 1
    decoder.greedy(prompts_of([9]), [], 8)
    assert decoder.compilations == 2


def test_refuses_what_cannot_be_decoded():
    config, params = model_of()
    decoder = Decoder(config, params, 0, SMALL_BUCKETS)
    assert decoder.greedy([], [1], 4) == []
    with pytest.raises(UserError, match="prompt 1 is empty"):
        decoder.greedy([[1], []], [1], 4)
    with pytest.raises(UserError, match="max_new"):
        decoder.greedy([[1]], [1], 0)
