"""Text made of values: f-strings with format specifications, ``%``, ``format``."""

from nd_jax.programs.idioms.draft import Draft
from nd_jax.programs.idioms.values import INT, STR, Value
from nd_jax.programs.idioms.words import ITEMS

_ON_INT = (
    "{x:03d}",
    "{x:>4}",
    "{x:<4}|",
    "{x:b}",
    "{x:x}",
    "{x:+d}",
    "{x:04b}",
    "{x:#x}",
    "{x:.1f}",
    "{x:^5}",
)
_ON_STR = ("{x:>8}", "{x:<8}|", "{x:^9}", "{x!r}", "{x:*>7}", "{x:-<6}", "{x:.2}", "{x:_^8}")


def formatted(d: Draft) -> None:
    """Format one input or two, or each item of a list."""
    match d.dice.between(0, 4):
        case 0 | 1:
            d.let(_one(d))
        case 2 | 3:
            d.let(_two(d))
        case _:
            _each(d)


def _one(d: Draft) -> Value:
    v = d.want(d.dice.pick((INT, STR)))
    assert v is not None
    hole = d.dice.pick(_ON_INT if v.type == INT else _ON_STR).replace("x", v.text, 1)
    before, after = d.dice.pick((("", ""), ("<", ">"), ("[", "]"), ("n=", ""), ("#", "")))
    return Value(f"f'{before}{hole}{after}'", STR, 1, max(9, v.hi if v.type == STR else 0) + 2, flavour="any")


def _two(d: Draft) -> Value:
    n, s = d.want(INT), d.want(STR)
    if n is None or s is None:
        return _one(d)
    text = d.dice.pick((
        f"f'{{{s.text}}}={{{n.text}:02d}}'", f"f'{{{n.text}:>3}} {{{s.text}}}'",
        f"f'{{{s.text}:>{{{n.text}}}}}'",
        f"'%s-%d' % ({s.text}, {n.text})", f"'%03d:%s' % ({n.text}, {s.text})",
        f"'%s' % {s.text} + '%x' % {n.text}",
        f"'{{}}:{{:>3}}'.format({s.text}, {n.text})", f"'{{1}}/{{0}}'.format({s.text}, {n.text})",
        f"'{{a}}{{b:02d}}'.format(a={s.text}, b={n.text})", f"f'{{{n.text} * 2}}{{{s.text}.upper()}}'",
    ))  # fmt: skip
    return Value(text, STR, s.lo + 1, max(s.hi, n.hi) + 5, flavour="any")


def _each(d: Draft) -> None:
    xs = d.want("ints")
    assert xs is not None
    x = d.spare(ITEMS[INT])
    hole = d.dice.pick(_ON_INT[:6]).replace("x", x, 1)
    mark = d.dice.pick((" ", ",", "-", "|"))
    if d.dice.chance(0.5):
        text = f"{mark!r}.join(f'{hole}' for {x} in {xs.text})"
    else:
        text = f"{mark!r}.join([f'{hole}' for {x} in {xs.text}])"
    d.let(Value(text, STR, 0, 6 * xs.hi, flavour="any"))
