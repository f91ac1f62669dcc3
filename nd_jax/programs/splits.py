"""Which programs are held out: decided here, once, by a hash of the normalised source.

Two programs that differ only in the names they bind, in literal values, docstrings, comments or layout fall
on the same side, so a renamed copy of a held-out program is never trained on.
"""

import ast
import hashlib
from collections.abc import Iterable
from functools import cache
from typing import Any, Literal

from nd_jax.programs.syntax import parse

Split = Literal["train", "heldout"]
Selection = Literal[Split, "all"]
"""Which of a dataset's traces to read."""
HELD_OUT_ONE_IN = 20
"""One normalised source in so many is held out: 5 %."""

_DOCUMENTED = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IGNORED_FIELDS = frozenset(("ctx", "kind", "type_comment", "type_ignores"))
_FOREIGN_NAMES = frozenset(((ast.alias, "name"), (ast.ImportFrom, "module")))
_BINDING_FIELDS: dict[type[ast.AST], str] = {
    ast.FunctionDef: "name",
    ast.AsyncFunctionDef: "name",
    ast.ClassDef: "name",
    ast.arg: "arg",
    ast.ExceptHandler: "name",
    ast.alias: "asname",
    ast.MatchAs: "name",
    ast.MatchStar: "name",
    ast.MatchMapping: "rest",
}

_BINDING = frozenset((ast.Attribute, *_BINDING_FIELDS))
_DEPTH = 100  # nodes spelled in one another at once: a long sum nests deeper than Python allows calls


def split_of(source: str) -> Split:
    """Say on which side a program falls; needs nothing but its source."""
    normalised = normalised_source(source).encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(normalised, digest_size=8, person=b"nd_jax split").digest()
    return "heldout" if int.from_bytes(digest, "big") % HELD_OUT_ONE_IN == 0 else "train"


def normalised_source(source: str) -> str:
    """Write a program's syntax tree without its names, literal values, docstrings and layout.

    Names that the program binds are numbered by first sight (``_0``, ``_1``, ...); builtins, and methods that
    it does not define, stay: they are what it does. A literal becomes its type. Empty fields are skipped, so
    that those which later versions add change nothing: Python 3.11 to 3.13 agree on source that all of them
    parse. Text that does not parse is its own normal form.
    """
    tree = parse(source)
    return source if tree is None else normal_form(tree)


def normal_form(tree: ast.AST, bound: Iterable[str] = ()) -> str:
    """Write a tree as `normalised_source` does; ``bound`` is what is bound outside it (`bound_names`)."""
    bound = set(bound)
    spelled = _spell_all(tree, bound)
    numbers: dict[str, str] = {}
    return "".join(
        [
            numbers.setdefault(text, f"_{len(numbers)}") if text in bound else text.lstrip("'.")
            for text in spelled
        ]
    )


def bound_names(tree: ast.AST) -> set[str]:
    """List what a tree binds: names behind a quote mark, attributes behind a full stop."""
    bound: set[str] = set()
    _spell_all(tree, bound)
    return bound - {"'None"}  # what an import or handler without a name of its own has there


def _spell_all(tree: ast.AST, bound: set[str]) -> list[str]:
    spelled: list[Any] = [tree]  # texts, and nodes that are still to be spelled
    while not {str}.issuperset(map(type, spelled)):
        flat: list[Any] = []
        for part in spelled:
            if isinstance(part, str):
                flat.append(part)
            else:
                _spell(part, flat, bound, _DEPTH)
        spelled = flat
    return spelled


def _spell(node: ast.AST, spelled: list[Any], bound: set[str], depth: int) -> None:
    """Spell a node: names behind a quote mark, attribute names behind a full stop; what lies deeper as it is.

    Names and constants, most of all nodes, are spelled with the node that holds them; ``bound`` gets the
    names that they bind.
    """
    kind = type(node)
    if not depth:
        spelled.append(node)
        return
    text, fields = _fields_of(kind)
    if kind in _BINDING:
        bound.update(_binds(node))
    for field, label, mark in fields:
        value: Any = getattr(node, field, None)
        if type(value) is not list:
            if value is None:
                continue
            value = (value,)
        elif not value:
            continue
        elif kind is ast.JoinedStr:  # where its literal pieces are cut differs between versions
            value = [piece for piece in value if isinstance(piece, ast.FormattedValue)]
        elif field == "body" and kind in _DOCUMENTED and _is_docstring(value[0]):
            value = value[1:]
        text += label
        for item in value:
            sort = type(item)
            if sort is ast.Name:
                name = f"'{item.id}"
                if type(item.ctx) is not ast.Load:
                    bound.add(name)
                spelled += (f"{text}Name( id=", name)
                text = ",),"
            elif sort is ast.Constant:
                text += f"Constant({type(item.value).__name__}),"
            elif not isinstance(item, ast.AST):
                spelled += (text, f"{mark}{item}")
                text = ","
            elif item._fields:
                spelled.append(text)
                _spell(item, spelled, bound, depth - 1)
                text = ","
            else:
                text += f"{sort.__name__}(),"
    spelled.append(f"{text})")


@cache
def _fields_of(kind: type[ast.AST]) -> tuple[str, list[tuple[str, str, str]]]:
    """Give how a kind of node begins, and its fields that count: name, spelling, the mark of a name in it."""
    own = "." if kind is ast.Attribute else "'"
    return f"{kind.__name__}(", [
        (field, f" {field}=", "" if (kind, field) in _FOREIGN_NAMES else own)
        for field in kind._fields
        if field not in _IGNORED_FIELDS
    ]


def _is_docstring(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _binds(node: ast.AST) -> list[str]:
    """List the names that the program chooses in a node of `_BINDING`, marked as `_spell` marks them."""
    if isinstance(node, ast.Attribute):
        return [] if isinstance(node.ctx, ast.Load) else [f".{node.attr}"]
    names = [f"'{getattr(node, _BINDING_FIELDS[type(node)])}"]
    if isinstance(node, ast.ClassDef):  # what its body binds is reached as an attribute
        names += [f".{item.name}" for item in node.body if isinstance(item, _DOCUMENTED[1:])]
        targets = [target for item in node.body if isinstance(item, ast.Assign) for target in item.targets]
        names += [f".{target.id}" for target in targets if isinstance(target, ast.Name)]
    return names
