"""Straight-line statements and branches: each reads a variable and leaves one unread."""

from nd_jax.programs.idioms.conditions import condition
from nd_jax.programs.idioms.conversions import another, convert, expression, target_of
from nd_jax.programs.idioms.draft import Draft
from nd_jax.programs.idioms.expressions import number
from nd_jax.programs.idioms.pairs import combine
from nd_jax.programs.idioms.values import (
    ATOM,
    BOOL,
    CHAR,
    DICT,
    INT,
    INTS,
    LARGEST,
    LONGEST,
    STR,
    TUPLE,
    WORDS,
    Value,
    Weighted,
    hull,
)
from nd_jax.programs.idioms.words import KEY_SETS, LETTERS, LOCALS

_STRAIGHT = ("assign", 3), ("rebind", 2.5), ("mutate", 3), ("with", 2)
_STEPS = {
    False: Weighted(*_STRAIGHT),
    True: Weighted(*_STRAIGHT, ("if", 1.4), ("choose", 1.1), ("label", 0.6)),
}


def step(d: Draft, v: Value) -> Value:
    """Write one statement, or one branch, that makes something of a variable."""
    match d.dice.draw(_STEPS[d.module.branches]):
        case "rebind" if v.type not in (BOOL, TUPLE):
            made = convert(d, v, v.type)
            if made.type == v.type and made.text != v.text:
                return d.put(v.text, made)
        case "mutate" if v.type in (INTS, WORDS, DICT, INT, STR):
            return mutate(d, v)
        case "if" if v.type in (INT, STR, INTS, WORDS):
            return change_if(d, v)
        case "choose":
            return choose(d, v)
        case "label":
            return label(d, v)
        case "with":
            other = d.want(d.dice.pick((INT, INT, v.type if v.type in (STR, INTS, WORDS) else INT)))
            if other is not None and other.text != v.text:
                made = combine(d, v, other)
                if made.type != TUPLE:
                    return d.let(made)
    if v.type == TUPLE:
        return v
    made = convert(d, v, target_of(d, v))
    return v if made.text == v.text else d.let(made)


def mutate(d: Draft, v: Value) -> Value:
    """Change a variable in place: augmented assignment, or a method of a list or dict."""
    xs = v.text
    if v.type == INT:
        sign = d.dice.pick("++-")
        c = d.number(1, 5, v.text)
        lo, hi = (v.lo + c.lo, v.hi + c.hi) if sign == "+" else (v.lo - c.hi, v.hi - c.lo)
        return d.change(v, f"{xs} {sign}= {c.text}", number(xs, lo, hi))
    if v.type == STR:
        if v.hi < LONGEST - 2 and d.dice.chance(0.6):
            mark = d.dice.pick(("!", "?", "-", "s", "x", "ab", "_"))
            return d.change(
                v, f"{xs} += {mark!r}", v._replace(lo=v.lo + len(mark), hi=v.hi + len(mark), flavour="any")
            )
        return d.put(xs, expression(d, v, STR))
    if v.type == DICT:
        return _mutate_dict(d, v)
    item = (
        d.number(0, 9, v.text)
        if v.type == INTS
        else Value(repr(d.dice.pick((*LETTERS[:8], "-", "end"))), STR, 1, 3)
    )
    wider = v._replace(item_lo=min(v.item_lo, item.lo), item_hi=max(v.item_hi, item.hi), flavour="any")
    longer = wider._replace(lo=v.lo + 1, hi=v.hi + 1)
    shorter = v._replace(lo=v.lo - 1, hi=v.hi - 1)
    match d.dice.between(0, 13):
        case 0 | 1 if v.hi < LONGEST // 2:
            return d.change(v, f"{xs}.append({item.text})", longer)
        case 2 if v.hi < LONGEST // 2:
            return d.change(v, f"{xs}.insert({d.dice.pick((0, 0, 1))}, {item.text})", longer)
        case 3 | 4:
            return d.change(v, f"{xs}.sort({'reverse=True' if d.dice.chance(0.3) else ''})", v)
        case 5 | 6:
            return d.change(v, f"{xs}.reverse()", v)
        case 7 if v.lo >= 2:
            return d.change(v, f"{xs}.pop({d.dice.pick(('', '', '0', '1'))})", shorter)
        case 8 if v.lo >= 1:
            return d.change(v, f"{xs}[{d.dice.pick((0, -1))}] = {item.text}", wider)
        case 9 if v.lo >= 2:
            a, b = d.dice.pick((("0", "-1"), ("0", "1")))
            return d.change(v, f"{xs}[{a}], {xs}[{b}] = {xs}[{b}], {xs}[{a}]", v)
        case 10 if v.lo >= 2:
            return d.change(
                v, d.dice.pick((f"del {xs}[0]", f"del {xs}[-1]", f"{xs}.remove({xs}[0])")), shorter
            )
        case 11 if v.hi <= 4:
            text = d.dice.pick(
                (f"{xs}.extend({xs}[:1])", f"{xs} += {xs}[-1:]", f"{xs}.extend([{item.text}])")
            )
            return d.change(v, text, longer._replace(lo=v.lo))
        case 12 if v.type == INTS and v.lo >= 1 and v.item_hi < LARGEST // 3:
            c = d.number(1, 4, v.text)
            at = d.dice.pick((0, -1))
            return d.change(v, f"{xs}[{at}] += {c.text}", v._replace(item_hi=v.item_hi + c.hi))
        case 13 if d.module.branches:
            with d.block(f"if {item.text} in {xs}:"):
                d.line(f"{xs}.remove({item.text})")
            return d.bind(xs, v._replace(lo=max(0, v.lo - 1)))
    return d.change(v, f"{xs}.reverse()", v)


