"""Tests on a value that can go either way."""

from nd_jax.programs.idioms.draft import Draft
from nd_jax.programs.idioms.expressions import letter
from nd_jax.programs.idioms.values import INT, Value, Weighted
from nd_jax.programs.idioms.words import KEY_SETS, LETTERS, VOWELS

_ON_INT = Weighted(
    (">", 3), ("<", 2.5), (">=", 1.5), ("<=", 1), ("even", 3), ("odd", 1.5), ("mod", 1.5), ("!=", 1),
    ("==", 0.6), ("between", 1), ("in", 0.5), ("other", 1.5),
)  # fmt: skip


def condition(d: Draft, v: Value) -> str:
    """Write a test of one value; now and then a size and a remainder together."""
    text = _simple(d, v)
    if v.type == INT and "%" not in text and d.dice.chance(0.1):
        return f"{text} {d.dice.pick(('and', 'or'))} {v.grouped} % 2 == {d.dice.between(0, 1)}"
    return text


def _simple(d: Draft, v: Value) -> str:
    match v.type:
        case "int":
            return _on_int(d, v)
        case "char":
            return _on_char(d, v)
        case "str":
            return _on_str(d, v)
        case "ints":
            return _on_ints(d, v)
        case "words":
            if d.dice.chance(0.4) and v.lo >= 1:
                return _on_str(d, Value(f"{v.text}[0]", "str", v.item_lo, v.item_hi, flavour=v.flavour))
            if d.dice.chance(0.4) or v.hi <= v.lo:
                return f"{d.dice.pick(LETTERS[:8])!r} in {v.text}"
            return _size(d, v)
        case "dict":
            if d.dice.chance(0.5) and v.flavour.isdigit():
                key = d.dice.pick(KEY_SETS[int(v.flavour)])
                return f"{key!r} in {v.text}" if d.dice.chance(0.7) else f"{key!r} not in {v.text}"
            return _size(d, v)
    return v.text if d.dice.chance(0.6) else f"not {v.grouped}"


