"""Loops that are left from inside: ``while True`` and ``while`` with ``break``, ``for`` with ``else``."""

from nd_jax.programs.idioms.conditions import condition
from nd_jax.programs.idioms.conversions import expression
from nd_jax.programs.idioms.draft import Draft
from nd_jax.programs.idioms.expressions import number
from nd_jax.programs.idioms.values import BUSY, INT, INTS, LARGEST, STR, WORDS, Value
from nd_jax.programs.idioms.words import INDEXES, ITEMS


def left_early(d: Draft) -> None:
    """Write a loop that may be left by ``break``."""
    d.dice.pick((_shrinking, _shrinking, _indexed, _indexed, _or_else, _draining))(d)


def _shrinking(d: Draft) -> None:
    """Make a number smaller until something holds; rounds are counted, so that it ends."""
    n = d.want(INT)
    assert n is not None
    count = d.spare(("steps", "rounds", "count", "tries"))
    d.put(count, Value("0", BUSY))
    most = d.dice.between(4, 7)
    grows = d.dice.chance(0.4)
    with d.block("while True:"):
        if grows:
            with d.block(f"if {n.text} % 2 == 0:"):
                d.line(f"{n.text} //= 2")
            with d.block("else:"):
                d.line(f"{n.text} = {n.text} * 3 + 1")
        else:
            d.line(f"{n.text} {d.dice.pick(('-= 2', '-= 3', '//= 2', '-= 1', '//= 3'))}")
        d.line(f"{count} += 1")
        stop = f"{n.text} <= 1" if grows else condition(d, n._replace(lo=n.lo - 2))
        with d.block(f"if {stop} or {count} == {most}:" if " or " not in stop and " and " not in stop
                     else f"if {count} == {most}:"):  # fmt: skip
            d.line("break")
    d.bind(n.text, number(n.text, -3 * most, LARGEST))
    d.bind(count, number("", 1, most))


def _indexed(d: Draft) -> None:
    v = d.want(d.dice.pick((INTS, STR, WORDS)))
    assert v is not None
    i = d.spare(INDEXES)
    kind = INT if v.type == INTS else STR
    size = (1, 1) if v.type == STR else (v.item_lo, v.item_hi)
    item = Value(f"{v.text}[{i}]", kind, *size, flavour=v.flavour)
    total = d.spare(("total", "count", "acc", "score"))
    d.put(i, Value("0", BUSY))
    d.put(total, Value("0", BUSY))
    made = expression(d, item, INT) if d.dice.chance(0.7) else number("1", 1, 1)
    if max(abs(made.lo), abs(made.hi)) * v.hi > LARGEST:
        made = number("1", 1, 1)
    with d.block(f"while {i} < len({v.text}):"):
        with d.block(f"if {condition(d, item)}:"):
            d.line("break")
        d.line(f"{total} += {made.text}")
        d.line(f"{i} += {d.dice.pick((1, 1, 2))}")
    d.bind(total, number("", min(0, made.lo) * v.hi, max(0, made.hi) * v.hi))
    if d.dice.chance(0.5):
        d.bind(i, number("", 0, v.hi + 1))


def _or_else(d: Draft) -> None:
    v = d.want(d.dice.pick((INTS, WORDS)))
    assert v is not None
    kind = INT if v.type == INTS else STR
    x = d.spare(ITEMS[kind])
    item = Value(x, kind, v.item_lo, v.item_hi, flavour=v.flavour)
    found = d.spare(("found", "result", "hit", "answer"))
    with d.block(f"for {x} in {v.text}:"), d.block(f"if {condition(d, item)}:"):
        made = expression(d, item, kind)
        d.line(f"{found} = {made.text}")
        d.line("break")
    with d.block("else:"):
        d.line(f"{found} = {d.dice.pick(('-1', '0')) if kind == INT else repr('none')}")
    d.bind(found, made._replace(lo=min(-1 if kind == INT else 0, made.lo), hi=max(made.hi, 4), flavour="any"))


def _draining(d: Draft) -> None:
    v = d.want(d.dice.pick((INTS, WORDS)))
    assert v is not None
    kind = INT if v.type == INTS else STR
    x = d.spare(ITEMS[kind])
    item = Value(x, kind, v.item_lo, v.item_hi, flavour=v.flavour)
    out = d.spare(("out", "taken", "result"))
    d.put(out, Value("[]", BUSY))
    with d.block(f"while {v.text}:"):
        d.line(f"{x} = {v.text}.pop({d.dice.pick(('', '0'))})")
        with d.block(f"if {condition(d, item)}:"):
            d.line(d.dice.pick(("break", "continue")))
        d.line(f"{out}.append({x})")
    d.bind(out, v._replace(lo=0))
    d.bind(v.text, v._replace(lo=0))
