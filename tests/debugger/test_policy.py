import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made import made_traces, trace_of

from nd_jax.debugger.actions import (
    FORWARD,
    INV_STEP_CALL,
    INV_STEP_INTO,
    INV_STEP_OVER,
    INVERSE,
    STEP_INTO,
    STEP_OVER,
    STEP_RETURN,
    WITH_LINES,
    Action,
    is_forward,
    target,
)
from nd_jax.debugger.policy import SESSION_KINDS, PolicyConfig, Trajectory, full_walk, sample_trajectory
from nd_jax.debugger.tree import StateTree
from nd_jax.tracing.schema import Trace

NO_OTHERS: Any = dict.fromkeys(SESSION_KINDS[1:], 0.0)
NOTHING = PolicyConfig(**NO_OTHERS)
LOOP = StateTree(trace_of([1, 2, [1, 2, 3], 2, [4, 5, [1], 5], 2, [1], 3] * 5))


def only(kind: str, **fields: Any) -> PolicyConfig:
    """A policy with sessions of one kind."""
    return replace(NOTHING, **{"forward_from_root": 0.0, kind: 1.0, **fields})


def sample(config: PolicyConfig, count: int, max_states: int = 12) -> list[Trajectory]:
    rng = random.Random(5)
    return [sample_trajectory(LOOP, rng, config, max_states) for _ in range(count)]


def check(tree: StateTree, walk: Trajectory, max_states: int) -> None:
    assert 0 <= walk.start <= tree.last
    assert len(walk.steps) < max_states
    state = walk.start
    for action, reached in walk.steps:
        assert target(tree, state, action) == reached
        assert bool(action.lines) == (action.name in WITH_LINES)
        assert all(1 <= line <= len(tree.lines) for line in action.lines)
        assert len(set(action.lines)) == len(action.lines)
        state = reached
    if walk.ended:
        assert state in (0, tree.last)
    else:
        assert len(walk.steps) == max_states - 1
    if walk.drop_pointer:
        assert walk.start == tree.last


@given(made_traces, st.integers(0, 1000), st.integers(2, 30))
def test_sampled_sessions_are_valid(trace: Trace, seed: int, max_states: int):
    tree = StateTree(trace)
    rng = random.Random(seed)
    for _ in range(5):
        check(tree, sample_trajectory(tree, rng, PolicyConfig(turning=3.0), max_states), max_states)


def test_sampled_sessions_are_valid_on_real_traces(hard_trees: dict[str, StateTree]):
    for tree in hard_trees.values():
        rng = random.Random(1)
        for _ in range(60):
            check(tree, sample_trajectory(tree, rng, PolicyConfig(), 20), 20)


@pytest.mark.parametrize("kind", SESSION_KINDS)
def test_each_kind_keeps_to_its_start_and_direction(kind: str):
    for walk in sample(replace(only(kind), p_start_along=0.0), 200):
        names = {action.name for action, _ in walk.steps}
        inverse = kind.startswith("inverse")
        if kind != "turning":
            assert not any(is_forward(name) == inverse for name in names)
        if "anywhere" not in kind and kind != "turning":
            assert walk.start == (LOOP.last if inverse else 0)
        assert walk.steps


def test_fixed_walks():
    for walk in sample(only("root_skip"), 20):
        assert walk == Trajectory(0, ((Action(STEP_RETURN), LOOP.last),), True)
    for walk in sample(only("inverse_root_skip"), 20):
        assert walk._replace(drop_pointer=False) == Trajectory(LOOP.last, ((Action(INV_STEP_CALL), 0),), True)
    for walk in sample(only("step_only", p_start_along=0.0), 5):
        assert walk.steps == tuple((Action(STEP_INTO), i) for i in range(1, 12))
    for walk in sample(only("inverse_step_only", p_start_along=0.0), 5):
        assert walk.steps == tuple((Action(INV_STEP_INTO), LOOP.last - i) for i in range(1, 12))


def test_turning_sessions_go_both_ways():
    walks = sample(only("turning", p_uniform=0.0), 300)
    both = sum(len({is_forward(action.name) for action, _ in walk.steps}) == 2 for walk in walks)
    assert both > 200


