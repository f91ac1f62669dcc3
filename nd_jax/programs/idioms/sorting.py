"""Sorting by a key: lists of numbers and words, and a dict's entries."""

from nd_jax.programs.idioms.conversions import expression
from nd_jax.programs.idioms.draft import Draft
from nd_jax.programs.idioms.values import DICT, INT, INTS, STR, WORDS, Value
from nd_jax.programs.idioms.words import ITEMS


def ordered(d: Draft) -> None:
    """Sort an input by a key, or find the first by one, and go on with the result."""
    v = d.want(d.dice.pick((INTS, WORDS, WORDS, DICT)))
    assert v is not None
    if v.type == DICT:
        _entries(d, v)
        return
    key = _key(d, v)
    back = d.dice.pick(("", "", ", reverse=True"))
    match d.dice.between(0, 5):
        case 0 | 1 | 2:
            d.let(v._replace(text=f"sorted({v.text}, key={key}{back})"))
        case 3:
            d.change(v, f"{v.text}.sort(key={key}{back})", v)
        case _ if v.lo >= 1:
            kind = INT if v.type == INTS else STR
            text = f"{d.dice.pick(('max', 'min'))}({v.text}, key={key})"
            d.let(Value(text, kind, v.item_lo, v.item_hi, flavour=v.flavour))
        case _:
            d.let(v._replace(text=f"sorted({v.text}, key={key})[::-1]"))


def _key(d: Draft, v: Value) -> str:
    x = d.spare(ITEMS[INT if v.type == INTS else STR])
    item = Value(x, INT if v.type == INTS else STR, v.item_lo, v.item_hi, flavour=v.flavour)
    if v.type == WORDS:
        simple = ("len", "str.lower", f"lambda {x}: {x}[-1]", f"lambda {x}: (len({x}), {x})",
                  f"lambda {x}: (-len({x}), {x})", f"lambda {x}: {x}[::-1]",
                  f"lambda {x}: sorted({x})")  # fmt: skip
    else:
        c = d.number(2, 4, v.text)
        simple = (f"lambda {x}: -{x}", f"lambda {x}: {x} % {c.text}", f"lambda {x}: ({x} % {c.text}, {x})",
                  f"lambda {x}: abs({x} - {c.text})", f"lambda {x}: (-{x} % {c.text}, -{x})",
                  "str")  # fmt: skip
    if d.dice.chance(0.75) or (v.type == WORDS and v.item_lo < 1):
        text = d.dice.pick([s for s in simple if v.type != WORDS or v.item_lo >= 1 or "[-1]" not in s])
    else:
        text = f"lambda {x}: {expression(d, item, INT).text}"
    return text


def _entries(d: Draft, v: Value) -> None:
    k, n = d.spare(("k", "key", "name")), d.spare(("n", "x", "val"))
    entry, pairs = d.spare(("item", "kv", "p")), d.spare(("pairs", "entries", "ranked"))
    words = Value("", WORDS, v.lo, v.hi, 1, 4, "word")
    match d.dice.between(0, 3):
        case 0:
            back = d.dice.pick(("", ", reverse=True"))
            d.let(words._replace(text=f"sorted({v.text}, key={v.text}.get{back})"))
        case 1:
            d.let(words._replace(text=f"sorted({v.text}, key=lambda {k}: (-{v.text}[{k}], {k}))"))
        case 2 if v.lo >= 1:
            text = f"{d.dice.pick(('max', 'min'))}({v.text}, key={v.text}.get)"
            d.let(Value(text, STR, 1, 4, flavour="word"))
        case _:
            order = d.dice.pick((f"{entry}[1]", f"(-{entry}[1], {entry}[0])", f"({entry}[1], {entry}[0])"))
            d.line(f"{pairs} = sorted({v.text}.items(), key=lambda {entry}: {order})")
            if d.dice.chance(0.5):
                d.let(words._replace(text=f"[{k} for {k}, _ in {pairs}]"))
            else:
                bounds = (v.lo, v.hi, v.item_lo, v.item_hi)
                d.let(Value(f"[{n} for _, {n} in {pairs}]", INTS, *bounds))
