"""Ways to walk over a value: what a loop's header says and what its body gets to see."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import NamedTuple

from nd_jax.programs.idioms.draft import Draft
from nd_jax.programs.idioms.expressions import number, of_two
from nd_jax.programs.idioms.values import BUSY, CHAR, DICT, INT, INTS, PRODUCT, STR, SUM, WORDS, Value
from nd_jax.programs.idioms.words import INDEXES, ITEMS, KEYS


class Walk(NamedTuple):
    """What a loop runs over.

    Attributes:
      items: values that the body may use, the main one first; all bounds known.
      header: writes the header, given the names that the body has left unread.
      lo, hi: bounds of the number of rounds.
      before: statements in front of the loop.
      first, last: statements that begin and end its body; with a last one, no round may be cut short.
      spent: variables whose bounds no longer hold afterwards.
      beyond: variable that the items never reach, so that comparing the two says nothing.
      outer: variable and number of rounds of a loop around the whole loop.
    """

    items: tuple[Value, ...]
    header: Callable[[set[str]], str]
    lo: int
    hi: int
    before: tuple[str, ...] = ()
    first: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    spent: tuple[str, ...] = ()
    outer: tuple[str, str] | None = None
    beyond: str = ""


@contextmanager
def looping(d: Draft, walk: Walk) -> Iterator[None]:
    """Write a loop around the body that the caller writes; its header names only what that reads."""
    for text in walk.before:
        d.line(text)
    own = [item for item in walk.items if item.text.isidentifier()]
    outer_at = d.reserve() if walk.outer else 0
    with d.block() if walk.outer else nullcontext():
        at = d.reserve()
        for item in own:
            d.bind(item.text, item)
        beyond = d.scope.get(walk.beyond)
        if beyond is not None:
            d.scope[walk.beyond] = beyond._replace(type=BUSY)
        d.loops += 2 if walk.outer else 1
        with d.block():
            for text in walk.first:
                d.lines.append(d.indent + text)
            yield
            for text in walk.last:
                d.line(text)
        d.loops -= 2 if walk.outer else 1
    if beyond is not None:
        d.scope[walk.beyond] = beyond
    left = {item.text for item in own if item.text in d.unread}
    header = walk.header(left)
    d.read(header)
    d.lines[at] += header
    if walk.outer:
        name, times = walk.outer
        header = f"for {_shown(name, left)} in range({times}):"
        d.read(header)
        d.lines[outer_at] += header
    for spent in (*(item.text for item in own), *walk.spent):
        d.scope[spent] = Value(spent, BUSY)
        d.unread.pop(spent, None)


def walk_over(d: Draft, v: Value) -> Walk:
    """Choose a way to walk over a value."""
    name, lo, hi = v.text, v.lo, v.hi
    if v.type == INT:
        return _walk_range(d, v)
    if v.type == DICT:
        return _walk_dict(d, v)
    kind = {STR: CHAR, INTS: INT, WORDS: STR}[v.type]
    if kind == STR and v.item_hi <= 1:
        kind = CHAR
    if kind == CHAR:
        item = Value(d.spare(ITEMS[CHAR]), CHAR, 1, 1, flavour=v.flavour)
    else:
        item = Value(d.spare(ITEMS[kind]), kind, v.item_lo, v.item_hi, flavour=v.flavour)
    x = item.text
    index = Value(d.spare(INDEXES), INT, 0, max(0, hi - 1))
    i = index.text
    match d.dice.between(0, 13):
        case 0 | 1:
            return Walk(
                (item, index),
                lambda left: (
                    f"for {x} in {name}:"
                    if i in left
                    else f"for {i} in range(len({name})):"
                    if x in left
                    else f"for {i}, {x} in enumerate({name}):"
                ),
                lo,
                hi,
            )
        case 2 | 3:
            at = item._replace(text=f"{name}[{i}]")
            return Walk((at, index), lambda _: f"for {i} in range(len({name})):", lo, hi)
        case 4 if lo >= 2:
            return Walk((item,), lambda left: f"for {_shown(x, left)} in {name}[1:]:", lo - 1, hi - 1)
        case 5:
            return Walk((item,), lambda left: f"for {_shown(x, left)} in {name}[::-1]:", lo, hi)
        case 6 if v.type != STR:
            return Walk((item,), lambda left: f"for {_shown(x, left)} in sorted({name}):", lo, hi)
        case 7 if kind == INT and lo >= 2:
            other = item._replace(text=d.spare(ITEMS[INT]))
            both = of_two(d, item, other)
            return Walk(
                (both, item, other),
                lambda left: (
                    f"for {x} in {name}[:-1]:"
                    if other.text in left
                    else f"for {other.text} in {name}[1:]:"
                    if x in left
                    else f"for {x}, {other.text} in zip({name}, {name}[1:]):"
                ),
                lo - 1,
                hi - 1,
            )
        case 8 if kind == INT and lo >= 2:
            at = item._replace(text=f"{name}[{i}]")
            both = number(f"{name}[{i}] - {name}[{i} - 1]", v.item_lo - v.item_hi, v.item_hi - v.item_lo, SUM)
            return Walk((both, at, index), lambda _: f"for {i} in range(1, len({name})):", lo - 1, hi - 1)
    return Walk((item,), lambda left: f"for {_shown(x, left)} in {name}:", lo, hi)


def _shown(name: str, left: set[str]) -> str:
    """Write a loop variable's name, or an underscore where the body does not read it."""
    return "_" if name in left else name


