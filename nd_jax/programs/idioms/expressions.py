"""Arithmetic and string methods: expressions that stay within bounds and raise nothing."""

from nd_jax.programs.idioms.draft import Draft
from nd_jax.programs.idioms.values import (
    ATOM,
    CHAR,
    INT,
    LARGEST,
    LONGEST,
    LOOSE,
    PRODUCT,
    STR,
    SUM,
    Value,
    Weighted,
)
from nd_jax.programs.idioms.words import KEY_SETS, LETTERS

_ARITHMETIC = Weighted(
    ("+", 4), ("-", 2.5), ("*", 3), ("square", 1), ("//", 1), ("%", 2), ("reverse", 0.7), ("abs", 0.5),
    ("clamp", 1), ("two", 1), ("other", 2),
)  # fmt: skip
_ON_CHAR = Weighted(("upper", 2.5), ("swapcase", 0.7), ("*", 1.5), ("+", 2), ("ifelse", 0.7), ("same", 1.5))
_ON_STR = Weighted(
    ("upper", 3), ("lower", 2), ("case", 1), ("reverse", 2.5), ("slice", 4), ("even", 0.7), ("replace", 3.5),
    ("strip", 1.5), ("+", 2), ("ends", 1.2), ("rotate", 0.8), ("*", 0.7), ("pad", 1), ("join", 0.8), 
    ("cut", 3), ("affix", 0.6),
)  # fmt: skip


def number(text: str, lo: int, hi: int, rank: int = ATOM) -> Value:
    """An integer expression."""
    return Value(text, INT, lo, hi, rank=rank)


