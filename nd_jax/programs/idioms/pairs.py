"""Expressions that make one value out of two."""

from nd_jax.programs.idioms.conversions import expression
from nd_jax.programs.idioms.draft import Draft
from nd_jax.programs.idioms.expressions import of_two
from nd_jax.programs.idioms.values import (
    BOOL,
    CHAR,
    INT,
    INTS,
    LONGEST,
    LOOSE,
    PRODUCT,
    STR,
    SUM,
    TUPLE,
    WORDS,
    Value,
)


def combine(d: Draft, one: Value, other: Value) -> Value:
    """Make one value out of two, so that both have been of use; a tuple where nothing better fits."""
    kinds = {STR if v.type == CHAR else v.type for v in (one, other)}
    if kinds == {INT}:
        return of_two(d, one, other)
    if kinds == {STR} and one.hi + other.hi <= LONGEST + 4:
        mark = d.dice.pick(("", "", "-", " ", ":"))
        hi = one.hi + other.hi + 1
        if mark and one.text.isidentifier() and other.text.isidentifier() and d.dice.chance(0.6):
            return Value(
                f"f'{{{one.text}}}{mark}{{{other.text}}}'", STR, one.lo + other.lo, hi, flavour="any"
            )
        middle = f" + {mark!r}" if mark else ""
        return Value(
            f"{one.term}{middle} + {other.term}", STR, one.lo + other.lo, hi, flavour="any", rank=SUM
        )
    if kinds == {STR, INT}:
        text, amount = (one, other) if other.type == INT else (other, one)
        if amount.lo >= 0 and amount.hi <= 4 and text.hi <= 4 and d.dice.chance(0.5):
            product = f"{text.grouped} * {amount.grouped}"
            return Value(product, STR, 0, text.hi * amount.hi, flavour=text.flavour, rank=PRODUCT)
        if text.text.isidentifier() and amount.text.isidentifier() and d.dice.chance(0.5):
            return Value(f"f'{{{one.text}}}{{{other.text}}}'", STR, text.lo + 1, text.hi + 3, flavour="any")
        return Value(
            f"{text.term} + str({amount.text})", STR, text.lo + 1, text.hi + 3, flavour="any", rank=SUM
        )
    if one.type == other.type and one.type in (INTS, WORDS) and one.hi + other.hi <= LONGEST // 2:
        item_lo, item_hi = min(one.item_lo, other.item_lo), max(one.item_hi, other.item_hi)
        flavour = one.flavour if one.flavour == other.flavour else "any"
        return Value(
            f"{one.term} + {other.term}",
            one.type,
            one.lo + other.lo,
            one.hi + other.hi,
            item_lo,
            item_hi,
            flavour,
            SUM,
        )
    for items, item in ((one, other), (other, one)):
        if items.type == INTS and item.type == INT and items.hi < LONGEST // 2:
            item_lo, item_hi = min(items.item_lo, item.lo), max(items.item_hi, item.hi)
            text = f"{items.term} + [{item.text}]"
            return Value(text, INTS, items.lo + 1, items.hi + 1, item_lo, item_hi, rank=SUM)
        if items.type == BOOL and item.type in (INT, STR, CHAR, INTS, WORDS) and not d.is_helper:
            made = expression(d, item, item.type)
            if made.type in (item.type, STR):
                lo, hi = min(made.lo, item.lo), max(made.hi, item.hi)
                item_lo, item_hi = min(made.item_lo, item.item_lo), max(made.item_hi, item.item_hi)
                text = f"{made.text} if {items.text} else {item.text}"
                return Value(text, made.type, lo, hi, item_lo, item_hi, "any", LOOSE)
    texts = [v.text[1:-1] if v.type == TUPLE and v.text.startswith("(") else v.text for v in (one, other)]
    return Value(f"({', '.join(texts)})", TUPLE, 2, 2)
