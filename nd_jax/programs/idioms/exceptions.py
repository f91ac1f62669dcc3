"""Statements that raise and catch."""

from nd_jax.programs.idioms.conditions import condition
from nd_jax.programs.idioms.conversions import expression
from nd_jax.programs.idioms.draft import Block, Draft
from nd_jax.programs.idioms.expressions import number
from nd_jax.programs.idioms.values import ATOM, BUSY, CHAR, DICT, INT, INTS, LARGEST, STR, WORDS, Value
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


def handled(d: Draft) -> None:
    """Raise for some inputs, and handle it with more than one clause."""
    d.dice.pick((_clauses, _clauses, _own_class, _in_loop))(d)


def _risky(d: Draft) -> tuple[str, str, Value] | None:
    """Choose an operation that fails for some inputs: (text, the exception, what it gives)."""
    v = d.want(d.dice.pick((INTS, STR, DICT)))
    if v is None:
        return None
    if v.type == INTS:
        at = d.number(max(0, v.lo - 1), v.hi, v.text)
        return f"{v.text}[{at.text}]", "IndexError", number("", v.item_lo, v.item_hi)
    if v.type == STR:
        return f"{v.text}.index({d.dice.pick(LETTERS[:6])!r})", "ValueError", number("", 0, v.hi)
    key = d.dice.pick(KEY_SETS[int(v.flavour)] if v.flavour.isdigit() else ("a", "x"))
    return f"{v.text}[{key!r}]", "KeyError", number("", v.item_lo, v.item_hi)


def _clauses(d: Draft) -> None:
    risky = _risky(d)
    if risky is None:
        attempt(d)
        return
    text, error, made = risky
    name = d.spare(LOCALS[INT])
    log = d.spare(("log", "steps", "events"))
    d.put(log, Value("[]", BUSY))
    divisor = d.number(0, 2) if d.dice.chance(0.5) else None
    with d.block("try:"):
        d.line(f"{name} = {text}{f' // {divisor.text}' if divisor else ''}")
        if d.dice.chance(0.4):
            d.line(f"{log}.append('ok')")
    caught = d.dice.pick((error, f"({error}, ZeroDivisionError)")) if divisor is None else error
    with d.block(f"except {caught}:"):
        d.line(f"{name} = {d.dice.pick(('0', '-1'))}")
        if d.dice.chance(0.5):
            d.line(f"{log}.append({d.dice.pick(('missing', 'bad', 'none'))!r})")
    if divisor is not None:
        with d.block("except ZeroDivisionError:"):
            d.line(f"{name} = {d.dice.between(1, 9)}")
    elif d.dice.chance(0.4):
        with d.block("else:"):
            d.line(f"{name} += {d.dice.between(1, 3)}")
    if d.dice.chance(0.6):
        with d.block("finally:"):
            d.line(f"{log}.append('done')")
    d.bind(log, Value("", WORDS, 0, 3, 2, 7, "word"))
    d.bind(name, number("", min(-1, made.lo), max(9, made.hi + 3)))


def _own_class(d: Draft) -> None:
    v = d.want(d.dice.pick((INT, STR, INTS)))
    assert v is not None
    error = d.dice.pick(("BadInput", "TooLarge", "Rejected", "LimitError"))
    base = d.dice.pick(("Exception", "ValueError"))
    d.module.names.add(error)
    d.module.functions.append(Block(error, f"class {error}({base}):\n    pass\n"))
    h = Draft(d.module, v)
    p = h.parameters[0]
    with h.block(f"if {condition(h, p)}:"):
        h.line(f"raise {error}({d.dice.pick(('bad', 'no', 'limit'))!r})")
    made = expression(h, p, v.type)
    h.give(made)
    name = d.dice.pick([n for n in ("check", "ensure", "accept", "verify") if n not in d.scope])
    h.finish(name)
    result = d.spare(LOCALS[made.type if made.type in LOCALS else STR])
    e = d.spare(("e", "err", "error"))
    call = f"{name}({d.arguments(v, h)})"
    with d.block("try:"):
        d.line(f"{result} = {call}")
    with d.block(f"except {error} as {e}:"):
        if made.type in (STR, CHAR) and d.dice.chance(0.6):
            d.line(f"{result} = str({e})")
        else:
            if d.dice.chance(0.5):
                d.line(f"return str({e})")
            else:
                d.line(f"return {error}.__name__ + str({e})")
    d.bind(result, made._replace(lo=min(made.lo, 0), rank=ATOM))


def _in_loop(d: Draft) -> None:
    v = d.want(WORDS)
    assert v is not None
    x = d.spare(("w", "word", "part", "s"))
    total, bad = d.spare(("total", "count", "good")), d.spare(("bad", "errors", "skipped"))
    d.put(total, Value("0", BUSY))
    d.put(bad, Value(d.dice.pick(("[]", "0")), BUSY))
    counted = d.lines[-1].endswith("0")
    risky = d.dice.pick(((f"int({x})", "ValueError"), (f"{x}[{d.dice.between(1, 3)}]", "IndexError"),
                         (f"{x}.index({d.dice.pick(LETTERS[:5])!r})", "ValueError")))  # fmt: skip
    with d.block(f"for {x} in {v.text}:"):
        with d.block("try:"):
            d.line(f"{total} += {risky[0]}" if "[" not in risky[0] else f"{total} += {risky[0]} in 'aeiou'")
        with d.block(f"except {risky[1]}:"):
            d.line(f"{bad} += 1" if counted else f"{bad}.append({x})")
    d.bind(total, number("", 0, LARGEST))
    d.bind(bad, number("", 0, v.hi) if counted else v._replace(lo=0))
