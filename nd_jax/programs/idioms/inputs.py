"""Literal values of a program's inputs, as canonical repr text."""

from nd_jax.programs.idioms.values import BOOL, CHAR, DICT, INT, INTS, STR, WORDS, Dice, Value, Weighted
from nd_jax.programs.idioms.words import KEY_SETS, LETTERS, SEPARATORS, WORD_LIST

_FLAVOURS = Weighted(
    ("word", 5.5), ("mixed", 1.8), ("digits", 0.8), ("spaced", 0.8), ("pieces", 0.9), ("padded", 0.2)
)


def literal(dice: Dice, value: Value) -> str:
    """Write a value that keeps what the parameter's `Value` promises."""
    match value.type:
        case "int":
            return str(dice.between(value.lo, value.hi))
        case "bool":
            return dice.pick(("True", "False"))
        case "char" | "str":
            return repr(string(dice, value.lo, value.hi, value.flavour))
    size = dice.between(value.lo, value.hi)
    if value.type == INTS:
        return repr(integers(dice, size, value.item_lo, value.item_hi))
    if value.type == WORDS:
        return repr([string(dice, value.item_lo, value.item_hi, value.flavour) for _ in range(size)])
    keys = KEY_SETS[int(value.flavour)]
    first = dice.between(0, len(keys) - size)
    return repr({key: dice.between(value.item_lo, value.item_hi) for key in keys[first : first + size]})


def integers(dice: Dice, size: int, lo: int, hi: int) -> list[int]:
    """Draw a list, sometimes with a repeated item."""
    drawn = [dice.between(lo, hi) for _ in range(size)]
    if size > 2 and dice.chance(0.3):
        drawn[-1] = drawn[dice.between(0, size - 2)]
    return drawn


def string(dice: Dice, lo: int, hi: int, flavour: str) -> str:
    """Draw a string between two lengths.

    Flavours: ``word`` lower-case letters, ``mixed`` letters of both cases and digits, ``digits``, ``padded``
    with spaces around, ``spaced`` words, short pieces between one separator (digits if ``#`` follows it).
    """
    size = dice.between(lo, hi)
    if flavour == "digits":
        return "".join([dice.pick("0123456789") for _ in range(size)])
    if flavour == "mixed":
        return "".join([dice.pick("abcdeABCDE12345" if size > 1 else "abcABC123") for _ in range(size)])
    if flavour == "padded":
        return " " * dice.between(0, 2) + word(dice, max(1, size - 2)) + " " * dice.between(0, 2)
    if flavour == "spaced" or flavour[:1] in ",-:_/":
        count, separator = dice.between(2, 3), " " if flavour == "spaced" else flavour[0]
        if flavour.endswith("#"):
            return separator.join([str(dice.between(0, 9)) for _ in range(count)])
        return separator.join(
            [word(dice, dice.between(1, 4 - count + (flavour == "spaced"))) for _ in range(count)]
        )
    return word(dice, size)


def word(dice: Dice, size: int) -> str:
    """Draw a real word of that length or letters with repeats."""
    if size > 2 and dice.chance(0.5):
        found = dice.pick(WORD_LIST)
        if len(found) <= size:
            return found + "".join([dice.pick(LETTERS) for _ in range(size - len(found))])
    letters = LETTERS[:6] if dice.chance(0.5) else LETTERS
    return "".join([dice.pick(letters) for _ in range(size)])


def parameter(dice: Dice, kind: str) -> Value:
    """Choose the bounds of a new parameter (its text is empty until it is named)."""
    match kind:
        case "int":
            lo = dice.pick((1, 2, 3, 3, 4))
            return Value("", INT, lo, lo + dice.between(3, 7))
        case "bool":
            return Value("", BOOL)
        case "char":
            return Value("", CHAR, 1, 1, flavour="word")
        case "str":
            flavour = dice.draw(_FLAVOURS)
            if flavour == "pieces":
                flavour = dice.pick(SEPARATORS) + dice.pick(("", "", "#"))
                return Value("", STR, 3, 6, flavour=flavour)
            if flavour in ("spaced", "padded"):
                return Value("", STR, 1 if flavour == "padded" else 3, 8, flavour=flavour)
            return Value("", STR, 3, dice.pick((4, 4, 5, 5, 6)), flavour=flavour)
        case "ints":
            lo = dice.pick((0, 1, 1, 1, 2, -3))
            return Value("", INTS, 2, dice.pick((3, 4, 4, 5, 5)), lo, lo + dice.between(5, 9))
        case "words":
            longest = dice.pick((1, 3, 4, 4))
            return Value("", WORDS, 2, dice.pick((3, 3, 4)), min(2, longest), longest, flavour="word")
    lo = dice.between(0, 2)
    return Value("", DICT, 2, 3, lo, lo + dice.between(4, 8), flavour=str(dice.between(0, len(KEY_SETS) - 1)))
