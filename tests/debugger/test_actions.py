import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made import LINES, made_traces

from nd_jax.debugger.actions import (
    BREAKPOINT,
    CONTINUE,
    FORWARD,
    INV_BREAKPOINT,
    INV_CONTINUE,
    INV_STEP_CALL,
    INV_STEP_INTO,
    INV_STEP_OVER,
    INVERSE,
    STEP_INTO,
    STEP_OVER,
    STEP_RETURN,
    Action,
    available,
    is_forward,
    target,
)
from nd_jax.debugger.tree import StateTree
from nd_jax.tracing.schema import CALL, CLOSING, LINE, OPENING, RETURN, Trace

MIRRORED = {
    STEP_INTO: INV_STEP_INTO,
    STEP_OVER: INV_STEP_OVER,
    STEP_RETURN: INV_STEP_CALL,
    BREAKPOINT: INV_BREAKPOINT,
    CONTINUE: INV_CONTINUE,
}
breakpoints = st.sets(st.integers(1, LINES), min_size=1, max_size=3).map(lambda lines: tuple(sorted(lines)))


def mirror(trace: Trace) -> Trace:
    """The trace run backward: what ended a frame begins it."""
    swapped = dict.fromkeys(OPENING, RETURN) | dict.fromkeys(CLOSING, CALL)
    events = [event._replace(kind=swapped.get(event.kind, event.kind)) for event in reversed(trace.events)]
    return trace._replace(events=events)


def check_mirror_law(trace: Trace, lines: tuple[int, ...]) -> None:
    tree, mirrored = StateTree(trace), StateTree(mirror(trace))
    for forward, inverse in MIRRORED.items():
        carried = lines if forward == BREAKPOINT else ()
        for i in range(len(tree)):
            reached = target(mirrored, tree.last - i, Action(forward, carried))
            expected = None if reached is None else tree.last - reached
            assert target(tree, i, Action(inverse, carried)) == expected, (inverse, i)


@given(made_traces, breakpoints)
def test_inverse_actions_are_the_forward_ones_in_a_mirror(trace: Trace, lines: tuple[int, ...]):
    check_mirror_law(trace, lines)


def test_the_mirror_law_holds_on_real_traces(hard_trees: dict[str, StateTree], found_trees: list[StateTree]):
    for tree in [*hard_trees.values(), *found_trees]:
        check_mirror_law(tree.trace, tuple(tree.visits)[:2] or (1,))


@given(made_traces, breakpoints)
def test_forward_actions_by_depth_alone(trace: Trace, lines: tuple[int, ...]):
    """A second statement of the rules, by scanning depths instead of through the tree."""
    tree, events = StateTree(trace), trace.events
    for i, event in enumerate(events):
        later = range(i + 1, len(events))
        into = next(iter(later), None)
        if event.kind in CLOSING:
            over = into
            out = next((j for j in later if events[j].depth == event.depth - 1), None)
        else:
            over = next(j for j in later if events[j].depth == event.depth)
            out = next(j for j in later if events[j].depth == event.depth and events[j].kind in CLOSING)
        hit = next((j for j in later if events[j].kind == LINE and events[j].line in lines), None)
        if hit is None and i < tree.last:
            hit = tree.last
        assert target(tree, i, Action(STEP_INTO)) == into
        assert target(tree, i, Action(STEP_OVER)) == over
        assert target(tree, i, Action(STEP_RETURN)) == out
        assert target(tree, i, Action(BREAKPOINT, lines)) == hit
        assert target(tree, i, Action(CONTINUE)) == (tree.last if i < tree.last else None)


@given(made_traces)
def test_inverse_step_over_undoes_step_over_within_a_frame(trace: Trace):
    tree = StateTree(trace)
    for i in range(len(tree)):
        j = target(tree, i, Action(STEP_OVER))
        if j is not None and tree.node[j] == tree.node[i]:
            assert target(tree, j, Action(INV_STEP_OVER)) == i


@given(made_traces, breakpoints)
def test_every_action_of_a_direction_is_offered_until_its_end(trace: Trace, lines: tuple[int, ...]):
    tree = StateTree(trace)
    for direction in (FORWARD, INVERSE):
        for i in range(len(tree)):
            names = [
                name
                for name in direction
                if target(tree, i, Action(name, lines if "breakpoint" in name else ())) is not None
            ]
            assert list(available(tree, i, direction)) == names


def test_directions():
    assert all(is_forward(name) for name in FORWARD)
    assert not any(is_forward(name) for name in INVERSE)


EXPECTATION = re.compile(
    r"(?P<name>\w+)(?:\[(?P<lines>[\d,]+)\])?@(?P<at>\d+)(?: \((?P<from>.*?)\))? -> "
    r"(?:no hit -> terminal state )?(?P<to>\d+) \((?P<label>.*?)\)(?: locals \{(?P<locals>.*?)\})?"
    r"(?: \[bdb|$)"
)


def label(tree: StateTree, i: int) -> str:
    """A state as the file writes it, without its value: depth, letter, line."""
    kind, line, _, depth, _, _ = tree.events[i]
    letter = {"line": "L", "exception": "X"}.get(kind, "C" if kind in OPENING else "R")
    return f"{'>' * depth}{letter}{line}"


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the file's stops were recorded on CPython 3.11")
def test_the_stops_that_the_hard_programs_name(
    hard_records: list[dict[str, str]], hard_trees: dict[str, StateTree]
):
    checked = 0
    for record in hard_records:
        tree = hard_trees[record["id"]]
        for part in record["expected"].split(" | ")[1:]:
            found = EXPECTATION.match(part)
            assert found, part
            lines = tuple(map(int, (found["lines"] or "").split(","))) if found["lines"] else ()
            action = Action(BREAKPOINT if found["name"] == "continue" else found["name"], lines)
            at, to = int(found["at"]), int(found["to"])
            assert target(tree, at, action) == to, (record["id"], part)
            assert found["label"].startswith(label(tree, to))
            assert (found["from"] or label(tree, at)).startswith(label(tree, at))
            if found["locals"] is not None and "<" not in found["locals"]:
                shown = [f"{name}: {text}" for name, text in tree.events[to].locals.items()]
                assert all(binding in found["locals"] for binding in shown)  # their order is the recorder's
                assert len(", ".join(shown)) == len(found["locals"])
            checked += 1
    assert checked > 45