def _mutate_dict(d: Draft, v: Value) -> Value:
    s = v.text
    key = repr(d.dice.pick(KEY_SETS[int(v.flavour)] if v.flavour.isdigit() else ("a", "b", "x")))
    c = d.number(0, 9, v.text)
    wider = v._replace(hi=v.hi + 1, item_lo=min(v.item_lo, c.lo), item_hi=max(v.item_hi, c.hi))
    match d.dice.between(0, 6):
        case 0:
            return d.change(
                v, f"{s}.pop({key}, {d.dice.pick(('None', '0'))})", v._replace(lo=max(0, v.lo - 1))
            )
        case 1:
            return d.change(v, f"{s}.update({{{key}: {c.text}}})", wider)
        case 2:
            return d.change(v, f"{s}.setdefault({key}, {c.text})", wider)
        case 3 | 4 if v.item_hi < LARGEST // 3:
            after = wider._replace(item_hi=max(c.hi, v.item_hi) + v.item_hi)
            return d.change(v, f"{s}[{key}] = {s}.get({key}, {c.text}) + {d.dice.between(1, 3)}", after)
        case 5 if d.module.branches:
            with d.block(f"if {key} in {s}:"):
                d.line(d.dice.pick((f"del {s}[{key}]", f"{s}[{key}] = {c.text}")))
            return d.bind(s, wider._replace(lo=max(0, v.lo - 1)))
    return d.change(v, f"{s}[{key}] = {c.text}", wider)


def change_if(d: Draft, v: Value) -> Value:
    """Change a variable under a condition, and perhaps otherwise too."""
    first = len(d.lines)
    with d.block(f"if {condition(d, v)}:"):
        one = _change(d, v)
    if not d.dice.chance(0.45):
        return d.bind(v.text, hull(v, one))
    second = len(d.lines)
    with d.block("else:"):
        two = _change(d, v)
    d.drop_repeated(first, second)
    return d.bind(v.text, hull(hull(v, one), two))


def _change(d: Draft, v: Value) -> Value:
    if v.type in (INTS, WORDS) and v.lo >= 1 and d.dice.chance(0.6):
        simple = (f"{v.text}.reverse()", f"{v.text}.sort()", f"{v.text}.pop()", f"{v.text}.pop(0)")
        text = d.dice.pick(simple)
        d.line(text)
        return v._replace(lo=v.lo - 1)
    if v.type == INT and d.dice.chance(0.5):
        sign, c = d.dice.pick("+-+"), d.number(1, 4, v.text)
        d.line(f"{v.text} {sign}= {c.text}")
        return v._replace(lo=v.lo - c.hi, hi=v.hi + c.hi)
    made = convert(d, v, v.type)
    d.line(f"{v.text} = {made.text}")
    return made._replace(text=v.text, rank=ATOM)


def choose(d: Draft, v: Value) -> Value:
    """Give a new variable one of two values, by a branch."""
    target = target_of(d, v)
    target = target if target in (INT, STR, INTS, WORDS) else INT
    name = d.spare(LOCALS[target])
    with d.block(f"if {condition(d, v)}:"):
        one = convert(d, v, target)
        d.line(f"{name} = {one.text}")
    other = d.variables(target)
    with d.block("else:"):
        two = another(d, d.dice.pick(other) if other and d.dice.chance(0.4) else v, one)
        d.line(f"{name} = {two.text}")
    return d.bind(name, hull(one, two))


def label(d: Draft, v: Value) -> Value:
    """Give a new variable one of three values, by a longer branch."""
    names = d.dice.pick(
        (("low", "mid", "high"), ("a", "b", "c"), ("no", "some", "yes"), ("1", "2", "3"), ("0", "5", "10"))
    )
    kind = INT if names[0].isdigit() else STR
    texts = names if kind == INT else [repr(name) for name in names]
    name = d.spare(
        ("level", "kind", "grade", "label", "size") if kind == STR else ("rate", "step", "level", "bonus")
    )
    with d.block(f"if {condition(d, v)}:"):
        d.line(f"{name} = {texts[0]}")
    with d.block(f"elif {condition(d, v)}:"):
        d.line(f"{name} = {texts[1]}")
    with d.block("else:"):
        d.line(f"{name} = {texts[2]}")
    if d.dice.chance(0.6) and v.type in (INT, STR):
        d.bind(v.text, v)  # the value itself is of use too
    return d.bind(name, Value(name, kind, 0, 10) if kind == INT else Value(name, STR, 1, 4, flavour="word"))


def guard(d: Draft, v: Value) -> None:
    """Return early if an input is of a certain kind."""
    with d.block(f"if {condition(d, v)}:"):
        d.give_early(v if d.dice.chance(0.6) else Value("", ""))
    d.bind(v.text, v)


def give_either(d: Draft, v: Value) -> None:
    """End the function with a return under a condition and one without."""
    one = convert(d, v, target_of(d, v) if v.type != CHAR else STR)
    with d.block(f"if {condition(d, v)}:"):
        d.give(one)
    d.give(another(d, v, one) if d.dice.chance(0.6) or v.type != one.type else v)
