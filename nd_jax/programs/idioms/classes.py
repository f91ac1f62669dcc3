"""Small classes: one that adds up, a stack, and one that inherits."""

from nd_jax.programs.idioms.conditions import condition
from nd_jax.programs.idioms.conversions import expression
from nd_jax.programs.idioms.draft import Block, Draft
from nd_jax.programs.idioms.expressions import number
from nd_jax.programs.idioms.values import BUSY, INT, INTS, LARGEST, STR, WORDS, Value
from nd_jax.programs.idioms.words import ITEMS

_COUNTERS = ("Counter", "Account", "Meter", "Tally", "Score", "Tank")
_STACKS = ("Stack", "Box", "Queue", "Bag", "Shelf")
_SPECIAL = ("Double", "Strict", "Special", "Limited")


def with_class(d: Draft) -> None:
    """Write a class, and use it on an input."""
    d.dice.pick((_adder, _adder, _stack, _inherited))(d)


def _method(d: Draft, name: str, item: Value) -> Draft:
    """Start a method whose argument is an item."""
    h = Draft(d.module, item)
    h.name = name
    return h


def _write(d: Draft, name: str, fields: list[str], methods: list[Draft], base: str = "") -> None:
    """Write a class; each field is a statement of ``__init__``, with the parameters it names in front."""
    lines = [f"class {name}{f'({base})' if base else ''}:"]
    if fields:
        parameters = [
            field.rpartition(" = ")[2] for field in fields if field.rpartition(" = ")[2].isidentifier()
        ]
        lines += [f"    def __init__({', '.join(['self', *parameters])}):"]
        lines += [f"        {field}" for field in fields]
    for method in methods:
        parameters = ", ".join(["self", *(p.text for p in method.parameters)])
        lines += [""] if len(lines) > 1 else []
        lines += [f"    def {method.name}({parameters}):", *(f"    {line}" for line in method.lines)]
    d.module.names.add(name)
    d.module.functions.append(Block(name, "\n".join(lines) + "\n"))


def _items(d: Draft) -> tuple[Value, Value]:
    """Choose a list to walk over; gives it and its item."""
    v = d.want(d.dice.pick((INTS, INTS, WORDS)))
    assert v is not None
    kind = INT if v.type == INTS else STR
    return v, Value(d.spare(ITEMS[kind]), kind, v.item_lo, v.item_hi, flavour=v.flavour)


def _amount(h: Draft, item: Value, rounds: int) -> Value:
    """Write an integer made of an item, so small that the sum over all rounds is small too."""
    made = expression(h, item, INT)
    if max(abs(made.lo), abs(made.hi)) * rounds > LARGEST:
        return number(f"{made.grouped} % 10", 0, 9)
    return made


def _adder(d: Draft) -> None:
    v, item = _items(d)
    name, field = d.dice.pick(_COUNTERS), d.dice.pick(("total", "value", "count", "level"))
    own = f"self.{field}"
    h = _method(d, d.dice.pick(("add", "feed", "record", "push")), item)
    p = h.parameters[0]
    made = _amount(h, p, v.hi)
    sign = h.dice.pick(("+=", "+=", "-="))
    told = h.dice.chance(0.3)
    if h.dice.chance(0.5):
        with h.block(f"if {condition(h, p)}:"):
            h.line(f"{own} {sign} {made.text}")
        if h.dice.chance(0.3):
            with h.block("else:"):
                h.line(f"{own} = {h.dice.pick(('0', '1', f'max({own}, 0)'))}")
    else:
        h.line(f"{own} {sign} {made.text}")
    if told:
        h.line(f"return {own}")
    start = d.number(0, 5, v.text)
    fields = [f"{own} = start"]
    methods = [h]
    shown = "" if d.dice.chance(0.6) else d.dice.pick(("__repr__", "__str__", "__len__"))
    if shown:
        m = Draft(d.module)
        m.name = shown
        m.line(f"return {'max(0, ' + own + ')' if shown == '__len__' else f'f{chr(39)}<{{{own}}}>{chr(39)}'}")
        methods.append(m)
    _write(d, name, fields, methods)
    o = d.put(
        d.spare((name.lower(), "obj", name[0].lower(), "one")), Value(f"{name}({start.text})", BUSY)
    ).text
    calls = _extra(d, h)
    if told:
        out = d.spare(("steps", "history", "levels", "out"))
        d.line(f"{out} = [{o}.{h.name}({item.text}{calls}) for {item.text} in {v.text}]")
        d.bind(out, Value("", INTS, v.lo, v.hi, -LARGEST, LARGEST))
    else:
        with d.block(f"for {item.text} in {v.text}:"):
            d.line(f"{o}.{h.name}({item.text}{calls})")
    d.unread.pop(item.text, None)
    result = d.spare(("result", "res", "last"))
    match shown:
        case "__len__":
            d.put(result, number(f"len({o})", 0, LARGEST))
        case "":
            d.put(result, number(f"{o}.{field}", -LARGEST, LARGEST))
        case _:
            call = f"repr({o})" if shown == "__repr__" else f"str({o})"
            d.put(result, Value(call, STR, 3, 5, flavour="any"))


