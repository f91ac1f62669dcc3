"""Verdicts on answers to the input task, which are calls, run in limited workers."""

import json
import os
from pathlib import Path

import pytest

from nd_jax.evaluation.scoring import score_inputs
from nd_jax.programs.program import Program
from nd_jax.tracing.pool import WorkerLimits

CRUXEVAL = Path(os.environ.get("ND_DATA", "../shared/data")) / "cruxeval.jsonl"
LIMITS = WorkerLimits(cpu_s=1, wall_s=2.0, memory_mb=256)
SOURCE = """BASE = 10
def f(x, y=0):
    return x + y
"""
PROGRAM = Program("p", SOURCE, "f", "3, 4", "7")

# answer -> right by the official comparison, strictly, exactly, and why it was not run or gave nothing
ANSWERS = {
    "f(3, 4)": (True, True, True, None),
    "f(3, y=4)": (True, True, False, None),
    "f( 7)": (True, True, False, None),
    " f(7)": (True, True, False, None),
    "(f)(7); f(": (False, False, False, "not one call of f"),
    "(f(7))": (True, True, False, None),
    "f(7)  # so": (True, True, False, None),
    "f(7.0)": (True, False, False, None),
    "f(True, 6)": (True, True, False, None),
    "f(BASE, -3)": (True, True, False, None),
    "f(len('abc'), 4)": (True, True, False, None),
    "f((lambda: 7)())": (True, True, False, None),
    "f(*[3, 4])": (True, True, False, None),
    "f(2)": (False, False, False, None),
    "f('7')": (False, False, False, "did not run: TypeError"),
    "f(": (False, False, False, "not one call of f"),
    "": (False, False, False, "no call of f"),
    "7": (False, False, False, "no call of f"),
    "g(f(7))": (False, False, False, "not one call of f"),
    "g(7)": (False, False, False, "no call of f"),
    "1 # f(": (False, False, False, "not one call of f"),
    "f(2) or True": (False, False, False, "not one call of f"),
    "f(2), f(7)": (False, False, False, "not one call of f"),
    "f(7), 'message'": (False, False, False, "not one call of f"),
    "f(7) == 7": (False, False, False, "not one call of f"),
    "f(3, 4).real": (False, False, False, "not one call of f"),
    "f(7)\nexit()": (False, False, False, "not one call of f"),
    "assert f(7)": (False, False, False, "not one call of f"),
    "f(exit())": (False, False, False, "did not run: "),
    "f(__import__('os')._exit(0))": (False, False, False, "did not run: exit"),
    "f((x for x in [7]).gi_frame)": (False, False, False, "its arguments are no plain values"),
    "f(lambda: 7)": (False, False, False, "its arguments are no plain values"),
    "f(" + "-" * 500 + "BASE, 17)": (False, False, False, "nested too deeply"),
    "f(f(3), 4)": (True, True, False, None),
    "f([n for n in range(8)][-1])": (True, True, False, None),
    "f(range(5))": (False, False, False, "did not run: TypeError"),
    "f(*(3,), **dict(y=4))": (True, True, False, None),
    "f(sum(range(10**9)))": (False, False, False, "did not run: "),
    "f('a' * 10**10)": (False, False, False, "did not run: "),
    "f(10**10**9)": (False, False, False, "did not run: "),
    "f(" + "9" * 5_000 + ")": (False, False, False, "not one call of f"),
    "f(" + "(" * 3_000 + ")": (False, False, False, "not one call of f"),
    "f('" + "a" * 1_000_000 + "')": (False, False, False, "too long"),
    "f('\ud800')": (False, False, False, "not one call of f"),
}


