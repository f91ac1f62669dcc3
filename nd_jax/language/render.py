"""Write a debugger session as segments (grammar: `nd_jax.language.symbols`)."""

from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import chain

from nd_jax.debugger.actions import WITH_LINES, Action
from nd_jax.language.session import Session, ShownState, Unrenderable
from nd_jax.language.symbols import (
    ACTIONS,
    ARG,
    BOS,
    DEL,
    END,
    EVENTS,
    PROGRAM,
    SHOWS_LOCALS,
    SHOWS_VALUE,
    STATE_END,
    Role,
    Segment,
    frame,
    pointer,
)
from nd_jax.tracing.schema import CALL, RETURN


def render(session: Session) -> list[Segment]:
    """Write a whole session: context, then states and the actions between them.

    Raises:
      Unrenderable: something in it has no place in the language.
    """
    segments = [*render_context(session.context), *chain.from_iterable(render_steps(session))]
    if session.ended:
        segments.append(_symbol(END))
    return segments


def render_prompt(session: Session, action: Action) -> list[Segment]:
    """Write what a model sees before it writes the next state: the session so far, and one more action.

    Raises:
      Unrenderable: something in it has no place in the language.
    """
    segments = render(session._replace(ended=False))
    segments += render_action(action, len(session.context))
    return segments


def render_context(context: Iterable[str]) -> list[Segment]:
    """Write the beginning of a document: the program, each line behind its pointer."""
    role = Role.CONTEXT
    segments = [Segment("marker", BOS, role), Segment("marker", PROGRAM, role)]
    for number, line in enumerate(context, 1):
        if "\n" in line or "\r" in line:
            raise Unrenderable("line break in line", f"line {number} of the context")
        segments.append(_context_pointer(number))
        segments.append(Segment("source", line + "\n", role))
    return segments


def render_steps(session: Session) -> Iterator[list[Segment]]:
    """Write what follows the context: a state, then an action and the state it leads to in turn; no END."""
    history = History()
    lines = len(session.context)
    actions = iter(session.actions)
    for k, state in enumerate(session.states):
        if k:
            yield render_action(next(actions), lines)
        yield render_state(state, history, lines)
        history.see(state)


def render_action(action: Action, lines: int) -> list[Segment]:
    """Write one action; breakpoints lie within the program's lines."""
    name, breakpoints = action
    if bool(breakpoints) != (name in WITH_LINES):
        raise Unrenderable("breakpoints", f"{name} with {len(breakpoints)} lines")
    if not breakpoints:
        return [_action_symbol(ACTIONS[name])]
    if not all(0 < line <= lines for line in breakpoints):
        raise Unrenderable("line outside the program", f"{action}")
    pointers = (_action_pointer(line) for line in breakpoints)
    return [_action_symbol(ACTIONS[name]), *pointers]


class History:
    """What a session has shown so far: decides what the next state must say.

    Attributes:
      frame: the previous state's frame; None before the first state.
      locals: frame -> its bindings as last shown, for the frames that showed any.
      frames: how many frames were seen.
    """

    def __init__(self):
        self.frame: int | None = None
        self.locals: dict[int, dict[str, str]] = {}
        self.frames = 0

    def see(self, state: ShownState) -> None:
        """Take note of a state that was shown."""
        self.frame = state.frame
        if state.frame >= self.frames:
            self.frames = state.frame + 1
        if state.locals is not None:
            self.locals[state.frame] = state.locals


def render_state(state: ShownState, history: History, lines: int) -> list[Segment]:
    """Write one state, given what was shown before it.

    Args:
      state: the state.
      history: the states shown before it; not changed.
      lines: how many lines the program has.
    """
    event, line, number, bindings, value = state
    segments = [_symbol(EVENTS[event])]
    if line is not None:
        if not 0 < line <= lines:
            raise Unrenderable("line outside the program", f"line {line} of {lines}")
        segments.append(_pointer(line))
    elif event != RETURN or history.frame is not None:
        raise Unrenderable("no line", f"a {event} state without its line")
    if not 0 <= number <= history.frames:
        raise Unrenderable("frame number", f"frame {number} after {history.frames} frames")
    if number != (history.frame or 0):
        segments.append(_symbol(frame(number)))
    if (bindings is None) == (event in SHOWS_LOCALS) or (value is None) == (event in SHOWS_VALUE):
        raise Unrenderable("fields", f"locals and value do not fit a {event} state")
    if bindings is not None:
        before = _NOTHING if event == CALL else history.locals.get(number, _NOTHING)
        if before != bindings:
            segments += _changes(before, bindings)
    if value is not None:
        segments.append(_symbol(ARG))
        segments.append(_value(value))
    segments.append(_STATE_END)
    return segments


def _changes(before: dict[str, str], after: dict[str, str]) -> list[Segment]:
    segments: list[Segment] = []
    for name, text in after.items():
        if before.get(name) != text:
            segments += _binding(name, text)
    if not before.keys() <= after.keys():
        for name in before:
            if name not in after:
                segments += (_symbol(DEL), Segment("name", name + "\n", _STATE))
    return segments


@lru_cache(maxsize=1 << 14)  # most come again and again
def _binding(name: str, text: str) -> tuple[Segment, Segment]:
    if not name.isidentifier():
        raise Unrenderable("name", f"{name!r} is not an identifier")
    return Segment("name", name + "=", _STATE), _value(text)


def _value(text: str) -> Segment:
    if "\n" in text or "\r" in text:
        raise Unrenderable("line break in value", f"{text[:40]!r}")
    return Segment("value", text + "\n", _STATE)


# Each role has its own, since an enum's member is slow to hash.
@cache
def _symbol(text: str) -> Segment:
    return Segment("marker", text, Role.STATE)


@cache
def _action_symbol(text: str) -> Segment:
    return Segment("marker", text, Role.ACTION)


@cache
def _pointer(line: int) -> Segment:
    return Segment("pointer", pointer(line), Role.STATE)


@cache
def _action_pointer(line: int) -> Segment:
    return Segment("pointer", pointer(line), Role.ACTION)


@cache
def _context_pointer(line: int) -> Segment:
    return Segment("pointer", pointer(line), Role.CONTEXT)


_NOTHING: dict[str, str] = {}
_STATE = Role.STATE
_STATE_END = _symbol(STATE_END)
