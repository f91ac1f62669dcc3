"""Helper functions: written when something wants to call one."""

from nd_jax.programs.idioms.conditions import condition
from nd_jax.programs.idioms.conversions import another, expression
from nd_jax.programs.idioms.draft import Draft
from nd_jax.programs.idioms.loops import for_each, while_left
from nd_jax.programs.idioms.pairs import combine
from nd_jax.programs.idioms.values import (
    ATOM,
    BOOL,
    CHAR,
    DICT,
    INT,
    INTS,
    LONGEST,
    STR,
    WORDS,
    Value,
    Weighted,
)
from nd_jax.programs.idioms.words import SHORT_HELPERS

_FORMS = Weighted(("return", 4), ("either", 2), ("local", 2.5), ("loop", 2.5))
_NAMES: dict[str, tuple[str, ...]] = {
    INT: ("scale", "adjust", "score", "step", "value", "weight", "cost", "bump"),
    CHAR: ("mark", "encode", "swap", "convert"),
    STR: ("wrap", "mark", "encode", "tidy", "convert", "shorten", "decorate"),
    INTS: ("trim", "order", "expand", "prepare"),
    WORDS: ("pieces", "split_up", "order", "prepare"),
    DICT: ("tally", "table"),
    BOOL: ("is_ok", "keep", "valid", "is_good", "accept", "fits"),
}


def make(caller: Draft, v: Value, target: str) -> Value:
    """Write a helper function that makes a value of the target type; gives the call of it."""
    caller.module.helpers_left -= 1
    h = Draft(caller.module, v)
    p = h.parameters[0]
    form = h.dice.draw(_FORMS)
    if form == "loop" and (caller.loops or v.type in (CHAR, BOOL) or not 2 <= v.hi <= LONGEST):
        form = "either"
    match form:
        case "loop":
            walk = while_left if h.dice.chance(0.2) and p.type != DICT else for_each
            walk(h, p)
            grown = h.waiting()[-1]
            if grown.type == target:
                h.give(grown)
            else:
                h.give(expression(h, grown, target))
        case "either" if target != BOOL and h.module.branches:
            with h.block(f"if {condition(h, p)}:"):
                first = expression(h, p, target)
                h.give(first)
            same = STR if p.type == CHAR else p.type
            h.give(p if same == first.type and h.dice.chance(0.4) else another(h, p, first))
        case "local" if target in (INT, STR) and v.type != BOOL:
            local = h.let(expression(h, p, target))
            if h.module.branches and h.dice.chance(0.5):
                with h.block(f"if {condition(h, local)}:"):
                    h.give(local)
                h.give(expression(h, local, target))
            else:
                both = combine(h, local, p)
                h.give(both if both.type == target else expression(h, local, target))
        case _:
            h.give(expression(h, p, target))
    h.finish(_name(caller, h))
    assert h.result is not None
    return h.result._replace(text=f"{h.name}({caller.arguments(v, h)})", rank=ATOM)


def _name(caller: Draft, h: Draft) -> str:
    assert h.result is not None
    taken = {*caller.scope, *caller.module.names, *h.scope}
    names = SHORT_HELPERS if h.dice.chance(0.4) else _NAMES.get(h.result.type, SHORT_HELPERS)
    free = [name for name in names if name not in taken] or ["helper_fn"]
    return h.dice.pick(free)