def from_int(d: Draft, v: Value) -> Value:
    """Arithmetic on an integer that stays small."""
    x, lo, hi = v.grouped, v.lo, v.hi
    most = max(abs(lo), abs(hi))
    match d.dice.draw(_ARITHMETIC):
        case "+":
            c = d.number(1, 5, v.text)
            return number(f"{v.term} + {c.text}", lo + c.lo, hi + c.hi, rank=SUM)
        case "-":
            c = d.number(1, 4, v.text)
            return number(f"{v.term} - {c.text}", lo - c.hi, hi - c.lo, rank=SUM)
        case "*" if most <= 20:
            c = d.number(2, 4, v.text)
            return number(
                f"{x} * {c.text}", min(lo * c.hi, lo * c.lo), max(hi * c.hi, hi * c.lo), rank=PRODUCT
            )
        case "square" if most <= 8:
            return number(
                f"{x} * {x}", 0 if lo <= 0 <= hi else min(lo * lo, hi * hi), most * most, rank=LOOSE
            )
        case "//" if hi >= 4:
            c = d.dice.pick((2, 2, 2, 3))
            return number(f"{x} // {c}", lo // c, hi // c, rank=PRODUCT)
        case "%" if hi >= 4:
            c = d.dice.pick((2, 3, 3, 4, 5))
            return number(f"{x} % {c}", 0, c - 1, rank=PRODUCT)
        case "reverse":
            c = d.dice.pick((hi + 1, hi, 10))
            return number(f"{c} - {x}", c - hi, c - lo, rank=SUM)
        case "abs" if lo < 4 and not x.startswith("abs"):
            c = d.dice.between(max(2, lo + 1), max(3, (lo + hi) // 2))
            return number(f"abs({x} - {c})", 0, max(abs(lo - c), abs(hi - c)))
        case "clamp" if hi - lo > 2:
            c = d.number(lo + 1, hi - 1, v.text)
            if d.dice.chance(0.5):
                return number(f"min({v.text}, {c.text})", min(lo, c.lo), min(hi, c.hi))
            return number(f"max({v.text}, {c.text})", max(lo, c.lo), max(hi, c.hi))
        case "two" if most <= 15:
            c = d.dice.between(1, 4)
            return number(f"{x} * 2 + {c}", 2 * lo + c, 2 * hi + c, rank=SUM)
        case "other":
            others = [o for o in d.variables(INT) if o.text != v.text and max(abs(o.lo), abs(o.hi)) < 20]
            if others and most < 40:
                return of_two(d, v, d.dice.pick(others))
    c = d.dice.between(1, 3)
    if hi + c > LARGEST:
        return number(f"{x} % 10", 0, 9, rank=PRODUCT)
    return number(f"{v.term} + {c}", lo + c, hi + c, rank=SUM)


def of_two(d: Draft, one: Value, other: Value) -> Value:
    """Arithmetic on two integers."""
    a, b = one.grouped, other.grouped
    match d.dice.pick("++-*<>"):
        case "-":
            return number(f"{one.term} - {b}", one.lo - other.hi, one.hi - other.lo, rank=SUM)
        case "*" if max(abs(one.lo), abs(one.hi)) * max(abs(other.lo), abs(other.hi)) <= LARGEST:
            corners = [x * y for x in (one.lo, one.hi) for y in (other.lo, other.hi)]
            return number(f"{a} * {b}", min(corners), max(corners), rank=PRODUCT)
        case "<":
            return number(f"min({one.text}, {other.text})", min(one.lo, other.lo), min(one.hi, other.hi))
        case ">":
            return number(f"max({one.text}, {other.text})", max(one.lo, other.lo), max(one.hi, other.hi))
    if one.hi + other.hi > LARGEST:
        return number(f"max({one.text}, {other.text})", max(one.lo, other.lo), max(one.hi, other.hi))
    return number(f"{one.term} + {other.term}", one.lo + other.lo, one.hi + other.hi, rank=SUM)


def from_char(d: Draft, v: Value) -> Value:
    """A short string out of one character."""
    c = v.text
    match d.dice.draw(_ON_CHAR):
        case "same" if d.loops:
            return v
        case "upper" if v.flavour != "digits":
            return v._replace(text=f"{c}.upper()", flavour="upper")
        case "swapcase":
            mixed = v.flavour == "mixed"
            method, flavour = ("swapcase", "mixed") if mixed else ("upper", "upper")
            return v._replace(text=f"{c}.{method}()", flavour=flavour)
        case "*":
            n = d.number(2, 3, v.text)
            return Value(
                f"{v.grouped} * {n.text}",
                STR,
                n.lo,
                n.hi,
                flavour=v.part_flavour,
                rank=PRODUCT,
            )
        case "+":
            mark = repr(d.dice.pick("-.*_!+#"))
            text = f"{c} + {mark}" if d.dice.chance(0.6) else f"{mark} + {c}"
            return Value(text, STR, 2, 2, flavour="any", rank=SUM)
        case "ifelse":
            a, b = letter(d, v), d.dice.pick("-_*+!")
            return Value(f"{b!r} if {c} == {a!r} else {c}", CHAR, 1, 1, flavour="any", rank=LOOSE)
    return Value(f"{c} * 2", STR, 2, 2, flavour=v.part_flavour, rank=PRODUCT)


def from_str(d: Draft, v: Value) -> Value:
    """Another string."""
    s, lo, hi = v.grouped, v.lo, v.hi
    flavour = v.part_flavour  # pieces may be cut short

    def same(text: str, flavour: str = v.flavour) -> Value:
        return Value(text, STR, lo, hi, flavour=flavour)

    def shorter(text: str, cut: int) -> Value:
        return Value(text, STR, max(0, lo - cut), max(0, hi - cut), flavour=flavour)

    match d.dice.draw(_ON_STR):
        case "upper" if v.flavour not in ("digits", "upper"):
            return same(f"{s}.upper()", "upper")
        case "lower" if v.flavour in ("mixed", "upper", "any"):
            return same(f"{s}.lower()", "word")
        case "case" if v.flavour not in ("digits",):
            return same(f"{s}.{d.dice.pick(('capitalize', 'title', 'swapcase'))}()", "any")
        case "reverse" if not s.endswith("[::-1]"):
            return shorter(f"{s}[1:]", 1) if s.endswith("[::-1]") else same(f"{s}[::-1]")
        case "slice" if lo >= 2:
            if d.dice.chance(0.4):
                c = d.number(1, 3, v.text)
                at = c.text
                return Value(f"{s}[:{at}]", STR, min(lo, c.lo), min(hi, c.hi), flavour=flavour)
            return shorter(
                *d.dice.pick(((f"{s}[1:]", 1), (f"{s}[:-1]", 1), (f"{s}[1:-1]", 2), (f"{s}[2:]", 2)))
            )
        case "even" if lo >= 3:
            return Value(f"{s}[::2]", STR, (lo + 1) // 2, (hi + 1) // 2, flavour=flavour)
        case "replace":
            old = letter(d, v)
            new = d.dice.pick([mark for mark in ("", "-", "*", *LETTERS[:6]) if mark != old])
            return Value(f"{s}.replace({old!r}, {new!r})", STR, 0, hi, flavour="any")
        case "strip":
            if v.flavour == "padded":
                return Value(
                    f"{s}.{d.dice.pick(('strip', 'strip', 'lstrip', 'rstrip'))}()", STR, 1, hi, flavour="word"
                )
            return Value(
                f"{s}.{d.dice.pick(('strip', 'lstrip', 'rstrip'))}({letter(d, v)!r})",
                STR,
                0,
                hi,
                flavour=flavour,
            )
        case "+" if hi < LONGEST - 2:
            mark = d.dice.pick(("!", "?", "-", "s", "ed", "_x", "a", "."))
            text = f"{v.term} + {mark!r}" if d.dice.chance(0.7) else f"{mark!r} + {v.term}"
            return Value(text, STR, lo + len(mark), hi + len(mark), flavour="any", rank=SUM)
        case "ends" if lo >= 1 and s.isidentifier() and hi < LONGEST - 1:
            text = d.dice.pick((f"{s}[0] + {s}", f"{s} + {s}[0]", f"{s}[-1] + {s}", f"{s} + {s}[-1]"))
            return Value(text, STR, lo + 1, hi + 1, flavour=flavour, rank=SUM)
        case "rotate" if lo >= 2 and s.isidentifier():
            c = d.dice.pick((1, 1, 2))
            return Value(f"{s}[{c}:] + {s}[:{c}]", STR, lo, hi, flavour=flavour, rank=SUM)
        case "*" if hi <= 5:
            return Value(f"{s} * 2", STR, 2 * lo, 2 * hi, flavour=flavour, rank=PRODUCT)
        case "pad" if hi <= LONGEST - 2:
            width = d.dice.between(hi, hi + 2)
            method = d.dice.pick(("zfill({})", "ljust({}, '-')", "rjust({}, '*')", "center({}, '.')"))
            return Value(f"{s}.{method.format(width)}", STR, width, width, flavour="any")
        case "join" if hi <= LONGEST // 2:
            return Value(
                f"{d.dice.pick('-.:_')!r}.join({s})", STR, max(0, 2 * lo - 1), 2 * hi - 1, flavour="any"
            )
        case "cut" if v.separator:
            at = d.dice.pick((0, -1))
            return Value(f"{s}.split({v.separator!r})[{at}]", STR, 1, 3, flavour="word")
        case "affix":
            method, part = d.dice.pick((("removeprefix", "a"), ("removesuffix", "s"), ("removesuffix", "e")))
            return Value(f"{s}.{method}({part!r})", STR, max(0, lo - 1), hi, flavour=flavour)
    return shorter(f"{s}[1:]", 1) if s.endswith("[::-1]") else same(f"{s}[::-1]")


def letter(d: Draft, v: Value) -> str:
    """Choose a character that a string of this flavour is likely to hold."""
    if v.flavour in ("digits", "numeric"):
        return d.dice.pick("0123456789")
    if v.separator:
        return v.separator
    if v.flavour.startswith("key"):
        return d.dice.pick(d.dice.pick(KEY_SETS[int(v.flavour[3:])]))
    drawn = d.dice.pick(LETTERS[:10])
    return drawn.upper() if v.flavour == "upper" else drawn
