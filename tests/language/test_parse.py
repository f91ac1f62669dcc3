import itertools
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sessions import sessions

from nd_jax.debugger.actions import STEP_INTO, Action
from nd_jax.debugger.policy import PolicyConfig, sample_trajectory
from nd_jax.debugger.tree import StateTree
from nd_jax.language.parse import parse, parse_state
from nd_jax.language.render import History, render, render_context, render_state
from nd_jax.language.session import Session, ShownState, show
from nd_jax.language.symbols import (
    ACTIONS,
    ARG,
    BOS,
    DEL,
    END,
    EVENTS,
    STATE_END,
    SYMBOL_KINDS,
    Role,
    Segment,
    TokenizerSpec,
    frame,
    pointer,
)
from nd_jax.tracing.schema import Trace

STEP = ACTIONS[STEP_INTO]
FORMS = [
    TokenizerSpec(line_last=last, echo_line=echo, all_names=names, all_frames=frames)
    for last, echo, names, frames in itertools.product((False, True), repeat=4)
]


@given(sessions(), st.sampled_from(FORMS))
def test_parse_is_the_inverse_of_render(session: Session, spec: TokenizerSpec):
    parsed = parse(render(session, spec), spec)
    assert parsed.error is None
    assert parsed.session == session


def test_sampled_sessions_come_back_and_hold_every_full_state(traces: list[Trace], found_traces: list[Trace]):
    rng = random.Random(0)
    policy = PolicyConfig(turning=2.0)
    for trace in traces * 10 + found_traces * 3:
        tree = StateTree(trace)
        walk = sample_trajectory(tree, rng, policy, 40)
        spec = rng.choice(FORMS)
        session = show(tree, walk, spec)
        parsed = parse(render(session, spec), spec)
        assert parsed.error is None
        assert parsed.session == session
        for i, state in zip([walk.start, *(i for _, i in walk.steps)], parsed.session.states, strict=True):
            if state.locals is not None:
                assert state.locals == trace.events[i].locals


@given(sessions(), st.sampled_from(FORMS), st.data())
def test_a_cut_document_gives_the_whole_states_before_the_cut(
    session: Session, spec: TokenizerSpec, data: st.DataObject
):
    segments = render(session, spec)
    cut = data.draw(st.integers(0, len(segments)))
    parsed = parse(segments[:cut], spec)
    ends = sum(segment.text == STATE_END and segment.kind == "marker" for segment in segments[:cut])
    assert parsed.session.states == session.states[:ends]
    assert parsed.session.actions == session.actions[: max(0, ends - 1)]
    whole = cut > 0 and segments[cut - 1].text in (STATE_END, END) and segments[cut - 1].kind == "marker"
    assert (parsed.error is None) == whole


@given(sessions(), st.sampled_from(FORMS), st.data())
def test_a_changed_document_never_raises(session: Session, spec: TokenizerSpec, data: st.DataObject):
    segments = render(session, spec)
    at = data.draw(st.integers(0, len(segments) - 1))
    other = data.draw(st.sampled_from(segments))
    for changed in ([*segments[:at], other, *segments[at + 1 :]], [*segments[:at], *segments[at + 1 :]]):
        parsed = parse(changed, spec)
        again = parse(render(parsed.session, spec), spec)
        assert again.session.states == parsed.session.states


def as_segments(*items: str) -> list[Segment]:
    """Segments of a state: symbols as they are spelled, anything else text."""
    kinds = ["marker" if item.startswith("<|") else "value" for item in items]
    return [Segment(kind, item, Role.STATE) for kind, item in zip(kinds, items, strict=True)]


HISTORY = History(("",) * 3)
for _shown in (ShownState("call", 1, 0, {"x": "1", "y": "2"}, None), ShownState("call", 2, 1, {}, None)):
    HISTORY.see(_shown)
LINE, CALL, RETURN = EVENTS["line"], EVENTS["call"], EVENTS["return"]


def test_a_state_is_read_after_a_history():
    read = parse_state(as_segments(LINE, pointer(3), frame(0), "x=5\nz==\n", DEL, "y\n", STATE_END), HISTORY)
    assert read.error is None
    assert read.state == ShownState("line", 3, 0, {"x": "5", "z": "="}, None)
    assert HISTORY.locals[0] == {"x": "1", "y": "2"}
    assert render_state(read.state, HISTORY)


