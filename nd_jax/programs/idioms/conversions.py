"""Expressions of one type out of a value of another; calls of helper functions come in here."""

from nd_jax.programs.idioms.conditions import condition
from nd_jax.programs.idioms.draft import Draft
from nd_jax.programs.idioms.expressions import from_char, from_int, from_str, letter, number
from nd_jax.programs.idioms.lists import from_ints, from_words
from nd_jax.programs.idioms.values import (
    BOOL,
    CHAR,
    DICT,
    INT,
    INTS,
    LARGEST,
    LONGEST,
    LOOSE,
    PRODUCT,
    STR,
    SUM,
    TUPLE,
    WORDS,
    Value,
)
from nd_jax.programs.idioms.words import ITEMS, KEY_SETS, KEYS, LETTERS

_TARGETS: dict[str, tuple[str, ...]] = {
    INT: (INT, INT, INT, INT, INT, INT, INT, STR, STR, BOOL),
    CHAR: (STR, STR, STR, INT),
    STR: (STR, STR, STR, STR, STR, STR, INT, INT, WORDS, WORDS, BOOL),
    INTS: (INTS, INTS, INT, INT, INT, STR),
    WORDS: (WORDS, WORDS, STR, STR, INT),
    DICT: (INT, INT, WORDS, WORDS, INTS, STR),
    BOOL: (BOOL, STR, INT),
    TUPLE: (TUPLE,),
}


def target_of(d: Draft, v: Value) -> str:
    """Choose a type that a value of this type is likely to be turned into."""
    return d.dice.pick(_TARGETS[v.type])


def convert(d: Draft, v: Value, target: str) -> Value:
    """Make a value of the target type out of a value: by an expression, or by a call of a helper function."""
    if d.may_call_helper and d.dice.chance(d.module.helper_rate):
        return d.module.make_helper(d, v, target)
    made = expression(d, v, target)
    if made.type in (INT, STR) and made.rank <= SUM and d.dice.chance(0.15):
        return expression(d, made, made.type)
    return made


def expression(d: Draft, v: Value, target: str) -> Value:
    """Make a value of the target type without a helper; the bare variable only where nothing else fits."""
    match v.type, target:
        case "int", "int":
            return from_int(d, v)
        case "int", "str" | "char":
            return _str_from_int(d, v)
        case "char", "str" | "char":
            return from_char(d, v)
        case "str", "str" | "char":
            return from_str(d, v)
        case "char" | "str", "int":
            return _int_from_str(d, v)
        case "str", "words":
            return _words_from_str(d, v)
        case "ints", "ints":
            return from_ints(d, v)
        case "ints", "int":
            return _int_from_ints(d, v)
        case "ints", "str":
            separator = d.dice.pick((" ", ",", "-", ""))
            width = v.hi * (max(len(str(v.item_lo)), len(str(v.item_hi))) + len(separator))
            return Value(f"{separator!r}.join(map(str, {v.text}))", STR, 0, width, flavour="numeric")
        case "words", "words":
            return from_words(d, v)
        case "words", "str" | "char":
            return _str_from_words(d, v)
        case "words", "int":
            return _int_from_words(d, v)
        case "words", "dict" if v.hi:
            w = d.spare(ITEMS[STR])
            return Value(
                f"{{{w}: len({w}) for {w} in {v.text}}}", DICT, min(1, v.lo), v.hi, v.item_lo, v.item_hi
            )
        case "dict", _:
            return _from_dict(d, v, target)
        case _, "bool":
            return Value(condition(d, v), BOOL, rank=LOOSE)
        case "int", "ints" if v.lo >= 0 and v.hi <= LONGEST // 2:
            return Value(f"list(range({v.text}))", INTS, v.lo, v.hi, 0, max(0, v.hi - 1))
        case "int", "ints":
            made = from_int(d, v)
            return Value(f"[{v.text}, {made.text}]", INTS, 2, 2, min(v.lo, made.lo), max(v.hi, made.hi))
        case "char" | "str", "words":
            return Value(f"[{v.text}]", WORDS, 1, 1, v.lo, v.hi, v.flavour)
        case "bool", "int":
            one, two = d.dice.between(1, 9), d.dice.between(0, 5)
            return number(f"{one} if {v.text} else {two}", min(one, two), max(one, two), rank=LOOSE)
        case "bool", "str" | "char":
            one, two = d.dice.pick((("yes", "no"), ("on", "off"), ("ok", "bad"), ("A", "B"), ("+", "-")))
            return Value(f"{one!r} if {v.text} else {two!r}", STR, 1, 3, flavour="any", rank=LOOSE)
        case "int", "words":
            return Value(f"[str({v.text})]", WORDS, 1, 1, 1, 3, "any")
        case "ints", "words":
            return Value(f"list(map(str, {v.text}))", WORDS, v.lo, v.hi, 1, 2, "any")
        case "words", "ints":
            return Value(f"list(map(len, {v.text}))", INTS, v.lo, v.hi, v.item_lo, v.item_hi)
        case "char" | "str", "ints":
            return Value(f"[len({v.text})]", INTS, 1, 1, v.lo, v.hi)
        case "char" | "str" | "int" | "ints", "dict":
            made = v if v.type == INT else expression(d, v, INT)
            return Value(f"{{'n': {made.text}}}", DICT, 1, 1, made.lo, made.hi, "any")
        case "dict" | "tuple" | "bool", _:
            return v
        case _, "int":
            return number(f"len({v.text})", v.lo, v.hi)
        case _, "str" | "char":
            return Value(f"str({v.text})", STR, 1, LONGEST, flavour="any")
    return v


