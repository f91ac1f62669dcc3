"""Write a debugger session (grammar: `nd_jax.language.symbols`), as words or as segments.

A word is a control symbol as it is spelled, or a whole line of text with its end: no symbol ends in one. They
are what is encoded; segments, which are typed, are read off them.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from nd_jax.debugger.actions import WITH_LINES, Action
from nd_jax.language.segmenting import SegmentReader
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
    Segment,
    TokenizerSpec,
    frame,
    pointer,
)
from nd_jax.tracing.schema import CALL, RETURN

PLAIN = TokenizerSpec()
"""The form in which sessions are written unless a tokenizer asks for another."""


def render(session: Session, spec: TokenizerSpec = PLAIN) -> list[Segment]:
    """Write a whole session: context, then states and the actions between them.

    Raises:
      Unrenderable: something in it has no place in the language.
    """
    return _segments(write(session, spec), spec)


def render_prompt(session: Session, action: Action, spec: TokenizerSpec = PLAIN) -> list[Segment]:
    """Write what a model sees before it writes the next state: the session so far, and one more action.

    Raises:
      Unrenderable: something in it has no place in the language.
    """
    words = [*write(session._replace(ended=False), spec), *write_action(action, len(session.context))]
    return _segments(words, spec)


def render_context(context: Iterable[str]) -> list[Segment]:
    """Write the beginning of a document as segments (`write_context`)."""
    return _segments(write_context(context), PLAIN)


def render_state(state: ShownState, history: "History") -> list[Segment]:
    """Write one state as segments (`write_state`)."""
    return _segments(write_state(state, history), history.spec)


def _segments(words: Iterable[str], spec: TokenizerSpec) -> list[Segment]:
    reader = SegmentReader(spec)
    for word in words:
        (reader.text if word[-1] == "\n" else reader.symbol)(word)
    return reader.segments


def write(session: Session, spec: TokenizerSpec = PLAIN) -> list[str]:
    """Write a whole session as words.

    Raises:
      Unrenderable: something in it has no place in the language.
    """
    words = write_context(session.context)
    for part in write_steps(session, spec):
        words += part
    if session.ended:
        words.append(END)
    return words


def write_context(context: Iterable[str]) -> list[str]:
    """Write the beginning of a document: the program, each line behind its pointer."""
    words = [BOS, PROGRAM]
    for number, line in enumerate(context, 1):
        if "\n" in line or "\r" in line:
            raise Unrenderable("line break in line", f"line {number} of the context")
        words += (pointer(number), line + "\n")
    return words


def write_steps(session: Session, spec: TokenizerSpec) -> Iterator[list[str]]:
    """Write what follows the context: a state, then an action and the state it leads to in turn; no END."""
    history = History(session.context, spec)
    lines = len(session.context)
    actions = iter(session.actions)
    for k, state in enumerate(session.states):
        if k:
            yield write_action(next(actions), lines)
        yield write_state(state, history)
        history.see(state)


def write_action(action: Action, lines: int) -> list[str]:
    """Write one action; breakpoints lie within the program's lines."""
    name, breakpoints = action
    if bool(breakpoints) != (name in WITH_LINES):
        raise Unrenderable("breakpoints", f"{name} with {len(breakpoints)} lines")
    if not breakpoints:
        return [ACTIONS[name]]
    if not all(0 < line <= lines for line in breakpoints):
        raise Unrenderable("line outside the program", f"{action}")
    return [ACTIONS[name], *map(pointer, breakpoints)]


class History:
    """What a session has shown so far, and how: decides what the next state must say.

    Attributes:
      context: the program's lines.
      spec: of the tokenizer: in which form states are written.
      frame: the previous state's frame; None before the first state.
      locals: frame -> its bindings as last shown, for the frames that showed any.
      frames: how many frames were seen.
    """

    def __init__(
        self, context: Sequence[str], spec: TokenizerSpec = PLAIN, states: Iterable[ShownState] = ()
    ):
        """Args:
        context: the program's lines.
        spec: of the tokenizer.
        states: what was shown so far.
        """
        self.context = context
        self.spec = spec
        self.frame: int | None = None
        self.locals: dict[int, dict[str, str]] = {}
        self.frames = 0
        for state in states:
            self.see(state)

    def see(self, state: ShownState) -> None:
        """Take note of a state that was shown."""
        self.frame = state.frame
        if state.frame >= self.frames:
            self.frames = state.frame + 1
        if state.locals is not None:
            self.locals[state.frame] = state.locals


def write_state(state: ShownState, history: History) -> list[str]:
    """Write one state, given what was shown before it.

    Args:
      state: the state.
      history: the states shown before it; not changed.
    """
    event, line, number, bindings, value = state
    spec = history.spec
    words = [EVENTS[event]]
    where: list[str] = []
    if line is not None:
        if not 0 < line <= len(history.context):
            raise Unrenderable("line outside the program", f"line {line} of {len(history.context)}")
        where.append(pointer(line))
        if spec.echo_line:
            where.append(history.context[line - 1] + "\n")
    elif event != RETURN or history.frame is not None:
        raise Unrenderable("no line", f"a {event} state without its line")
    if not spec.line_last:
        words += where
    if not 0 <= number <= history.frames:
        raise Unrenderable("frame number", f"frame {number} after {history.frames} frames")
    if number != (history.frame or 0) or spec.all_frames:
        words.append(frame(number))
    if (bindings is None) == (event in SHOWS_LOCALS) or (value is None) == (event in SHOWS_VALUE):
        raise Unrenderable("fields", f"locals and value do not fit a {event} state")
    if bindings is not None:
        before = _NOTHING if event == CALL else history.locals.get(number, _NOTHING)
        if spec.all_names:
            words += _all_names(before, bindings)
        elif before != bindings:
            words += _changes(before, bindings)
    if value is not None:
        words += (ARG, _value(value))
    if spec.line_last:
        words += where
    words.append(STATE_END)
    return words


def _changes(before: dict[str, str], after: dict[str, str]) -> list[str]:
    words = [_binding(name, text) for name, text in after.items() if before.get(name) != text]
    if not before.keys() <= after.keys():
        for name in before:
            if name not in after:
                words += (DEL, name + "\n")
    return words


def _all_names(before: dict[str, str], after: dict[str, str]) -> list[str]:
    return [name + "\n" if before.get(name) == text else _binding(name, text) for name, text in after.items()]


@lru_cache(maxsize=1 << 14)  # most come again and again
def _binding(name: str, text: str) -> str:
    if not name.isidentifier():
        raise Unrenderable("name", f"{name!r} is not an identifier")
    return f"{name}={_value(text)}"


def _value(text: str) -> str:
    if "\n" in text or "\r" in text:
        raise Unrenderable("line break in value", f"{text[:40]!r}")
    return text + "\n"


_NOTHING: dict[str, str] = {}
