"""Debugger actions, forward and inverse: where each one leads from a state.

Every action is a function of the state tree and a state's index. "Own" means the frame node of that state;
"at a return" means a state that closes its node (return, yield or unwind), "at a call" one that opens it
(call, resume).

=================  ===========================================  ==========================================
action             elsewhere                                    at a return (inverse: at a call)
=================  ===========================================  ==========================================
step_into          next state                                   next state
step_over          next own state                               next state
step_return        the state that closes the own node           next own state of the caller
breakpoint(B)      next line state at a line of B; without one, the last state
continue           last state
inv_step_into      previous state                               previous state
inv_step_over      previous own state                           previous state
inv_step_call      the state that opens the own node            the own state of the caller that called
inv_breakpoint(B)  previous line state at a line of B; without one, the first state
inv_continue       first state
=================  ===========================================  ==========================================

Unlike bdb, a generator's yield is a stop like any other return: stepping inside a generator never
runs past it.
"""

from collections.abc import Callable
from typing import NamedTuple

from nd_jax.debugger.tree import StateTree

STEP_INTO, STEP_OVER, STEP_RETURN, BREAKPOINT, CONTINUE = FORWARD = (
    "step_into",
    "step_over",
    "step_return",
    "breakpoint",
    "continue",
)
INV_STEP_INTO, INV_STEP_OVER, INV_STEP_CALL, INV_BREAKPOINT, INV_CONTINUE = INVERSE = (
    "inv_step_into",
    "inv_step_over",
    "inv_step_call",
    "inv_breakpoint",
    "inv_continue",
)
WITH_LINES = frozenset((BREAKPOINT, INV_BREAKPOINT))


class Action(NamedTuple):
    """A debugger command; ``lines`` are the breakpoints of `BREAKPOINT` and `INV_BREAKPOINT`, else empty."""

    name: str
    lines: tuple[int, ...] = ()


def is_forward(name: str) -> bool:
    """Whether the action moves with the execution."""
    return name in FORWARD


def target(tree: StateTree, i: int, action: Action) -> int | None:
    """The state an action leads to from state i, or None where it would leave the trace."""
    name, lines = action
    return _TARGETS[name](tree, i, lines)


def available(tree: StateTree, i: int, direction: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the actions of a direction (`FORWARD` or `INVERSE`) that stay within the trace at state i.

    All of them do, save at the trace's end in that direction: there, none does.
    """
    return () if i == (tree.last if direction is FORWARD else 0) else direction


def _step_into(tree: StateTree, i: int, lines: tuple[int, ...]) -> int | None:
    return i + 1 if i < tree.last else None


def _step_over(tree: StateTree, i: int, lines: tuple[int, ...]) -> int | None:
    following = tree.next_own[i]
    return following if following >= 0 else _step_into(tree, i, lines)


def _step_return(tree: StateTree, i: int, lines: tuple[int, ...]) -> int | None:
    node = tree.node[i]
    close = tree.closes[node]
    if i < close:
        return close
    caller = tree.callers[node]
    return tree.next_own[caller] if caller >= 0 else None


def _breakpoint(tree: StateTree, i: int, lines: tuple[int, ...]) -> int | None:
    hit = tree.next_visit(i, lines)
    return _continue(tree, i, lines) if hit is None else hit


def _continue(tree: StateTree, i: int, lines: tuple[int, ...]) -> int | None:
    return tree.last if i < tree.last else None


def _inv_step_into(tree: StateTree, i: int, lines: tuple[int, ...]) -> int | None:
    return i - 1 if i > 0 else None


def _inv_step_over(tree: StateTree, i: int, lines: tuple[int, ...]) -> int | None:
    previous = tree.previous_own[i]
    return previous if previous >= 0 else _inv_step_into(tree, i, lines)


def _inv_step_call(tree: StateTree, i: int, lines: tuple[int, ...]) -> int | None:
    node = tree.node[i]
    if i > tree.opens[node]:
        return tree.opens[node]
    caller = tree.callers[node]
    return caller if caller >= 0 else None


def _inv_breakpoint(tree: StateTree, i: int, lines: tuple[int, ...]) -> int | None:
    hit = tree.previous_visit(i, lines)
    return _inv_continue(tree, i, lines) if hit is None else hit


def _inv_continue(tree: StateTree, i: int, lines: tuple[int, ...]) -> int | None:
    return 0 if i > 0 else None


_TARGETS: dict[str, Callable[[StateTree, int, tuple[int, ...]], int | None]] = {
    STEP_INTO: _step_into,
    STEP_OVER: _step_over,
    STEP_RETURN: _step_return,
    BREAKPOINT: _breakpoint,
    CONTINUE: _continue,
    INV_STEP_INTO: _inv_step_into,
    INV_STEP_OVER: _inv_step_over,
    INV_STEP_CALL: _inv_step_call,
    INV_BREAKPOINT: _inv_breakpoint,
    INV_CONTINUE: _inv_continue,
}