def another(d: Draft, v: Value, one: Value) -> Value:
    """Make a value of the same type as one that is already there, but another one if at all possible."""
    made = expression(d, v, one.type)
    for _ in range(3):
        if made.text != one.text:
            break
        made = expression(d, v, one.type)
    return expression(d, made, made.type) if made.text == one.text and made.rank <= SUM else made


def _str_from_int(d: Draft, v: Value) -> Value:
    width = max(len(str(v.lo)), len(str(v.hi)))
    if v.lo >= 0 and v.hi <= 6 and d.dice.chance(0.5):
        return Value(
            f"{d.dice.pick('ab*-#xo')!r} * {v.grouped}", STR, v.lo, v.hi, flavour="any", rank=PRODUCT
        )
    if d.dice.chance(0.6):
        return Value(f"str({v.text})", STR, 1, width, flavour="digits" if v.lo >= 0 else "numeric")
    mark = d.dice.pick(("n", "#", "x", "id", "-"))
    return Value(f"{mark!r} + str({v.text})", STR, 2, width + len(mark), flavour="numeric", rank=SUM)


def _int_from_str(d: Draft, v: Value) -> Value:
    s = v.grouped
    if v.flavour == "digits" and v.lo >= 1 and v.hi <= 2:
        return number(f"int({v.text})", 0, 10**v.hi - 1)
    one = letter(d, v)
    if v.type == CHAR:
        vowels = d.dice.pick(("aeiou", "abc", "star", "lmnop"))
        return number(f"{vowels!r}.find({v.text})", -1, 4)
    match d.dice.between(0, 7):
        case 0 | 1 | 2 | 3 | 4:
            return number(f"len({v.text})", v.lo, v.hi)
        case 5:
            return number(f"{s}.count({one!r})", 0, v.hi)
        case 6:
            return number(f"{s}.{d.dice.pick(('find', 'find', 'rfind'))}({one!r})", -1, v.hi - 1)
    extra = d.number(1, 4, v.text)
    return number(f"len({v.text}) * {extra.text}", v.lo * extra.lo, v.hi * extra.hi, rank=SUM)


def _words_from_str(d: Draft, v: Value) -> Value:
    if v.separator:
        text = f"{v.grouped}.split({'' if v.flavour == 'spaced' else repr(v.separator)})"
        digits = v.flavour.endswith("#")
        return Value(text, WORDS, 1, 3, 1, 1 if digits else 3, "digits" if digits else "word")
    text = f"list({v.text})" if d.dice.chance(0.7) else f"sorted({v.text})"
    return Value(text, WORDS, v.lo, v.hi, 1, 1, v.flavour)


