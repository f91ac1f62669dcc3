"""CRUXEval's scores by what a program is like: type and length of its output, steps, exceptions."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nd_jax.evaluation import literals
from nd_jax.evaluation.statistics import interval
from nd_jax.programs.program import Program
from nd_jax.tracing.schema import EXCEPTION, Trace

STEPS = (4, 7, 14, 29)
"""Upper ends of the ranges of steps; CRUXEval's quartiles and its 90th percentile."""
LENGTHS = (4, 9, 19, 39)
"""Upper ends of the ranges of an output's characters."""
UNKNOWN = "unknown"
"""Where a program could not be recorded, or its output is no literal."""


def breakdown(
    programs: Sequence[Program],
    traces: Sequence[Trace | None],
    scores: Mapping[str, Sequence[float]],
    seed: int = 0,
) -> dict[str, dict[str, dict[str, Any]]]:
    """Mean scores in every group of programs.

    Args:
      programs: with their outputs.
      traces: of each, where there is one.
      scores: by verdict, a score per program.
      seed: seeds the resampling.

    Returns:
      ``{kind: {group: {n, <verdict>, <verdict>_95}}}`` for the kinds ``type``, ``steps``, ``exceptions`` and
      ``length``.
    """
    kinds: dict[str, list[str]] = {
        "type": [answer_type(program.output or "") for program in programs],
        "steps": [UNKNOWN if trace is None else _range(len(trace.events) - 1, STEPS) for trace in traces],
        "exceptions": [_exceptions(trace) for trace in traces],
        "length": [_range(len(program.output or ""), LENGTHS) for program in programs],
    }
    return {kind: _by_group(groups, scores, seed) for kind, groups in kinds.items()}


def answer_type(output: str) -> str:
    """Name of the type of the value that a text writes."""
    match literals.canonical(output):
        case (str(name), *_):
            return name
        case _:
            return UNKNOWN


def _exceptions(trace: Trace | None) -> str:
    if trace is None:
        return UNKNOWN
    return "raised" if any(event.kind == EXCEPTION for event in trace.events) else "none"


def _range(number: int, ends: Sequence[int]) -> str:
    """The range that a number is in, its numbers of equal width so that texts sort as numbers do."""
    width = len(str(ends[-1]))
    low = 0
    for high in ends:
        if number <= high:
            return f"{low:{width}}-{high:{width}}"
        low = high + 1
    return f"{low:{width}}+"


def _by_group(
    groups: Sequence[str], scores: Mapping[str, Sequence[float]], seed: int
) -> dict[str, dict[str, Any]]:
    result: dict[str, dict[str, Any]] = {}
    for group in sorted(set(groups)):
        chosen = np.array([name == group for name in groups])
        result[group] = {"n": int(chosen.sum())}
        for verdict, column in scores.items():
            values = np.asarray(column, float)[chosen]
            result[group][verdict] = float(values.mean())
            result[group][f"{verdict}_95"] = interval(values, np.arange(len(values)), seed)
    return result
