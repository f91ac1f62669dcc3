"""Shares of what programs consist of."""

from nd_jax.programs.describe import describe
from nd_jax.programs.program import Program


def program(source: str, entry: str = "f") -> Program:
    return Program("p", source, entry, "")


def test_shares_are_fractions_of_the_programs():
    figures = describe(
        iter(
            [
                program("def g():\n    return 1\ndef f():\n    for x in y:\n        g()"),
                program("def f():\n    while x:\n        if x:\n            return [a for a in b]"),
                program("class A:\n    def m(self):\n        assert self\ndef f():\n    return A().m()"),
                program("def g():\n    return 1\ndef f():\n    return f()"),
                program("def f("),
                program("def f("),
                program("def f():\n    try:\n        match x:\n            case 1: pass\n    finally: pass"),
                program("def f():\n    raise x"),
            ]
        )
    )
    assert figures == {
        "programs": 8,
        "distinct": 7 / 8,
        "loops": 2 / 8,
        "whiles": 1 / 8,
        "second_function": 2 / 8,
        "branches": 2 / 8,
        "exceptions": 3 / 8,
        "comprehensions": 1 / 8,
    }


def test_no_programs_have_nothing():
    assert set(describe([]).values()) == {0}
