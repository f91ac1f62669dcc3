import pickle

import pytest
from hypothesis import given
from made import made_traces

from nd_jax.debugger.source import code_lines, source_lines
from nd_jax.debugger.tree import StateTree
from nd_jax.tracing.schema import CALL, CLOSING, LINE, OPENING, RETURN, Event, Trace


def tree_of(*kinds: str) -> StateTree:
    return StateTree(
        Trace("t", "", "f", "", "3.11", ["f"], [Event(kind, 1, 0, 0, {}, "0") for kind in kinds])
    )


@pytest.mark.parametrize(
    "kinds",
    [
        (),
        (LINE,),
        (CALL,),
        (CALL, LINE),
        (CALL, RETURN, LINE),
        (CALL, RETURN, CALL, RETURN),
        (CALL, CALL, RETURN),
    ],
)
def test_events_that_do_not_nest_are_refused(kinds: tuple[str, ...]):
    with pytest.raises(ValueError, match="root frame"):
        tree_of(*kinds)


@given(made_traces)
def test_nodes_nest_as_depths_say(trace: Trace):
    tree = StateTree(trace)
    for i, event in enumerate(trace.events):
        node = tree.node[i]
        opens, closes = tree.opens[node], tree.closes[node]
        assert opens <= i <= closes
        assert (i == opens) == (event.kind in OPENING)
        assert (i == closes) == (event.kind in CLOSING)
        assert len(tree.stack(i)) == event.depth + 1
        parent = tree.parent(node)
        assert (parent is None) == (event.depth == 0)
        if parent is not None:
            assert tree.node[tree.callers[node]] == parent
            assert trace.events[tree.opens[parent]].depth == event.depth - 1


@given(made_traces)
def test_own_states_form_one_chain_per_node(trace: Trace):
    tree = StateTree(trace)
    for node, opens in enumerate(tree.opens):
        chain, i = [], opens
        while i >= 0:
            chain.append(i)
            i = tree.next_own[i]
        assert chain == [i for i in range(len(tree)) if tree.node[i] == node]
        assert [tree.previous_own[i] for i in chain] == [-1, *chain[:-1]]


@given(made_traces)
def test_visits_are_all_line_states(trace: Trace):
    tree = StateTree(trace)
    assert sorted(i for states in tree.visits.values() for i in states) == [
        i for i, event in enumerate(trace.events) if event.kind == LINE
    ]
    assert set(tree.unvisited).isdisjoint(tree.visits)


def test_generator_resumes_are_nodes_of_one_activation(hard_trees: dict[str, StateTree]):
    tree = hard_trees["generator_for"]
    resumed = [node for node, i in enumerate(tree.opens) if tree.events[i].frame == 1]
    assert len(resumed) == 3
    assert [tree.events[tree.closes[node]].kind for node in resumed] == ["yield", "yield", "return"]


def test_a_tree_can_be_sent_to_another_process(hard_trees: dict[str, StateTree]):
    tree = hard_trees["recursion_fact"]
    assert pickle.loads(pickle.dumps(tree)).next_own == tree.next_own


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("", []),
        ("a", ["a"]),
        ("a\n", ["a"]),
        ("a\n\n", ["a", ""]),
        ("a\r\nb\rc", ["a", "b", "c"]),
        ("x = '\u2028\x0b\x0c\x85\x1c'\nb", ["x = '\u2028\x0b\x0c\x85\x1c'", "b"]),
    ],
)
def test_lines_are_split_as_the_compiler_does(source: str, lines: list[str]):
    assert source_lines(source) == lines
    if lines:
        numbered = "\n".join(f"# {line}" for line in lines)
        assert compile(numbered + "\nlast = 1", "x", "exec").co_firstlineno <= len(lines) + 1


def test_code_lines_leave_out_blanks_and_comments():
    assert code_lines(["x = 1", "", "   ", "  # no", "\ty"]) == [1, 5]
