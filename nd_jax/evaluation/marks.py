"""Where the states of a tokenised session are, and what the trivial baseline says of each.

A state's tokens fall into two parts. ``event_line`` is the event, its line (with its source, where that is
echoed) and its frame symbol. The rest, with the symbol that ends the state, is ``bindings`` at a call, resume
or line (all its bindings, deletions included; just the end symbol where nothing changed), ``value`` at a
return, yield or exception, and no part of its own at an unwind, where the end symbol counts to
``event_line``. So every token belongs to exactly one part.
"""

from collections.abc import Sequence
from typing import NamedTuple

from nd_jax.debugger.actions import is_forward
from nd_jax.language.symbols import ACTIONS, EVENTS, SHOWS_LOCALS, SHOWS_VALUE, STATE_END, frame, pointer
from nd_jax.language.tokenizer import Tokenizer
from nd_jax.tracing.schema import LINE

BINDINGS, VALUE = "bindings", "value"


class Mark(NamedTuple):
    """One state that an action led to, in a session's ids.

    Attributes:
      action: name of the action.
      event: kind of the state's event.
      begin: index of the state's first token.
      end: index after the state's last token.
      event_line: indices of the tokens of this part.
      rest: indices of all others.
      part: which part those are: `BINDINGS`, `VALUE`, or None if there are none.
      baseline_event_line: "next line" (inverse actions: the line before), same frame, is right.
      baseline_rest: "nothing changed" is right (where all names are written: none with a value); False for
        values, of which the baseline says none.
    """

    action: str
    event: str
    begin: int
    end: int
    event_line: list[int]
    rest: list[int]
    part: str | None
    baseline_event_line: bool
    baseline_rest: bool


class _Place(NamedTuple):
    """Where a state is: line and frame as its symbols say; None where it has no such symbol."""

    line: int | None
    frame: int | None


class Marker:
    """Finds the states in sessions that one tokenizer encoded."""

    def __init__(self, tokenizer: Tokenizer):
        self._tokenizer = tokenizer
        self._spec = spec = tokenizer.spec
        find = tokenizer.symbol_id
        self._actions = {find(symbol): name for name, symbol in ACTIONS.items()}
        self._events = {find(symbol): kind for kind, symbol in EVENTS.items()}
        self._lines = {find(pointer(line)): line for line in range(1, spec.lines + 1)}
        self._frames = {find(frame(number)): number for number in range(spec.frames)}
        self._state_end = find(STATE_END)
        self._newline = tokenizer.encode_text("\n")[0]

    def mark(self, ids: Sequence[int]) -> list[Mark]:
        """Mark the states after the start state; `ids` is a session, whole or cut after a state."""
        marks: list[Mark] = []
        action: str | None = None
        before = _Place(None, None)
        t = 0
        while t < len(ids):
            if name := self._actions.get(ids[t]):
                action = name
            elif ids[t] in self._events:
                end = ids.index(self._state_end, t) + 1
                place, event_line = self._read(ids, t, end)
                if action is not None:
                    marks.append(self._mark(ids, action, (t, end), event_line, before, place))
                before = place
                t = end - 1
            t += 1
        return marks

    def _read(self, ids: Sequence[int], begin: int, end: int) -> tuple[_Place, list[int]]:
        """Where a state is, and the indices of the tokens that say so, its event among them."""
        line = number = None
        tokens = [begin]
        t = begin + 1
        while t < end:
            if ids[t] in self._frames:
                number = self._frames[ids[t]]
                tokens.append(t)
            elif ids[t] in self._lines:
                line = self._lines[ids[t]]
                last = ids.index(self._newline, t) if self._spec.echo_line else t
                tokens += range(t, last + 1)
                t = last
            t += 1
        return _Place(line, number), tokens

    def _mark(
        self,
        ids: Sequence[int],
        action: str,
        span: tuple[int, int],
        event_line: list[int],
        before: _Place,
        place: _Place,
    ) -> Mark:
        begin, end = span
        event = self._events[ids[begin]]
        part = BINDINGS if event in SHOWS_LOCALS else VALUE if event in SHOWS_VALUE else None
        rest = sorted(set(range(begin, end)).difference(event_line))
        if part is None:
            event_line, rest = [*event_line, *rest], []
        expected = None if before.line is None else before.line + (1 if is_forward(action) else -1)
        same_frame = place.frame == (before.frame if self._spec.all_frames else None)
        next_line = event == LINE and same_frame and place.line == expected is not None
        unchanged = part == BINDINGS and not self._binds([ids[t] for t in rest])
        return Mark(action, event, begin, end, event_line, rest, part, next_line, unchanged)

    def _binds(self, rest: Sequence[int]) -> bool:
        """Whether a state's bindings hold anything that differs from before."""
        return "=" in self._tokenizer.decode_text(rest) if self._spec.all_names else len(rest) > 1
