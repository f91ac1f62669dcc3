"""What a rendered session shows: the program's lines, and states with the fields that their text holds."""

from functools import partial
from typing import Any, NamedTuple

from nd_jax.debugger.actions import Action
from nd_jax.debugger.policy import Trajectory
from nd_jax.debugger.tree import StateTree
from nd_jax.language.symbols import SHOWS_LOCALS, SHOWS_VALUE, TokenizerSpec


class Unrenderable(ValueError):
    """A session that the language cannot write.

    Attributes:
      reason: a short name to count by: ``too many lines``, ``line break in value``, ``lone surrogate``, ...
      detail: what and where.
    """

    def __init__(self, reason: str, detail: str):
        super().__init__(reason, detail)
        self.reason = reason
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"


class ShownState(NamedTuple):
    """A debugger state as its text shows it.

    Attributes:
      event: one of `nd_jax.tracing.schema.EVENT_KINDS`.
      line: line number from 1; None only where a session starts at a return whose line is hidden.
      frame: the activation, numbered from 0 by first sight in the session.
      locals: name -> text of the value at call, resume and line; else None.
      value: the result at return and yield, ``TypeName(args)`` at exception; else None.
    """

    event: str
    line: int | None
    frame: int
    locals: dict[str, str] | None
    value: str | None


class Session(NamedTuple):
    """A debugger session as its text shows it.

    Attributes:
      context: the program's lines, without line ends.
      states: the states in the order shown.
      actions: ``actions[k]`` leads from ``states[k]`` to ``states[k + 1]``.
      ended: the session reached the end of its trace; it was not cut.
    """

    context: tuple[str, ...]
    states: tuple[ShownState, ...]
    actions: tuple[Action, ...]
    ended: bool


_new_state: Any = partial(tuple.__new__, ShownState)  # a third of what ShownState(...) takes


def show(tree: StateTree, trajectory: Trajectory, spec: TokenizerSpec) -> Session:
    """Give what a trajectory shows; a session that needs more frame symbols than there are ends before that.

    Raises:
      Unrenderable: the program has more lines than the tokenizer has symbols for.
    """
    context = tree.lines
    if len(context) > spec.lines:
        raise Unrenderable("too many lines", f"{len(context)} lines, the tokenizer names {spec.lines}")
    events = tree.events
    numbers: dict[int, int] = {}  # activation in the trace -> number in the session
    states: list[ShownState] = []
    ended = trajectory.ended
    for i in (trajectory.start, *(place for _, place in trajectory.steps)):
        kind, line, activation, _, locals_, value = events[i]
        number = numbers.setdefault(activation, len(numbers))
        if number == spec.frames:
            ended = False
            break
        states.append(
            _new_state(
                (
                    kind,
                    line,
                    number,
                    locals_ if kind in SHOWS_LOCALS else None,
                    value if kind in SHOWS_VALUE else None,
                )
            )
        )
    actions = tuple(action for action, _ in trajectory.steps[: len(states) - 1])
    if trajectory.drop_pointer:
        states[0] = states[0]._replace(line=None)
    return Session(context, tuple(states), actions, ended)
