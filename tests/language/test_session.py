import random

import pytest

from nd_jax.debugger.actions import STEP_INTO
from nd_jax.debugger.policy import PolicyConfig, Trajectory, full_walk, sample_trajectory
from nd_jax.debugger.tree import StateTree
from nd_jax.language.session import Unrenderable, show
from nd_jax.language.symbols import TokenizerSpec
from nd_jax.tracing.schema import EXCEPTION, LINE, RETURN, UNWIND, YIELD, Trace

SPEC = TokenizerSpec()


def by_id(traces: list[Trace], name: str) -> StateTree:
    return StateTree(next(trace for trace in traces if trace.id == name))


def test_returns_and_exceptions_show_no_locals(traces: list[Trace]):
    for trace in traces:
        tree = StateTree(trace)
        for event, state in zip(
            trace.events, show(tree, full_walk(tree, STEP_INTO), SPEC).states, strict=True
        ):
            assert state.event == event.kind
            assert state.line == event.line
            assert state.locals == (
                None if event.kind in (RETURN, YIELD, UNWIND, EXCEPTION) else event.locals
            )
            assert state.value == (event.value if event.kind in (RETURN, YIELD, EXCEPTION) else None)


def test_frames_are_numbered_by_first_sight_in_the_session(traces: list[Trace]):
    tree = by_id(traces, "recursion_fact")
    inner = next(i for i, event in enumerate(tree.events) if event.depth == 2)
    rng = random.Random(0)
    policy = PolicyConfig(turning=5.0)
    walks = [sample_trajectory(tree, rng, policy, 20) for _ in range(100)]
    assert any(walk.start >= inner for walk in walks)
    for walk in walks:
        visited = [walk.start, *(i for _, i in walk.steps)]
        session = show(tree, walk, SPEC)
        numbers: dict[int, int] = {}
        for i, state in zip(visited, session.states, strict=True):
            assert state.frame == numbers.setdefault(tree.events[i].frame, len(numbers))


def test_a_generators_resume_keeps_its_frame(traces: list[Trace]):
    tree = by_id(traces, "generator_for")
    states = show(tree, full_walk(tree, STEP_INTO), SPEC).states
    assert {state.frame for state in states if state.event in ("resume", "yield")} == {1}


def test_a_session_ends_before_it_needs_one_frame_too_many(traces: list[Trace]):
    tree = by_id(traces, "recursion_fact")  # three frames deep
    walk = full_walk(tree, STEP_INTO)
    session = show(tree, walk, TokenizerSpec(frames=2))
    third = next(i for i, event in enumerate(tree.events) if event.frame == 2)
    assert len(session.states) == third
    assert len(session.actions) == third - 1
    assert not session.ended
    assert show(tree, walk, TokenizerSpec(frames=3)).ended


def test_more_lines_than_symbols_are_refused(traces: list[Trace]):
    tree = by_id(traces, "with_enter_exit")
    walk = full_walk(tree, STEP_INTO)
    assert show(tree, walk, TokenizerSpec(lines=len(tree.lines))).context == tree.lines
    with pytest.raises(Unrenderable) as refusal:
        show(tree, walk, TokenizerSpec(lines=len(tree.lines) - 1))
    assert refusal.value.reason == "too many lines"


def test_only_a_return_at_the_start_hides_its_line(traces: list[Trace]):
    tree = by_id(traces, "two_calls_one_line")
    start, *others = show(tree, Trajectory(tree.last, (), True, drop_pointer=True), SPEC).states
    assert (start.event, start.line, others) == (RETURN, None, [])
    assert show(tree, Trajectory(2, (), False), SPEC).states[0].line is not None
    assert LINE in {state.event for state in show(tree, full_walk(tree, STEP_INTO), SPEC).states}
