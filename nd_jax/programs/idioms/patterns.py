"""Loops that people write again and again: the best one so far, the first that fits, all of them fit."""

from nd_jax.programs.idioms.conditions import condition
from nd_jax.programs.idioms.conversions import convert, expression
from nd_jax.programs.idioms.draft import Draft
from nd_jax.programs.idioms.loops import item_test
from nd_jax.programs.idioms.pairs import combine
from nd_jax.programs.idioms.values import BOOL, BUSY, CHAR, INT, INTS, LOOSE, STR, WORDS, Value
from nd_jax.programs.idioms.walks import looping, walk_over
from nd_jax.programs.idioms.words import ITEMS


def best(d: Draft, v: Value) -> None:
    """Find a list's largest, smallest, longest item in a loop; the list is not empty."""
    item_type = INT if v.type == INTS else STR
    x = d.spare(ITEMS[item_type])
    sign = d.dice.pick("><>")
    names = ("best", "top", "most", "high") if sign == ">" else ("low", "least", "best", "small")
    if item_type == STR:
        names = ("longest", "best", "long") if sign == ">" else ("shortest", "best", "short")
    name = d.spare(names)
    item = Value(x, item_type, v.item_lo, v.item_hi, flavour=v.flavour)
    d.put(name, Value(f"{v.text}[0]", BUSY))
    with d.block(f"for {x} in {v.text}[1:]:" if d.dice.chance(0.6) else f"for {x} in {v.text}:"):
        if item_type == INT:
            key = expression(d, item, INT).text if d.dice.chance(0.15) else x
            test = f"{key} {sign} {name}" if key == x else f"{x} {sign} {name} and {condition(d, item)}"
        else:
            test = (
                f"len({x}) {sign} len({name})"
                if v.item_hi > 1 and d.dice.chance(0.8)
                else f"{x} {sign} {name}"
            )
        with d.block(f"if {test}:"):
            d.line(f"{name} = {x}")
    d.scope[x] = Value(x, BUSY)
    d.bind(name, item)


def search(d: Draft, source: Value) -> None:
    """Return from inside a loop as soon as something fits, and else afterwards: ends the function."""
    walk = walk_over(d, source)
    everything = d.dice.chance(0.3) and all(waiting.text == source.text for waiting in d.waiting())
    verdict = d.dice.chance(0.5)
    found = Value(str(verdict), BOOL)
    with looping(d, walk), d.block(f"if {item_test(d, walk.items[0])}:"):
        if not everything:
            shown = d.dice.pick(walk.items)
            found = shown if d.dice.chance(0.5) else convert(d, shown, shown.type)
        d.give(found)
    if everything:
        d.give(found._replace(text=str(not verdict)))
    else:
        d.give(_otherwise(d, found.type, source))


def _otherwise(d: Draft, kind: str, source: Value) -> Value:
    """Choose what to return when nothing was found; reads what is still unread."""
    waiting = d.waiting()
    if waiting:
        value = waiting[0]
        for other in waiting[1:]:
            value = combine(d, value, other)
        return expression(d, d.let(value) if value.rank == LOOSE else value, kind)
    if kind == INT:
        text = d.dice.pick(("0", "-1", "-1", f"len({source.text})" if source.type != INT else "0"))
        return Value(text, INT, -1, max(source.hi, 0))
    if kind in (STR, CHAR):
        return Value(d.dice.pick(("''", "'none'", "'-'", "'?'")), kind, 0, 4, flavour="any")
    return Value({INTS: "[]", WORDS: "[]", BOOL: "False"}.get(kind, "None"), kind)
