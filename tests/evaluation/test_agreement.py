"""Teacher forcing and greedy decoding see the same history: they say the same first token of every state."""

import random

import jax
import numpy as np
from flax import nnx

from nd_jax.debugger.policy import sample_trajectory
from nd_jax.debugger.tree import StateTree
from nd_jax.decoding.engine import DecodeConfig, Decoder
from nd_jax.evaluation.marks import Marker
from nd_jax.evaluation.states import StatesConfig, evaluate_states, predictor
from nd_jax.language.session import show
from nd_jax.model import transformer
from nd_jax.model.config import ModelConfig

CONFIG = StatesConfig(sessions=6, row_length=256, batch=4)


def test_teacher_forcing_and_decoding_agree_on_the_first_token_of_every_state(traces, tokenizer):
    config = ModelConfig(vocab_size=tokenizer.vocab_size, d_model=16, n_layers=1, head_dim=8, d_ff=16)
    rng = np.random.default_rng(0)
    shapes = nnx.to_pure_dict(transformer.abstract(config)[1])
    params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), shapes)
    predict, marker = predictor(config, params), Marker(tokenizer)
    decoder = Decoder(config, params, DecodeConfig(buckets=(256,), max_new_tokens=1))
    prompts: list[list[int]] = []
    forced: list[int] = []

    def noting(tokens: np.ndarray, segments: np.ndarray, positions: np.ndarray) -> np.ndarray:
        predicted = predict(tokens, segments, positions)
        for b in range(len(tokens)):
            for number in range(1, segments[b].max() + 1):
                (where,) = np.nonzero(segments[b] == number)
                ids = tokens[b, where].tolist()
                for mark in marker.mark(ids):
                    prompts.append(ids[: mark.begin])
                    forced.append(int(predicted[b, where[mark.begin - 1]]))
        return predicted

    figures = evaluate_states(traces, tokenizer, noting, CONFIG)
    assert len(prompts) == figures["all"]["n"] > 20
    decoded = [ids[0] for ids in decoder.greedy(prompts, [], 1)]
    assert decoded == forced
    assert len(set(decoded)) > 3


def test_the_states_that_are_scored_are_those_of_the_sampled_sessions(traces, tokenizer):
    seen: list[list[int]] = []

    def noting(tokens: np.ndarray, segments: np.ndarray, positions: np.ndarray) -> np.ndarray:
        seen.extend(
            tokens[b, segments[b] == n].tolist()
            for b in range(len(tokens))
            for n in range(1, segments[b].max() + 1)
        )
        return tokens

    evaluate_states(traces, tokenizer, noting, CONFIG)
    expected = []
    for k in range(CONFIG.sessions):
        tree = StateTree(traces[k % len(traces)])
        walk = sample_trajectory(
            tree, random.Random(f"{CONFIG.seed}/{k}"), CONFIG.policy, CONFIG.row_length // 2
        )
        expected.append(tokenizer.encode_session(show(tree, walk, tokenizer.spec)).ids)
    assert sorted(seen) == sorted(expected)
