"""Decontamination: every disguise of a benchmark's program is seen through, and little else is removed."""

import ast
import os
import textwrap
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from nd_jax.corpus.decontaminate import WINDOW, Benchmarks
from nd_jax.errors import UserError
from nd_jax.programs.jsonl import read_programs
from nd_jax.programs.program import Program
from nd_jax.programs.synthetic import SyntheticConfig, generate

DATA = Path(os.environ.get("ND_DATA", Path(__file__).parents[2] / "../shared/data"))
CRUXEVAL = DATA / "cruxeval.jsonl"
needs_data = pytest.mark.skipif(not CRUXEVAL.is_file(), reason=f"no data at {DATA}: set ND_DATA")

BENCHMARK = '''import math

def f(text, k):
    """Say it k times."""
    out = []
    for c in text:  # each character
        if c.isalpha() and ord(c) % k == 0:
            out.append(c.upper() * math.isqrt(k))
    out.sort(key=lambda c: (len(c), c))
    return f"<{''.join(out)!r}>"
'''
BENCHMARKS = Benchmarks([("mine/1", BENCHMARK)])


@cache
def cruxeval() -> Benchmarks:
    return Benchmarks.read([CRUXEVAL])


class _Renamed(ast.NodeTransformer):
    """Gives every name that a program binds another one."""

    def __init__(self, tree: ast.AST) -> None:
        self.names: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.bind(node.id)
            elif isinstance(node, ast.arg):
                self.bind(node.arg)
            elif isinstance(node, ast.FunctionDef | ast.ExceptHandler) and node.name:
                self.bind(node.name)

    def bind(self, name: str) -> None:
        self.names.setdefault(name, f"renamed_{len(self.names)}")

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(self.names.get(node.id, node.id), node.ctx)

    def generic_visit(self, node: ast.AST) -> ast.AST:
        for field in ("name", "arg"):
            if isinstance(name := getattr(node, field, None), str):
                setattr(node, field, self.names.get(name, name))
        if isinstance(node, ast.Global | ast.Nonlocal):
            node.names = [self.names.get(name, name) for name in node.names]
        return super().generic_visit(node)


def renamed(source: str) -> str:
    tree = ast.parse(source)
    return ast.unparse(ast.fix_missing_locations(_Renamed(tree).visit(tree)))


def reformatted(source: str) -> str:
    """Another layout: quotes and parentheses as unparse writes them, tabs, comments."""
    lines = ast.unparse(ast.parse(source)).replace("    ", "\t").split("\n")
    return (
        "# copied\n\n" + "\n".join(f"{line}  # line" if '"' not in line else line for line in lines) + "\n\n"
    )


