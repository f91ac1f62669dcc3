"""What kind of programs a score was measured on."""

import ast
from collections.abc import Iterable
from typing import Any

from nd_jax.tracing.schema import EXCEPTION, Trace


def describe(traces: Iterable[Trace]) -> dict[str, Any]:
    """Count programs and say what they do, as shares of the programs.

    Returns:
      ``programs``; ``loop`` and ``branch``: a ``for`` or ``while``, or an ``if`` statement stands in the
      source;
      ``second_function`` and ``exception``: the run entered another named function, or met an exception;
      ``events_mean``.
    """
    count = events = 0
    shares = dict.fromkeys(("loop", "branch", "second_function", "exception"), 0)
    for trace in traces:
        nodes = {type(node) for node in ast.walk(ast.parse(trace.source))}
        # Comprehensions and lambdas are frames too, named <listcomp> and the like.
        functions = {name for name in trace.functions if not name.startswith("<")}
        shares["loop"] += bool(nodes & {ast.For, ast.While})
        shares["branch"] += ast.If in nodes
        shares["second_function"] += len(functions) > 1
        shares["exception"] += any(event.kind == EXCEPTION for event in trace.events)
        count += 1
        events += len(trace.events)
    total = max(1, count)
    return {
        "programs": count,
        **{name: number / total for name, number in shares.items()},
        "events_mean": events / total,
    }
