"""What a program shares with benchmarks: a function's body, or a window of 30 tokens.

Compared are normal forms, in the notion of `nd_jax.programs.splits`: names that a program binds are told
apart but not named, literals are their types, docstrings and layout are gone; builtins and foreign methods
stay. In a *window*, moreover, annotations are gone, a list, tuple, set or dict of literals is a literal, and
names are numbered anew, so that a window is the same wherever it stands. A method that is called on its own
class or object is a function that is called by its name: to wrap a program in a class changes nothing.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from nd_jax.errors import UserError
from nd_jax.programs.jsonl import Rejected, read_programs
from nd_jax.programs.splits import bound_names, normal_form
from nd_jax.programs.syntax import normalise_line_ends, parse

WINDOW = 30
"""Tokens that no program may share with a benchmark one after another."""

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_DEFINITIONS = (*_FUNCTIONS, ast.ClassDef)
_BODY, _TOKENS = "function body", f"{WINDOW} tokens"


class Match(NamedTuple):
    """What a program shares with a benchmark.

    Attributes:
      kind: ``"function body"`` or ``"30 tokens"``.
      benchmark: id of the benchmark's program.
      text: what is shared, as the compared program has it, on one line.
    """

    kind: str
    benchmark: str
    text: str

    @property
    def detail(self) -> str:
        """The match in one line: what, whose, which."""
        return f"{self.kind} of {self.benchmark}: {self.text}"


class Benchmarks:
    """Everything that must not be trained on; ask it with `match`."""

    def __init__(self, programs: Iterable[tuple[str, str]]) -> None:
        """Take (id, source) of the benchmarks' programs.

        Raises:
          UserError: a source does not parse, so nothing could be compared with it.
        """
        self._bodies: dict[str, str] = {}
        self._windows: dict[tuple[str | int, ...], str] = {}
        for name, source in programs:
            try:
                units = _units(source)
                for unit in units:
                    for form, _ in unit.bodies():
                        self._bodies.setdefault(form, name)
                    for window, _ in unit.windows():
                        self._windows.setdefault(window, name)
            except (ValueError, RecursionError) as error:
                raise UserError(
                    f"benchmark program {name} {error}; what cannot be read cannot be kept out: "
                    "mend or remove it"
                ) from None

    @classmethod
    def read(cls, paths: Iterable[Path]) -> "Benchmarks":
        """Read benchmark files: JSON lines as `nd_jax.programs.jsonl` reads them, or Python source.

        Raises:
          UserError: a file, or a line of one, cannot be read: what is not read is not kept out.
        """
        return cls(program for path in paths for program in _read(path))

    def match(self, source: str) -> Match | None:
        """Find what a program shares with a benchmark, a whole body if any; None for nothing.

        Raises:
          ValueError: the source does not parse, or is nested too deeply to be compared.
        """
        try:
            units = _units(source)
            for unit in units:
                for form, body in unit.bodies():
                    if form in self._bodies:
                        text = " ".join(ast.unparse(body).split())
                        return Match(_BODY, self._bodies[form], text)
            for unit in units:
                for window, at in unit.windows():
                    if window in self._windows:
                        text = " ".join(unit.tokens[at : at + WINDOW])
                        return Match(_TOKENS, self._windows[window], text)
        except RecursionError:
            raise ValueError("nested too deeply") from None
        return None


def _read(path: Path) -> Iterator[tuple[str, str]]:
    if path.suffix == ".py":
        try:
            yield path.name, normalise_line_ends(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"cannot read the benchmark {path}: {error}") from error
        return
    for program in read_programs(path):
        if isinstance(program, Rejected):
            raise UserError(
                f"benchmark {program.place}: {program.reason} ({program.detail}); what cannot be read cannot "
                "be kept out: mend or remove the line"
            )
        yield program.id, program.source


class _Unit:
    """A function or class at top level, or all other statements of a module; it is compared alone."""

    def __init__(self, tree: ast.AST, outside: set[str]) -> None:
        self._tree = _ByName().visit(tree)
        self._bound = bound_names(self._tree) | outside

    def bodies(self) -> Iterator[tuple[str, ast.Module]]:
        """Give the normal form of each function's body, and the body."""
        for node in ast.walk(self._tree):
            if isinstance(node, _FUNCTIONS):
                body = ast.Module(node.body, [])
                yield normal_form(body, self._bound), body

    def windows(self) -> Iterator[tuple[tuple[str | int, ...], int]]:
        """Give each window, and where it begins.

        In a window a name is the distance to its last mention, or 0 where that lies outside.
        """
        codes: list[str | int] = []
        last: dict[str, int] = {}
        for at, token in enumerate(self.tokens):
            if token[0] == _BOUND:
                codes.append(at - last.get(token, at))
                last[token] = at
            else:
                codes.append(token)
        for start in range(len(codes) - WINDOW + 1):
            window = codes[start : start + WINDOW]
            yield tuple([
                code if isinstance(code, str) or code <= at else 0 for at, code in enumerate(window)
            ]), start  # fmt: skip

    @cached_property
    def tokens(self) -> list[str]:
        """The unit's tokens; bound names and attributes begin with `_BOUND`, literals with `_LITERAL`."""
        tree = _Abstract(self._bound).visit(self._tree)  # the tree is not used as it was again
        return _TOKEN.findall(ast.unparse(ast.fix_missing_locations(tree)))


