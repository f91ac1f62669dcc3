"""Bad text in programs and values, on the whole way to rows: exact, or refused with a reason."""

import random
from pathlib import Path

import pytest

from nd_jax.data.config import DataConfig
from nd_jax.data.rows import RowSource
from nd_jax.debugger.actions import STEP_INTO
from nd_jax.debugger.policy import PolicyConfig, full_walk, sample_trajectory
from nd_jax.debugger.tree import StateTree
from nd_jax.errors import UserError
from nd_jax.language.parse import parse
from nd_jax.language.session import Unrenderable, show
from nd_jax.language.symbols import ACTIONS, STATE_END, pointer
from nd_jax.language.tokenizer import Tokenizer
from nd_jax.tracing.schema import Event, Trace

SHIPPED = Path(__file__).parents[2] / "tokenizer"
TEXTS = {
    "markers": "".join(ACTIONS.values()) + STATE_END + pointer(1) + "<|begin_of_text|>",
    "NUL": "a\0b\0",
    "U+2581": "\u2581x \u2581\u2581",
    "right-to-left": "\u202eabc\u202c \u200f\u05d0\u2067",
    "separators": "a\x0bb\x0cc\x1cd\x85e\u2028f\u2029",
    "combining": "e\u0301 \ufeff \uff21 \U0001f600",
    "spaces": "  \t   x  ",
}


@pytest.fixture(scope="module")
def shipped() -> Tokenizer:
    return Tokenizer.load(SHIPPED)


def trace_of(source: str, value: str) -> Trace:
    """A run of a one-line program that holds a value."""
    events = [
        Event("call", 1, 0, 0, {"x": value}, None),
        Event("line", 1, 0, 0, {"x": value, "y": "1"}, None),
        Event("return", 1, 0, 0, {}, value),
    ]
    return Trace("bad", source, "f", "", "3.11", ["f"], events)


def comes_back(tokenizer: Tokenizer, trace: Trace) -> list[int]:
    """Encode a trace and read it back; give its ids."""
    tree = StateTree(trace)
    session = show(tree, full_walk(tree, STEP_INTO), tokenizer.spec)
    ids = tokenizer.encode_session(session).ids
    parsed = parse(tokenizer.segments(ids))
    assert parsed.error is None
    assert parsed.session == session
    return ids


@pytest.mark.parametrize("name", TEXTS)
def test_strange_text_comes_back_and_forges_nothing(shipped: Tokenizer, name: str):
    text = TEXTS[name]
    symbols = range(len(shipped.spec.control_symbols))

    def found(ids: list[int]) -> list[int]:
        return [i for i in ids if i in symbols]

    honest = comes_back(shipped, trace_of("y = 1", "2"))
    assert found(comes_back(shipped, trace_of(f"y = {text!r} # {text}", text))) == found(honest)


def test_line_ends_of_all_systems_are_one(shipped: Tokenizer):
    ids = [comes_back(shipped, trace_of(f"a{end}b{end}c", "1")) for end in ("\n", "\r\n", "\r")]
    assert ids[0] == ids[1] == ids[2]


@pytest.mark.parametrize(
    ("source", "value", "reason"),
    [
        ("x = 1", "a\r\nb", "line break in value"),
        ("x = 1", "a\nb", "line break in value"),
        ("x = '\ud800'", "1", "lone surrogate"),
        ("x = 1", "'\udfff'", "lone surrogate"),
        ("x = 1\n" * 5000, "1", "too many lines"),
    ],
)
def test_what_cannot_be_written_is_refused_with_a_reason(
    shipped: Tokenizer, source: str, value: str, reason: str
):
    with pytest.raises(Unrenderable) as refusal:
        comes_back(shipped, trace_of(source, value))
    assert refusal.value.reason == reason


def test_a_line_of_100_kb_comes_back(shipped: Tokenizer):
    comes_back(shipped, trace_of("x = [" + "'ab', 1, " * 11_500 + "]", "1"))


def test_rows_leave_out_what_is_refused_or_too_long(shipped: Tokenizer):
    bad = [
        trace_of("x = 1\n" * 5000, "1"),
        trace_of("x = 1", "\ud800"),
        trace_of("x = " + "1" * 100_000, "1"),
    ]
    config = DataConfig(row_length=512)
    good = trace_of("x = 'good'", TEXTS["markers"])
    source = RowSource([good, *bad], shipped, config)
    for number in range(6):
        row = source[number]
        ids = row.tokens[0, : row.runs[:-1].sum()].tolist()
        if ids:
            begins = [k for k, i in enumerate(ids) if i == shipped.bos]
            for begin, end in zip(begins, [*begins[1:], len(ids)], strict=True):
                parsed = parse(shipped.segments(ids[begin:end]))
                assert parsed.error is None
                assert parsed.session.context == ("x = 'good'",)
    with pytest.raises(UserError, match="no trace fits"):
        RowSource(bad, shipped, config)


def test_sampled_sessions_of_cruxeval_and_mbpp_come_back(shipped: Tokenizer, found_traces: list[Trace]):
    rng = random.Random(2)
    policy = PolicyConfig(turning=2.0, jumps=1.0, inverse_jumps=1.0, breakpoints=1.0, inverse_breakpoints=1.0)
    trees = [StateTree(trace) for trace in found_traces]
    for k in range(2000):
        tree = trees[k % len(trees)]
        session = show(tree, sample_trajectory(tree, rng, policy, 40), shipped.spec)
        parsed = parse(shipped.segments(shipped.encode_session(session).ids))
        assert parsed.error is None
        assert parsed.session == session
