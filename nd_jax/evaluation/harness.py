"""CRUXEval's official harness, emulated with its quirks; whatever it would execute runs in limited workers.

The harness puts an answer g behind the program as ``assert {output} == {g}``, for both tasks, and asks if
that runs. So it passes what only looks right (``2 or 1``, ``1, 'x'``, objects that equal all) and fails
what is right (a tuple without parentheses, nan). An output answer with ``f({input})`` and an input answer
without ``f(`` are left out of a program's results; if none of these passed, they become all wrong. It prints
pass@5 for any number of samples, 1 for a program with fewer than 5 wrong ones.

An answer that walks the harness's own stack to its list of results passes there; here there is none to find.
"""

from collections.abc import Sequence
from typing import Any

from nd_jax.evaluation import literals
from nd_jax.programs.program import Program
from nd_jax.tracing.pool import Evaluation, WorkerLimits, evaluate

LIMITS = WorkerLimits(cpu_s=3, wall_s=3.0)
"""The harness gives an answer 3 seconds."""


def harness(
    programs: Sequence[Program],
    answers: Sequence[Sequence[str]],
    task: str,
    workers: int,
    limits: WorkerLimits = LIMITS,
) -> dict[str, Any]:
    """Score answers as the official harness does.

    Args:
      programs: with their outputs.
      answers: for every program its answers.
      task: "output" or "input".
      workers: how many answers run side by side.
      limits: what running one answer may use.

    Returns:
      What the harness writes: ``{raw_generations, raw_scored_generations, pass_at_1, pass_at_5}``, the last
      two in percent.
    """
    asked = [
        [text for text in row if _counts(p, text, task)] for p, row in zip(programs, answers, strict=True)
    ]
    ran = evaluate(
        (
            Evaluation(program.id, f"{program.source}\nassert {program.output} == {text}", ("True",))
            for program, row in zip(programs, asked, strict=True)
            for text in row
            if not _simple(program, text)
        ),
        limits,
        workers,
    )
    scored: dict[str, list[bool]] = {}
    for program, texts, row in zip(programs, answers, asked, strict=True):
        results = [
            _equal(program, text) if _simple(program, text) else next(ran).values[0] == "True" for text in row
        ]
        scored[program.id] = results if True in results else [False] * len(texts)
    return {
        "raw_generations": {program.id: list(row) for program, row in zip(programs, answers, strict=True)},
        "raw_scored_generations": scored,
        **{f"pass_at_{k}": 100 * _mean([_pass_at_k(row, k) for row in scored.values()]) for k in (1, 5)},
    }


def _counts(program: Program, text: str, task: str) -> bool:
    return f"f({program.arguments})" not in text if task == "output" else "f(" in text


def _simple(program: Program, text: str) -> bool:
    """Whether both sides of the comparison are literals, so that nothing need run to compare them."""
    return len(text) <= literals.MAX_CHARS and literals.NOT_LITERAL not in (
        literals.literal(program.output or ""),
        literals.literal(text),
    )


def _equal(program: Program, text: str) -> bool:
    return literals.loosely_equal(program.output or "", text)


def _pass_at_k(results: Sequence[bool], k: int) -> float:
    """The harness's estimator: it asks not whether there are k results."""
    samples, right = len(results), sum(results)
    if samples - right < k:
        return 1.0
    chance = 1.0
    for n in range(samples - right + 1, samples + 1):
        chance *= 1.0 - k / n
    return 1.0 - chance


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
