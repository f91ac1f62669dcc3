"""Generators and closures: functions that wait, and functions that remember."""

from nd_jax.programs.idioms.conditions import condition
from nd_jax.programs.idioms.conversions import expression
from nd_jax.programs.idioms.draft import Draft
from nd_jax.programs.idioms.expressions import number
from nd_jax.programs.idioms.values import (
    ATOM,
    BUSY,
    INT,
    INTS,
    LARGEST,
    LONGEST,
    STR,
    WORDS,
    Value,
)
from nd_jax.programs.idioms.words import ITEMS

_YIELDING = ("walk", "produce", "chosen", "steps", "each", "stream")


def generator(d: Draft) -> None:
    """Write a generator function, and consume it."""
    v = d.want(d.dice.pick((INTS, INTS, WORDS, INT)))
    assert v is not None
    h = Draft(d.module, v)
    made, most = (_counted if v.type == INT else _filtered)(h, h.parameters[0])
    name = d.dice.pick([n for n in _YIELDING if n not in d.scope])
    h.result = made
    h.finish(name)
    call = f"{name}({d.arguments(v, h)})"
    items = INTS if made.type == INT else WORDS
    bounds = (0, most, made.lo, made.hi, made.flavour)
    x = d.spare(ITEMS[INT if made.type == INT else STR])
    match d.dice.between(0, 6):
        case 0 | 1:
            d.let(Value(f"list({call})", items, *bounds))
        case 2 if made.type == INT:
            d.let(number(f"sum({call})", min(0, made.lo * most), max(0, made.hi * most)))
        case 3:
            empty = "0" if made.type == INT else "''"
            d.let(
                made._replace(
                    text=f"next({call}, {empty})", lo=min(0, made.lo), hi=max(0, made.hi), rank=ATOM
                )
            )
        case 4:
            gen = d.put(d.spare(("gen", "it", "source")), Value(call, BUSY)).text
            empty = "-1" if made.type == INT else "''"
            d.put(d.spare(("first", "head")), made._replace(text=f"next({gen}, {empty})", rank=ATOM))
            d.let(Value(f"list({gen})", items, *bounds))
        case _:
            out = d.spare(("out", "result", "found"))
            d.put(out, Value("[]", BUSY))
            with d.block(f"for {x} in {call}:"):
                if d.dice.chance(0.4):
                    with d.block(f"if {condition(d, made._replace(text=x, rank=ATOM))}:"):
                        d.line(d.dice.pick(("break", "continue")))
                d.line(f"{out}.append({x})")
            d.bind(out, Value("", items, *bounds))


def _filtered(h: Draft, p: Value) -> tuple[Value, int]:
    kind = INT if p.type == INTS else STR
    x = h.spare(ITEMS[kind])
    item = Value(x, kind, p.item_lo, p.item_hi, flavour=p.flavour)
    made = expression(h, item, kind)
    with h.block(f"for {x} in {p.text}:"):
        if h.dice.chance(0.6):
            with h.block(f"if {condition(h, item)}:"):
                h.line(f"yield {made.text}")
            if h.dice.chance(0.3):
                with h.block("else:"):
                    h.line(f"yield {x}")
                made = made._replace(lo=min(made.lo, item.lo), hi=max(made.hi, item.hi))
        else:
            h.line(f"yield {made.text}")
    most = p.hi
    if h.dice.chance(0.25):
        h.line(f"yield from {p.text}[:1]")
        made, most = made._replace(lo=min(made.lo, item.lo), hi=max(made.hi, item.hi)), most + 1
    h.unread.clear()
    return made, most


def _counted(h: Draft, p: Value) -> tuple[Value, int]:
    match h.dice.between(0, 2):
        case 0:
            a, b = h.spare(("a", "x", "prev")), h.spare(("b", "y", "cur"))
            h.line(f"{a}, {b} = {h.dice.pick(('0, 1', '1, 1', '1, 2'))}")
            with h.block(f"while {a} < {p.text}:"):
                h.line(f"yield {a}")
                h.line(f"{a}, {b} = {b}, {a} + {b}")
            return number("", 0, max(0, p.hi)), 8
        case 1:
            with h.block(f"while {p.text} > 0:"):
                h.line(f"yield {p.text}")
                h.line(f"{p.text} {h.dice.pick(('-= 2', '//= 2', '-= 3'))}")
            return number("", 0, max(1, p.hi)), max(1, p.hi)
    i = h.spare(("i", "j", "k"))
    made = expression(h, number(i, 0, max(0, p.hi - 1)), INT)
    with h.block(f"for {i} in range({p.text}):"):
        h.line(f"yield {made.text}")
    return made, max(0, p.hi)