def _extra(d: Draft, h: Draft) -> str:
    """Write the arguments of a method beyond the first."""
    texts = d.arguments(h.parameters[0], h).partition(", ")
    return texts[1] + texts[2]


def _stack(d: Draft) -> None:
    v, item = _items(d)
    name, field = d.dice.pick(_STACKS), d.dice.pick(("items", "data", "stack"))
    own = f"self.{field}"
    push = _method(d, d.dice.pick(("push", "put", "add")), item)
    p = push.parameters[0]
    test = condition(push, p) if push.dice.chance(0.5) else f"len({own}) < {push.dice.between(2, 3)}"
    if push.dice.chance(0.6):
        with push.block(f"if {test}:"):
            push.line(f"{own}.append({p.text})")
    else:
        push.line(f"{own}.append({p.text})")
    pop = Draft(d.module)
    pop.name = d.dice.pick(("pop", "take", "get"))
    empty = "0" if item.type == INT else "''"
    which = d.dice.pick(("", "0"))
    if d.dice.chance(0.5):
        with pop.block(f"if not {own}:"):
            pop.line(f"return {empty}")
        pop.line(f"return {own}.pop({which})")
    else:
        pop.line(f"return {own}.pop({which}) if {own} else {empty}")
    _write(d, name, [f"{own} = []"], [push, pop])
    o = d.put(d.spare((name.lower(), "obj", name[0].lower())), Value(f"{name}()", BUSY)).text
    calls = _extra(d, push)
    with d.block(f"for {item.text} in {v.text}:"):
        d.line(f"{o}.{push.name}({item.text}{calls})")
    d.unread.pop(item.text, None)
    d.put(d.spare(("top", "first", "last")), item._replace(text=f"{o}.{pop.name}()", lo=min(0, item.lo)))
    if d.dice.chance(0.5):
        kind = INTS if item.type == INT else WORDS
        rest = Value(f"{o}.{field}", kind, 0, v.hi, min(0, item.lo), item.hi, v.flavour)
        d.put(d.spare(("rest", "left")), rest)


def _inherited(d: Draft) -> None:
    n, k = d.want(INT), d.want(INT)
    assert n is not None
    base, name = d.dice.pick(("Shape", "Rule", "Item", "Price")), d.dice.pick(_SPECIAL)
    field, method = d.dice.pick(("size", "value", "base")), d.dice.pick(("apply", "cost", "area"))
    own = Value(f"self.{field}", INT, n.lo, n.hi)
    first, second = Draft(d.module), Draft(d.module)
    for m in (first, second):
        m.name = method
        m.parameters = []
    one, two = _closed(first, own), _closed(second, own)
    first.line(f"return {one}")
    if d.dice.chance(0.5):
        second.line(f"return super().{method}() {d.dice.pick('+-')} {d.dice.between(1, 5)}")
    else:
        with second.block(
            f"if {own.text} {d.dice.pick('<>')} {d.dice.between(n.lo + 1, max(n.lo + 1, n.hi - 1))}:"
        ):
            second.line(f"return super().{method}()")
        second.line(f"return {two}")
    _write(d, base, [f"{own.text} = {field}"], [first])
    _write(d, f"{name}{base}", [], [second], base)
    result = d.spare(("result", "res", "both", "out"))
    texts = f"{base}({n.text}).{method}()", f"{name}{base}({(k or n).text}).{method}()"
    if d.dice.chance(0.5):
        d.line(f"{result} = [{texts[0]}, {texts[1]}]")
        d.bind(result, Value("", INTS, 2, 2, -LARGEST, LARGEST))
    else:
        d.put(result, number(f"{texts[0]} {d.dice.pick('+-')} {texts[1]}", -LARGEST, LARGEST))


def _closed(h: Draft, v: Value) -> str:
    """Write an expression that needs nothing but the value."""
    c = h.dice.between(2, 5)
    return h.dice.pick((f"{v.text} * {c}", f"{v.text} + {c}", f"{v.text} // 2 + {c}", f"{c} - {v.text}",
                        f"{v.text} * {v.text} % {c + 5}", f"max({v.text}, {c})"))  # fmt: skip
