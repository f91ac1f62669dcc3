"""tokenizer.json, run by a byte-fallback BPE written here as the `tokenizers` library defines it."""

import random
import re
from dataclasses import replace
from itertools import chain, pairwise

import pytest

from nd_jax.debugger.policy import PolicyConfig, full_walk
from nd_jax.debugger.tree import StateTree
from nd_jax.export.fast_tokenizer import tokenizer_json
from nd_jax.language.render import render
from nd_jax.language.session import show
from nd_jax.language.symbols import SYMBOL_KINDS
from nd_jax.language.training import train, training_texts


def encode(described: dict, text: str) -> list[int]:
    """Split off the special tokens, then join the best pair, the leftmost first, until none is left."""
    vocabulary = described["model"]["vocab"]
    ranks = {tuple(pair): rank for rank, pair in enumerate(described["model"]["merges"])}
    special = sorted((token["content"] for token in described["added_tokens"]), key=len, reverse=True)
    ids: list[int] = []
    words = [text]
    for marker in special:
        words = [
            part
            for word in words
            for k, piece in enumerate([word] if word in special else word.split(marker))
            for part in ([marker] if k else []) + [piece]
        ]
    lines = re.compile(described["pre_tokenizer"]["pattern"].get("Regex", r"\n|[^\n]+"), re.MULTILINE)
    for word in chain.from_iterable([word] if word in special else lines.findall(word) for word in words):
        if word in special:
            ids.append(vocabulary[word])
            continue
        symbols = [
            part
            for character in word
            for part in (
                [character] if character in vocabulary else [f"<0x{byte:02X}>" for byte in character.encode()]
            )
        ]
        while True:
            pairs = [(ranks.get(pair, 1 << 30), k) for k, pair in enumerate(pairwise(symbols))]
            rank, k = min(pairs, default=(1 << 30, 0))
            if rank == 1 << 30:
                break
            symbols[k : k + 2] = [symbols[k] + symbols[k + 1]]
        ids += [vocabulary[symbol] for symbol in symbols]
    return ids


@pytest.fixture(scope="module", params=["pieces", "letters"])
def tokenizer(request, tokenizer, traces):
    """One that writes values in pieces, and one that spells them."""
    spec = replace(tokenizer.spec, values=request.param)
    return train(training_texts(traces, spec, PolicyConfig(), seed=0, max_states=64), spec, {})


@pytest.fixture(scope="module")
def described(tokenizer):
    return tokenizer_json(tokenizer)


def test_rendered_sessions_get_the_same_ids(described, tokenizer, traces):
    for trace in traces[:30]:
        tree = StateTree(trace)
        segments = render(show(tree, full_walk(tree, "step_into"), tokenizer.spec))
        text = "".join(segment.text for segment in segments)
        assert encode(described, text) == tokenizer.encode(segments)[0]
        assert any(segment.kind in SYMBOL_KINDS for segment in segments)


def test_any_text_gets_the_same_ids(described, tokenizer):
    rng = random.Random(0)
    first = len(tokenizer.spec.control_symbols)
    pieces = [
        tokenizer.piece(i).decode() for i in range(first, tokenizer.vocab_size) if not tokenizer.is_byte(i)
    ]
    signs = "', \"()[]{}=:\u2581\u2423 é\n\t01\0"
    for _ in range(600):
        narrow = rng.sample(signs, 3)
        parts = rng.choice([pieces, signs, narrow])
        text = "".join(rng.choice(parts) for _ in range(rng.randint(1, 30)))
        assert encode(described, text) == tokenizer.encode_text(text), text


def test_markers_are_special_tokens_with_our_ids(described, tokenizer):
    for i, token in enumerate(described["added_tokens"]):
        assert token["special"]
        assert (token["id"], token["content"]) == (i, tokenizer.spec.control_symbols[i])
    assert len(described["model"]["vocab"]) == tokenizer.vocab_size
    assert sorted(described["model"]["vocab"].values()) == list(range(tokenizer.vocab_size))
    assert encode(described, "<|step_into|>") == [tokenizer.symbol_id("<|step_into|>")]
    assert tokenizer.symbol_id("<|step_into|>") not in tokenizer.encode_text("<|step_into|>")


def test_ids_are_in_the_order_that_pieces_were_learned_in(tokenizer):
    scores = tokenizer._processor
    first = len(tokenizer.spec.control_symbols)
    longer = [
        i
        for i in range(first, tokenizer.vocab_size)
        if not tokenizer.is_byte(i) and len(tokenizer.piece(i).decode()) > 1
    ]
    learned = [scores.get_score(i) for i in longer]
    assert learned == sorted(learned, reverse=True)
