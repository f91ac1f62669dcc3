"""A trace as a person reads it: one line an event, with what changed."""

from typing import Literal

from nd_jax.errors import UserError
from nd_jax.tracing.cwm import to_cwm
from nd_jax.tracing.schema import EXCEPTION, OPENING, RETURN, UNWIND, YIELD, Trace, to_json


def show_trace(trace: Trace, format: Literal["text", "cwm", "json"] = "text") -> str:
    """Write a trace for people (``text``), in CWM's published format, or as a line of JSON.

    Raises:
      UserError: there is no such format.
    """
    writers = {"text": _text, "cwm": to_cwm, "json": to_json}
    if format not in writers:
        raise UserError(f"no format {format!r}; there are text, cwm and json")
    return writers[format](trace)


def _text(trace: Trace) -> str:
    """Write a head, then for each event: index, kind, line, source, and what changed in the frame."""
    lines = trace.source.split("\n")
    width = min(60, max(len(line.rstrip()) + 2 * 2 for line in lines))
    rows = [
        f"{trace.id}: {trace.entry}({trace.arguments})",
        f"Python {trace.python}, {len(trace.events)} events, {len(trace.functions)} frames",
        "",
    ]
    last: dict[int, dict[str, str]] = {}
    for index, (kind, line, frame, depth, shown, value) in enumerate(trace.events):
        code = lines[line - 1].rstrip()
        if kind in OPENING:
            code = f"{code.strip()}" if depth else code
        before = last.get(frame, {})
        notes = [f"{name} = {text}" for name, text in shown.items() if before.get(name) != text]
        notes += [f"del {name}" for name in before if name not in shown]
        if kind in (RETURN, YIELD):
            notes.append(f"{kind}s {value}")
        elif kind == EXCEPTION:
            notes.append(f"raises {value}")
        elif kind == UNWIND:
            notes.append("dies by the exception")
        last[frame] = shown
        margin = "| " * depth
        rows.append(f"{index:5d} {kind:9s} {line:4d}  {margin + code:{width}s}  {'; '.join(notes)}".rstrip())
    return "\n".join(rows)