def closure(d: Draft) -> None:
    """Write a function that makes a function, and call what it makes."""
    k = d.want(INT)
    assert k is not None
    v = d.want(d.dice.pick((INTS, WORDS)))
    assert v is not None
    outer = Draft(d.module, k)
    p = outer.parameters[0]
    kind = INT if v.type == INTS else STR
    x = outer.spare(ITEMS[kind])
    item = Value(x, kind, v.item_lo, v.item_hi, flavour=v.flavour)
    inner = outer.spare(("inner", "step", "apply", "run"))
    made = _remembering(outer, p, item, inner)
    outer.unread.clear()
    outer.result = Value("", INT)
    name = d.dice.pick(("make", "maker", "build", "make_step", "adder"))
    outer.finish(name)
    g = d.put(d.spare(("g", "fn", "step", "op")), Value(f"{name}({d.arguments(k, outer)})", BUSY)).text
    y = d.spare(ITEMS[kind])
    items = INTS if made.type == INT else WORDS
    if d.dice.chance(0.4):
        d.line(f"{(out := d.spare(('out', 'result', 'res')))} = list(map({g}, {v.text}))")
    else:
        d.line(f"{(out := d.spare(('out', 'result', 'res')))} = [{g}({y}) for {y} in {v.text}]")
    d.bind(out, Value("", items, v.lo, v.hi, made.lo, made.hi, "any"))


def _remembering(o: Draft, p: Value, item: Value, inner: str) -> Value:
    """Write the inner function and the return of it; gives what a call of it gives."""
    form = o.dice.between(0, 3)
    if form == 0 and item.type == INT:
        state = o.spare(("total", "count", "last"))
        o.line(f"{state} = {p.text}")
        with o.block(f"def {inner}({item.text}):"):
            o.line(f"nonlocal {state}")
            change = o.dice.pick((f"{state} += {item.text}", f"{state} = {item.text} - {state}",
                                  f"{state} = max({state}, {item.text})"))  # fmt: skip
            o.line(change)
            o.line(f"return {state}")
        o.line(f"return {inner}")
        return number("", -LARGEST, LARGEST)
    if form == 1:
        seen = o.spare(("seen", "log", "calls"))
        o.line(f"{seen} = []")
        with o.block(f"def {inner}({item.text}):"):
            o.line(f"{seen}.append({item.text})")
            o.line(f"return len({seen}) {o.dice.pick('+*-')} {p.text}")
        o.line(f"return {inner}")
        return number("", -p.hi, 2 * p.hi + LONGEST)
    if item.type == INT:
        texts = (f"{item.text} + {p.text}", f"{item.text} * {p.text}", f"{p.text} - {item.text}",
                 f"{item.text} % {p.text}" if p.lo > 0 else f"{item.text} - {p.text}",
                 f"max({item.text}, {p.text})")  # fmt: skip
        made = number("", -LARGEST, LARGEST)
    else:
        texts = (f"{item.text}[:{p.text}]", f"{item.text} + str({p.text})",
                 f"{item.text}[{p.text}:] + {item.text}[:{p.text}]",
                 f"{item.text}.ljust({p.text}, '-')", f"f'{{{p.text}}}{{{item.text}}}'")  # fmt: skip
        made = Value("", STR, 0, 2 * item.hi + p.hi, flavour="any")
    text = o.dice.pick(texts)
    if form == 2:
        o.line(f"return lambda {item.text}: {text}")
        return made
    with o.block(f"def {inner}({item.text}):"):
        if o.dice.chance(0.6):
            with o.block(f"if {condition(o, item)}:"):
                o.line(f"return {item.text}")
            made = made._replace(lo=min(made.lo, item.lo), hi=max(made.hi, item.hi))
        o.line(f"return {text}")
    o.line(f"return {inner}")
    return made
