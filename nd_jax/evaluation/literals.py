"""Read values from texts that may be anything, without executing them, and compare them.

Texts come from models and from files: they may be long, deeply nested, or no Python at all. Nothing here
raises on them. `MAX_CHARS` bounds the parser's time and stack, so callers refuse longer ones first.
"""

import ast
import warnings

MAX_CHARS = 10_000
"""Longer texts are not looked at; a value shown by the tracer has at most a few hundred characters."""

NOT_LITERAL = object()
"""Stands for the value of a text that has none."""


def asserted(text: str) -> ast.expr | None:
    """Give the expression if ``assert x == {text}`` is just that comparison, without a message; else None."""
    match parse(f"assert x == {text}"):
        case [
            ast.Assert(test=ast.Compare(left=ast.Name(), ops=[ast.Eq()], comparators=[expression]), msg=None)
        ]:
            return expression
        case _:
            return None


def literal(text: str) -> object:
    """Value of a text that would be a literal in ``assert x == {text}``, or `NOT_LITERAL`.

    A tuple without parentheses is none there: what follows the comma is the assertion's message.
    """
    expression = asserted(text)
    return NOT_LITERAL if expression is None else _evaluate(expression)


def canonical(text: str) -> object:
    """Hashable form of the value that a text writes, or `NOT_LITERAL`; values of different types differ.

    bool, int and float differ, -0.0 differs from 0.0, and nan equals nan. ``nan`` and ``inf``, which `repr`
    writes but Python does not read, count as literals. The order of sets and dicts does not count.
    """
    match parse(text.strip()):
        case [ast.Expr(value=expression)]:
            pass
        case _:
            return NOT_LITERAL
    try:
        value = _evaluate(_NamedFloats().visit(expression))
        return value if value is NOT_LITERAL else _typed(value)
    except RecursionError:
        return NOT_LITERAL


def strictly_equal(left: str, right: str) -> bool:
    """Whether two texts write the same value with the same types; if one is no literal, the same text."""
    values = canonical(left), canonical(right)
    if NOT_LITERAL in values:
        return left.strip() == right.strip()
    return values[0] == values[1]


def loosely_equal(left: str, right: str) -> bool:
    """Whether ``left == right`` holds for what two texts write, as far as Python can read them back.

    Texts of which Python reads neither are compared as they are; nan and inf have names only in `repr`, so an
    expression that holds them equals nothing.
    """
    values = literal(left), literal(right)
    if values == (NOT_LITERAL, NOT_LITERAL):
        return left.strip() == right.strip() and canonical(left) is NOT_LITERAL
    return NOT_LITERAL not in values and bool(values[0] == values[1])


def parse(text: str) -> list[ast.stmt] | None:
    """Statements of a text, or None if it is no Python or nests too deeply for the parser."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an invalid escape in an answer concerns nobody
            return ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _evaluate(expression: ast.expr) -> object:
    try:
        return ast.literal_eval(expression)
    except (ValueError, TypeError, RecursionError, MemoryError):  # not literal, an unhashable key, too deep
        return NOT_LITERAL


class _NamedFloats(ast.NodeTransformer):
    """Turns the names ``nan`` and ``inf`` into the floats that `repr` means by them."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(float(node.id)) if node.id in ("nan", "inf") else node


def _typed(value: object) -> tuple[object, ...]:
    kind = type(value).__name__
    match value:
        case list() | tuple():
            return kind, tuple(_typed(item) for item in value)
        case set():
            return kind, len(value), frozenset(_typed(item) for item in value)
        case dict():
            return kind, len(value), frozenset((_typed(key), _typed(item)) for key, item in value.items())
        case float() | complex():
            return kind, repr(value)  # tells -0.0 from 0.0, and nan is nan
        case _:
            return kind, value
