"""Duplicates: which ones go, and that the first one stays."""

import pytest

from nd_jax.corpus.deduplicate import DeduplicationConfig, Duplicates
from nd_jax.errors import UserError
from nd_jax.tracing.schema import Trace

ADD = "def f(x):\n    return x + 1\n"
SAME = "def g(n):\n    # one more\n    return n + 2\n"


def trace(id: str, source: str, arguments: str, entry: str = "f") -> Trace:
    return Trace(id, source, entry, arguments, "3.11.7", [], [])


GIVEN = [
    trace("a", ADD, "1"),
    trace("b", ADD, "1"),
    trace("c", ADD, "2"),
    trace("d", SAME, "1", "g"),
    trace("e", ADD.replace("+", "-"), "1"),
    trace("f", ADD, "3"),
]


def kept(**settings) -> str:
    rule = Duplicates(DeduplicationConfig(**settings))
    return "".join(t.id for t in GIVEN if rule(t) is None)


def test_exact_duplicates_have_the_same_source_and_call():
    assert kept(by="exact") == "acdef"


def test_one_trace_of_each_normalised_source():
    assert kept() == "ae"
    assert kept(most=2) == "ace"
    assert kept(most=3) == "acde"


def test_a_removal_names_what_it_repeats():
    rule = Duplicates(DeduplicationConfig(most=2))
    removals = [rule(t) for t in GIVEN]
    assert [tuple(r) for r in removals if r] == [
        ("duplicate program", "the same as a"),
        ("duplicate source", "the same, normalised, as a"),
        ("duplicate source", "the same, normalised, as a"),
    ]


def test_at_least_one_stays():
    with pytest.raises(UserError, match="most=0"):
        Duplicates(DeduplicationConfig(most=0))
