"""Typed expressions with bounds, and the dice that all choices are made with."""

from bisect import bisect
from collections.abc import Sequence
from itertools import accumulate
from random import Random
from typing import Any, Generic, NamedTuple, TypeVar

T = TypeVar("T")

INT, CHAR, STR, INTS, WORDS, DICT, BOOL, TUPLE = (
    "int",
    "char",
    "str",
    "ints",
    "words",
    "dict",
    "bool",
    "tuple",
)
"""Types of values; a char is a string of length 1, a dict maps strings to integers."""
BUSY = "busy"
"""In place of a type: a variable that is not to be used, for a loop is changing it or its time is over."""

ATOM, PRODUCT, SUM, LOOSE = 0, 1, 2, 3
"""How an expression holds together: name or call; ``a * b``; ``a + b``; a test or ``a if b else c``."""

LARGEST = 99
"""No integer in a program is further from zero than this."""
LONGEST = 14
"""No string is longer than this, no list or dict larger than half of it."""


class Value(NamedTuple):
    """An expression's text with what is known of its value before the program runs.

    Attributes:
      text: the expression; a variable's is its name.
      lo, hi: bounds of an integer, or of the length of a string, list or dict.
      item_lo, item_hi: bounds of a list's or dict's integers, or of the lengths of a list's words.
      flavour: what a string (or a list's words) is made of: see `inputs.string`.
      rank: how loosely the text holds together: ``ATOM``, ``PRODUCT``, ``SUM`` or ``LOOSE``.
    """

    text: str
    type: str
    lo: int = 0
    hi: int = 0
    item_lo: int = 0
    item_hi: int = 0
    flavour: str = ""
    rank: int = 0

    @property
    def separator(self) -> str:
        """The character between a string's pieces, if it is made of pieces."""
        return " " if self.flavour == "spaced" else self.flavour[:1] if self.flavour[:1] in ",-:_/" else ""

    @property
    def part_flavour(self) -> str:
        """What a part of the string, or something made of its parts, is made of."""
        return "any" if self.separator or self.flavour == "padded" else self.flavour

    @property
    def grouped(self) -> str:
        """The text as it may stand before a subscript or method, beside ``%``, after ``-`` or ``*``."""
        return self.text if self.rank == ATOM else f"({self.text})"

    @property
    def term(self) -> str:
        """The text as it may stand in a sum, but not after a minus sign."""
        return self.text if self.rank <= SUM else f"({self.text})"


def hull(one: Value, other: Value) -> Value:
    """Bounds that hold for both; the text is the first one's."""
    return one._replace(
        lo=min(one.lo, other.lo),
        hi=max(one.hi, other.hi),
        item_lo=min(one.item_lo, other.item_lo),
        item_hi=max(one.item_hi, other.item_hi),
        flavour=one.flavour if one.flavour == other.flavour else "any",
    )


class Weighted(Generic[T]):
    """A fixed set of choices with relative weights."""

    def __init__(self, *pairs: tuple[T, float]) -> None:
        """Take (choice, weight) pairs."""
        self.choices = [choice for choice, _ in pairs]
        self.bounds = list(accumulate(weight for _, weight in pairs))


class Dice:
    """Random choices made with `Random.random` alone, whose sequence Python guarantees across versions."""

    def __init__(self, seed: str) -> None:
        """Seed by text, e.g. ``"7/12"``."""
        self.roll = Random(seed).random

    def chance(self, probability: float) -> bool:
        """Say yes with this probability."""
        return self.roll() < probability

    def between(self, lo: int, hi: int) -> int:
        """Draw an integer, both ends included."""
        return lo + int(self.roll() * (hi - lo + 1)) if hi > lo else lo

    def pick(self, choices: Sequence[Any]) -> Any:
        """Draw one of the choices evenly."""
        return choices[int(self.roll() * len(choices))]

    def draw(self, weighted: Weighted[T]) -> T:
        """Draw one of the choices by weight."""
        return weighted.choices[bisect(weighted.bounds, self.roll() * weighted.bounds[-1])]
