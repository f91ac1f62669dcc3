"""Which debugger sessions a model is trained on: trajectories sampled through a state tree.

A session is of one kind, drawn by weight. The first five kinds walk by the paper's stochastic policy: at each
step, with probability ``p_uniform`` any action of the session's direction, all equally likely; otherwise one
of step_into and step_over (inverse: inv_step_into and inv_step_over). The others are fixed walks.

Everything drawn comes from ``rng.random()``, whose stream is the same in every version of Python.
"""

import random
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

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
from nd_jax.debugger.tree import StateTree
from nd_jax.tracing.schema import RETURN


class Trajectory(NamedTuple):
    """A walk through a state tree.

    Attributes:
      start: index of the state it starts at.
      steps: each action with the index of the state it leads to.
      ended: the walk reached the trace's end in its direction (last state, or first): no action was left.
      drop_pointer: the start state, a return of the root, is shown without saying which line returned.
    """

    start: int
    steps: tuple[tuple[Action, int], ...]
    ended: bool
    drop_pointer: bool = False


@dataclass(frozen=True)
class PolicyConfig:
    """Mixture of debugger sessions. Weights are relative to each other; probabilities lie between 0 and 1."""

    p_uniform: float = 0.5
    """Probability, per step, of an action drawn from all of the direction's; else step_into or step_over."""
    forward_from_root: float = 2.0
    """Weight of sessions that start at the entry call and move forward."""
    inverse_from_root: float = 1.0
    """Weight of sessions that start at the entry call's final return and move backward."""
    forward_from_anywhere: float = 1.0
    """Weight of forward sessions that start at any state, all equally likely."""
    inverse_from_anywhere: float = 0.5
    """Weight of inverse sessions that start at any state, all equally likely."""
    turning: float = 0.5
    """Weight of sessions that start at any state and may change direction before each step."""
    step_only: float = 3.0
    """Weight of sessions that show every state from the entry call on: step_into alone."""
    inverse_step_only: float = 0.5
    """Weight of sessions that show every state from the final return back: inv_step_into alone."""
    root_skip: float = 1.0
    """Weight of sessions of one step over the whole run: entry call, step_return, final return: the form in
    which CRUXEval asks for an output."""
    inverse_root_skip: float = 1.0
    """Weight of sessions of one inverse step over the whole run: final return, inv_step_call, entry call: the
    form in which CRUXEval asks for an input."""
    p_turn: float = 0.2
    """Probability that a turning session changes its direction, per step."""
    p_start_along: float = 0.5
    """Probability that a session from the root (root_skip kinds excepted) starts at any state instead, where
    the trace has more states than the session may show; else its far end would never be trained."""
    p_drop_return_pointer: float = 0.5
    """Probability that a session which starts at the root's return hides the line it returned from
    (CRUXEval's input task does not give it)."""
    max_breakpoints: int = 3
    """Most lines a breakpoint action names; the number is drawn evenly from 1 to this."""
    p_unvisited_line: float = 0.25
    """Probability that a breakpoint's line is one where the trace never stops; else one where it does, before
    or after the present state."""

    def __post_init__(self):
        """Refuse what cannot be sampled from.

        Raises:
          ValueError: a weight or a probability is out of range, or no breakpoint is allowed.
        """
        weights = [getattr(self, kind) for kind in SESSION_KINDS]
        if min(weights) < 0 or sum(weights) <= 0:
            raise ValueError("policy: session weights must not be negative, and one of them must be positive")
        for name in ("p_uniform", "p_turn", "p_start_along", "p_drop_return_pointer", "p_unvisited_line"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"policy: {name} must lie between 0 and 1, not {getattr(self, name)}")
        if self.max_breakpoints < 1:
            raise ValueError("policy: max_breakpoints must be at least 1")

    @cached_property
    def thresholds(self) -> tuple[tuple[float, str], ...]:
        """Session kinds with the upper end of their share of [0, 1)."""
        kinds = [kind for kind in SESSION_KINDS if getattr(self, kind) > 0]
        total = sum(getattr(self, kind) for kind in kinds)
        below, thresholds = 0.0, []
        for kind in kinds:
            below += getattr(self, kind) / total
            thresholds.append((below, kind))
        return tuple(thresholds)


