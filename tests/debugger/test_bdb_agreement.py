"""Forward actions stop where bdb stops; every deliberate difference is written out."""

import oracle
import pytest
from recorded import trace

from nd_jax.debugger.actions import (
    BREAKPOINT,
    INV_STEP_CALL,
    STEP_INTO,
    STEP_OVER,
    STEP_RETURN,
    Action,
    target,
)
from nd_jax.debugger.tree import StateTree
from nd_jax.tracing.schema import CLOSING, EXCEPTION, OPENING, UNWIND

STEPS = {"step": STEP_INTO, "next": STEP_OVER, "return": STEP_RETURN}
BIG = 10**9


def stop_of(tree: StateTree, i: int | None) -> oracle.Stop | None:
    """The stop that bdb should make at a state."""
    if i is None:
        return None
    kind, line, _, _, shown, value = tree.events[i]
    event = "call" if kind in OPENING else "return" if kind in CLOSING else kind
    if kind == EXCEPTION:
        assert value is not None
        value = value.partition("(")[0]
    elif kind == UNWIND:
        value = "None"
    names = sorted(shown)
    return oracle.Stop(event, line, tuple(names), tuple(shown[name] for name in names), value)


def without_class_names(stop: oracle.Stop | None) -> oracle.Stop | None:
    """A class body's frame binds names for the interpreter, which the recorder leaves out."""
    if stop is None or "__qualname__" not in stop.names:
        return stop
    kept = [(n, v) for n, v in zip(stop.names, stop.locals, strict=True) if not n.startswith("__")]
    return stop._replace(names=tuple(n for n, _ in kept), locals=tuple(v for _, v in kept))


def agreement(tree: StateTree, every: int, lines: list[int]) -> tuple[int, list[str]]:
    """Compare at every n-th state; give how many comparisons were made, and what differs."""
    stepped = oracle.run(tree.trace, BIG, "step")
    expected = [stop_of(tree, i) for i in range(len(tree))]
    assert [without_class_names(stop) for stop in stepped.stops] == expected, tree.trace.id
    count, differing = 0, []

    def compare(i: int, command: str, breakpoints: tuple[int, ...], reached: int | None) -> None:
        nonlocal count
        count += 1
        answer = without_class_names(oracle.run(tree.trace, i, command, breakpoints).answer)
        if answer != stop_of(tree, reached):
            differing.append(f"{tree.trace.id} {command}{breakpoints}@{i}: bdb {answer}, tree {reached}")

    for i in range(0, len(tree), every):
        place = stepped.places[i]
        alike = place.from_traced and not place.suspends and not place.caller_suspends
        for command, name in STEPS.items():
            if alike or command == "step":
                compare(i, command, (), target(tree, i, Action(name)))
        for line in lines:  # bdb runs on to the end where no breakpoint is hit; we stop at the last state
            compare(i, "continue", (line,), tree.next_visit(i, (line,)))
    return count, differing


def test_every_action_at_every_state_of_the_hard_programs(hard_trees: dict[str, StateTree]):
    total = 0
    for tree in hard_trees.values():
        count, differing = agreement(tree, 1, list(range(1, len(tree.lines) + 1)))
        assert not differing
        total += count
    assert total > 2000


def test_programs_people_wrote(found_trees: list[StateTree]):
    total = 0
    for tree in found_trees:
        lines = [*list(tree.visits)[::3], *tree.unvisited[:1]]
        count, differing = agreement(tree, max(1, len(tree) // 6), lines)
        assert not differing
        total += count
    assert total > 1500


class TestDeliberateDifferences:
    """bdb ignores a generator's yields, and waits in library frames that our tree does not hold."""

    def test_g1_steps_in_a_generator_stop_at_its_yield(self, hard_trees: dict[str, StateTree]):
        tree = hard_trees["generator_for"]
        assert target(tree, 5, Action(STEP_OVER)) == 6  # the yield; bdb: the line after the resume
        assert (answer := oracle.run(tree.trace, 5, "next").answer) is not None
        assert (answer.event, answer.line) == ("line", 2)
        assert target(tree, 4, Action(STEP_RETURN)) == 6  # the yield; bdb: runs to the end
        assert oracle.run(tree.trace, 4, "return").answer is None
        assert target(tree, 6, Action(STEP_OVER)) == 7  # from the yield to the loop that asked for it
        assert target(tree, 6, Action(STEP_RETURN)) == 7

    def test_g1_a_resume_is_a_node_of_its_own(self, hard_trees: dict[str, StateTree]):
        tree = hard_trees["generator_for"]
        assert [(e.kind, e.frame) for e in tree.events[9:11]] == [("resume", 1), ("line", 1)]
        assert target(tree, 12, Action(INV_STEP_CALL)) == 9  # back to the resume, not to the first call
        assert tree.node[9] != tree.node[3]

    def test_g2_a_callback_from_library_code_returns_to_the_nearest_traced_frame(self):
        source = "import re\ndef f(s):\n    t = re.sub('a', lambda m: 'b', s)\n    return t\n"
        tree = StateTree(trace(source, "f('xa')"))
        returned = next(i for i, e in enumerate(tree.events) if e.kind == "return" and e.frame == 1)
        landed = target(tree, returned, Action(STEP_RETURN))
        assert landed is not None
        assert (tree.events[landed].line, tree.events[landed].frame) == (4, 0)

    def test_g4_the_root_call_is_a_state(self, hard_trees: dict[str, StateTree]):
        for tree in hard_trees.values():
            assert tree.events[0].kind == "call"
            assert target(tree, tree.last, Action(INV_STEP_CALL)) == 0

    def test_a_breakpoint_that_is_not_hit_ends_at_the_last_state(self, hard_trees: dict[str, StateTree]):
        tree = hard_trees["while_else_break"]
        assert target(tree, 0, Action(BREAKPOINT, (6,))) == tree.last
        assert oracle.run(tree.trace, 0, "continue", (6,)).answer is None


@pytest.mark.parametrize("line", [3, 4, 6])
def test_lines_that_never_fire(hard_trees: dict[str, StateTree], line: int):
    tree = hard_trees["oneline_def_and_blank_bp"]
    assert all(target(tree, i, Action(BREAKPOINT, (line,))) == tree.last for i in range(tree.last))
