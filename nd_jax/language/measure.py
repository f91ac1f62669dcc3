"""Measure a tokenizer on traces: how many tokens a trace takes, and whether it comes back."""

from collections.abc import Iterable
from dataclasses import dataclass

from nd_jax.debugger.actions import STEP_INTO
from nd_jax.debugger.policy import full_walk
from nd_jax.debugger.tree import StateTree
from nd_jax.language.parse import parse
from nd_jax.language.session import Unrenderable, show
from nd_jax.language.tokenizer import Tokenizer
from nd_jax.tracing.schema import Trace


@dataclass(frozen=True)
class TokenizerFigures:
    """Cost of showing every state of a trace, forward from its entry call.

    Attributes:
      traces: how many were measured.
      tokens_mean: tokens per trace, program included.
      tokens_p95: of 100 traces, 95 take at most this many.
      roundtrip_failures: traces whose session did not come back from its ids exactly.
      refused: traces that the language cannot write, by reason; not among ``traces``.
    """

    traces: int
    tokens_mean: float
    tokens_p95: float
    roundtrip_failures: int
    refused: dict[str, int]


def evaluate(
    tokenizer: Tokenizer, traces: Iterable[Trace], max_events: int | None = None
) -> TokenizerFigures:
    """Encode and decode the full step_into walk of each trace of at most max_events events."""
    counts: list[int] = []
    failures = 0
    refused: dict[str, int] = {}
    for trace in traces:
        if max_events is not None and len(trace.events) > max_events:
            continue
        tree = StateTree(trace)
        try:
            session = show(tree, full_walk(tree, STEP_INTO), tokenizer.spec)
            ids, _ = tokenizer.encode_session(session)
        except Unrenderable as refusal:
            refused[refusal.reason] = refused.get(refusal.reason, 0) + 1
            continue
        counts.append(len(ids))
        parsed = parse(tokenizer.segments(ids))
        failures += parsed.error is not None or parsed.session != session
    counts.sort()
    return TokenizerFigures(
        traces=len(counts),
        tokens_mean=sum(counts) / len(counts) if counts else 0.0,
        tokens_p95=float(counts[max(0, -(-95 * len(counts) // 100) - 1)]) if counts else 0.0,
        roundtrip_failures=failures,
        refused=refused,
    )