def _int_from_ints(d: Draft, v: Value) -> Value:
    total_lo, total_hi = min(0, v.hi * v.item_lo), v.hi * max(0, v.item_hi)
    match d.dice.between(0, 9):
        case 0 | 1 | 2 if total_hi <= LARGEST:
            return number(f"sum({v.text})", total_lo, total_hi)
        case 3:
            return number(f"{v.grouped}.count({d.number(v.item_lo, v.item_hi, v.text).text})", 0, v.hi)
        case 4 | 5 if v.lo >= 1:
            return number(f"{d.dice.pick(('max', 'min'))}({v.text})", v.item_lo, v.item_hi)
        case 6 | 7 if v.lo >= 1:
            at = d.dice.pick((0, 0, -1, -1, 1 if v.lo > 1 else 0, "len({}) // 2"))
            return number(f"{v.grouped}[{str(at).format(v.text)}]", v.item_lo, v.item_hi)
        case 8 if v.lo >= 1:
            return number(f"max({v.text}) - min({v.text})", 0, v.item_hi - v.item_lo, rank=SUM)
    return number(f"len({v.text})", v.lo, v.hi)


def _str_from_words(d: Draft, v: Value) -> Value:
    match d.dice.between(0, 6):
        case 0 | 1 if v.lo >= 1:
            return Value(f"{v.grouped}[{d.dice.pick((0, -1))}]", STR, v.item_lo, v.item_hi, flavour=v.flavour)
        case 2 if v.lo >= 1:
            text = f"{d.dice.pick(('max', 'min'))}({v.text}{', key=len' if v.item_hi > 1 else ''})"
            return Value(text, STR, v.item_lo, v.item_hi, flavour=v.flavour)
    separator = d.dice.pick(("", "", "-", " ", ",", "+"))
    hi = v.hi * (v.item_hi + len(separator))
    return Value(
        f"{separator!r}.join({v.text})",
        STR,
        v.lo * v.item_lo,
        hi,
        flavour=v.flavour if not separator else "any",
    )


def _int_from_words(d: Draft, v: Value) -> Value:
    match d.dice.between(0, 3):
        case 0 if v.lo >= 1 and v.item_hi > 1:
            return number(f"len({v.grouped}[{d.dice.pick((0, -1))}])", v.item_lo, v.item_hi)
        case 1:
            return number(f"{v.grouped}.count({d.dice.pick(LETTERS[:8])!r})", 0, v.hi)
        case 2 if v.item_hi > 1:
            return number(f"len(''.join({v.text}))", v.lo * v.item_lo, v.hi * v.item_hi)
    return number(f"len({v.text})", v.lo, v.hi)


def _from_dict(d: Draft, v: Value, target: str) -> Value:
    s, lo, hi = v.grouped, v.item_lo, v.item_hi
    if target == INT:
        match d.dice.between(0, 5):
            case 0 | 1 if v.flavour.isdigit():
                default = d.number(0, 5, v.text)
                key = d.dice.pick(KEY_SETS[int(v.flavour)])
                return number(f"{s}.get({key!r}, {default.text})", min(lo, default.lo), max(hi, default.hi))
            case 2 if v.hi * hi <= LARGEST:
                return number(f"sum({s}.values())", min(0, v.hi * lo), v.hi * max(0, hi))
            case 3 if v.lo >= 1:
                return number(f"{d.dice.pick(('max', 'min'))}({s}.values())", lo, hi)
        return number(f"len({v.text})", v.lo, v.hi)
    if target == INTS:
        text = f"list({s}.values())" if d.dice.chance(0.6) else f"sorted({s}.values())"
        return Value(text, INTS, v.lo, v.hi, lo, hi)
    if target == WORDS:
        k = d.spare(KEYS)
        forms = [
            f"list({v.text})",
            f"sorted({v.text})",
            f"list({s}.keys())",
            f"sorted({v.text}, key={s}.get)",
        ]
        if hi - lo >= 3 and not d.loops and d.dice.chance(0.3):
            forms = [f"[{k} for {k} in {v.text} if {s}[{k}] > {d.number(lo + 1, hi - 1, v.text).text}]"]
        text = d.dice.pick(forms)
        return Value(text, WORDS, 0 if text[0] == "[" else v.lo, v.hi, 1, 5, "word")
    if target in (STR, CHAR):
        text = f"max({v.text}, key={s}.get)" if v.lo >= 1 and d.dice.chance(0.6) else f"'-'.join({v.text})"
        return Value(text, STR, 0, 14, flavour="word")
    if target == BOOL:
        return Value(condition(d, v), BOOL, rank=LOOSE)
    return Value(f"{{k: v + 1 for k, v in {s}.items()}}", DICT, v.lo, v.hi, lo + 1, hi + 1, v.flavour)
