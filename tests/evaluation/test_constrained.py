"""The grammar takes every real state, and whatever a model writes within it can be read."""

import jax
import numpy as np
import pytest
from flax import nnx
from forms import FORMS, in_form

from nd_jax.debugger.actions import STEP_INTO
from nd_jax.debugger.policy import full_walk
from nd_jax.debugger.tree import StateTree
from nd_jax.decoding.choosing import Sampling
from nd_jax.decoding.engine import DecodeConfig, Decoder
from nd_jax.decoding.grammar import Constraint, Grammar
from nd_jax.decoding.session import DebugSession
from nd_jax.evaluation.prompts import output_question
from nd_jax.language.parse import parse_state
from nd_jax.language.render import History, render_state
from nd_jax.language.session import ShownState, show
from nd_jax.language.symbols import EVENTS, STATE_END, frame, pointer
from nd_jax.model import transformer
from nd_jax.model.config import ModelConfig


@pytest.fixture(scope="module")
def grammar(tokenizer) -> Grammar:
    return Grammar(tokenizer)


def accepted(grammar: Grammar, ids: list[int], history: History) -> bool:
    allowed_V, place = grammar.allowed_V(history), 0
    for token in ids:
        place = int(grammar.moves_QxV[place, token])
        if place < 0 or not allowed_V[token]:
            return False
    return True


@pytest.mark.parametrize("form", FORMS)
def test_every_real_state_is_within_the_grammar(traces, tokenizer, form):
    tokenizer = in_form(tokenizer, form)
    grammar = Grammar(tokenizer)
    for trace in traces:
        session = show(StateTree(trace), full_walk(StateTree(trace), STEP_INTO), tokenizer.spec)
        history = History(session.context, tokenizer.spec, session.states[:1])
        for state in session.states[1:]:
            ids = tokenizer.encode(render_state(state, history))[0]
            assert accepted(grammar, ids, history), state
            history.see(state)


def test_names_and_values_of_all_of_unicode_are_within_the_grammar(grammar, tokenizer):
    history = History(("",) * 3, states=[ShownState("call", 1, 0, {"gone": "1"}, None)])
    for text in ("'é\u2581\ud7ff\uffff'", "'\U00010000\U0010ffff\x00\t'", "=", ""):
        for state in (
            ShownState("line", 2, 0, {"größe": text}, None),
            ShownState("return", 2, 0, None, text),
            ShownState("unwind", 2, 0, None, None),
        ):
            ids = tokenizer.encode(render_state(state, history))[0]
            assert accepted(grammar, ids, history), state


def test_what_no_state_holds_is_outside(grammar, tokenizer):
    find = tokenizer.symbol_id
    history = History(("",) * 3, states=[ShownState("call", 1, 0, {}, None)])
    line, end = find(EVENTS["line"]), find(STATE_END)
    first = find(pointer(1))

    def text(written: str) -> list[int]:
        return tokenizer.encode_text(written)

    assert accepted(grammar, [line, first, *text("a1=2\n"), end], history)
    for wrong in (
        [end],
        [line, end],
        [line, first, *text("1a=2\n")],
        [line, first, *text("a b=2\n")],
        [line, first, *text("a\n")],
        [line, first, *text("a=2"), end],
        [line, first, *text("a=2\r\n")],
        [line, first, end, end],
        [line, find(pointer(4))],
        [line, first, find(frame(0))],
        [line, first, find(frame(2))],
        [find(EVENTS["return"]), first, end],
        [find(EVENTS["return"]), first, *text("1\n")],
        [line, first, *text("a="), tokenizer.vocab_size - 1, *bytes_(tokenizer, 0xC3), *text("\n")],
        [line, first, *text("a="), *bytes_(tokenizer, 0xED, 0xA0)],
        [tokenizer.pad],
    ):
        assert not accepted(grammar, wrong, history), wrong


def bytes_(tokenizer, *values: int) -> list[int]:
    """Ids of byte pieces."""
    zero = tokenizer.encode_text("\0")[0]
    return [zero + value for value in values]


@pytest.mark.parametrize("form", [{}, FORMS[-1] | {"echo_line": False}])  # an echo is not drawn by chance
def test_a_model_that_knows_nothing_writes_states_that_can_be_read(traces, tokenizer, form):
    tokenizer = in_form(tokenizer, form)
    grammar = Grammar(tokenizer)
    config = ModelConfig(vocab_size=tokenizer.vocab_size, d_model=16, n_layers=1, head_dim=8, d_ff=16)
    rng = np.random.default_rng(0)
    shapes = nnx.to_pure_dict(transformer.abstract(config)[1])
    params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), shapes)
    questions = [output_question(trace.source, trace.events[0], tokenizer) for trace in traces]
    constraint = Constraint(grammar, [question.history for question in questions])
    decode = DecodeConfig(batch_size=4, refill=2, buckets=(256,), max_new_tokens=40)
    decoder = Decoder(config, params, decode)
    prompts, stop = [question.ids for question in questions], [tokenizer.symbol_id(STATE_END)]
    drawn = Sampling(temperature=1.0, samples=8)
    finished = 0
    for question, row in zip(
        questions, decoder.generate(prompts, stop, None, drawn, constraint), strict=True
    ):
        for generation in row:
            assert accepted(grammar, generation.ids, question.history)
            if generation.ids[-1] in stop:
                finished += 1
                parsed = parse_state(tokenizer.segments(generation.ids), question.history)
                assert parsed.error is None or "binding" in parsed.error or "deleted" in parsed.error
    assert finished > 2
    plain = decoder.greedy(prompts, stop)
    assert not all(accepted(grammar, ids, q.history) for ids, q in zip(plain, questions, strict=True))

    session = DebugSession(config, params, max_length=300)
    session.feed(prompts[0])
    alone = session.generate(stop, 40, constraint=Constraint(grammar, constraint.shown[:1]))
    assert [alone] == [row[0].ids for row in decoder.generate(prompts[:1], stop, None, constraint=constraint)]
