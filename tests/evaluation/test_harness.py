"""The official harness, emulated: every quirk of it, and no answer does harm."""

import pytest

from nd_jax.errors import UserError
from nd_jax.evaluation.harness import harness
from nd_jax.evaluation.statistics import interval, pass_at_k
from nd_jax.programs.program import Program
from nd_jax.tracing.pool import WorkerLimits

LIMITS = WorkerLimits(cpu_s=1, wall_s=2.0, memory_mb=256)
SOURCE = "def f(x, y=0):\n    return x + y\n"
ALWAYS_EQUAL = "type('E', (), {'__eq__': lambda self, other: True})()"

# What the harness says of an answer to "what does f(3, 4) return?", which is 7; None: it leaves it out.
OUTPUTS = {
    "7": True,
    "8": False,
    " 7": True,
    "7.0": True,
    "\n7": False,  # a syntax error
    "7 or 1": True,
    "0 or 1": True,  # (7 == 0) or 1
    "7, 'x'": True,
    "7 == 7": True,
    "8 == 7": False,
    "3 + 4": True,
    "f( 3, 4)": True,
    "f(3, y=4)": True,
    "(f)(3, 4)": True,
    "f(3, 4)": None,
    "7 # f(3, 4)": None,
    ALWAYS_EQUAL: True,
    "8  # f(": False,
    "nan": False,
    "": False,
    "7)": False,
    "exit()": False,
    "7; exit()": False,
    "__import__('os')._exit(0)": False,
    "sum(range(10**9))": False,
    "'a' * 10**12": False,
    "\u0667": False,
    "int('\u0667')": True,
    "[" * 3000 + "]" * 3000: False,
}
# And to "which call returns 7?".
INPUTS = {
    "f(3, 4)": True,
    "f(7)": True,
    "f(2)": False,
    "f(2) or True": True,
    "7 # f(": True,
    "1 # f(": False,
    "(f)(7)": None,
    "7": None,
    "assert f(7)": False,
    "f(7), 'message'": True,
    "f(" + ALWAYS_EQUAL.replace("'__eq__'", "'__add__': lambda s, o: s, '__eq__'") + ")": True,
    "f(exit())": False,
    "f(float('nan'))": False,
}


@pytest.mark.parametrize(("task", "answers"), [("output", OUTPUTS), ("input", INPUTS)])
def test_every_answer_has_the_verdict_that_the_harness_gives(task, answers):
    programs = [Program(str(k), SOURCE, "f", "3, 4", "7") for k in range(len(answers))]
    # A right answer beside each shows which are left out: else these would count as wrong.
    right = "7" if task == "output" else "f(7)"
    result = harness(programs, [[right, text] for text in answers], task, 2, LIMITS)
    got = {
        text: row[1:] for text, row in zip(answers, result["raw_scored_generations"].values(), strict=True)
    }
    assert got == {text: [] if verdict is None else [verdict] for text, verdict in answers.items()}


def test_what_is_left_out_and_what_is_printed():
    programs = [Program(str(k), SOURCE, "f", "3, 4", "7") for k in range(3)]
    result = harness(programs, [["f(3, 4)", "7"], ["f(3, 4)", "8"], []], "output", 1, LIMITS)
    assert result["raw_scored_generations"] == {"0": [True], "1": [False, False], "2": []}
    assert result["raw_generations"]["0"] == ["f(3, 4)", "7"]
    assert result["pass_at_1"] == pytest.approx(100 * 2 / 3)  # nothing to score counts as right
    assert result["pass_at_5"] == 100.0  # of at most two answers


def test_a_tuple_without_parentheses_is_a_message():
    program = Program("t", "def f():\n    return 1, 2\n", "f", "", "(1, 2)")
    result = harness([program], [["1, 2", "(1, 2)"]], "output", 1, LIMITS)
    assert result["raw_scored_generations"] == {"t": [False, True]}


def test_pass_at_k_is_the_share_of_draws_with_a_right_answer():
    assert pass_at_k(0, 10, 1) == 0.0
    assert pass_at_k(3, 10, 1) == pytest.approx(0.3)
    assert pass_at_k(1, 4, 2) == pytest.approx(1 / 2)
    assert pass_at_k(2, 4, 3) == 1.0
    assert pass_at_k(3, 10, 5) == pytest.approx(1 - 21 / 252)
    for k in (0, 5):
        with pytest.raises(UserError, match=f"pass@{k} cannot be estimated from 1 answers"):
            pass_at_k(1, 1, k)


def test_an_interval_draws_programs_with_all_their_values():
    assert interval([1.0] * 9, range(9), seed=0) == [1.0, 1.0]
    alone = interval([0.0, 1.0] * 50, range(100), seed=0)
    assert alone[0] == pytest.approx(0.4, abs=0.03)
    assert alone[1] == pytest.approx(0.6, abs=0.03)
    together = interval([0.0] * 50 + [1.0] * 50, [0] * 50 + [1] * 50, seed=0)
    assert together == [0.0, 1.0]
