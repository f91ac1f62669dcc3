"""Score CRUXEval answers: three verdicts side by side; nothing that a model wrote is executed here.

For the **output** task an answer is the text of the value of ``f(input)``; for the **input** task it is a
call
``f(...)`` that should give the known output. The verdicts:

- official. Output: ``assert {output} == {answer}`` holds, as in the official harness, where the answer is a
  literal. Input: the call, run in a limited worker, gives a value equal (``==``) to the reference output.
- strict. The same, and the types agree: bool, int and float differ, -0.0 differs from 0.0, nan equals nan.
  The order of sets and dicts does not count, as in ``==``.
- exact. Output: the answer is the reference text, character by character. Input: it is ``f({input})``.

Where this differs from the official harness, on purpose. The harness runs whatever the answer makes of the
statement, so ``2 or 1`` (precedence), ``1, 'x'`` (an assertion message) and an object that equals everything
pass there. Here an answer to the output task that is not one literal is wrong, and flagged; so is an answer
to the input task that is not one call of the entry function, or whose arguments reach for frames or the
interpreter. The harness leaves an output answer that holds the text ``f({input})``, and an input answer
without ``f(``, out of the list of answers, wrong only when no other is right; here it counts as any wrong
answer does. A tuple without parentheses is wrong there and here (official), while it is a right literal
(strict).
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from nd_jax.evaluation import literals
from nd_jax.programs.program import Program
from nd_jax.tracing.pool import Evaluation, WorkerLimits, evaluate

# By these an argument could reach for the harness instead of being a value. Workers are limited processes:
# this keeps an answer from bending its own verdict; it is not what protects the machine.
_REACHING_ATTRIBUTES = ("_", "f_", "gi_", "cr_", "ag_", "tb_")
_REACHING_NAMES = frozenset(
    {"breakpoint", "compile", "delattr", "eval", "exec", "gc", "getattr", "globals", "inspect", "locals"}
    | {"open", "os", "setattr", "sys", "vars"}
)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The three verdicts on one answer.

    Attributes:
      flag: why the answer was not compared by its value, such as ``"too long"`` or ``"did not run: ..."``,
      or None.
    """

    official: bool
    strict: bool
    exact: bool
    flag: str | None = None


def score_output(program: Program, answer: str) -> Verdict:
    """Score an answer to "what does this call return?".

    Args:
      program: with ``output``, the reference. Its ``arguments`` serve the harness's skip rule only.
      answer: the text of a value; anything at all.
    """
    reference = _reference(program)
    exact = answer == reference
    if len(answer) > literals.MAX_CHARS:
        return Verdict(exact, exact, exact, "too long")
    strict = literals.strictly_equal(reference, answer)
    if _call(program) in answer:
        return Verdict(False, strict, exact, "repeats the call")
    flag = "not a literal" if literals.literal(answer) is literals.NOT_LITERAL else None
    return Verdict(literals.loosely_equal(reference, answer), strict, exact, flag)


def score_inputs(
    programs: Sequence[Program], answers: Sequence[Sequence[str]], limits: WorkerLimits, workers: int
) -> list[list[Verdict]]:
    """Score answers to "which call returns this?", running them in limited workers.

    Args:
      programs: with ``output``, the references.
      answers: for every program its answers, each the text of a call such as ``"f(1, [2])"``.
      limits: what a worker may use.
      workers: how many run side by side.

    Returns:
      For every program the verdicts on its answers, in order.
    """
    rows = list(zip(programs, answers, strict=True))
    jobs = (
        Evaluation(program.id, program.source, tuple(a.strip() for a in row if not _flag(program, a)))
        for program, row in rows
    )
    verdicts: list[list[Verdict]] = []
    for (program, row), outcome in zip(rows, evaluate(jobs, limits, workers), strict=True):
        ran = iter(zip(outcome.values, outcome.errors, strict=True))
        verdicts.append([])
        for answer in row:
            flag = _flag(program, answer)
            value, error = (None, None) if flag else next(ran)
            exact = answer == _call(program)
            if value is None:
                verdict = Verdict(False, False, exact, flag or f"did not run: {error}")
            else:
                official = literals.loosely_equal(_reference(program), value)
                verdict = Verdict(official, literals.strictly_equal(_reference(program), value), exact)
            verdicts[-1].append(verdict)
    return verdicts


def _call(program: Program) -> str:
    return f"{program.entry}({program.arguments})"


def _reference(program: Program) -> str:
    if program.output is None:
        raise ValueError(f"program {program.id} has no output to score against")
    return program.output


def _flag(program: Program, answer: str) -> str | None:
    """Why an answer to the input task is not run, or None if it is one call that reaches for nothing odd."""
    if len(answer) > literals.MAX_CHARS:
        return "too long"
    if f"{program.entry}(" not in answer:
        return f"no call of {program.entry}"
    match expression := literals.asserted(answer):
        case ast.Call(func=ast.Name(id=name)) if name == program.entry:
            pass
        case _:
            return f"not one call of {program.entry}"
    for node in ast.walk(expression):
        if isinstance(node, ast.Attribute) and node.attr.startswith(_REACHING_ATTRIBUTES):
            return f"reaches for .{node.attr}"
        if isinstance(node, ast.Name) and (node.id in _REACHING_NAMES or node.id.startswith("__")):
            return f"reaches for {node.id}"
    return None
