"""Score CRUXEval answers: three verdicts side by side; nothing that a model wrote is executed here.

For the **output** task an answer is the text of the value of ``f(input)``; for the **input** task it is a
call ``f(...)`` that should give the known output. The verdicts:

- official. Output: ``assert {output} == {answer}`` holds, as in the official harness, where the answer is a
  literal. Input: the call, run in a limited worker, gives a value equal (``==``) to the reference output.
- strict. The same, and the types agree: bool, int and float differ, -0.0 differs from 0.0, nan equals nan.
  The order of sets and dicts does not count, as in ``==``.
- exact. Output: the answer is the reference text, character by character. Input: it is ``f({input})``.

Where this differs from the official harness, on purpose. The harness runs whatever the answer makes of the
statement, so ``2 or 1`` (precedence), ``1, 'x'`` (an assertion message) and an object that equals everything
pass there. Here an answer to the output task that is not one literal is wrong, and flagged; so is an answer
to the input task that is not one call of the entry function, or whose arguments are no plain values (such as
a lambda, unless it is the reference's own call). The harness leaves an output answer that holds the text
``f({input})``, and an input answer without ``f(``, out of the list of answers, wrong only when no other is
right; here it counts as any wrong answer does. A tuple without parentheses is wrong there and here
(official), while it is a right literal (strict).
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from nd_jax.evaluation import literals
from nd_jax.programs.program import Program
from nd_jax.tracing.pool import Evaluation, WorkerLimits, evaluate

# What an expression may be made of to run next to the program: it does nothing but give a value.
_PLAIN_NODES = (ast.Constant, ast.List, ast.Tuple, ast.Set, ast.Dict, ast.UnaryOp, ast.BinOp, ast.Starred,
                ast.keyword, ast.unaryop, ast.operator, ast.expr_context)  # fmt: skip
_PLAIN_TYPES = frozenset({"bytearray", "complex", "float", "frozenset", "range", "set"})


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


@dataclass(slots=True)
class _Answer:
    """An answer to the input task on its way to a verdict; `_read` makes it.

    Attributes:
      flag: why it does not count by its value, or None.
      arguments: an expression of its arguments, where these are to become plain values first; else "".
      call: the call, ready to run next to the program; "" where it is not to run.
      value: text of what the call gave.
    """

    flag: str | None = None
    arguments: str = ""
    call: str = ""
    value: str | None = None


def score_inputs(
    programs: Sequence[Program], answers: Sequence[Sequence[str]], limits: WorkerLimits, workers: int
) -> list[list[Verdict]]:
    """Score answers to "which call returns this?", running them in limited workers.

    A process that ran what a model wrote may say anything. So the call runs where only the program and plain
    values do; arguments that are more than that are evaluated before, in other processes, and only the text
    of their values counts.

    Args:
      programs: with ``output``, the references.
      answers: for every program its answers, each the text of a call such as ``"f(1, [2])"``.
      limits: what a worker may use.
      workers: how many run side by side.

    Returns:
      For every program the verdicts on its answers, in order.
    """
    rows = [[_read(program, text) for text in row] for program, row in zip(programs, answers, strict=True)]

    def run(attribute: Literal["arguments", "call"]) -> Iterator[tuple[Program, _Answer, str]]:
        """Evaluate one expression of each answer that has it; give the values' texts, and flag failures."""
        chosen = [[answer for answer in row if getattr(answer, attribute)] for row in rows]
        jobs = (
            Evaluation(program.id, program.source, tuple(getattr(answer, attribute) for answer in row))
            for program, row in zip(programs, chosen, strict=True)
        )
        for program, row, outcome in zip(programs, chosen, evaluate(jobs, limits, workers), strict=True):
            for answer, value, error in zip(row, outcome.values, outcome.errors, strict=True):
                if value is None:
                    answer.flag = f"did not run: {error}"
                else:
                    yield program, answer, value

    for program, answer, value in run("arguments"):
        match literals.asserted(value):
            case ast.Tuple(elts=[ast.Tuple(), ast.Dict()]) as given if _is_plain(given):
                answer.call = f"(lambda given: {program.entry}(*given[0], **given[1]))({value})"
            case _:
                answer.flag = "its arguments are no plain values"
    for _, answer, value in run("call"):
        answer.value = value
    return [
        [_verdict(program, text, answer) for text, answer in zip(texts, row, strict=True)]
        for program, texts, row in zip(programs, answers, rows, strict=True)
    ]


def _verdict(program: Program, text: str, answer: _Answer) -> Verdict:
    exact = text == _call(program)
    if answer.value is None:
        return Verdict(False, False, exact, answer.flag)
    reference = _reference(program)
    official = literals.loosely_equal(reference, answer.value)
    return Verdict(official, literals.strictly_equal(reference, answer.value), exact)


def _call(program: Program) -> str:
    return f"{program.entry}({program.arguments})"


def _reference(program: Program) -> str:
    if program.output is None:
        raise ValueError(f"program {program.id} has no output to score against")
    return program.output


def _read(program: Program, text: str) -> _Answer:
    """Take an answer to the input task apart, without running it."""
    if len(text) > literals.MAX_CHARS:
        return _Answer("too long")
    if f"{program.entry}(" not in text:
        return _Answer(f"no call of {program.entry}")
    match literals.asserted(text):
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) as call if name == program.entry:
            pass
        case _:
            return _Answer(f"not one call of {program.entry}")
    if text == _call(program) or all(map(_is_plain, (*args, *keywords))):
        return _Answer(call=text.strip())
    call.func = ast.Name("_arguments")
    try:
        given = ast.unparse(call)
    except RecursionError:
        return _Answer("nested too deeply")
    return _Answer(arguments=f"(lambda _arguments: {given})(lambda *args, **kwargs: (args, kwargs))")


def _is_plain(expression: ast.AST) -> bool:
    """Tell whether an expression is made of literals, operators on them and calls of built-in types."""
    nodes = list(ast.walk(expression))
    called = {
        id(node.func)
        for node in nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _PLAIN_TYPES
    }
    return all(isinstance(node, (*_PLAIN_NODES, ast.Call)) or id(node) in called for node in nodes)
