"""What programs consist of: the shares that a report shows."""

import ast
from collections.abc import Iterable
from typing import Protocol

from nd_jax.programs.syntax import parse

_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_BRANCHES = (ast.If, ast.Match)
_EXCEPTIONS = (ast.Raise, ast.Try, ast.TryStar, ast.Assert)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Described(Protocol):
    """What is needed of a program, or of a trace of one."""

    @property
    def source(self) -> str: ...
    @property
    def entry(self) -> str: ...


def describe(programs: Iterable[Described]) -> dict[str, float]:
    """Count programs, and give as fractions of 1 how many of them have what.

    Returns:
      ``programs`` (the count); ``distinct`` sources; ``loops`` (``for`` and ``while``, comprehensions apart),
      ``whiles``, ``second_function`` (one that the source defines beside the entry, called by name or as a
      method), ``branches`` (``if`` and ``match``), ``exceptions`` (raised, caught or asserted),
      ``comprehensions``. A source that does not parse has nothing. All 0 for no programs.
    """
    names = ("loops", "whiles", "second_function", "branches", "exceptions", "comprehensions")
    counts = dict.fromkeys(names, 0)
    sources: set[str] = set()
    total = 0
    for program in programs:
        total += 1
        sources.add(program.source)
        tree = parse(program.source)
        nodes = list(ast.walk(tree)) if tree else []
        defined = {node.name for node in nodes if isinstance(node, _FUNCTIONS)} - {program.entry}
        counts["loops"] += any(isinstance(node, _LOOPS) for node in nodes)
        counts["whiles"] += any(isinstance(node, ast.While) for node in nodes)
        counts["second_function"] += any(_called(node) in defined for node in nodes)
        counts["branches"] += any(isinstance(node, _BRANCHES) for node in nodes)
        counts["exceptions"] += any(isinstance(node, _EXCEPTIONS) for node in nodes)
        counts["comprehensions"] += any(isinstance(node, _COMPREHENSIONS) for node in nodes)
    shares = {name: count / max(1, total) for name, count in counts.items()}
    return {"programs": total, "distinct": len(sources) / max(1, total), **shares}


def _called(node: ast.AST) -> str | None:
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name
    return None
