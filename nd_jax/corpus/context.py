"""The source text that a recorded call of a package shows: the functions that ran, and no others.

A package's functions lie in files far too long to be a program. `Sources.context` puts the definitions of
those that ran into one text, in the order of their files and lines, without docstrings; a method stands below
its class's header, which has the class's other contents left out. Standard library only: this runs inside the
package's own tests.
"""

import ast
import tokenize
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

_SCOPED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_BRANCHES = ("body", "handlers", "orelse", "finalbody")


@dataclass(frozen=True, eq=False)
class Definition:
    """A statement of a file that holds code which runs later: most often a ``def``.

    Attributes:
      path: its file.
      lines: number in the file and text of each line that is shown.
      within: headers of the classes around it, outermost first.
    """

    path: str
    lines: tuple[tuple[int, str], ...]
    within: tuple["Definition", ...] = ()


@dataclass(frozen=True)
class Context:
    """Text of some definitions.

    Attributes:
      text: the source; ends with a line break.
      lines: (file, line number there) -> line number in the text.
    """

    text: str
    lines: dict[tuple[str, int], int]


class Sources:
    """The files of a package, read when first asked for."""

    def __init__(self) -> None:
        self._files: dict[str, _File | None] = {}
        self._contexts: dict[tuple[Definition, ...], Context | None] = {}

    def definition(self, path: str, line: int) -> Definition | None:
        """Find the definition that a line of a file belongs to."""
        if path not in self._files:
            try:
                self._files[path] = _File(path)
            except (OSError, SyntaxError, ValueError, RecursionError):
                self._files[path] = None
        file = self._files[path]
        return None if file is None else file.at(line)

    def context(self, definitions: Iterable[Definition]) -> Context | None:
        """Put definitions into one text; None where it would be no Python."""
        key = tuple(sorted(dict.fromkeys(definitions), key=lambda item: (item.path, item.lines[0][0])))
        if key not in self._contexts:
            self._contexts[key] = _join(key)
        return self._contexts[key]


def _join(definitions: Sequence[Definition]) -> Context | None:
    rows: list[str] = []
    numbers: dict[tuple[str, int], int] = {}
    around: tuple[Definition, ...] = ()
    for definition in definitions:
        shared = 0
        while (
            shared < min(len(around), len(definition.within)) and around[shared] is definition.within[shared]
        ):
            shared += 1
        if rows:
            rows.append("")
        for part in (*definition.within[shared:], definition):
            for number, text in part.lines:
                rows.append(text)
                numbers[part.path, number] = len(rows)
        around = definition.within
    text = "\n".join(rows) + "\n"
    try:
        compile(text, "<context>", "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return Context(text, numbers)


class _File:
    def __init__(self, path: str) -> None:
        self.path = path
        with tokenize.open(path) as file:
            text = file.read()
        self.lines = text.split("\n")
        tree = ast.parse(text)
        self.silent = frozenset(_docstring_lines(tree))
        self.found: list[tuple[int, int, Definition]] = []
        self._find(tree.body, (), 0)
        self.found.sort(key=lambda item: item[:2])
        self.begins = [first for first, _, _ in self.found]

    def at(self, line: int) -> Definition | None:
        index = bisect_right(self.begins, line) - 1
        if index < 0:
            return None
        _, last, definition = self.found[index]
        return definition if line <= last else None

    def _find(self, statements: Iterable[ast.AST], within: tuple[Definition, ...], indent: int) -> None:
        """Collect the definitions among some statements, which shall stand at an indentation."""
        for node in statements:
            branches = [getattr(node, name, None) or [] for name in _BRANCHES]
            if isinstance(node, ast.ClassDef) and _first_line(node.body[0]) > node.lineno:
                header = self._cut(
                    node.lineno, _first_line(node.body[0]) - 1, node.col_offset - indent, within
                )
                inner = indent + node.body[0].col_offset - node.col_offset
                self._find(node.body, (*within, header), inner)
            elif any(branches) and not isinstance(node, _SCOPED):
                for branch in branches:
                    self._find(branch, within, indent)
            elif isinstance(node, ast.stmt):
                first, last = _first_line(node), node.end_lineno or node.lineno
                definition = self._cut(first, last, node.col_offset - indent, within)
                self.found.append((first, last, definition))

    def _cut(self, first: int, last: int, shift: int, within: tuple[Definition, ...]) -> Definition:
        rows = [
            (number, self.lines[number - 1]) for number in range(first, last + 1) if number not in self.silent
        ]
        while len(rows) > 1 and (not rows[-1][1].strip() or rows[-1][1].lstrip().startswith("#")):
            rows.pop()  # comments below a class's header belong to what is left out
        return Definition(self.path, tuple((n, _dedent(text, shift).rstrip()) for n, text in rows), within)


def _first_line(node: ast.stmt) -> int:
    decorators: list[ast.expr] = getattr(node, "decorator_list", [])
    return min([node.lineno, *(decorator.lineno for decorator in decorators)])


def _dedent(text: str, shift: int) -> str:
    head = text[: max(shift, 0)]
    return text[len(head) - len(head.lstrip()) :] if shift >= 0 else " " * -shift + text


def _docstring_lines(tree: ast.AST) -> Iterator[int]:
    """Give the lines that hold nothing but a docstring, where other statements follow it."""
    for node in ast.walk(tree):
        if not isinstance(node, _SCOPED) or len(node.body) < 2:
            continue
        first, second = node.body[:2]
        if not isinstance(first, ast.Expr) or not isinstance(first.value, ast.Constant):
            continue
        last = first.end_lineno or first.lineno
        if isinstance(first.value.value, str) and node.lineno < first.lineno and last < _first_line(second):
            yield from range(first.lineno, last + 1)
