"""Loops: over something, perhaps under a condition, into an accumulator."""

from nd_jax.programs.idioms.conditions import condition
from nd_jax.programs.idioms.conversions import convert
from nd_jax.programs.idioms.draft import Draft
from nd_jax.programs.idioms.growth import Growth
from nd_jax.programs.idioms.values import BOOL, BUSY, CHAR, DICT, INT, INTS, STR, WORDS, Value, Weighted
from nd_jax.programs.idioms.walks import Walk, looping, walk_over, walk_while
from nd_jax.programs.idioms.words import ACCUMULATORS, ITEMS

_SHAPES = Weighted(
    ("plain", 4.6), ("if", 1.8), ("else", 1.1), ("continue", 0.5), ("temporary", 2.2), ("break", 0.6),
    ("elif", 0.4),
)  # fmt: skip
_STRAIGHT = Weighted(("plain", 4.6), ("temporary", 2.2))
_INTO: dict[str, Weighted[str]] = {
    INT: Weighted((INT, 5), (INTS, 4), (STR, 1)),
    CHAR: Weighted((INT, 2.5), (STR, 5), (WORDS, 1.2), (DICT, 1.5)),
    STR: Weighted((INT, 2), (STR, 2), (WORDS, 3), (DICT, 1.2)),
}


def for_each(d: Draft, source: Value) -> None:
    """Walk over a value with ``for``."""
    accumulate(d, walk_over(d, source))


def while_left(d: Draft, source: Value) -> None:
    """Walk over a value with ``while``."""
    accumulate(d, walk_while(d, source))


def nested(d: Draft, source: Value) -> None:
    """Walk over a value once for every item of a short range."""
    times = d.number(2, 3)
    outer = Value(d.spare(("i", "j", "a")), INT, 0, times.hi - 1)
    walk = walk_over(d, source)
    items, rounds = (*walk.items, outer), walk.hi * times.hi
    accumulate(d, walk._replace(items=items, hi=rounds, outer=(outer.text, times.text)))


def accumulate(d: Draft, walk: Walk) -> None:
    """Write an accumulator's start, now and then a second one's, the loop and its body."""
    growths = [_start(d, walk)]
    if d.dice.chance(0.12) and not d.is_helper:
        growths.append(_start(d, walk))
    with looping(d, walk):
        _body(d, walk, growths)
    for growth in growths:
        d.bind(growth.name, growth.value())


def _start(d: Draft, walk: Walk) -> Growth:
    kind = d.dice.draw(_INTO[walk.items[0].type])
    start = 1 if kind == INT and walk.hi <= 3 and d.dice.chance(0.12) else 0
    first = {INT: str(start), STR: "''", INTS: "[]", WORDS: "[]", DICT: "{}"}[kind]
    name = d.spare(ACCUMULATORS[kind])
    d.put(name, Value(first, BUSY))
    return Growth(d, walk, name, kind, start)


def _body(d: Draft, walk: Walk, growths: list[Growth]) -> None:
    main = walk.items[0]
    tested = d.dice.pick(walk.items) if d.dice.chance(0.6) else main
    growth, other = growths[0], growths[-1]
    shape = d.dice.draw(_SHAPES if d.module.branches else _STRAIGHT)
    if walk.last and shape == "continue":
        shape = "if"
    if other is not growth and shape != "else":
        growth.update(main)
        growth = other
    match shape:
        case "if":
            with d.block(f"if {item_test(d, tested)}:"):
                growth.update(main)
        case "else":
            first = len(d.lines)
            with d.block(f"if {item_test(d, tested)}:"):
                growth.update(main)
            second = len(d.lines)
            with d.block("else:"):
                other.update(main)
            d.drop_repeated(first, second)
        case "elif":
            with d.block(f"if {condition(d, tested)}:"):
                growth.update(main)
            with d.block(f"elif {condition(d, d.dice.pick(walk.items))}:"):
                growth.update(main)
        case "continue":
            with d.block(f"if {item_test(d, tested)}:"):
                d.line("continue")
            growth.update(main)
        case "temporary":
            _with_temporary(d, main, growth)
        case "break":
            growth.update(main)
            so_far = growth.value()
            with d.block(f"if {condition(d, so_far._replace(lo=min(so_far.lo + 1, so_far.hi)))}:"):
                d.line("break")
        case _:
            growth.update(main)


def _with_temporary(d: Draft, main: Value, growth: Growth) -> None:
    """Give something made of the item a name, then use that."""
    made = convert(d, main, main.type)
    if made.text == main.text:
        growth.update(main)
        return
    temporary = d.put(d.spare((*ITEMS[made.type], "y", "t")), made)
    if d.module.branches and d.dice.chance(0.3):
        with d.block(f"if {condition(d, temporary)}:"):
            growth.update(temporary)
    else:
        growth.update(temporary)
    d.scope[temporary.text] = Value(temporary.text, BUSY)


def item_test(d: Draft, v: Value) -> str:
    """Test a loop's item, by a predicate function now and then."""
    if d.may_call_helper and d.dice.chance(d.module.predicate_rate):
        return d.module.make_helper(d, v, BOOL).text
    return condition(d, v)
