"""Read segments back as a debugger session; whatever a model wrote, as far as it makes sense."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nd_jax.debugger.actions import WITH_LINES, Action
from nd_jax.language.render import PLAIN, History
from nd_jax.language.session import Session, ShownState
from nd_jax.language.symbols import (
    ACTION_OF,
    ARG,
    BOS,
    DEL,
    END,
    EVENT_OF,
    PROGRAM,
    SHOWS_LOCALS,
    SHOWS_VALUE,
    STATE_END,
    SYMBOL_KINDS,
    Segment,
    TokenizerSpec,
    number_of,
    pointer,
)
from nd_jax.tracing.schema import CALL, RETURN


@dataclass(frozen=True)
class Parsed:
    """A session read from segments.

    Attributes:
      session: the longest beginning that is valid: whole states, and the actions between them.
      error: what is wrong after it; None if all of it was read.
    """

    session: Session
    error: str | None


@dataclass(frozen=True)
class ParsedState:
    """One state read from segments.

    Attributes:
      state: the state, or None where the segments do not hold exactly one.
      error: what is wrong; None if nothing is.
      event: the event, as far as it could be read; so ``line``.
    """

    state: ShownState | None
    error: str | None
    event: str | None = None
    line: int | None = None


def parse(segments: Iterable[Segment], spec: TokenizerSpec = PLAIN) -> Parsed:
    """Read a document: the inverse of `nd_jax.language.render.render`. Never raises."""
    reader = _Reader(segments)
    context: tuple[str, ...] = ()
    states: list[ShownState] = []
    actions: list[Action] = []
    try:
        context = _read_context(reader)
        history = History(context, spec)
        while True:
            action = _read_action(reader, len(context)) if states else None
            try:
                state = _read_state(reader, history, _Partial())
            except _Mistake as mistake:
                raise _Mistake(f"state {len(states)}: {mistake}") from None
            if action is not None:
                actions.append(action)
            states.append(state)
            history.see(state)
            if reader.done:
                return Parsed(Session(context, tuple(states), tuple(actions), ended=False), None)
            if reader.take(END):
                reader.expect_done()
                return Parsed(Session(context, tuple(states), tuple(actions), ended=True), None)
    except _Mistake as mistake:
        return Parsed(Session(context, tuple(states), tuple(actions), ended=False), str(mistake))


def parse_state(segments: Iterable[Segment], history: History) -> ParsedState:
    """Read exactly one state, as a model writes it after an action. Never raises.

    Args:
      segments: the state's segments, its end marker included.
      history: the states shown before it; not changed.
    """
    reader = _Reader(segments)
    partial = _Partial()
    try:
        state = _read_state(reader, history, partial)
        reader.expect_done()
    except _Mistake as mistake:
        return ParsedState(None, str(mistake), partial.event, partial.line)
    return ParsedState(state, None, state.event, state.line)


class _Mistake(Exception):
    """What is wrong with the segments."""


class _Partial:
    """What was read of a state before a mistake."""

    event: str | None = None
    line: int | None = None


class _Reader:
    """Items of a document in order: symbols, and the text between two symbols in one piece."""

    def __init__(self, segments: Iterable[Segment]):
        self._items: list[tuple[str, str]] = []  # ("symbol" | "text" | "invalid", its text)
        for kind, text, _ in segments:
            sort = "symbol" if kind in SYMBOL_KINDS else "invalid" if kind == "invalid" else "text"
            if sort == "text" and self._items and self._items[-1][0] == "text":
                self._items[-1] = (sort, self._items[-1][1] + text)
            else:
                self._items.append((sort, text))
        self._next = 0

    @property
    def done(self) -> bool:
        return self._next == len(self._items)

    def expect_done(self) -> None:
        if not self.done:
            raise _Mistake(f"{self.describe()} after the end")

    def describe(self) -> str:
        """The next item, in words."""
        if self.done:
            return "nothing"
        sort, text = self._items[self._next]
        return text if sort != "text" else f"text {text[:40]!r}"

    def symbol(self) -> str | None:
        """The next item if it is a symbol; it is not taken."""
        if not self.done and self._items[self._next][0] == "symbol":
            return self._items[self._next][1]
        return None

    def take(self, symbol: str) -> bool:
        """Take the next item if it is this symbol."""
        found = self.symbol() == symbol
        self._next += found
        return found

    def expect(self, symbol: str) -> None:
        if not self.take(symbol):
            raise _Mistake(f"{self.describe()} where {symbol} belongs")

    def take_number(self, stem: str) -> int | None:
        """Take the next item if it is a pointer (stem "line") or frame symbol; give its number."""
        symbol = self.symbol()
        number = None if symbol is None else number_of(symbol, stem)
        self._next += number is not None
        return number

    def take_lines(self) -> list[str]:
        """Take text, if it comes next: its lines, without their ends."""
        if self.done or self._items[self._next][0] != "text":
            return []
        text = self._items[self._next][1]
        if "\r" in text:
            raise _Mistake("a carriage return in the text")
        if not text.endswith("\n"):
            raise _Mistake(f"text {text[-40:]!r} without a line end")
        self._next += 1
        return text[:-1].split("\n")

    def take_first_line(self) -> str | None:
        """Take the first line of the text, if text comes next; what follows the line is left."""
        lines = self.take_lines()
        if len(lines) > 1:
            self._next -= 1
            self._items[self._next] = ("text", "".join(line + "\n" for line in lines[1:]))
        return lines[0] if lines else None

    def take_line(self, what: str) -> str:
        """Take text that is exactly one line."""
        found = self.describe()
        lines = self.take_lines()
        if len(lines) != 1:
            raise _Mistake(f"{found} where {what} belongs")
        return lines[0]


def _read_context(reader: _Reader) -> tuple[str, ...]:
    reader.expect(BOS)
    reader.expect(PROGRAM)
    lines: list[str] = []
    while reader.take(pointer(len(lines) + 1)):
        lines.append(reader.take_line("a line of the program"))
    return tuple(lines)


def _read_action(reader: _Reader, lines: int) -> Action:
    symbol = reader.symbol()
    name = None if symbol is None else ACTION_OF.get(symbol)
    if symbol is None or name is None:
        raise _Mistake(f"{reader.describe()} where an action belongs")
    reader.take(symbol)
    breakpoints = _read_breakpoints(reader, lines) if name in WITH_LINES else ()
    return Action(name, breakpoints)


def _read_breakpoints(reader: _Reader, lines: int) -> tuple[int, ...]:
    breakpoints: list[int] = []
    while (number := reader.take_number("line")) is not None:
        if not 0 < number <= lines:
            raise _Mistake(f"breakpoint at line {number} of {lines}")
        breakpoints.append(number)
    if not breakpoints:
        raise _Mistake(f"{reader.describe()} where a breakpoint's line belongs")
    return tuple(breakpoints)


def _read_state(reader: _Reader, history: History, partial: _Partial) -> ShownState:
    spec = history.spec
    symbol = reader.symbol()
    event = None if symbol is None else EVENT_OF.get(symbol)
    if symbol is None or event is None:
        raise _Mistake(f"{reader.describe()} where an event belongs")
    reader.take(symbol)
    partial.event = event
    line = None if spec.line_last else _read_line(reader, history, event, partial)
    frame = _read_frame(reader, history)
    bindings = value = None
    if event in SHOWS_LOCALS:
        before = {} if event == CALL else history.locals.get(frame, {})
        bindings = _read_all_names(reader, before) if spec.all_names else _read_bindings(reader, before)
    elif event in SHOWS_VALUE:
        reader.expect(ARG)
        value = reader.take_line("a value")
    if spec.line_last:
        line = _read_line(reader, history, event, partial)
    reader.expect(STATE_END)
    return ShownState(event, line, frame, bindings, value)


def _read_line(reader: _Reader, history: History, event: str, partial: _Partial) -> int | None:
    context = history.context
    line = partial.line = reader.take_number("line")
    if line is None:
        if event != RETURN or history.frame is not None:
            raise _Mistake(f"{reader.describe()} where a line pointer belongs")
        return None
    if not 0 < line <= len(context):
        raise _Mistake(f"line {line} of {len(context)}")
    if history.spec.echo_line and (echo := reader.take_first_line()) != context[line - 1]:
        raise _Mistake(f"{echo!r} is not line {line}")
    return line


def _read_frame(reader: _Reader, history: History) -> int:
    before = history.frame or 0
    number = reader.take_number("frame")
    if history.spec.all_frames:
        if number is None:
            raise _Mistake(f"{reader.describe()} where a frame belongs")
        if number <= history.frames:
            return number
    if number is None:
        return before
    if number > history.frames or number == before:
        raise _Mistake(f"frame {number} after frame {before}, {history.frames} frames seen")
    return number


def _read_bindings(reader: _Reader, before: dict[str, str]) -> dict[str, str]:
    bindings = dict(before)
    written: set[str] = set()
    while True:
        if reader.take(DEL):
            lines: Sequence[str] = reader.take_lines()
            if not lines or lines[0] not in bindings or lines[0] in written:
                raise _Mistake(f"{lines[0] if lines else reader.describe()!r} cannot be deleted")
            del bindings[lines[0]]
            lines = lines[1:]
        else:
            lines = reader.take_lines()
            if not lines:
                return bindings
        for line in lines:
            name, equals, text = line.partition("=")
            if not equals or not name.isidentifier() or name in written:
                raise _Mistake(f"{line[:40]!r} is not a new binding")
            written.add(name)
            bindings[name] = text


def _read_all_names(reader: _Reader, before: dict[str, str]) -> dict[str, str]:
    bindings: dict[str, str] = {}
    for line in reader.take_lines():
        name, equals, text = line.partition("=")
        if not name.isidentifier() or name in bindings or (not equals and name not in before):
            raise _Mistake(f"{line[:40]!r} is neither a new binding nor a name from before")
        bindings[name] = text if equals else before[name]
    return bindings
