"""Session kinds that jump or go from breakpoint to breakpoint, and the mixtures by name."""

import random
from collections import Counter
from dataclasses import replace

import pytest
from made import trace_of

from nd_jax.debugger.actions import (
    BREAKPOINT,
    INV_BREAKPOINT,
    INV_STEP_CALL,
    INV_STEP_OVER,
    STEP_OVER,
    STEP_RETURN,
    is_forward,
)
from nd_jax.debugger.policy import KINDS, POLICIES, PolicyConfig, sample_trajectory
from nd_jax.debugger.tree import StateTree

TREE = StateTree(trace_of([1, 2, [1, 2, 3], 2, [4, 5, [1], 5], 2, [1], 3] * 5))


def steps(config: PolicyConfig, count: int = 300):
    """(state, action, state reached) of all steps of some sessions."""
    rng = random.Random(4)
    for _ in range(count):
        walk = sample_trajectory(TREE, rng, config, 30)
        state = walk.start
        for action, reached in walk.steps:
            yield state, action, reached
            state = reached


def test_jumping_sessions_draw_evenly_from_what_jumps():
    for config, names in (
        ({"jumps": 1.0, "inverse_jumps": 0.0}, (STEP_OVER, STEP_RETURN, BREAKPOINT)),
        ({"jumps": 0.0, "inverse_jumps": 1.0}, (INV_STEP_OVER, INV_STEP_CALL, INV_BREAKPOINT)),
    ):
        counts = Counter(a.name for _, a, _ in steps(replace(POLICIES["jumps"], p_uniform=0.0, **config)))
        assert set(counts) == set(names)
        assert all(abs(count / counts.total() - 1 / 3) < 0.06 for count in counts.values())


@pytest.mark.parametrize("kind", ["breakpoints", "inverse_breakpoints"])
@pytest.mark.parametrize("aim", ["next", "later", "never"])
def test_breakpoints_are_hit_next_later_or_never(kind: str, aim: str):
    aims = dict.fromkeys(["aim_next", "aim_later", "aim_never"], 0.0) | {f"aim_{aim}": 1.0}
    weights = dict.fromkeys(["breakpoints", "inverse_breakpoints"], 0.0) | {kind: 1.0}
    seen = Counter()
    for state, action, reached in steps(replace(POLICIES["breakpoints"], **aims, **weights)):
        forward = is_forward(action.name)
        assert forward == (kind == "breakpoints")
        ahead = range(state + 1, len(TREE)) if forward else range(state - 1, -1, -1)
        stops = [i for i in ahead if TREE.events[i].kind == "line"]
        lines = list(dict.fromkeys(TREE.events[i].line for i in stops))
        if not lines or (aim == "later" and len(lines) == 1):
            continue  # nothing to aim at: what there is is taken
        if aim == "never" and set(lines) >= set(TREE.visits) | set(TREE.unvisited):
            continue
        hit = [line for line in action.lines if line in lines]
        assert {"next": hit == lines[:1], "later": hit and lines[0] not in hit, "never": not hit}[aim]
        assert reached == (stops[0] if aim == "next" else reached)
        seen[aim] += 1
    assert seen[aim] > 100


def test_the_default_mixture_has_none_of_them():
    assert POLICIES["default"] == PolicyConfig()
    drawn = {name for _, name in PolicyConfig().shares}
    assert drawn == set(KINDS) - {"jumps", "inverse_jumps", "breakpoints", "inverse_breakpoints"}


@pytest.mark.parametrize("name", POLICIES)
def test_named_mixtures_are_sampled_from(name: str):
    walks = [sample_trajectory(TREE, random.Random(k), POLICIES[name], 20) for k in range(100)]
    forward = Counter(is_forward(action.name) for walk in walks for action, _ in walk.steps)
    assert min(forward[True], forward[False]) > 50


@pytest.mark.parametrize(
    "fields", [{"aim_next": -1.0}, {"aim_next": 0.0, "aim_later": 0.0, "aim_never": 0.0}]
)
def test_impossible_aims_are_refused(fields: dict[str, float]):
    with pytest.raises(ValueError, match="aim"):
        PolicyConfig(**fields)
