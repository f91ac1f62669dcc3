"""Record programs for tests."""

from collections.abc import Iterable

from nd_jax.programs.program import Program
from nd_jax.tracing.recorder import TraceLimits, trace_program
from nd_jax.tracing.schema import Trace


def trace(source: str, call: str, name: str = "program") -> Trace:
    """Record a call such as ``f(1, 2)``."""
    entry, _, arguments = call.partition("(")
    recorded = trace_program(Program(name, source, entry, arguments.removesuffix(")")), TraceLimits())
    assert isinstance(recorded, Trace), recorded
    return recorded


def traces(programs: Iterable[object]) -> list[Trace]:
    """Record programs; those without a trace are left out."""
    recorded = (trace_program(p, TraceLimits(events=400)) for p in programs if isinstance(p, Program))
    return [trace for trace in recorded if isinstance(trace, Trace)]