def _walk_range(d: Draft, v: Value) -> Walk:
    name, lo, hi = v.text, max(0, v.lo), v.hi
    i = d.spare(("i", "i", "j", "k", "x"))
    forms = (
        (f"range({name})", 0, hi - 1, lo, hi),
        (f"range(1, {name} + 1)", 1, hi, lo, hi),
        (f"range(1, {name})", 1, hi - 1, max(0, lo - 1), hi - 1),
        (f"range({name}, 0, -1)", 1, hi, lo, hi),
        (f"range(0, {name}, 2)", 0, hi - 1, (lo + 1) // 2, (hi + 1) // 2),
    )
    text, low, high, least, most = d.dice.pick((forms[0], *forms))
    item = Value(i, INT, low, max(low, high), flavour="even" if text.endswith("2)") else "")
    return Walk((item,), lambda left: f"for {_shown(i, left)} in {text}:", least, most, beyond=name)


def _walk_dict(d: Draft, v: Value) -> Walk:
    k, name = d.spare(KEYS), v.text
    item = Value(d.spare(("v", "val", "value", "n")), INT, v.item_lo, v.item_hi)
    short = v.flavour in ("0", "1")
    flavour = f"key{v.flavour}" if v.flavour.isdigit() else "word"
    key = Value(k, CHAR if short else STR, 1, 1 if short else 4, flavour=flavour)
    if d.dice.chance(0.25):
        return Walk((key, item._replace(text=f"{name}[{k}]")), lambda _: f"for {k} in {name}:", v.lo, v.hi)
    items = (item, key) if d.dice.chance(0.5) else (key, item)
    return Walk(
        items,
        lambda left: (
            f"for {k} in {name}:"
            if item.text in left
            else f"for {item.text} in {name}.values():"
            if k in left
            else f"for {k}, {item.text} in {name}.items():"
        ),
        v.lo,
        v.hi,
    )


def walk_while(d: Draft, v: Value) -> Walk:
    """Choose a ``while`` loop that comes to an end."""
    name, lo, hi = v.text, v.lo, v.hi
    if v.type == INT:
        return _count(d, v)
    item_type = INT if v.type == INTS else CHAR if v.type == STR or v.item_hi <= 1 else STR
    size = (1, 1) if item_type == CHAR else (v.item_lo, v.item_hi)
    i, j = d.spare(INDEXES), d.spare(("j", "k", "end"))
    at = Value(f"{name}[{i}]", item_type, *size, flavour=v.flavour)
    index = Value(i, INT, 0, max(0, hi - 1))
    x = d.spare(ITEMS[item_type])
    match d.dice.between(0, 9):
        case 0 | 1 if v.type in (INTS, WORDS):
            pop = d.dice.pick(("pop()", "pop()", "pop(0)"))
            test = d.dice.pick((name, name, f"len({name}) > 0"))
            return Walk(
                (at._replace(text=x),),
                lambda _: f"while {test}:",
                lo,
                hi,
                first=(f"{x} = {name}.{pop}",),
                spent=(name,),
            )
        case 2 | 3:
            test = d.dice.pick((f"{i} >= 0", f"{i} >= 0", f"{i} > 0"))
            return Walk(
                (at, index),
                lambda _: f"while {test}:",
                max(0, lo - 1),
                hi,
                before=(f"{i} = len({name}) - 1",),
                last=(f"{i} -= 1",),
                spent=(i,),
            )
        case 4 | 5 if j != i:
            both = (at, Value(f"{name}[{j}]", item_type, *size, flavour=v.flavour))
            return Walk(
                both,
                lambda _: f"while {i} < {j}:",
                lo // 2,
                hi // 2,
                before=(f"{i}, {j} = 0, len({name}) - 1",),
                last=(f"{i} += 1", f"{j} -= 1"),
                spent=(i, j),
            )
    step = d.dice.pick((1, 1, 1, 2))
    start = 1 if lo > 1 and d.dice.chance(0.15) else 0
    return Walk(
        (at, index),
        lambda _: f"while {i} < len({name}):",
        max(0, lo - start) // step,
        (hi - start + step - 1) // step,
        before=(f"{i} = {start}",),
        last=(f"{i} += {step}",),
        spent=(i,),
    )


def _count(d: Draft, v: Value) -> Walk:
    name, lo, hi = v.text, v.lo, v.hi
    match d.dice.between(0, 5):
        case 0 | 1 if d.widen(v, 12, 999):
            return Walk(
                (Value(f"{name} % 10", INT, 0, 9, rank=PRODUCT),),
                lambda _: f"while {name} > 0:" if d.dice.chance(0.7) else f"while {name}:",
                2,
                3,
                last=(f"{name} //= 10",),
                spent=(name,),
            )
        case 2 if lo >= 1:
            return Walk(
                (v,),
                lambda _: f"while {name} > 1:",
                0,
                hi.bit_length(),
                last=(f"{name} //= 2",),
                spent=(name,),
            )
        case 3 if lo >= 1:
            x = d.spare(("x", "i", "p", "cur"))
            return Walk(
                (Value(x, INT, 1, hi),),
                lambda _: f"while {x} <= {name}:",
                1,
                hi.bit_length(),
                before=(f"{x} = 1",),
                last=(f"{x} *= 2",),
                spent=(x,),
            )
        case 4:
            i = d.spare(("i", "j", "x"))
            step = d.dice.pick((1, 1, 2, 3))
            start = d.dice.pick((0, 1, 1))
            return Walk(
                (Value(i, INT, start, max(start, hi - 1)),),
                lambda _: f"while {i} < {name}:",
                max(0, lo - start) // step,
                max(0, (hi - start + step - 1) // step),
                before=(f"{i} = {start}",),
                last=(f"{i} += {step}",),
                spent=(i,),
            )
    step = d.dice.pick((1, 1, 2, 2, 3))
    return Walk(
        (v._replace(lo=1, hi=max(1, hi)),),
        lambda _: f"while {name} > 0:",
        max(0, lo) // step,
        max(0, (hi + step - 1) // step),
        last=(f"{name} -= {step}",),
        spent=(name,),
    )
