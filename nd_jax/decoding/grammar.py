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

_START, _LINE, _REMOVED, _ENDED, _DONE = "start", "line", "removed", "ended", "done"
_NAME, _TEXT, _REMOVED_NAME, _VALUE = "name", "text", "removed name", "value"


class Grammar:
    """The automaton for one tokenizer; its first state is 0, before a debugger state's event."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer

    @cached_property
    def moves_QxV(self) -> np.ndarray:
        """`[Q, V]` int8: state after a token in a state; -1 where the token may not follow."""
        tokenizer, find = self.tokenizer, self.tokenizer.symbol_id
        names = list(dict.fromkeys([_START, *_SYMBOLS, *_byte_moves()]))
        number = {name: k for k, name in enumerate(names)}
        bytes_Qx256 = np.full(
            (len(names) + 1, 256), -1, np.int8
        )  # the last row: nowhere, whence nothing leads
        for name, moves in _byte_moves().items():
            for byte, after in moves.items():
                bytes_Qx256[number[name], byte] = number[after]
        moves_QxV = np.full((len(names), tokenizer.vocab_size), -1, np.int8)
        for token in range(len(tokenizer.spec.control_symbols), tokenizer.vocab_size):
            states_Q = np.arange(len(names))
            for byte in _bytes_of(tokenizer, token):
                states_Q = bytes_Qx256[states_Q, byte]
            moves_QxV[:, token] = states_Q
        classes = {
            "pointer": [find(pointer(line)) for line in range(1, tokenizer.spec.lines + 1)],
            "frame": [find(frame(number)) for number in range(tokenizer.spec.frames)],
        }
        for name, moves in _SYMBOLS.items():
            for symbol, after in moves.items():
                moves_QxV[number[name], classes.get(symbol) or [find(symbol)]] = number[after]
        return moves_QxV

    def allowed_V(self, history: History, lines: int) -> np.ndarray:
        """`[V]` bool: false for lines that the program does not have and frames that cannot be named."""
        spec, find = self.tokenizer.spec, self.tokenizer.symbol_id
        allowed_V = np.ones(self.tokenizer.vocab_size, bool)
        allowed_V[[find(pointer(line)) for line in range(lines + 1, spec.lines + 1)]] = False
        unseen = range(history.frames + 1, spec.frames)
        allowed_V[[find(frame(number)) for number in (history.frame or 0, *unseen)]] = False
        return allowed_V


@dataclass(frozen=True)
class Constraint:
    """The grammar for one call of `Decoder.generate`.

    Attributes:
      grammar: of the model's tokenizer.
      shown: for every prompt what its session has shown, and how many lines its program has.
    """

    grammar: Grammar
    shown: Sequence[tuple[History, int]]

    @property
    def moves_QxV(self) -> np.ndarray:
        """The automaton."""
        return self.grammar.moves_QxV

    def allowed_V(self, prompt: int) -> np.ndarray:
        """Tokens that the session of a prompt, by its index, allows."""
        return self.grammar.allowed_V(*self.shown[prompt])


def _kind(event: str) -> str:
    return "locals" if event in SHOWS_LOCALS else "value" if event in SHOWS_VALUE else "nothing"


_SYMBOLS: dict[str, dict[str, str]] = {
    _START: {symbol: f"event, {_kind(event)}" for event, symbol in EVENTS.items()},
    **{f"event, {kind}": {"pointer": f"pointer, {kind}"} for kind in ("locals", "value", "nothing")},
    "pointer, locals": {"frame": _LINE, DEL: _REMOVED, STATE_END: _DONE},
    "pointer, value": {"frame": "frame, value", ARG: _VALUE},
    "frame, value": {ARG: _VALUE},
    "pointer, nothing": {"frame": _ENDED, STATE_END: _DONE},
    _LINE: {DEL: _REMOVED, STATE_END: _DONE},
    _ENDED: {STATE_END: _DONE},
    _DONE: {END: _DONE},
}
"""State -> control symbol (or "pointer", "frame": any of them) -> state."""


def _byte_moves() -> dict[str, dict[int, str]]:
    """State -> byte of a text -> state; a state within a character has what is to come of it in its name."""
    letters = [ord(c) for c in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"]
    digits = list(range(ord("0"), ord("9") + 1))
    any_ascii = [byte for byte in range(0x80) if byte not in b"\n\r"]
    moves: dict[str, dict[int, str]] = {}
    for name, inside, ascii_bytes, closing in (
        ("pointer, locals", _NAME, letters, {}),
        (_LINE, _NAME, letters, {}),
        (_NAME, _NAME, letters + digits, {ord("="): _TEXT}),
        (_TEXT, _TEXT, any_ascii, {ord("\n"): _LINE}),
        (_REMOVED, _REMOVED_NAME, letters, {}),
        (_REMOVED_NAME, _REMOVED_NAME, letters + digits, {ord("\n"): _LINE}),
        (_VALUE, _VALUE, any_ascii, {ord("\n"): _ENDED}),
    ):
        moves[name] = {**dict.fromkeys(ascii_bytes, inside), **closing}
        for byte in range(0xC2, 0xF5):
            left = _AFTER_LEAD.get(byte) or ("1" if byte < 0xE0 else "2" if byte < 0xF0 else "3")
            moves[name][byte] = f"{inside}, {left}"
        for left, (following, then) in _CONTINUED.items():
            moves[f"{inside}, {left}"] = dict.fromkeys(following, f"{inside}, {then}" if then else inside)
    return moves


def _bytes_of(tokenizer: Tokenizer, token: int) -> bytes:
    try:
        return tokenizer.decode_text([token]).encode()
    except UnicodeDecodeError as error:  # a piece that is a byte within a character
        return error.object
