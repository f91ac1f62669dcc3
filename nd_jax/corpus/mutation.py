"""Variations of a program's inputs: one function, many traces.

Each argument that is a literal is changed as its type suggests: integers by a little, strings by letters
they hold, lists by their own items. What is no literal (a call, a name) stays as it is.
"""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from nd_jax.errors import UserError
from nd_jax.programs.idioms.values import Dice
from nd_jax.programs.program import Program
from nd_jax.programs.syntax import parse


@dataclass(frozen=True)
class MutationConfig:
    """How inputs are varied."""

    each: int = 4
    """Most variations of a program."""
    changes: int = 2
    """Most changes to the arguments in one variation."""
    longest: int = 200
    """Longest text of the arguments, in characters, that a variation grows to."""
    seed: int = 0
    """Seeds the variations; those of a program depend on this, the settings and the program alone."""


_TRIES = 12
"""Most draws for a variation that is new."""


def mutate(programs: Iterable[Program], config: MutationConfig) -> Iterator[Program]:
    """Yield for each program its variations, ``ID~1``, ``ID~2`` ...: no two, and none of the given, the same.

    A program without literal arguments has none; one whose inputs are few (a single boolean) has fewer.

    Raises:
      UserError: a setting is below 1.
    """
    for name in ("each", "changes", "longest"):
        if getattr(config, name) < 1:
            raise UserError(f"{name}={getattr(config, name)}: it must be at least 1")
    for program in programs:
        yield from _variations(program, config)


def _variations(program: Program, config: MutationConfig) -> Iterator[Program]:
    tree = parse(f"f(\n{program.arguments}\n)")
    call = tree.body[0].value if tree and len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        return
    nodes = [*call.args, *(keyword.value for keyword in call.keywords)]
    before = [_value(node) for node in nodes]
    open_to_change = [at for at, value in enumerate(before) if value is not _OPAQUE and value is not None]
    if not open_to_change:
        return
    dice = Dice(f"{config.seed}/{program.id}/{program.entry}/{program.arguments}")
    seen = {_text(call, before)}
    for number in range(1, config.each + 1):
        for _ in range(_TRIES):
            after = list(before)
            for _ in range(dice.between(1, config.changes)):
                at = dice.pick(open_to_change)
                after[at] = vary(dice, after[at])
            text = _text(call, after)
            if text not in seen and len(text) <= max(config.longest, len(program.arguments)):
                seen.add(text)
                yield Program(f"{program.id}~{number}", program.source, program.entry, text)
                break
        else:
            return


class _Opaque:
    """In place of the value of an argument that is no literal."""


_OPAQUE = _Opaque()


def _value(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return _OPAQUE


def _text(call: ast.Call, values: list[Any]) -> str:
    """Write the arguments."""
    nodes = [*call.args, *(keyword.value for keyword in call.keywords)]
    texts = [
        ast.unparse(node) if value is _OPAQUE else literal(value)
        for node, value in zip(nodes, values, strict=True)
    ]
    names = [""] * len(call.args) + [f"{k.arg}=" if k.arg else "**" for k in call.keywords]
    return ", ".join([name + text for name, text in zip(names, texts, strict=True)])


def literal(value: Any) -> str:
    """Write a value as a literal, the same whatever the hash seed."""
    match value:
        case list():
            return f"[{', '.join(map(literal, value))}]"
        case tuple():
            return f"({', '.join(map(literal, value))}{',' if len(value) == 1 else ''})"
        case dict():
            return f"{{{', '.join(f'{literal(key)}: {literal(item)}' for key, item in value.items())}}}"
        case set():
            return f"{{{', '.join(sorted(map(literal, value)))}}}" if value else "set()"
    return repr(value)


def vary(dice: Dice, value: Any) -> Any:
    """Give another value of the same type; the same one where the type has no other (None)."""
    match value:
        case bool():
            return not value
        case int():
            return _integer(dice, value)
        case float():
            return dice.pick((value + 1, value - 0.5, -value, value * 2, float(round(value))))
        case str():
            return _string(dice, value)
        case bytes():
            return _string(dice, value.decode("latin-1")).encode("latin-1", "replace")
        case list():
            return _list(dice, value)
        case tuple():
            if not value:
                return value
            at = dice.between(0, len(value) - 1)
            return (*value[:at], vary(dice, value[at]), *value[at + 1 :])
        case dict():
            return _dict(dice, value)
        case set():
            return _set(dice, value)
    return value


def _integer(dice: Dice, value: int) -> int:
    match dice.between(0, 7):
        case 0 | 1:
            return value + dice.between(1, 3)
        case 2 | 3:
            return value - dice.between(1, 3)
        case 4:
            return value * 2
        case 5:
            return value // 2
        case 6:
            return dice.between(0, max(9, 2 * abs(value)))
    return -value if value < 0 or dice.chance(0.3) else 0 if dice.chance(0.5) else value + 10


def _string(dice: Dice, value: str) -> str:
    if not value:
        return dice.pick(("a", "ab", "1", " "))
    at = dice.between(0, len(value) - 1)
    other = value[dice.between(0, len(value) - 1)]
    match dice.between(0, 9):
        case 0 | 1:
            return value[:at] + _like(dice, value[at]) + value[at + 1 :]
        case 2:
            return value[:at] + value[at + 1 :]
        case 3:
            return value[:at] + other + value[at:]
        case 4:
            return value[:at] + _like(dice, other) + value[at:]
        case 5:
            return value[::-1]
        case 6:
            return value.swapcase()
        case 7:
            return value[:at] + other + value[at + 1 :]
        case 8:
            return value[at:] + value[:at]
    return "" if dice.chance(0.2) else value[: at + 1] * 2


def _like(dice: Dice, letter: str) -> str:
    """Draw a character of the same kind."""
    for letters in ("abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789"):
        if letter in letters:
            return dice.pick(letters)
    return dice.pick(" -_,.:;!")


def _list(dice: Dice, value: list[Any]) -> list[Any]:
    if not value:
        return [dice.between(0, 9)]
    at = dice.between(0, len(value) - 1)
    match dice.between(0, 9):
        case 0 | 1 | 2:
            return [*value[:at], vary(dice, value[at]), *value[at + 1 :]]
        case 3 | 4:
            return value[:at] + value[at + 1 :]
        case 5:
            return [*value[:at], vary(dice, value[at]), *value[at:]]
        case 6:
            return [*value, value[at]]
        case 7:
            return value[::-1]
        case 8:
            return value[at:] + value[:at]
    return [] if dice.chance(0.2) else value[: at + 1]


def _dict(dice: Dice, value: dict[Any, Any]) -> dict[Any, Any]:
    if not value:
        return value
    key = dice.pick(list(value))
    match dice.between(0, 5):
        case 0 | 1 | 2:
            return {**value, key: vary(dice, value[key])}
        case 3:
            return {name: item for name, item in value.items() if name != key}
        case 4:
            return {**value, vary(dice, key): vary(dice, value[key])}
    return {(vary(dice, name) if name == key else name): item for name, item in value.items()}


def _set(dice: Dice, value: set[Any]) -> set[Any]:
    if not value:
        return {dice.between(0, 9)}
    items = sorted(value, key=literal)  # a set's own order differs between runs
    at = dice.between(0, len(items) - 1)
    if dice.chance(0.4):
        return {*items[:at], *items[at + 1 :]}
    return {*items, vary(dice, items[at])}
