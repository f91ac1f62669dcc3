"""Which debugger sessions a model is trained on: trajectories sampled through a state tree.

A session is of one kind (`SESSION_KINDS`), drawn by weight: where it starts, which way it moves, and how it
draws its actions. `PolicyConfig` holds the weights, and `POLICIES` some mixtures by name.

Everything drawn comes from ``rng.random()``, whose stream is the same in every version of Python.
"""

import random
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Literal, NamedTuple

from nd_jax.debugger.actions import (
    BREAKPOINT,
    FORWARD,
    INV_BREAKPOINT,
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
    jumps: float = 0.0
    """Weight of sessions that mostly jump, from the entry call on: as the stochastic policy, with step_over,
    step_return and breakpoint in place of step_into and step_over."""
    inverse_jumps: float = 0.0
    """Weight of sessions that mostly jump back, from the final return."""
    breakpoints: float = 0.0
    """Weight of sessions that go from breakpoint to breakpoint (see `aim_next`), from the entry call on."""
    inverse_breakpoints: float = 0.0
    """Weight of sessions that go back from breakpoint to breakpoint, from the final return."""
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
    aim_next: float = 1.0
    """Breakpoint sessions: weight of a breakpoint on the next line to run (back: on the last that ran)."""
    aim_later: float = 2.0
    """Breakpoint sessions: weight of breakpoints on other lines that are hit, with further stops between."""
    aim_never: float = 0.5
    """Breakpoint sessions: weight of breakpoints that are not hit, on lines passed or never run: they lead
    to the trace's end."""

    def __post_init__(self):
        """Refuse what cannot be sampled from.

        Raises:
          ValueError: a weight or a probability is out of range, or no breakpoint is allowed.
        """
        weights = [getattr(self, kind) for kind in SESSION_KINDS]
        if min(weights) < 0 or sum(weights) <= 0:
            raise ValueError("policy: session weights must not be negative, and one of them must be positive")
        aims = self.aim_next, self.aim_later, self.aim_never
        if min(aims) < 0 or sum(aims) <= 0:
            raise ValueError("policy: aim_* must not be negative, and one of them must be positive")
        for name in ("p_uniform", "p_turn", "p_start_along", "p_drop_return_pointer", "p_unvisited_line"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"policy: {name} must lie between 0 and 1, not {getattr(self, name)}")
        if self.max_breakpoints < 1:
            raise ValueError("policy: max_breakpoints must be at least 1")

    @cached_property
    def shares(self) -> tuple[tuple[float, str], ...]:
        """Session kinds, each with the upper end of its share of [0, 1)."""
        return _shares({name: getattr(self, name) for name in SESSION_KINDS})

    @cached_property
    def aims(self) -> tuple[tuple[float, str], ...]:
        """Where breakpoint sessions place breakpoints, each with the upper end of its share of [0, 1)."""
        return _shares({"next": self.aim_next, "later": self.aim_later, "never": self.aim_never})


Draw = Callable[[StateTree, int, random.Random, PolicyConfig, tuple[str, ...]], Action]
"""Draws the next action of a direction at a state."""


class SessionKind(NamedTuple):
    """How sessions of one kind come about.

    Attributes:
      direction: `FORWARD` or `INVERSE`; None: either, with turns.
      start: ``root``: the entry call (inverse: its return), or along the trace where it is long; ``end``: the
        same, always; ``anywhere``: any state.
      walk: the one action that is repeated, or what draws each action.
    """

    direction: tuple[str, ...] | None
    start: Literal["root", "end", "anywhere"]
    walk: Action | Draw


def sample_trajectory(
    tree: StateTree, rng: random.Random, config: PolicyConfig, max_states: int
) -> Trajectory:
    """Sample one debugger session of at most max_states states (at least 2), its start included."""
    kind = KINDS[_pick(config.shares, rng)]
    direction = kind.direction or (FORWARD if rng.random() < 0.5 else INVERSE)
    start = _start(tree, rng, config, kind, direction, max_states)
    drop_pointer = (
        start == tree.last
        and tree.events[start].kind == RETURN
        and rng.random() < config.p_drop_return_pointer
    )
    if isinstance(kind.walk, Action):
        steps, ended = _repeat(tree, start, kind.walk, max_states - 1)
        return Trajectory(start, steps, ended, drop_pointer)
    drawn: list[tuple[Action, int]] = []
    state = start
    for _ in range(max_states - 1):
        if kind.direction is None and drawn and rng.random() < config.p_turn:
            direction = INVERSE if direction is FORWARD else FORWARD
        if state == _far_end(tree, direction):
            break
        action = kind.walk(tree, state, rng, config, direction)
        reached = target(tree, state, action)
        assert reached is not None, "every action stays within the trace before its end"
        drawn.append((action, reached))
        state = reached
    return Trajectory(start, tuple(drawn), state == _far_end(tree, direction), drop_pointer)


def full_walk(tree: StateTree, name: str) -> Trajectory:
    """Repeat one action without lines from the trace's beginning (inverse: its end) to the other end."""
    start = 0 if is_forward(name) else tree.last
    steps, ended = _repeat(tree, start, _ACTIONS[name], len(tree))
    return Trajectory(start, steps, ended)


def _repeat(
    tree: StateTree, state: int, action: Action, most: int
) -> tuple[tuple[tuple[Action, int], ...], bool]:
    """Repeat an action up to so many times; give the steps, and whether they reached the trace's end."""
    steps: list[tuple[Action, int]] = []
    while len(steps) < most and (reached := target(tree, state, action)) is not None:
        steps.append((action, reached))
        state = reached
    return tuple(steps), state == _far_end(tree, FORWARD if is_forward(action.name) else INVERSE)


def _far_end(tree: StateTree, direction: tuple[str, ...]) -> int:
    """The state where a direction's actions end."""
    return tree.last if direction is FORWARD else 0


def _start(
    tree: StateTree,
    rng: random.Random,
    config: PolicyConfig,
    kind: SessionKind,
    direction: tuple[str, ...],
    max_states: int,
) -> int:
    along = kind.start == "root" and len(tree) > max_states and rng.random() < config.p_start_along
    if not along and kind.start != "anywhere":
        return 0 if direction is FORWARD else tree.last
    drawn = int(rng.random() * tree.last)  # 0 .. last - 1: an action is left to take
    return drawn if direction is FORWARD else drawn + 1


def _draw(
    tree: StateTree, state: int, rng: random.Random, config: PolicyConfig, direction: tuple[str, ...]
) -> Action:
    """The paper's stochastic policy: with probability p_uniform any action, else step_into or step_over."""
    return _draw_among(_SHORT[direction], tree, rng, config, direction)


def _draw_jump(
    tree: StateTree, state: int, rng: random.Random, config: PolicyConfig, direction: tuple[str, ...]
) -> Action:
    """With probability p_uniform any action, else one that jumps."""
    return _draw_among(_JUMPS[direction], tree, rng, config, direction)


def _draw_among(
    usual: tuple[str, ...], tree: StateTree, rng: random.Random, config: PolicyConfig,
    direction: tuple[str, ...],
) -> Action:  # fmt: skip
    names = direction if rng.random() < config.p_uniform else usual
    name = names[int(rng.random() * len(names))]
    if name not in WITH_LINES:
        return _ACTIONS[name]
    visited, unvisited = list(tree.visits), tree.unvisited
    lines = set()
    for _ in range(_count(rng, config)):
        pool = unvisited if rng.random() < config.p_unvisited_line else visited
        pool = pool or unvisited or visited or [1]
        lines.add(pool[int(rng.random() * len(pool))])
    return Action(name, tuple(sorted(lines)))


def _draw_breakpoint(
    tree: StateTree, state: int, rng: random.Random, config: PolicyConfig, direction: tuple[str, ...]
) -> Action:
    """A breakpoint that is hit at once, later or never."""
    if direction is FORWARD:
        coming = {line: states[bisect_right(states, state)] for line, states in tree.visits.items()
                  if states[-1] > state}  # fmt: skip
        following = min(coming, key=coming.__getitem__, default=None)
    else:
        coming = {line: states[bisect_left(states, state) - 1] for line, states in tree.visits.items()
                  if states[0] < state}  # fmt: skip
        following = max(coming, key=coming.__getitem__, default=None)
    never = [line for line in (*tree.visits, *tree.unvisited) if line not in coming]
    later = [line for line in coming if line != following]
    pools = {"next": [following] if coming else [], "later": later, "never": never}
    pool = pools[_pick(config.aims, rng)] or list(coming) or never or [1]
    lines = {pool[int(rng.random() * len(pool))] for _ in range(_count(rng, config))}
    return Action(BREAKPOINT if direction is FORWARD else INV_BREAKPOINT, tuple(sorted(lines)))


def _count(rng: random.Random, config: PolicyConfig) -> int:
    """How many lines a breakpoint action names, before doubles are taken out."""
    return 1 + int(rng.random() * config.max_breakpoints)


def _pick(shares: tuple[tuple[float, str], ...], rng: random.Random) -> str:
    drawn = rng.random()
    for end, name in shares:
        if drawn < end:
            return name
    return shares[-1][1]


def _shares(weights: dict[str, float]) -> tuple[tuple[float, str], ...]:
    positive = {name: weight for name, weight in weights.items() if weight > 0}
    total = sum(positive.values())
    ends = accumulate(weight / total for weight in positive.values())
    return tuple(zip(ends, positive, strict=True))


_ACTIONS = {name: Action(name) for name in (*FORWARD, *INVERSE)}
_SHORT = {FORWARD: (STEP_INTO, STEP_OVER), INVERSE: (INV_STEP_INTO, INV_STEP_OVER)}
_JUMPS = {
    FORWARD: (STEP_OVER, STEP_RETURN, BREAKPOINT),
    INVERSE: (INV_STEP_OVER, INV_STEP_CALL, INV_BREAKPOINT),
}

KINDS = {
    "forward_from_root": SessionKind(FORWARD, "root", _draw),
    "inverse_from_root": SessionKind(INVERSE, "root", _draw),
    "forward_from_anywhere": SessionKind(FORWARD, "anywhere", _draw),
    "inverse_from_anywhere": SessionKind(INVERSE, "anywhere", _draw),
    "turning": SessionKind(None, "anywhere", _draw),
    "step_only": SessionKind(FORWARD, "root", _ACTIONS[STEP_INTO]),
    "inverse_step_only": SessionKind(INVERSE, "root", _ACTIONS[INV_STEP_INTO]),
    "root_skip": SessionKind(FORWARD, "end", _ACTIONS[STEP_RETURN]),
    "inverse_root_skip": SessionKind(INVERSE, "end", _ACTIONS[INV_STEP_CALL]),
    "jumps": SessionKind(FORWARD, "root", _draw_jump),
    "inverse_jumps": SessionKind(INVERSE, "root", _draw_jump),
    "breakpoints": SessionKind(FORWARD, "root", _draw_breakpoint),
    "inverse_breakpoints": SessionKind(INVERSE, "root", _draw_breakpoint),
}
"""The registry of session kinds: each has a weight of its name in `PolicyConfig`."""

SESSION_KINDS = tuple(KINDS)


def _mixture(**weights: float) -> PolicyConfig:
    none = dict.fromkeys(SESSION_KINDS, 0.0)
    return replace(PolicyConfig(), **none | weights)  # type: ignore[arg-type]  # all of these are weights


POLICIES = {
    "default": PolicyConfig(),
    "paper": _mixture(forward_from_root=2.0, inverse_from_root=1.0),
    "steps": _mixture(step_only=1.0, inverse_step_only=1.0),
    "jumps": _mixture(jumps=1.0, inverse_jumps=1.0),
    "breakpoints": _mixture(breakpoints=1.0, inverse_breakpoints=1.0),
    "turning": _mixture(turning=1.0),
    "anywhere": _mixture(forward_from_anywhere=1.0, inverse_from_anywhere=1.0),
    "all": PolicyConfig(jumps=1.0, inverse_jumps=0.5, breakpoints=1.0, inverse_breakpoints=0.5),
}
"""Mixtures by name, for config files: ``policy=POLICIES["paper"]``; ``replace`` changes their weights."""
