"""Verdicts on answers to the output task: what is right, what only looks right, and what must do no harm."""

import json
import os
from pathlib import Path

import pytest

from nd_jax.evaluation.scoring import Verdict, score_output
from nd_jax.programs.program import Program

CRUXEVAL = Path(os.environ.get("ND_DATA", "../shared/data")) / "cruxeval.jsonl"
ALWAYS_EQUAL = "type('E', (), {'__eq__': lambda self, other: True})()"


def verdict(reference: str, answer: str, arguments: str = "'some input'") -> Verdict:
    return score_output(Program("p", "def f(x):\n    return x\n", "f", arguments, reference), answer)


# reference, answer, then whether it is right by the official comparison, strictly, exactly
VALUES = [
    ("1", "1", True, True, True),
    ("1", "2", False, False, False),
    ("1", " 1", True, True, False),
    ("1", "1\n", True, True, False),
    ("1", "\n1", False, True, False),  # `assert 1 == \n1` is a syntax error
    ("1", "1  # f(", True, True, False),
    ("1", "(1)", True, True, False),
    ("1", "True", True, False, False),
    ("1", "1.0", True, False, False),
    ("True", "1", True, False, False),
    ("[1, 0]", "[True, False]", True, False, False),
    ("0.0", "-0.0", True, False, False),
    ("-0.0", "-0.0", True, True, True),
    ("10000000000000000", "1e16", True, False, False),
    ("1e16", "1e+16", True, True, False),
    ("nan", "nan", False, True, True),  # no name nan in the harness, and nan is not equal to itself
    ("[nan, inf]", "[nan,  inf]", False, True, False),
    ("inf", "1e999", False, True, False),
    ("{1, 2}", "{2, 1}", True, True, False),
    ("{1, 2}", "{True, 2}", True, False, False),
    ("{'a': 1, 'b': 2}", "{'b': 2, 'a': 1}", True, True, False),
    ("{1: 'a'}", "{1.0: 'a'}", True, False, False),
    ("{1: None}", "{1: {}}", False, False, False),
    ("set()", "set()", True, True, True),
    ("(1, 2)", "(1, 2)", True, True, True),
    ("(1, 2)", "[1, 2]", False, False, False),
    ("(1, 2)", "1, 2", False, True, False),  # the 2 is the assertion's message there
    ("(1,)", "(1)", False, False, False),
    ("'abc'", '"abc"', True, True, False),
    ("'abc'", "'a' 'bc'", True, True, False),
    ("'abc'", "abc", False, False, False),
    ("'abc'", "b'abc'", False, False, False),
    ("'a\\n'", '"""a\n"""', True, True, False),
    ("''", "", False, False, False),
    ("'\\u202e'", "'\u202e'", True, True, False),
    ("b'a'", "b'\\x61'", True, True, False),
]


@pytest.mark.parametrize(("reference", "answer", "official", "strict", "exact"), VALUES)
def test_literals_are_compared_by_value_by_type_and_by_text(reference, answer, official, strict, exact):
    got = verdict(reference, answer)
    assert (got.official, got.strict, got.exact) == (official, strict, exact)


# Each of these passes in the official harness, or would harm the process that runs it.
CHEATS = [
    ("2", "2 or 1", "not a literal"),
    ("2", "0 or 1", "not a literal"),
    ("1", "1, 'x'", "not a literal"),
    ("1", "1 == 1", "not a literal"),
    ("1", "1 if True else 2", "not a literal"),
    ("1", "3 - 2", "not a literal"),
    ("1", ALWAYS_EQUAL, "not a literal"),
    ("1", "exit()", "not a literal"),
    ("1", "1; exit()", "not a literal"),
    ("1", "1\nimport os; os._exit(0)", "not a literal"),
    ("1", "__import__('os').system('touch /tmp/pwned')", "not a literal"),
    ("1", "__import__('sys')._getframe(3).f_locals['result'].append('passed')", "not a literal"),
    ("45", "sum(range(10))", "not a literal"),
    ("1", "sum(range(10**9))", "not a literal"),
    ("1", "10**10**9", "not a literal"),
    ("1", "'a' * 10**12", "not a literal"),
    ("1", "f'{1}'", "not a literal"),
    ("1", "[x for x in iter(int, 1)]", "not a literal"),
    ("1", "(yield)", "not a literal"),
    ("1", "1)", "not a literal"),
    ("1", "١", "not a literal"),  # a digit by str.isdigit, none in Python
    ("1", "int('١')", "not a literal"),
    ("'some input'", "f( 'some input')", "not a literal"),
    ("'some input'", "f('some input')", "repeats the call"),
    ("1", "1 # f('some input')", "repeats the call"),
    ("1", "{[]: 1}", "not a literal"),
    ("1", "'\\ud800", "not a literal"),
    ("1", "'\ud800'", "not a literal"),
    ("1", "1\0", "not a literal"),
    ("1", "9" * 5_000, "not a literal"),  # more digits than Python converts
    ("1", "-" * 9_000 + "1", "not a literal"),
    ("1", "not " * 2_000 + "1", "not a literal"),
    ("1", "[" * 5_000 + "]" * 5_000, "not a literal"),
    ("1", "[" * 150 + "]" * 150, None),
    ("1", "1" + "+1" * 4_000, "not a literal"),
    ("1", "a" + ".a" * 4_000, "not a literal"),
    ("1", "f" + "()" * 4_000, "not a literal"),
    ("1", "1" + " if 1 else 1" * 800, "not a literal"),
    ("1", "'" + "a" * 1_000_000 + "'", "too long"),
    ("1", "(" * 1_000_000, "too long"),
    ("1", "9" * 10_000_000, "too long"),
]


@pytest.mark.parametrize(
    ("reference", "answer", "flag"), CHEATS, ids=[answer[:24] for _, answer, _ in CHEATS]
)
def test_what_is_no_literal_is_wrong_flagged_and_never_run(reference, answer, flag):
    got = verdict(reference, answer)
    assert not got.official
    assert not got.exact
    assert got.flag == flag
    assert not Path("/tmp/pwned").exists()


def test_a_value_without_a_literal_form_is_compared_as_text():
    assert verdict("Decimal('1.0')", "Decimal('1.0')") == Verdict(True, True, True, "not a literal")
    assert verdict("Decimal('1.0')", "Decimal('1.00')") == Verdict(False, False, False, "not a literal")


def test_the_reference_itself_may_be_long():
    text = repr("x" * 20_000)
    assert verdict(text, text) == Verdict(True, True, True, "too long")


def test_a_program_without_a_reference_is_refused():
    with pytest.raises(ValueError, match="p has no output"):
        score_output(Program("p", "", "f", ""), "1")


@pytest.mark.skipif(not CRUXEVAL.exists(), reason=f"needs {CRUXEVAL}")
def test_the_reference_outputs_are_all_right():
    rows = [json.loads(line) for line in CRUXEVAL.read_text(encoding="utf-8").splitlines()]
    programs = [Program(row["id"], row["code"], "f", row["input"], row["output"]) for row in rows]
    verdicts = [score_output(program, program.output or "") for program in programs]
    assert verdicts == [Verdict(True, True, True)] * 800