_BOUND, _LITERAL = "\u00b7", "\u00a4"  # no identifier begins with them
_TOKEN = re.compile(
    rf"[{_BOUND}{_LITERAL}]?\w+|\*\*=|//=|>>=|<<=|\*\*|//|>>|<<|->|[-+*/%&|^@=!<>:]=|\S",
)


def _units(source: str) -> list[_Unit]:
    """Part a module; raises ValueError where it does not parse.

    What each function binds is its own affair, so that a variable of one does not hide a builtin in another.
    """
    tree = parse(source)
    if tree is None:
        raise ValueError("does not parse")
    outside = {f"'{node.name}" for node in tree.body if isinstance(node, _DEFINITIONS)}
    rest = ast.Module([node for node in tree.body if not isinstance(node, _DEFINITIONS)], [])
    outside |= bound_names(rest)
    parts = [rest, *(ast.Module([node], []) for node in tree.body if isinstance(node, _DEFINITIONS))]
    return [_Unit(part, outside) for part in parts]


class _ByName(ast.NodeTransformer):
    """Makes ``self.go(x)`` and ``Class.go(x)`` of a class's own function ``go(x)``."""

    def __init__(self) -> None:
        self._methods: set[str] = set()
        self._owners: set[str] = set()

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        before = self._methods, self._owners
        functions = [item for item in node.body if isinstance(item, _FUNCTIONS)]
        firsts = {args[0].arg for f in functions if (args := [*f.args.posonlyargs, *f.args.args])}
        self._methods = self._methods | {function.name for function in functions}
        self._owners = self._owners | {node.name} | firsts & {"self", "cls"}
        self.generic_visit(node)
        self._methods, self._owners = before
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        self.generic_visit(node)
        if node.attr in self._methods and isinstance(node.value, ast.Name) and node.value.id in self._owners:
            return ast.copy_location(ast.Name(node.attr, node.ctx), node)
        return node


class _Abstract(ast.NodeTransformer):
    """Writes a tree's bound names behind a mark and its literals as their types."""

    def __init__(self, bound: set[str]) -> None:
        self._bound = bound

    def _name(self, name: str) -> str:
        return f"{_BOUND}{name}" if f"'{name}" in self._bound else name

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for field in ("name", "asname", "arg", "rest"):
            if isinstance(name := getattr(node, field, None), str):
                setattr(node, field, self._name(name))
        if hasattr(node, "names") and isinstance(node, ast.Global | ast.Nonlocal):
            node.names = [self._name(name) for name in node.names]
        for field in ("annotation", "returns"):
            if hasattr(node, field) and not isinstance(node, ast.AnnAssign):
                setattr(node, field, None)
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            body = node.body
            if body and isinstance(body[0], ast.Expr) and _is_text(body[0].value):
                node.body = body[1:]
        return super().generic_visit(node)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        node.id = self._name(node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        if f".{node.attr}" in self._bound:
            node.attr = f"{_BOUND}{node.attr}"
        return super().generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None:
            return None
        return self.visit(ast.Assign([node.target], node.value, lineno=node.lineno))

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return _literal(type(node.value).__name__)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        values = [self.visit(v.value) for v in node.values if isinstance(v, ast.FormattedValue)]
        return ast.Call(_literal("fstring"), values, [])

    def _display(self, node: ast.List | ast.Tuple | ast.Set) -> ast.AST:
        super().generic_visit(node)
        if all(map(_is_literal, node.elts)):
            return _literal(type(node).__name__.lower())
        return node

    visit_List = visit_Tuple = visit_Set = _display

    def visit_Dict(self, node: ast.Dict) -> ast.AST:
        super().generic_visit(node)
        if all(map(_is_literal, (*node.keys, *node.values))):
            return _literal("dict")
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        super().generic_visit(node)
        return node.operand if isinstance(node.op, ast.USub) and _is_literal(node.operand) else node


def _literal(kind: str) -> ast.Name:
    return ast.Name(f"{_LITERAL}{kind}", ast.Load())


def _is_literal(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Name) and node.id.startswith(_LITERAL)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
