"""Traces that were collected elsewhere: read, checked, and what is broken named with its place."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

from nd_jax.errors import UserError
from nd_jax.programs.jsonl import Rejected
from nd_jax.tracing.cwm import from_cwm
from nd_jax.tracing.invariants import check
from nd_jax.tracing.schema import Trace, from_json


def import_traces(path: Path | str, format: Literal["nd", "cwm"]) -> Iterator[Trace | Rejected]:
    """Read a file of traces in order, lazily; blank lines are skipped.

    Args:
      path: JSON lines.
      format: ``"nd"``: each line a trace as `nd_jax.tracing.schema` writes it. ``"cwm"``: each line
        ``{"text": ...}`` with a trace in CWM's published format, and an ``"id"`` if it has one (else the
        file's stem and line number).

    Yields:
      Sound traces; and for every other line its place and reason: ``malformed JSON``, ``not a trace``,
      ``unreadable`` (CWM's format does not decide a line or frame), ``broken trace`` (frames do not nest
      ...).

    Raises:
      UserError: no such file, or no such format.
    """
    if format not in ("nd", "cwm"):
        raise UserError(f"no trace format {format!r}; there are nd and cwm")
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path} is no file; give JSON lines of traces")
    return _import(path, format)


def _import(path: Path, format: str) -> Iterator[Trace | Rejected]:
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                place = f"{path.name}:{number}"
                trace = _nd(line) if format == "nd" else _cwm(line, f"{path.stem}_{number}")
                if isinstance(trace, Trace):
                    broken = check(trace)
                    if broken is None:
                        yield trace
                        continue
                    trace = ("broken trace", broken)
                yield Rejected(place, *trace)


def _json(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        return ("malformed JSON", str(error)[:200])


def _nd(line: bytes) -> Trace | tuple[str, str]:
    record = _json(line)
    if isinstance(record, tuple):
        return record
    try:
        return from_json(line)
    except ValueError as error:
        return ("not a trace", str(error)[:200])


def _cwm(line: bytes, default_id: str) -> Trace | tuple[str, str]:
    record = _json(line)
    if isinstance(record, tuple):
        return record
    if not isinstance(record, dict) or not isinstance(record.get("text"), str):
        return ("not a trace", 'a line is {"text": "<|trace_context_start|>..."}')
    trace = from_cwm(record["text"], str(record.get("id", default_id)))
    return ("unreadable", trace) if isinstance(trace, str) else trace