def _size(d: Draft, v: Value) -> str:
    if v.hi <= v.lo:
        return f"len({v.text}) > {v.lo}"
    if v.lo == 0 and d.dice.chance(0.4):
        return v.text if d.dice.chance(0.5) else f"not {v.text}"
    if d.dice.chance(0.15):
        return f"len({v.text}) % 2 == {d.dice.between(0, 1)}"
    limit = (
        d.number(v.lo, v.hi - 1, v.text)
        if v.hi - v.lo < 8
        else d.number((v.lo + v.hi) // 2 - 2, (v.lo + v.hi) // 2, v.text)
    )
    sign = d.dice.pick((">", ">", ">", "<="))
    return f"len({v.text}) {sign} {limit.text}"


def _on_int(d: Draft, v: Value) -> str:
    x, lo, hi = v.grouped, v.lo, v.hi
    if hi <= lo:
        return f"{x} > {lo - 1}"
    if hi - lo > 12:  # the ends are rarely reached
        lo = max(lo, -2)
        hi = lo + (hi - lo) // 2
    quarter = (hi - lo) // 4
    if hi - lo < 3:
        return f"{x} {d.dice.pick(('==', '!=', '=='))} {d.dice.between(lo, hi)}"
    match d.dice.draw(_ON_INT):
        case ">" | ">=" as sign:
            c = d.number(lo + quarter, hi - 1 - 2 * quarter, v.text)
            return f"{x} {sign} {c.text}"
        case "<" | "<=" as sign:
            c = d.number(lo + 1 + 2 * quarter, hi - quarter, v.text)
            return f"{x} {sign} {c.text}"
        case "even" if v.flavour != "even":
            return d.dice.pick((f"{x} % 2 == 0", f"{x} % 2 == 0", f"{x} % 2 != 1", f"not {x} % 2"))
        case "odd" if v.flavour != "even":
            return d.dice.pick((f"{x} % 2 == 1", f"{x} % 2", f"{x} % 2 != 0"))
        case "mod":
            return f"{x} % 3 {d.dice.pick(('==', '!=', '>'))} {d.dice.between(0, 1)}"
        case "==":
            return f"{x} == {d.dice.between(lo, hi)}"
        case "between":
            a = d.dice.between(lo, lo + quarter)
            return (
                f"{a} {d.dice.pick(('<', '<='))} {x} {d.dice.pick(('<', '<='))} {d.dice.between(a + 2, hi)}"
            )
        case "in":
            a = d.dice.between(lo, (lo + hi) // 2)
            return f"{x} in ({a}, {d.dice.between(a + 1, hi)})"
        case "other":
            others = [o for o in d.variables(INT) if o.text != v.text and o.lo < hi and o.hi > lo]
            if others:
                return f"{x} {d.dice.pick('<>')} {d.dice.pick(others).text}"
    return f"{x} != {d.number(lo, hi, v.text).text}"


def _on_char(d: Draft, v: Value) -> str:
    c = v.grouped
    if v.flavour == "mixed":
        return f"{c}.{d.dice.pick(('isupper', 'islower', 'isdigit', 'isalpha'))}()"
    if v.flavour == "digits":
        return d.dice.pick(
            (f"{c} > {d.dice.pick('2345')!r}", f"{c} in '02468'", f"{c} != '0'", f"int({c}) > 4")
        )
    if v.separator and d.dice.chance(0.7):
        return d.dice.pick((f"{c} != {v.separator!r}", f"{c} == {v.separator!r}", f"{c}.isalnum()"))
    vowels = VOWELS.upper() if v.flavour == "upper" else VOWELS
    one = letter(d, v)
    match d.dice.between(0, 9):
        case 0 | 1 | 2:
            return f"{c} in {vowels!r}"
        case 3:
            return f"{c} not in {vowels!r}"
        case 4 | 5:
            return f"{c} == {one!r}"
        case 6:
            return f"{c} != {one!r}"
        case 7 | 8:
            middle = "M" if v.flavour == "upper" else d.dice.pick("ghkmn")
            return f"{c} {d.dice.pick('<>')} {middle!r}"
    some = "".join(sorted({letter(d, v), letter(d, v), one}))
    return f"{c} in {some!r}" if d.dice.chance(0.7) else f"{c} not in {some!r}"


def _on_str(d: Draft, v: Value) -> str:
    s = v.grouped
    if v.lo == v.hi == 1:
        return _on_char(d, v)
    one = letter(d, v)
    match d.dice.between(0, 11):
        case 0 | 1 | 2 if v.hi > v.lo:
            return _size(d, v)
        case 3:
            return f"{s}.startswith({one!r})"
        case 4:
            return f"{s}.endswith({one!r})"
        case 5 | 6:
            return f"{one!r} in {v.text}"
        case 7:
            return f"{one!r} not in {v.text}"
        case 8 if v.lo >= 1:
            return _on_char(d, Value(f"{s}[{d.dice.pick((0, 0, -1))}]", "char", 1, 1, flavour=v.flavour))
        case 9 if v.flavour in ("mixed", "digits", "any"):
            return f"{s}.{d.dice.pick(('isdigit', 'isalpha', 'isalnum', 'islower'))}()"
        case 10 if v.lo >= 2:
            return d.dice.pick((f"{s}[0] == {s}[-1]", f"{s} == {s}[::-1]", f"{s}[0] < {s}[-1]"))
    return f"{s}.count({one!r}) > {d.dice.pick((0, 1)) if v.hi > 4 else 0}"


def _on_ints(d: Draft, v: Value) -> str:
    xs = v.text
    match d.dice.between(0, 7):
        case 0 | 1 if v.hi > v.lo:
            return _size(d, v)
        case 2 if v.lo >= 1:
            return _on_int(d, Value(f"{v.grouped}[{d.dice.pick((0, -1))}]", INT, v.item_lo, v.item_hi))
        case 3 if v.lo >= 2:
            return f"{v.grouped}[0] {d.dice.pick('<>')} {v.grouped}[-1]"
        case 4 | 5:
            middle = (v.item_lo + v.item_hi) // 2
            return f"sum({xs}) {d.dice.pick('><')} {d.number(2 * middle, 3 * middle + 1, v.text).text}"
        case 6 if v.lo >= 1:
            return f"max({xs}) > {d.number((v.item_lo + v.item_hi) // 2, v.item_hi - 1, v.text).text}"
    c = d.number(v.item_lo, v.item_hi, v.text)
    return f"{c.text} in {xs}" if d.dice.chance(0.7) else f"{c.text} not in {xs}"
