"""The trace language's grammar as an automaton over tokens: what may follow while a state is written.

It knows what a finite automaton can: the order of symbols, the form of names and values, UTF-8. With each
prompt come the lines and frames that its program and session have. It does not know which names are bound,
nor which letters beyond ASCII Python takes into names: a state that binds a name twice still passes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nd_jax.language.render import History
from nd_jax.language.symbols import (
    ARG,
    DEL,
    END,
    EVENTS,
    SHOWS_LOCALS,
    SHOWS_VALUE,
    STATE_END,
    TokenizerSpec,
    frame,
    pointer,
)
from nd_jax.language.tokenizer import Tokenizer

_AFTER_LEAD = {0xE0: "E0", 0xED: "ED", 0xF0: "F0", 0xF4: "F4"}
"""First bytes of UTF-8 after which not every continuation byte may follow."""
_CONTINUED = {
    "1": (range(0x80, 0xC0), ""), "2": (range(0x80, 0xC0), "1"), "3": (range(0x80, 0xC0), "2"),
    "E0": (range(0xA0, 0xC0), "1"), "ED": (range(0x80, 0xA0), "1"),
    "F0": (range(0x90, 0xC0), "2"), "F4": (range(0x80, 0x90), "2"),
}  # fmt: skip
"""Within a character: the bytes that may follow, and what is to come after them."""

_START, _DONE = "start", "done"


class Grammar:
    """The automaton for one tokenizer; its first state is 0, before a debugger state's event."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer

    @cached_property
    def moves_QxV(self) -> np.ndarray:
        """`[Q, V]` int8: state after a token in a state; -1 where the token may not follow."""
        tokenizer, find = self.tokenizer, self.tokenizer.symbol_id
        automaton = _automaton(tokenizer.spec)
        names = list(automaton)
        number = {name: k for k, name in enumerate(names)}
        bytes_Qx256 = np.full(
            (len(names) + 1, 256), -1, np.int8
        )  # the last row: nowhere, whence nothing leads
        moves_QxV = np.full((len(names), tokenizer.vocab_size), -1, np.int8)
        classes = {
            "pointer": [find(pointer(line)) for line in range(1, tokenizer.spec.lines + 1)],
            "frame": [find(frame(number)) for number in range(tokenizer.spec.frames)],
        }
        for name, moves in automaton.items():
            for sign, after in moves.items():
                if isinstance(sign, int):
                    bytes_Qx256[number[name], sign] = number[after]
                else:
                    moves_QxV[number[name], classes.get(sign) or [find(sign)]] = number[after]
        for token in range(len(tokenizer.spec.control_symbols), tokenizer.vocab_size):
            states_Q = np.arange(len(names))
            for byte in _bytes_of(tokenizer, token):
                states_Q = bytes_Qx256[states_Q, byte]
            moves_QxV[:, token] = states_Q
        return moves_QxV

    def allowed_V(self, history: History) -> np.ndarray:
        """`[V]` bool: false for lines that the program does not have and frames that cannot be named."""
        spec, find = self.tokenizer.spec, self.tokenizer.symbol_id
        allowed_V = np.ones(self.tokenizer.vocab_size, bool)
        lines = range(len(history.context) + 1, spec.lines + 1)
        allowed_V[[find(pointer(line)) for line in lines]] = False
        frames = [*range(history.frames + 1, spec.frames)]
        if not spec.all_frames:
            frames.append(history.frame or 0)
        allowed_V[[find(frame(number)) for number in frames]] = False
        return allowed_V


@dataclass(frozen=True)
class Constraint:
    """The grammar for one call of `Decoder.generate`.

    Attributes:
      grammar: of the model's tokenizer.
      shown: for every prompt what its session has shown.
    """

    grammar: Grammar
    shown: Sequence[History]

    @property
    def moves_QxV(self) -> np.ndarray:
        """The automaton."""
        return self.grammar.moves_QxV

    def allowed_V(self, prompt: int) -> np.ndarray:
        """Tokens that the session of a prompt, by its index, allows."""
        return self.grammar.allowed_V(self.shown[prompt])