SESSION_KINDS = (
    "forward_from_root",
    "inverse_from_root",
    "forward_from_anywhere",
    "inverse_from_anywhere",
    "turning",
    "step_only",
    "inverse_step_only",
    "root_skip",
    "inverse_root_skip",
)
_INVERSE_KINDS = frozenset(
    ("inverse_from_root", "inverse_from_anywhere", "inverse_step_only", "inverse_root_skip")
)
_ANYWHERE_KINDS = frozenset(("forward_from_anywhere", "inverse_from_anywhere", "turning"))
_FIXED = {
    "step_only": Action(STEP_INTO),
    "inverse_step_only": Action(INV_STEP_INTO),
    "root_skip": Action(STEP_RETURN),
    "inverse_root_skip": Action(INV_STEP_CALL),
}
_SKIPS = frozenset(("root_skip", "inverse_root_skip"))
_ACTIONS = {name: Action(name) for name in (*FORWARD, *INVERSE)}
_SHORT = {FORWARD: (STEP_INTO, STEP_OVER), INVERSE: (INV_STEP_INTO, INV_STEP_OVER)}


def sample_trajectory(
    tree: StateTree, rng: random.Random, config: PolicyConfig, max_states: int
) -> Trajectory:
    """Sample one debugger session of at most max_states states (at least 2), its start included."""
    kind = _pick_kind(rng.random(), config)
    forward = kind not in _INVERSE_KINDS
    if kind == "turning":
        forward = rng.random() < 0.5
    start = _start(tree, rng, config, kind, forward, max_states)
    drop_pointer = (
        start == tree.last
        and tree.events[start].kind == RETURN
        and rng.random() < config.p_drop_return_pointer
    )

    fixed = _FIXED.get(kind)
    direction = FORWARD if forward else INVERSE
    steps: list[tuple[Action, int]] = []
    state, ended = start, False
    while len(steps) < max_states - 1:
        if kind == "turning" and steps and rng.random() < config.p_turn:
            direction = INVERSE if direction is FORWARD else FORWARD
        if state == (tree.last if direction is FORWARD else 0):
            ended = True
            break
        action = fixed or _draw(tree, rng, config, direction)
        reached = target(tree, state, action)
        if reached is None:  # unreachable: every action stays within the trace before its end
            raise AssertionError(f"{action} leaves the trace at state {state}")
        steps.append((action, reached))
        state = reached
    else:
        ended = state == (tree.last if direction is FORWARD else 0)
    return Trajectory(start, tuple(steps), ended, drop_pointer)


def full_walk(tree: StateTree, name: str) -> Trajectory:
    """Repeat one action without lines from the trace's beginning (inverse: its end) to the other end."""
    action = _ACTIONS[name]
    start = state = 0 if is_forward(name) else tree.last
    steps = []
    while (reached := target(tree, state, action)) is not None:
        steps.append((action, reached))
        state = reached
    return Trajectory(start, tuple(steps), ended=True)


def _pick_kind(drawn: float, config: PolicyConfig) -> str:
    for threshold, kind in config.thresholds:
        if drawn < threshold:
            return kind
    return config.thresholds[-1][1]


def _start(
    tree: StateTree, rng: random.Random, config: PolicyConfig, kind: str, forward: bool, max_states: int
) -> int:
    anywhere = kind in _ANYWHERE_KINDS
    if not anywhere and kind not in _SKIPS and len(tree) > max_states:
        anywhere = rng.random() < config.p_start_along
    if not anywhere:
        return 0 if forward else tree.last
    drawn = int(rng.random() * tree.last)  # 0 .. last - 1: an action is left to take
    return drawn if forward else drawn + 1


def _draw(tree: StateTree, rng: random.Random, config: PolicyConfig, direction: tuple[str, ...]) -> Action:
    names = direction if rng.random() < config.p_uniform else _SHORT[direction]
    name = names[int(rng.random() * len(names))]
    return Action(name, _draw_lines(tree, rng, config)) if name in WITH_LINES else _ACTIONS[name]


def _draw_lines(tree: StateTree, rng: random.Random, config: PolicyConfig) -> tuple[int, ...]:
    visited, unvisited = list(tree.visits), tree.unvisited
    lines = set()
    for _ in range(1 + int(rng.random() * config.max_breakpoints)):
        pool = unvisited if rng.random() < config.p_unvisited_line else visited
        pool = pool or unvisited or visited or [1]
        lines.add(pool[int(rng.random() * len(pool))])
    return tuple(sorted(lines))
