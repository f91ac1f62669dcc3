r"""Symbols of the trace language: control symbols, their spelling, segments and their roles.

A document is a sequence of segments, each a control symbol or a piece of text::

    document  := BOS context state (action state)* [END]
    context   := PROGRAM (pointer source_line "\n")*
    state     := event [pointer] [frame] binding* [ARG value "\n"] STATE_END
    binding   := name "=" value "\n"  |  DEL name "\n"
    action    := action_symbol pointer*

`TokenizerSpec` has other forms of a state, which `nd ablate` compares with this one.

Control symbols are inserted by id: no text is ever encoded to one. Those that CWM's published trace format
has are spelled as it spells them.
"""

from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import Literal, NamedTuple

from nd_jax.debugger.actions import FORWARD, INVERSE
from nd_jax.tracing.schema import CALL, EVENT_KINDS, EXCEPTION, LINE, RESUME, RETURN, YIELD


class Role(IntEnum):
    """What a token is for, which decides its weight in the loss."""

    CONTEXT = 0
    ACTION = 1
    STATE = 2


class Segment(NamedTuple):
    """A typed piece of a document.

    Attributes:
      kind: ``marker`` or ``pointer`` (control symbols), ``source``, ``name`` or ``value`` (text), or
        ``invalid`` (ids that no document holds).
      text: the symbol's spelling, or the text itself; for ``invalid``, what is wrong.
      role: what the piece is for.
    """

    kind: str
    text: str
    role: Role


SYMBOL_KINDS = frozenset(("marker", "pointer"))

PAD, BOS, END, UNKNOWN = "<|pad|>", "<|begin_of_text|>", "<|end_of_text|>", "<|unknown|>"
PROGRAM, STATE_END, ARG, DEL = "<|trace_context_start|>", "<|frame_sep|>", "<|arg_sep|>", "<|del_sep|>"
EVENTS = {kind: f"<|{kind}_sep|>" for kind in EVENT_KINDS}
ACTIONS = {name: f"<|{name}|>" for name in (*FORWARD, *INVERSE)}
EVENT_OF = {symbol: kind for kind, symbol in EVENTS.items()}
ACTION_OF = {symbol: name for name, symbol in ACTIONS.items()}

SHOWS_LOCALS = frozenset((CALL, RESUME, LINE))
SHOWS_VALUE = frozenset((RETURN, YIELD, EXCEPTION))


@cache
def pointer(line: int) -> str:
    """Symbol that names a line of the program, from 1."""
    return f"<|line_{line}|>"


@cache
def frame(number: int) -> str:
    """Symbol that names a frame of the session, from 0."""
    return f"<|frame_{number}|>"


def number_of(symbol: str, stem: str) -> int | None:
    """The number of a pointer (stem "line") or frame symbol (stem "frame"); None for any other symbol."""
    digits = symbol.removeprefix(f"<|{stem}_").removesuffix("|>")
    return int(digits) if digits.isdecimal() else None


@dataclass(frozen=True)
class TokenizerSpec:
    """What a tokenizer can express."""

    vocab_size: int = 8192
    """Number of ids, control symbols and byte pieces included."""
    lines: int = 512
    """Number of line symbols: a program with more lines is refused."""
    frames: int = 64
    """Number of frame symbols: a session ends before a state that would need one more."""
    max_piece_length: int = 16
    """Most characters of a piece of text."""
    values: Literal["pieces", "letters"] = "pieces"
    """How values are written: in pieces, as all text is, or with every letter and digit as a piece of its
    own, so that what a value holds is seen without knowing how each piece is spelled."""
    line_last: bool = False
    """Write a state's line behind its bindings or value, not before them."""
    echo_line: bool = False
    """Write the line's source behind its symbol, in every state."""
    all_names: bool = False
    """Write all names at a call, resume or line, those whose value is as before without the value
    (``name "\\n"``); not only what differs. A name that is gone is then not written (no ``DEL``)."""
    all_frames: bool = False
    """Write the frame in every state, not only where it is another than before."""

    @property
    def control_symbols(self) -> list[str]:
        """All control symbols in the order of their ids, from 0."""
        return [
            *(PAD, BOS, END, UNKNOWN, PROGRAM, STATE_END, ARG, DEL),
            *EVENTS.values(),
            *ACTIONS.values(),
            *self._numbered,
        ]

    @property
    def place_symbols(self) -> list[str]:
        """The control symbols that say where a program is: events, frames and lines."""
        return [*EVENTS.values(), *self._numbered]

    @property
    def _numbered(self) -> list[str]:
        lines = (pointer(line) for line in range(1, self.lines + 1))
        return [*(frame(number) for number in range(self.frames)), *lines]


SMALL = TokenizerSpec(vocab_size=1024, lines=64, frames=16)