_LETTERS = [ord(c) for c in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"]
_DIGITS = list(range(ord("0"), ord("9") + 1))
_ANY_ASCII = [byte for byte in range(0x80) if byte not in b"\n\r"]

_Moves = dict[str | int, str]
"""What may come, a control symbol (or "pointer", "frame": any of them) or a byte of a text -> state."""


def _automaton(spec: TokenizerSpec) -> dict[str, _Moves]:
    """State -> what may come -> state; the first one is before the program's state.

    A state of the program is its event, and three slots in the order that the tokenizer's form has them:
    line, frame, and what an event of its kind shows. Before a slot may come what fills it and, where it may
    be left out, what may come behind it.
    """
    slots = ("frame", "shown", "line") if spec.line_last else ("line", "frame", "shown")
    automaton: dict[str, _Moves] = {
        _START: {symbol: f"{_kind(event)}, {slots[0]}" for event, symbol in EVENTS.items()},
        _DONE: {END: _DONE},
    }
    for kind in ("locals", "value", "nothing"):
        after = f"{kind}, end"
        automaton[after] = {STATE_END: _DONE}
        for slot in reversed(slots):
            here = f"{kind}, {slot}"
            behind = automaton[after]
            if slot == "line":
                moves: _Moves = {"pointer": f"{kind}, echo" if spec.echo_line else after}
                if spec.echo_line:
                    automaton |= _text(f"{kind}, echo", _ANY_ASCII, {ord("\n"): after})
            elif slot == "frame":
                moves = {"frame": after} | ({} if spec.all_frames else behind)
            elif kind == "locals":
                removal: _Moves = {} if spec.all_names else {DEL: "removal"}
                kept: _Moves = {ord("\n"): here} if spec.all_names else {}
                moves = behind | removal | _first_character("name")
                automaton |= _text("name", _LETTERS + _DIGITS, {ord("="): "text"} | kept)
                automaton |= _text("text", _ANY_ASCII, {ord("\n"): here})
                automaton["removal"] = _first_character("removed")
                automaton |= _text("removed", _LETTERS + _DIGITS, {ord("\n"): here})
            elif kind == "value":
                moves = {ARG: "value"}
                automaton |= _text("value", _ANY_ASCII, {ord("\n"): after})
            else:
                moves = behind
            automaton[here] = moves
            after = here
    return automaton


def _kind(event: str) -> str:
    return "locals" if event in SHOWS_LOCALS else "value" if event in SHOWS_VALUE else "nothing"


def _first_character(inside: str) -> _Moves:
    """How a name begins, the state `inside` which is within it."""
    return dict.fromkeys(_LETTERS, inside) | _beyond_ascii(inside)


def _text(inside: str, ascii_bytes: Sequence[int], closing: _Moves) -> dict[str, _Moves]:
    """The states of a text: within it, and within a character of it that is more than a byte."""
    states = {inside: dict.fromkeys(ascii_bytes, inside) | _beyond_ascii(inside) | closing}
    for left, (following, then) in _CONTINUED.items():
        states[f"{inside}, {left}"] = dict.fromkeys(following, f"{inside}, {then}" if then else inside)
    return states


def _beyond_ascii(inside: str) -> _Moves:
    """The first bytes of characters beyond ASCII, and what is to come of them."""
    moves: _Moves = {}
    for byte in range(0xC2, 0xF5):
        left = _AFTER_LEAD.get(byte) or ("1" if byte < 0xE0 else "2" if byte < 0xF0 else "3")
        moves[byte] = f"{inside}, {left}"
    return moves


def _bytes_of(tokenizer: Tokenizer, token: int) -> bytes:
    try:
        return tokenizer.decode_text([token]).encode()
    except UnicodeDecodeError as error:  # a piece that is a byte within a character
        return error.object