@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("kind", ["forward_from_anywhere", "inverse_from_anywhere"])
def test_p_uniform_mixes_two_choices(p: float, kind: str):
    counts = Counter(a.name for w in sample(only(kind, p_uniform=p), 3000) for a, _ in w.steps)
    total = counts.total()
    assert total > 3000
    short = (STEP_INTO, STEP_OVER) if kind.startswith("forward") else (INV_STEP_INTO, INV_STEP_OVER)
    direction = FORWARD if kind.startswith("forward") else INVERSE
    for name in direction:
        expected = p / len(direction) + (1 - p) / 2 * (name in short)
        error = (expected * (1 - expected) / total) ** 0.5
        assert abs(counts[name] / total - expected) <= 4 * error, name


def test_kinds_come_by_weight():
    config = replace(only("root_skip"), inverse_root_skip=3.0)
    skips = sum(walk.start == 0 for walk in sample(config, 4000))
    assert abs(skips / 4000 - 0.25) < 0.03


@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
def test_the_roots_return_hides_its_line_by_probability(p: float):
    walks = sample(only("inverse_root_skip", p_drop_return_pointer=p), 2000)
    assert abs(sum(walk.drop_pointer for walk in walks) / 2000 - p) < 0.05


def test_an_unwinding_root_keeps_its_line():
    tree = StateTree(trace_of([1, -2]))
    rng = random.Random(0)
    walks = [sample_trajectory(tree, rng, only("inverse_root_skip"), 5) for _ in range(50)]
    assert not any(walk.drop_pointer for walk in walks)


def test_long_traces_are_trained_to_their_end():
    starts = {walk.start for walk in sample(only("step_only"), 2000)}
    assert starts == set(range(LOOP.last))
    assert all(walk.start == 0 for walk in sample(only("step_only"), 50, max_states=len(LOOP)))


def test_breakpoints_are_hit_missed_and_passed():
    lines = [
        (walk.start if k == 0 else walk.steps[k - 1][1], action.lines)
        for walk in sample(only("forward_from_anywhere", p_uniform=1.0, p_unvisited_line=0.3), 2000)
        for k, (action, _) in enumerate(walk.steps)
        if action.name in WITH_LINES
    ]
    hit = sum(LOOP.next_visit(i, chosen) is not None for i, chosen in lines)
    never = sum(not any(line in LOOP.visits for line in chosen) for _, chosen in lines)
    passed = len(lines) - hit - never
    assert min(hit, never, passed) > 0.01 * len(lines)
    assert {len(chosen) for _, chosen in lines} == {1, 2, 3}


def test_only_the_generators_stable_stream_is_used():
    class Stream:
        """What `random.Random` promises to keep the same over versions: random() alone."""

        def __init__(self, seed: int):
            self.random = random.Random(seed).random

    for seed in range(50):
        stream: Any = Stream(seed)
        from_stream = sample_trajectory(LOOP, stream, PolicyConfig(), 12)
        assert from_stream == sample_trajectory(LOOP, random.Random(seed), PolicyConfig(), 12)


def test_full_walks():
    assert [i for _, i in full_walk(LOOP, STEP_INTO).steps] == list(range(1, len(LOOP)))
    assert [i for _, i in full_walk(LOOP, INV_STEP_INTO).steps] == list(range(LOOP.last))[::-1]
    own = [i for i in range(1, len(LOOP)) if LOOP.node[i] == 0]
    assert [i for _, i in full_walk(LOOP, STEP_OVER).steps] == own
    assert full_walk(LOOP, STEP_OVER).ended


@pytest.mark.parametrize(
    "fields",
    [
        {"p_uniform": 1.5},
        {"p_turn": -0.1},
        {"step_only": -1.0},
        {"max_breakpoints": 0},
        dict.fromkeys(SESSION_KINDS, 0.0),
    ],
)
def test_impossible_policies_are_refused(fields: dict[str, Any]):
    with pytest.raises(ValueError, match="policy"):
        PolicyConfig(**fields)
