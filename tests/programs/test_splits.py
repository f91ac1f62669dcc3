"""The split: what it must not see, what it must, and that it never moves."""

import ast
import sys

import pytest

from nd_jax.programs import splits
from nd_jax.programs.splits import normalised_source, split_of

SOURCE = '''def f(text, k):
    """Say it k times."""
    out = []
    for c in text:  # each character
        out.append(c.upper() * k)
    return f"<{''.join(out)!r}>"
'''


@pytest.mark.parametrize(
    "copy",
    [
        SOURCE.replace("text", "word").replace("out", "res").replace("def f", "def shout"),
        SOURCE.replace('    """Say it k times."""\n', "").replace("  # each character", ""),
        SOURCE.replace("    ", "\t").replace("return ", "\n\treturn (").replace('r}>"', 'r}>")'),
        SOURCE.replace('"<{', '"says: {').replace("''.join", "'-'.join"),
    ],
    ids=["names", "docstring", "layout", "literals"],
)
def test_names_literals_docstrings_and_layout_do_not_count(copy: str):
    assert copy != SOURCE
    assert normalised_source(copy) == normalised_source(SOURCE)


@pytest.mark.parametrize(
    ("old", "new"), [("upper", "lower"), ("* k", "+ k"), ("c.upper", "text.upper"), ("''", "0"), ("!r", "!s")]
)
def test_what_the_program_does_counts(old: str, new: str):
    assert normalised_source(SOURCE.replace(old, new)) != normalised_source(SOURCE)


def test_names_that_the_program_binds_are_told_from_those_it_uses():
    assert normalised_source("len = 1\nprint(len)") == normalised_source("n = 2\nprint(n)")
    assert normalised_source("print(len)") != normalised_source("print(sum)")
    assert normalised_source("import numpy as np\nnp.log(1)") == normalised_source(
        "import numpy as n\nn.log(2)"
    )
    assert normalised_source("import numpy as np") != normalised_source("import math as np")
    point = "class P:\n    k = 1\n    def go(self):\n        self.x = self.k\nP().go()"
    renamed = (
        point.replace("P", "Q").replace("go", "run").replace("x", "y").replace("k", "m").replace("self", "me")
    )
    assert normalised_source(point) == normalised_source(renamed)
    both = "def f(a, b):\n    return a - b"
    assert normalised_source(both) != normalised_source(both.replace("a - b", "b - a"))


def test_fields_of_later_versions_change_nothing(monkeypatch: pytest.MonkeyPatch):
    expected = normalised_source(SOURCE)
    fields = (*ast.FunctionDef._fields, "type_params", "later")
    monkeypatch.setattr(ast.FunctionDef, "_fields", fields)
    monkeypatch.setattr(ast.FunctionDef, "type_params", [], raising=False)
    monkeypatch.setattr(splits, "_fields_of", splits._fields_of.__wrapped__)
    assert normalised_source(SOURCE) == expected


def test_text_that_does_not_parse_is_its_own_form():
    assert normalised_source("def (") == "def ("
    assert normalised_source("x\0") == "x\0"
    assert split_of("'\ud800") in {"train", "heldout"}


def test_a_long_expression_needs_no_deep_recursion():
    source = "x = " + " + ".join("1" * (sys.getrecursionlimit() // 2))
    assert "BinOp" in normalised_source(source)
    depth = "def f(x):\n    return " + "-" * 200 + "x"
    assert normalised_source(depth).count("UnaryOp") == 200


def test_splits_never_move():
    assert normalised_source("def f(x):\n    return x + 1\n") == (
        "Module( body=FunctionDef( name=_0, args=arguments( args=arg( arg=_1,),), "
        "body=Return( value=BinOp( left=Name( id=_1,), op=Add(), right=Constant(int),),),),)"
    )
    sources = [f"def f(x):\n    return x{' + x' * n}\n" for n in range(100)]
    assert [n for n, source in enumerate(sources) if split_of(source) == "heldout"] == [
        8,
        17,
        27,
        30,
        34,
        46,
        95,
        99,
    ]
