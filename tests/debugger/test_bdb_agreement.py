"""Forward actions stop where bdb stops; every deliberate difference is written out."""

from pathlib import Path

import pytest
from recorded import trace

from nd_jax.debugger import oracle
from nd_jax.debugger.actions import (
    BREAKPOINT,
    INV_STEP_CALL,
    STEP_OVER,
    STEP_RETURN,
    Action,
    target,
)
from nd_jax.debugger.agreement import ACTIONS, compare_found, compare_hard, run_with
from nd_jax.debugger.tree import StateTree

HARD_PROGRAMS = Path(__file__).parents[1] / "hard_programs.jsonl"


def test_every_action_at_every_state_of_the_hard_programs(hard_trees: dict[str, StateTree]):
    agreement = compare_hard(hard_trees.values())
    assert not agreement.differing
    assert not agreement.other_stops
    assert sum(agreement.agreed.values()) > 2000
    assert agreement.expected[STEP_OVER] + agreement.expected[STEP_RETURN] < 40


def test_programs_people_wrote(found_trees: list[StateTree]):
    agreement = compare_found(found_trees, positions=6)
    assert not agreement.differing
    assert not agreement.other_stops
    assert sum(agreement.agreed.values()) > 1500


def other_interpreters() -> list[str]:
    return [str(path) for path in sorted(Path.home().glob(".pyenv/versions/3.1[23].*/bin/python"))]


@pytest.mark.parametrize("python", other_interpreters() or [""], ids=lambda path: path.split("/")[-3:-2])
def test_other_interpreters_agree_with_their_own_bdb(python: str):
    if not python:
        pytest.skip("no Python 3.12 or 3.13 beside this one")
    found = run_with(python, HARD_PROGRAMS, [], 0, 0)
    assert found["python"].startswith(("3.12", "3.13"))
    agreement = found["programs"]["hard_programs"]
    assert agreement["differing"] == agreement["other_stops"] == []
    assert all(agreement["agreed"][action] > 190 for action in ACTIONS)


def test_what_differs_is_named(hard_trees: dict[str, StateTree]):
    """A tree that is wrong on purpose: the oracle, and the comparison with it, must notice."""
    tree = StateTree(hard_trees["recursion_fact"].trace)
    tree.next_own[1] = 3
    assert any(" next()@1: " in text for text in compare_hard([tree]).differing)


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
