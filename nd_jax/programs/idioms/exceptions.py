"""Statements that raise and catch."""

from nd_jax.programs.idioms.conditions import condition
from nd_jax.programs.idioms.conversions import expression
from nd_jax.programs.idioms.draft import Draft
from nd_jax.programs.idioms.expressions import number
from nd_jax.programs.idioms.values import ATOM, CHAR, DICT, INT, INTS, LARGEST, STR, WORDS
from nd_jax.programs.idioms.words import KEY_SETS, LETTERS, LOCALS


def attempt(d: Draft) -> None:
    """Try something that fails for some inputs, where such an input can be had."""
    kind = d.dice.pick((STR, INTS, DICT, INT, WORDS))
    v = d.want(kind)
    if v is None:
        return
    fallback = d.dice.pick((0, -1, -1, 1))
    lo, hi = -1, 9
    match kind:
        case "str" if v.flavour in ("digits", "mixed"):
            risky, error, hi = f"int({v.text}[0])", "ValueError", 9
            if v.lo < 1:
                risky, error = f"{v.text}.index('1')", "ValueError"
        case "str":
            risky, error, hi = f"{v.text}.index({d.dice.pick(LETTERS[:6])!r})", "ValueError", v.hi
        case "ints":
            if d.dice.chance(0.7):
                at = d.number(max(0, v.lo - 1), v.hi)
                risky, error, lo, hi = (
                    f"{v.text}[{at.text}]",
                    "IndexError",
                    min(-1, v.item_lo),
                    max(1, v.item_hi),
                )
            else:
                item = d.number(v.item_lo, v.item_hi)
                risky, error, hi = f"{v.text}.index({item.text})", "ValueError", v.hi
        case "dict" if v.flavour.isdigit():
            key = d.dice.pick(KEY_SETS[int(v.flavour)])
            risky, error, lo, hi = f"{v.text}[{key!r}]", "KeyError", min(-1, v.item_lo), max(1, v.item_hi)
        case "words" if v.item_lo >= 1:
            at = d.number(max(0, v.lo - 1), v.hi)
            risky, error, hi = f"len({v.text}[{at.text}])", "IndexError", max(1, v.item_hi)
        case "int" if d.may_ask:
            divisor = d.enter(number("", 0, 2))
            risky, error = f"{v.text} // {divisor.text}", "ZeroDivisionError"
            lo, hi = min(-1, v.lo), max(1, v.hi)
        case _:
            return
    name = d.spare(LOCALS[INT])
    with d.block("try:"):
        d.line(f"{name} = {risky}")
    with d.block(f"except {error}:"):
        d.line(f"{name} = {fallback}")
    d.bind(name, number(name, lo, hi))


def checked(d: Draft, uncaught: float) -> None:
    """Call a function that raises for some inputs, and catch it, but for an uncaught share."""
    v = d.want(d.dice.pick((INT, INT, STR, INTS)))
    if v is None or not d.module.helpers_left:
        return
    d.module.helpers_left -= 1
    h = Draft(d.module, v)
    p = h.parameters[0]
    message = d.dice.pick(("bad", "too big", "invalid", "no", "out of range"))
    with h.block(f"if {condition(h, p)}:"):
        h.line(f"raise ValueError({message!r})")
    target = v.type if v.type != CHAR else STR
    made = expression(h, p, target)
    h.give(made)
    name = next(n for n in ("check", "validate", "ensure", "parse") if n not in d.scope)
    h.finish(name)
    arguments = d.arguments(v, h)
    result = d.spare(LOCALS[made.type])
    call = made._replace(text=f"{name}({arguments})", rank=ATOM)
    if d.dice.chance(uncaught):
        d.put(result, call)
        return
    with d.block("try:"):
        d.line(f"{result} = {call.text}")
    with d.block("except ValueError:"):
        simple = {INT: d.dice.pick(("0", "-1")), STR: d.dice.pick(("''", "'error'")), INTS: "[]", WORDS: "[]"}
        d.line(f"{result} = {simple[made.type]}")
    d.bind(
        result,
        made._replace(lo=min(-1 if made.type == INT else 0, made.lo), hi=min(max(5, made.hi), LARGEST)),
    )