class _Methods(ast.NodeTransformer):
    """Makes methods of functions: ``self`` comes first, and they call each other on it."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self.names and isinstance(node.ctx, ast.Load):
            return ast.Attribute(ast.Name("self", ast.Load()), node.id, ast.Load())
        return node


def as_method(source: str) -> str:
    tree = ast.parse(source)
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    tree = _Methods({function.name for function in functions}).visit(tree)
    for function in functions:
        function.args.args.insert(0, ast.arg("self"))
    rest = [node for node in tree.body if node not in functions]
    tree.body = [*rest, ast.ClassDef("Solution", [], [], functions, [])]
    return ast.unparse(ast.fix_missing_locations(tree))


def in_a_class(source: str) -> str:
    method = f"@staticmethod\n{source}" if source.startswith("def") else source
    return "class Task:\n" + textwrap.indent(method, "    ")


def in_a_module(source: str) -> str:
    """Between other code, whose variables hide builtins and methods."""
    other = (
        "def other(len, sorted, str):\n    range = len\n    range.append = str\n    return sorted(range)\n"
    )
    return f"import os\n\n{other}\n{source}\n\nmax_ = 3\nclass Box:\n    def split(self):\n        return 1\n"


DISGUISES: list[Callable[[str], str]] = [str, renamed, reformatted, as_method, in_a_class, in_a_module]


@pytest.mark.parametrize("disguise", DISGUISES)
def test_a_disguised_program_is_found(disguise: Callable[[str], str]):
    match = BENCHMARKS.match(disguise(BENCHMARK))
    assert match is not None
    assert (match.kind, match.benchmark) == ("function body", "mine/1")
    assert ".sort(key=lambda" in match.text
    assert "\n" not in match.detail


def test_a_part_is_found_by_its_tokens():
    loop = "for c in text:\n        if c.isalpha() and ord(c) % k == 0:\n            out.append(c.upper() * "
    part = f"def g(text, k, out):\n    {loop}1)\n    return out\n"
    match = BENCHMARKS.match(part)
    assert match is not None
    assert match.kind == "30 tokens"
    assert match.benchmark == "mine/1"
    assert len(match.text.split()) == WINDOW
    other = part.replace("isalpha", "isdigit")
    assert BENCHMARKS.match(other) is None
    assert BENCHMARKS.match(part.replace("ord(c) % k", "ord(k) % k")) is None  # another variable


def test_a_window_is_29_tokens_too_short():
    names = ["a + b"] * 8
    one = f"def f(a, b):\n    return {' - '.join(names)}"  # 8 * 3 + 7 tokens, and 'return'
    benchmarks = Benchmarks([("b", f"def g(x, y):\n    print(x)\n    return {' - '.join(['x + y'] * 8)}")])
    assert benchmarks.match(one + " * 0") is not None
    assert benchmarks.match(f"def f(a, b):\n    {' - '.join(names[:7])}\n    return a") is None


def test_long_literals_are_one_token():
    table = "TABLE = [" + ", ".join(map(str, range(99))) + "]\n"
    benchmarks = Benchmarks([("b", table + "def f(x):\n    return TABLE[x] + len(x) * 2\n")])
    assert benchmarks.match(table.replace("9", "-7") + "def g(y):\n    return y\n") is None


def test_other_programs_pass():
    assert BENCHMARKS.match("def f(text, k):\n    return [c for c in text if c != k]\n") is None
    other = (
        BENCHMARK.replace("isalpha", "isdigit")
        .replace("upper", "lower")
        .replace("out.sort(key=", "out.sort(reverse=1, key=")
    )
    assert BENCHMARKS.match(other) is None


def test_what_cannot_be_compared_is_not_passed():
    with pytest.raises(ValueError, match="does not parse"):
        BENCHMARKS.match("def (")
    with pytest.raises(ValueError, match="nested"):
        BENCHMARKS.match("def f(x):\n    return " + " + ".join(["x"] * 900))


def test_a_benchmark_that_cannot_be_read_is_the_users_mistake(tmp_path: Path):
    (tmp_path / "bad.jsonl").write_text('{"code": 3, "input": ""}\n')
    with pytest.raises(UserError, match=r"bad\.jsonl:1: wrong type"):
        Benchmarks.read([tmp_path / "bad.jsonl"])
    with pytest.raises(UserError, match=r"none\.py"):
        Benchmarks.read([tmp_path / "none.py"])
    (tmp_path / "bad.py").write_text("def (")
    with pytest.raises(UserError, match=r"bad\.py"):
        Benchmarks.read([tmp_path / "bad.py"])
    (tmp_path / "good.py").write_text(BENCHMARK)
    assert Benchmarks.read([tmp_path / "good.py"]).match(renamed(BENCHMARK)) is not None


@needs_data
@pytest.mark.parametrize("disguise", DISGUISES)
def test_every_cruxeval_program_is_removed_in_every_disguise(disguise: Callable[[str], str]):
    programs = [program for program in read_programs(CRUXEVAL) if isinstance(program, Program)]
    benchmarks = cruxeval()
    assert len(programs) == 800
    assert [p.id for p in programs if benchmarks.match(disguise(p.source)) is None] == []


@needs_data
def test_at_most_one_percent_of_synthetic_programs_is_removed():
    benchmarks = cruxeval()
    found = [(p.id, benchmarks.match(p.source)) for p in generate(SyntheticConfig(), 0, 0, 2_000)]
    removed = [f"{name}: {match.detail}" for name, match in found if match]
    assert len(removed) <= 20, "\n".join(removed)
