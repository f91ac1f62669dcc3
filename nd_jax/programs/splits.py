"""Which programs are held out: decided here, once, by a hash of the normalised source.

Two programs that differ only in the names they bind, in literal values, docstrings, comments or layout fall
on the same side, so a renamed copy of a held-out program is never trained on.
"""

import ast
import hashlib
from collections.abc import Iterator
from typing import Literal

from nd_jax.programs.syntax import parse

HELD_OUT_ONE_IN = 20
"""One normalised source in so many is held out: 5 %."""

_DOCUMENTED = (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IGNORED_FIELDS = frozenset(("ctx", "kind", "type_comment", "type_ignores"))
_FOREIGN_NAMES = frozenset(((ast.alias, "name"), (ast.ImportFrom, "module")))


def split_of(source: str) -> Literal["train", "heldout"]:
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
    if tree is None:
        return source
    bound = _bound_names(tree)
    numbers: dict[str, str] = {}
    written: list[str] = []
    pending: list[ast.AST | str] = [
        tree
    ]  # no recursion: a long sum is nested deeper than Python allows calls
    while pending:
        node = pending.pop()
        if isinstance(node, ast.AST):
            pending.extend(reversed([*_parts(node), ")"]))
        elif node in bound:
            written.append(numbers.setdefault(node, f"_{len(numbers)}"))
        else:
            written.append(node.lstrip("'."))
    return "".join(written)


def _parts(node: ast.AST) -> Iterator[ast.AST | str]:
    """Spell one node: children as they are, names behind a quote mark, attribute names behind a full stop."""
    yield f"{type(node).__name__}("
    if isinstance(node, ast.Constant):
        yield type(node.value).__name__
        return
    for field in node._fields:
        value = getattr(node, field, None)
        if field in _IGNORED_FIELDS or value is None or value == []:
            continue
        if isinstance(node, ast.JoinedStr):  # where its literal pieces are cut differs between versions
            value = [piece for piece in node.values if isinstance(piece, ast.FormattedValue)]
        if field == "body" and isinstance(node, _DOCUMENTED) and _is_docstring(node.body[0]):
            value = node.body[1:]
        mark = (
            "." if isinstance(node, ast.Attribute) else "" if (type(node), field) in _FOREIGN_NAMES else "'"
        )
        yield f" {field}="
        for item in value if isinstance(value, list) else [value]:
            yield item if isinstance(item, ast.AST) else f"{mark}{item}"
            yield ","


def _is_docstring(statement: ast.stmt) -> bool:
    return (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    )


def _bound_names(tree: ast.Module) -> set[str]:
    """Collect the names that the program itself chooses, marked as `_parts` marks them."""
    bound: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                bound.add(f"'{name}")
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                bound.add(f"'{name}")
            case ast.ExceptHandler(name=str(name)) | ast.alias(asname=str(name)):
                bound.add(f"'{name}")
            case (
                ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name))
            ):
                bound.add(f"'{name}")
            case ast.Attribute(attr=name, ctx=ast.Store() | ast.Del()):
                bound.add(f".{name}")
        if isinstance(node, ast.ClassDef):
            bound.update(f".{item.name}" for item in node.body if isinstance(item, _DEFINITIONS))
            targets = (
                target for item in node.body if isinstance(item, ast.Assign) for target in item.targets
            )
            bound.update(f".{target.id}" for target in targets if isinstance(target, ast.Name))
    return bound
