"""Look into a tokenizer: its pieces, how many tokens traces take, and whether they come back."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nd_jax.debugger.actions import STEP_INTO
from nd_jax.debugger.policy import full_walk
from nd_jax.debugger.tree import StateTree
from nd_jax.language.parse import parse
from nd_jax.language.render import render
from nd_jax.language.session import Unrenderable, show
from nd_jax.language.symbols import SYMBOL_KINDS, Segment, number_of
from nd_jax.language.tokenizer import Tokenizer
from nd_jax.tracing.schema import Trace


@dataclass(frozen=True)
class TokenizerFigures:
    """Cost of showing every state of a trace, forward from its entry call.

    Attributes:
      traces: how many were measured.
      tokens_mean: tokens per trace, program included.
      tokens_p95: of 100 traces, 95 take at most this many.
      bytes_per_token: by kind of text (source, name, value): its UTF-8 bytes per token that begins in it.
      roundtrip_failures: traces whose session did not come back from its ids exactly.
      refused: traces that the language cannot write, by reason; not among ``traces``.
    """

    traces: int
    tokens_mean: float
    tokens_p95: float
    bytes_per_token: dict[str, float]
    roundtrip_failures: int
    refused: dict[str, int]


def evaluate(
    tokenizer: Tokenizer, traces: Iterable[Trace], max_events: int | None = None
) -> TokenizerFigures:
    """Encode and decode the full step_into walk of each trace of at most max_events events."""
    counts: list[int] = []
    bytes_of: Counter[str] = Counter()
    tokens_of: Counter[str] = Counter()
    failures = 0
    refused: dict[str, int] = {}
    for trace in traces:
        if max_events is not None and len(trace.events) > max_events:
            continue
        tree = StateTree(trace)
        try:
            session = show(tree, full_walk(tree, STEP_INTO), tokenizer.spec)
            ids = tokenizer.encode_session(session).ids
        except Unrenderable as refusal:
            refused[refusal.reason] = refused.get(refusal.reason, 0) + 1
            continue
        counts.append(len(ids))
        _count_by_kind(tokenizer, ids, render(session, tokenizer.spec), bytes_of, tokens_of)
        parsed = parse(tokenizer.segments(ids), tokenizer.spec)
        failures += parsed.error is not None or parsed.session != session
    counts.sort()
    return TokenizerFigures(
        traces=len(counts),
        tokens_mean=sum(counts) / len(counts) if counts else 0.0,
        tokens_p95=float(counts[max(0, -(-95 * len(counts) // 100) - 1)]) if counts else 0.0,
        bytes_per_token={kind: bytes_of[kind] / tokens_of[kind] for kind in sorted(tokens_of)},
        roundtrip_failures=failures,
        refused=refused,
    )


def piece_kinds(tokenizer: Tokenizer) -> dict[str, int]:
    """Count a tokenizer's pieces by kind."""
    return dict(Counter(_kind(tokenizer, i) for i in range(tokenizer.vocab_size)))


def longest_pieces(tokenizer: Tokenizer, count: int) -> list[str]:
    """Give the pieces of text with the most characters, longest first."""
    texts = [
        tokenizer.decode_text([i]) for i in range(tokenizer.vocab_size) if _kind(tokenizer, i) not in _NO_TEXT
    ]
    return sorted(texts, key=lambda text: (-len(text), text))[:count]


def cut_trace(tokenizer: Tokenizer, trace: Trace) -> list[str]:
    """Give the tokens of a trace, every step shown: symbols as spelled, text as in a Python string."""
    tree = StateTree(trace)
    ids = tokenizer.encode_session(show(tree, full_walk(tree, STEP_INTO), tokenizer.spec)).ids
    symbols = tokenizer.spec.control_symbols
    return [symbols[i] if i < len(symbols) else repr(tokenizer.piece(i))[2:-1] for i in ids]


_NO_TEXT = ("line symbol", "frame symbol", "other symbol", "byte")


def _kind(tokenizer: Tokenizer, i: int) -> str:
    symbols = tokenizer.spec.control_symbols
    if i < len(symbols):
        kinds = [kind for kind in ("line", "frame") if number_of(symbols[i], kind) is not None]
        return f"{kinds[0] if kinds else 'other'} symbol"
    if tokenizer.is_byte(i):
        return "byte"
    text = tokenizer.decode_text([i])
    if text.isspace():
        return "white space"
    if text.isdigit():
        return "digit"
    if text.strip().isidentifier():
        return "word"
    return "mixed" if any(character.isalnum() for character in text) else "signs"


def _count_by_kind(
    tokenizer: Tokenizer,
    ids: Sequence[int],
    segments: Sequence[Segment],
    bytes_of: Counter[str],
    tokens_of: Counter[str],
) -> None:
    """Add a session's bytes of each kind of text, and the tokens that begin in them."""
    ends: list[tuple[int, str]] = []  # of each text: where it ends among all text, its kind
    end = 0
    for kind, text, _ in segments:
        if kind not in SYMBOL_KINDS:
            size = len(text.encode())
            bytes_of[kind] += size
            end += size
            ends.append((end, kind))
    texts = iter(ends)
    begin, (end, kind) = 0, next(texts)
    for i in ids:
        if size := len(tokenizer.piece(i)):
            while begin >= end:
                end, kind = next(texts)
            tokens_of[kind] += 1
            begin += size
