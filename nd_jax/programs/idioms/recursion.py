"""Functions that call themselves on something smaller."""

from nd_jax.programs.idioms.conditions import condition
from nd_jax.programs.idioms.conversions import expression
from nd_jax.programs.idioms.draft import Draft
from nd_jax.programs.idioms.expressions import number
from nd_jax.programs.idioms.values import ATOM, INT, INTS, LARGEST, STR, Value

_NAMES = ("rec", "solve", "walk", "helper", "go", "fold")


def recursive(d: Draft) -> None:
    """Write a function that calls itself, and call it."""
    d.dice.pick((_on_list, _on_list, _on_string, _on_number, _on_number, _euclid))(d)


def _begin(d: Draft, kind: str) -> tuple[Value, Draft, str]:
    v = d.want(kind)
    assert v is not None
    name = d.dice.pick([n for n in _NAMES if n not in d.scope and n not in d.module.names])
    return v, Draft(d.module, v), name


def _end(d: Draft, v: Value, h: Draft, name: str, made: Value) -> None:
    h.unread.clear()
    h.result = made
    h.finish(name)
    d.let(made._replace(text=f"{name}({d.arguments(v, h)})", rank=ATOM))


def _on_list(d: Draft) -> None:
    v, h, name = _begin(d, INTS)
    p = h.parameters[0]
    xs = p.text
    head = Value(f"{xs}[0]", INT, v.item_lo, v.item_hi)
    with h.block(f"if {h.dice.pick((f'not {xs}', f'len({xs}) == 0', f'not {xs}'))}:"):
        base = h.dice.pick(("0", "0", "[]"))
        h.line(f"return {base}")
    rest = f"{name}({xs}[1:])"
    made = expression(h, head, INT)
    if max(abs(made.lo), abs(made.hi)) * v.hi > LARGEST:
        made = head
    test = condition(h, head) if h.dice.chance(0.6) else ""
    if len(h.parameters) > 1:  # a constant that became a parameter is handed on
        rest = f"{name}({xs}[1:], {', '.join(q.text for q in h.parameters[1:])})"
    joined = f"{made.term} + {rest}" if base == "0" else f"[{made.text}] + {rest}"
    if test:
        with h.block(f"if {test}:"):
            h.line(f"return {joined}")
        h.line(f"return {rest}")
    else:
        h.line(f"return {joined}")
    lo, hi = min(0, made.lo), max(0, made.hi)
    result = number("", lo * v.hi, hi * v.hi) if base == "0" else Value("", INTS, 0, v.hi, made.lo, made.hi)
    _end(d, v, h, name, result)


def _on_string(d: Draft) -> None:
    v, h, name = _begin(d, STR)
    s = h.parameters[0].text
    stop = h.dice.pick((f"not {s}", f"len({s}) < 2", f"{s} == ''"))
    with h.block(f"if {stop}:"):
        h.line(f"return {s}")
    first, rest, last = f"{s}[0]", f"{name}({s}[1:])", f"{s}[-1]"
    forms = [f"{rest} + {first}", f"{first} + '-' + {rest}", f"{first}.upper() + {rest}"]
    if stop == f"len({s}) < 2":
        forms += [f"{last} + {name}({s}[1:-1]) + {first}", f"{first} + {name}({s}[1:-1])"]
    if h.dice.chance(0.6):
        with h.block(f"if {condition(h, Value(first, 'char', 1, 1, flavour=v.flavour))}:"):
            h.line(f"return {rest}")
    if len(h.parameters) > 1:
        more = ", ".join(q.text for q in h.parameters[1:])
        h.lines = [line.replace("[1:])", f"[1:], {more})") for line in h.lines]
        forms = [f.replace(":])", f":], {more})").replace(":-1])", f":-1], {more})") for f in forms]
    h.line(f"return {h.dice.pick(forms)}")
    _end(d, v, h, name, Value("", STR, 0, 2 * v.hi, flavour="any"))


def _on_number(d: Draft) -> None:
    v, h, name = _begin(d, INT)
    n = h.parameters[0].text
    match h.dice.between(0, 4):
        case 0:  # digits
            with h.block(f"if {n} < {(base := h.dice.pick((10, 2, 3)))}:"):
                h.line(f"return {n}")
            h.line(f"return {n} % {base} + {name}({n} // {base})")
            made = number("", 0, max(9, v.hi))
        case 1:  # two calls
            with h.block(f"if {n} <= 1:"):
                h.line(f"return {h.dice.pick((n, '1', '2'))}")
            h.line(f"return {name}({n} - 2) + {name}({n} // 2)")
            made = number("", min(0, v.lo), LARGEST)
        case 2:  # text
            with h.block(f"if {n} <= 0:"):
                h.line("return ''")
            digit = h.dice.pick(("2", "2", "3"))
            h.line(f"return {name}({n} // {digit}) + str({n} % {digit})")
            made = Value("", STR, 0, 7, flavour="digits")
        case 3:  # steps
            with h.block(f"if {n} <= 1:"):
                h.line("return 0")
            c = h.dice.between(1, 3)
            with h.block(f"if {n} % 2 == 0:"):
                h.line(f"return {c} + {name}({n} // 2)")
            h.line(f"return {h.dice.between(1, 2)} + {name}({n} - 1)")
            made = number("", 0, 40)
        case _:
            with h.block(f"if {n} {h.dice.pick(('<=', '<'))} {h.dice.between(0, 1)}:"):
                h.line(f"return {h.dice.between(0, 2)}")
            c = h.dice.between(1, 3)
            h.line(f"return {h.dice.pick((n, f'{n} * {c}', f'{n} % {c + 1}', str(c)))} + {name}({n} - {c})")
            made = number("", 0, LARGEST)
    _end(d, v, h, name, made)


def _euclid(d: Draft) -> None:
    v, h, name = _begin(d, INT)
    other = d.want(INT)
    if other is None or other.text == v.text:
        other = d.number(2, 9, v.text)
    a = h.parameters[0].text
    b = h.spare(("b", "m", "q"))
    h.parameters.append(Value(b, INT, other.lo, other.hi))
    with h.block(f"if {b} {h.dice.pick(('== 0', '<= 1', '<= 0'))}:"):
        h.line(f"return {a}")
    h.line(f"return {h.dice.pick(('', '', '1 + '))}{name}({b}, {a} % {b})")
    h.unread.clear()
    h.result = number("", 0, LARGEST)
    h.finish(name)
    d.let(number(f"{name}({v.text}, {other.text})", 0, LARGEST))