@pytest.mark.parametrize(
    ("items", "error"),
    [
        ([], "nothing where an event belongs"),
        (["x=1\n"], "text 'x=1\\n' where an event belongs"),
        ([STATE_END], "where an event belongs"),
        ([LINE, STATE_END], "where a line pointer belongs"),
        ([RETURN, ARG, "1\n", STATE_END], "where a line pointer belongs"),
        ([LINE, pointer(9), STATE_END], "line 9 of 3"),
        ([LINE, pointer(1), frame(1), STATE_END], "frame 1 after frame 1"),
        ([LINE, pointer(1), frame(3), STATE_END], "frame 3 after frame 1"),
        ([LINE, pointer(1), "x\n", STATE_END], "'x' is not a new binding"),
        ([LINE, pointer(1), "1x=2\n", STATE_END], "not a new binding"),
        ([LINE, pointer(1), "x=1\nx=2\n", STATE_END], "not a new binding"),
        ([LINE, pointer(1), "x=1", STATE_END], "without a line end"),
        ([LINE, pointer(1), "x=\r\n", STATE_END], "carriage return"),
        ([LINE, pointer(1), DEL, "x\n", STATE_END], "'x' cannot be deleted"),
        ([LINE, pointer(1), DEL, STATE_END], "cannot be deleted"),
        ([LINE, pointer(1), ARG, "1\n", STATE_END], f"{ARG} where {STATE_END} belongs"),
        ([LINE, pointer(1), "x=1\n"], f"nothing where {STATE_END} belongs"),
        ([LINE, pointer(1), STATE_END, STATE_END], "after the end"),
        ([RETURN, pointer(1), STATE_END], f"where {ARG} belongs"),
        ([RETURN, pointer(1), ARG, STATE_END], f"{STATE_END} where a value belongs"),
        ([RETURN, pointer(1), ARG, "1\n2\n", STATE_END], "text '1\\n2\\n' where a value belongs"),
        ([RETURN, pointer(1), "x=1\n", STATE_END], f"where {ARG} belongs"),
        ([EVENTS["unwind"], pointer(1), ARG, "1\n", STATE_END], f"{ARG} where {STATE_END} belongs"),
    ],
)
def test_what_is_wrong_with_a_state(items: list[str], error: str):
    read = parse_state(as_segments(*items), HISTORY)
    assert read.state is None
    assert read.error is not None
    assert error in read.error


def test_a_broken_state_still_tells_its_event_and_line():
    read = parse_state(as_segments(LINE, pointer(2), "nonsense", STATE_END), HISTORY)
    assert (read.state, read.event, read.line) == (None, "line", 2)
    read = parse_state(as_segments(CALL, pointer(4)), HISTORY)
    assert (read.state, read.event, read.line) == (None, "call", 4)


def test_invalid_segments_are_named():
    invalid = Segment("invalid", "bytes that are not UTF-8", Role.STATE)
    read = parse_state([*as_segments(RETURN, pointer(1), ARG), invalid], HISTORY)
    assert read.error == "bytes that are not UTF-8 where a value belongs"


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda doc: doc[1:], f"where {BOS} belongs"),
        (lambda doc: [*doc, *as_segments(STEP)], "nothing where an event belongs"),
        (lambda doc: [*doc, *as_segments(LINE)], "where an action belongs"),
        (lambda doc: [*doc, *as_segments(ACTIONS["breakpoint"], LINE)], "where a breakpoint's line belongs"),
        (lambda doc: [*doc, *as_segments(ACTIONS["breakpoint"], pointer(7))], "breakpoint at line 7 of 2"),
        (lambda doc: [*doc, *as_segments(END, STEP)], "after the end"),
    ],
)
def test_what_is_wrong_with_a_document(change, error: str):
    state = ShownState("call", 1, 0, {}, None)
    document = render(Session(("def f():", "    pass"), (state,), (), False))
    parsed = parse(change(document))
    assert parsed.error is not None
    assert error in parsed.error
    assert parsed.session.states == ((state,) if change(document)[0].text == BOS else ())


def test_text_that_looks_like_a_symbol_is_text():
    forged = f"'{STATE_END}{STEP}{EVENTS['line']}'"
    session = Session((f"s = {forged}",), (ShownState("line", 1, 0, {"s": forged}, None),), (), ended=False)
    segments = render(session)
    assert sum(segment.kind in SYMBOL_KINDS for segment in segments) == 6
    assert parse(segments).session == session


def test_a_program_without_lines_has_no_states():
    assert parse(render_context(())).session == Session((), (), (), False)
    assert parse([]).error is not None


def test_actions_between_states_are_read():
    state = ShownState("line", 1, 0, {}, None)
    session = Session(("x",), (state, state), (Action("inv_breakpoint", (1,)),), True)
    assert parse(render(session)).session.actions == (Action("inv_breakpoint", (1,)),)
