"""Where the states of a tokenised session are, and what the trivial baseline says of each.

A state's tokens fall into two parts. ``event_line`` is the event, its line pointer and its frame symbol. The
rest, with the symbol that ends the state, is ``bindings`` at a call, resume or line (all its bindings,
deletions included; just the end symbol where nothing changed), ``value`` at a return, yield or exception,
and no part of its own at an unwind, where the end symbol counts to ``event_line``. So every token belongs to
exactly one part.
"""

from collections.abc import Sequence
from typing import NamedTuple

from nd_jax.debugger.actions import is_forward
from nd_jax.language.symbols import (
    ACTIONS,
    EVENTS,
    SHOWS_LOCALS,
    SHOWS_VALUE,
    STATE_END,
    TokenizerSpec,
    frame,
    pointer,
)
from nd_jax.language.tokenizer import Tokenizer
from nd_jax.tracing.schema import LINE

BINDINGS, VALUE = "bindings", "value"


class Mark(NamedTuple):
    """One state that an action led to, in a session's ids.

    Attributes:
      action: name of the action.
      event: kind of the state's event.
      begin: index of the state's first token.
      split: index of the first token after ``event_line``.
      end: index after the state's last token.
      rest: which part the tokens from ``split`` on are: `BINDINGS`, `VALUE`, or None if there are none.
      baseline_event_line: "next line" (inverse actions: the line before), same frame, is right.
      baseline_rest: "nothing changed" is right; False for values, of which the baseline says none.
    """

    action: str
    event: str
    begin: int
    split: int
    end: int
    rest: str | None
    baseline_event_line: bool
    baseline_rest: bool


class Marker:
    """Finds the states in sessions that one tokenizer encoded."""

    def __init__(self, tokenizer: Tokenizer):
        spec: TokenizerSpec = tokenizer.spec
        find = tokenizer.symbol_id
        self._actions = {find(symbol): name for name, symbol in ACTIONS.items()}
        self._events = {find(symbol): kind for kind, symbol in EVENTS.items()}
        self._lines = {find(pointer(line)): line for line in range(1, spec.lines + 1)}
        self._frames = {find(frame(number)) for number in range(spec.frames)}
        self._line = find(EVENTS[LINE])
        self._state_end = find(STATE_END)

    def mark(self, ids: Sequence[int]) -> list[Mark]:
        """Mark the states after the start state; `ids` is a session, whole or cut after a state."""
        marks: list[Mark] = []
        action: str | None = None
        line: int | None = None
        t = 0
        while t < len(ids):
            if name := self._actions.get(ids[t]):
                action = name
            elif event := self._events.get(ids[t]):
                split = t + 1
                while ids[split] in self._lines or ids[split] in self._frames:
                    split += 1
                end = ids.index(self._state_end, t) + 1
                if action is not None:
                    marks.append(self._mark(ids, action, event, line, (t, split, end)))
                line = self._lines.get(ids[t + 1])
                t = end - 1
            t += 1
        return marks

    def _mark(
        self, ids: Sequence[int], action: str, event: str, line: int | None, span: tuple[int, int, int]
    ) -> Mark:
        begin, split, end = span
        rest = BINDINGS if event in SHOWS_LOCALS else VALUE if event in SHOWS_VALUE else None
        expected = None if line is None else line + (1 if is_forward(action) else -1)
        next_line = (
            ids[begin] == self._line and split == begin + 2 and self._lines.get(ids[begin + 1]) == expected
        )
        unchanged = rest == BINDINGS and end == split + 1
        return Mark(action, event, begin, split if rest else end, end, rest, next_line, unchanged)
