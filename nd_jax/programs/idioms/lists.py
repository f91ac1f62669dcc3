"""Expressions that make one list out of another: slices, sorting, comprehensions."""

from nd_jax.programs.idioms.draft import Draft
from nd_jax.programs.idioms.expressions import from_int, from_str
from nd_jax.programs.idioms.values import ATOM, INT, INTS, LONGEST, STR, SUM, WORDS, Value, Weighted
from nd_jax.programs.idioms.words import ITEMS, LETTERS

_ON_LIST = Weighted(
    ("sorted", 2),
    ("reverse", 1.5),
    ("slice", 2.5),
    ("+", 1.5),
    ("unique", 0.6),
    ("each", 1.6),
    ("select", 1.3),
)


def from_ints(d: Draft, v: Value) -> Value:
    """Another list of integers."""
    xs, lo, hi = v.grouped, v.lo, v.hi
    match d.dice.draw(_ON_LIST):
        case "sorted":
            return v._replace(
                text=f"sorted({v.text}{', reverse=True' if d.dice.chance(0.3) else ''})", rank=ATOM
            )
        case "reverse":
            return v._replace(text=f"{xs}[::-1]", rank=ATOM)
        case "slice" if lo >= 1:
            return _slice(d, v)
        case "+" if hi < LONGEST // 2:
            c = d.number(0, 9, v.text)
            text = f"{v.term} + [{c.text}]" if d.dice.chance(0.7) else f"[{c.text}] + {v.term}"
            return Value(text, INTS, lo + 1, hi + 1, min(v.item_lo, c.lo), max(v.item_hi, c.hi), rank=SUM)
        case "unique":
            return v._replace(text=f"sorted(set({v.text}))", lo=min(lo, 1), rank=ATOM)
        case "each":
            item = Value(d.spare(ITEMS[INT]), INT, v.item_lo, v.item_hi)
            made = from_int(d, item)
            return Value(f"[{made.text} for {item.text} in {v.text}]", INTS, lo, hi, made.lo, made.hi)
        case "select" if v.item_hi - v.item_lo >= 3:
            x = d.spare(ITEMS[INT])
            test = d.dice.pick((">", "<", "% 2 == 0", "% 2 == 1"))
            limit = f" {d.number(v.item_lo + 1, v.item_hi - 1, v.text).text}" if len(test) == 1 else ""
            return v._replace(text=f"[{x} for {x} in {v.text} if {x} {test}{limit}]", lo=0, rank=ATOM)
    return v._replace(text=f"{xs}[::-1]", rank=ATOM)


def from_words(d: Draft, v: Value) -> Value:
    """Another list of strings."""
    ws, lo, hi = v.grouped, v.lo, v.hi
    match d.dice.draw(_ON_LIST):
        case "sorted":
            extra = d.dice.pick(("", "", ", reverse=True", ", key=len" if v.item_hi > 1 else ""))
            return v._replace(text=f"sorted({v.text}{extra})", rank=ATOM)
        case "slice" if lo >= 1:
            return _slice(d, v)
        case "+" if hi < LONGEST // 2:
            mark = d.dice.pick((*LETTERS[:6], "-", "end"))
            return v._replace(
                text=f"{v.term} + [{mark!r}]",
                lo=lo + 1,
                hi=hi + 1,
                item_hi=max(v.item_hi, len(mark)),
                flavour="any",
                rank=SUM,
            )
        case "unique" if hi > 1:
            return v._replace(text=f"sorted(set({v.text}))", lo=min(lo, 1), rank=ATOM)
        case "each":
            item = Value(d.spare(ITEMS[STR]), STR, v.item_lo, v.item_hi, flavour=v.flavour)
            made = from_str(d, item)
            return Value(
                f"[{made.text} for {item.text} in {v.text}]",
                WORDS,
                lo,
                hi,
                made.lo,
                made.hi,
                flavour=made.flavour,
            )
        case "select":
            w = d.spare(ITEMS[STR])
            one = d.dice.pick(LETTERS[:6])
            test = f"len({w}) > {(v.item_lo + v.item_hi) // 2}" if v.item_hi > 1 else f"{w} != {one!r}"
            if d.dice.chance(0.4):
                test = f"{one!r} in {w}" if d.dice.chance(0.5) else f"{one!r} not in {w}"
            return v._replace(text=f"[{w} for {w} in {v.text} if {test}]", lo=0, rank=ATOM)
    return v._replace(text=f"{ws}[::-1]", rank=ATOM)


def _slice(d: Draft, v: Value) -> Value:
    text, cut = d.dice.pick((("[1:]", 1), ("[:-1]", 1), ("[::2]", 0), ("[:{}]", 0), ("[1:]", 1)))
    text, lo, hi = text.format(d.dice.between(1, max(1, v.hi - 1))), max(0, v.lo - cut), v.hi - cut
    return v._replace(text=f"{v.grouped}{text}", lo=min(lo, 1), hi=hi, rank=ATOM)