# What an answer can do where it runs: none of it is there any more when its verdict is found. Each would give
# 7, or would call every value 7, if it lasted.
SYS, OS, GC, BUILTINS, STRUCT = (
    f"__import__('{name}')" for name in ("sys", "os", "gc", "builtins", "struct")
)
MODULES = f"[(n, m) for n, m in {SYS}.modules.items() if n.startswith('nd_jax')]"
WORKER = f"next(f for f in map({SYS}._getframe, range(99)) if 'secret' in f.f_locals).f_locals"
FRAME = f"{STRUCT}.pack('<16sIQ', at['secret'], at['index'], 2) + b'V7'"
ADDS = "type('E', (int,), {'__add__': lambda s, o: 7, '__radd__': lambda s, o: 7})"
FORGERIES = [
    "f(globals().update(f=lambda *a: 7))",
    "f(exec('def f(x): return 7', globals()))",
    "f(ｅｘｅｃ('def f(x): return 7', globals()))",
    "f(f.__setattr__('__code__', (lambda *a: 7).__code__))",
    "f(setattr(f, '__defaults__', (7, 7)))",
    f"f({BUILTINS}.__dict__.update(repr=lambda x: '7', str=lambda x: '7'))",
    f"f([setattr(m, 'render', lambda x: '7') for n, m in {MODULES}])",
    f"f([setattr(m, 'evaluate', lambda *a: ('7', None)) for n, m in {MODULES}])",
    f"f([x.update(f=lambda *a: 7) for x in {GC}.get_objects() if type(x) is dict and 'BASE' in x])",
    f"f([x for x in {GC}.get_objects() if x == '7'])",
    "f(type('E', (), {'__eq__': lambda s, o: True, '__add__': lambda s, o: s, '__repr__': lambda s: '7'})())",
    f"f({ADDS}(1), {ADDS}(1))",
    f"f([{OS}.write(n, b'V7') for n in range(3, 4)])",
    f"f([at := {WORKER}, {OS}.write(at['writer'], {FRAME}), {OS}._exit(0)])",
    "f(__import__('threading').Thread(target=lambda: [globals().update(f=lambda *a: 7) for _ in iter(int, 1)]"
    ", daemon=True).start())",
]


def test_a_forged_result_counts_for_nothing():
    honest = "f(3, len('abcd'))"
    between = [answer for forgery in FORGERIES for answer in (forgery, honest)]
    (row,) = score_inputs([PROGRAM], [between], LIMITS, workers=1)
    for forgery, got in zip(FORGERIES, row[::2], strict=True):
        assert (got.official, got.strict, got.exact) == (False, False, False), forgery
        assert got.flag, forgery
    assert all(neighbour.official for neighbour in row[1::2])


@pytest.fixture(scope="module")
def verdicts() -> dict:
    (row,) = score_inputs([PROGRAM], [list(ANSWERS)], LIMITS, workers=2)
    return dict(zip(ANSWERS, row, strict=True))


@pytest.mark.parametrize("answer", ANSWERS, ids=[answer[:24] for answer in ANSWERS])
def test_calls_are_judged_by_what_they_give(verdicts, answer):
    got = verdicts[answer]
    official, strict, exact, flag = ANSWERS[answer]
    assert (got.official, got.strict, got.exact) == (official, strict, exact)
    assert got.flag == flag if flag is None else (got.flag or "").startswith(flag)


def test_each_program_gets_the_verdicts_on_its_own_answers():
    programs = [Program(str(k), "def f(x):\n    return x\n", "f", str(k), str(k)) for k in range(4)]
    answers = [["f(0)", "f(1)"], [], ["nothing", "f(2)"], ["f(2)", "nothing", "f(3)"]]
    scored = score_inputs(programs, answers, LIMITS, workers=2)
    assert [[v.official for v in row] for row in scored] == [
        [True, False],
        [],
        [False, True],
        [False, False, True],
    ]


def test_values_without_a_literal_form():
    programs = [
        Program("nan", "def f(x):\n    return x\n", "f", "float('nan')", "nan"),
        Program(
            "decimal",
            "from decimal import Decimal\ndef f(x):\n    return Decimal(x)\n",
            "f",
            "1",
            "Decimal('1')",
        ),
        Program("tuple", "def f(x):\n    return x\n", "f", "(1, 2)", "(1, 2)"),
        Program("set", "def f(x):\n    return set(x)\n", "f", "[1, 2]", "{2, 1}"),
    ]
    scored = score_inputs(
        programs, [["f(float('nan'))"], ["f('1')"], ["f([1, 2])"], ["f([2, 1, 1])"]], LIMITS, workers=1
    )
    assert [(row[0].official, row[0].strict) for row in scored] == [
        (False, True),
        (True, True),
        (False, False),
        (True, True),
    ]


@pytest.mark.skipif(not CRUXEVAL.exists(), reason=f"needs {CRUXEVAL}")
def test_the_reference_inputs_are_right_lambdas_among_them():
    rows = [json.loads(line) for line in CRUXEVAL.read_text(encoding="utf-8").splitlines()]
    programs = [Program(row["id"], row["code"], "f", row["input"], row["output"]) for row in rows]
    scored = score_inputs(
        programs, [[f"f({program.arguments})"] for program in programs], WorkerLimits(), workers=2
    )
    wrong = {
        program.id: row[0].flag for program, row in zip(programs, scored, strict=True) if not row[0].official
    }
    assert len(wrong) <= 2, wrong
    assert all(
        row[0].strict and row[0].exact
        for program, row in zip(programs, scored, strict=True)
        if program.id not in wrong
    )
