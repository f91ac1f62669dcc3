r"""The trace record: what one recorded run of a program is, in memory and as JSON.

Version 1. A trace as JSON is one object::

    {"schema": 1, "id": "sample_0", "source": "def f(x):\n    return x + 1\n", "entry": "f",
     "arguments": "1", "python": "3.11.7", "functions": ["f"],
     "events": [["call", 1, 0, 0, {"x": "1"}, null],
                ["line", 2, 0, 0, {"x": "1"}, null],
                ["return", 2, 0, 0, {"x": "1"}, "2"]]}

An event is ``[kind, line, frame, depth, locals, value]``; ``functions[frame]`` is the frame's function name.
"""

import json
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

SCHEMA_VERSION = 1

CALL, RESUME, LINE, RETURN, YIELD, UNWIND, EXCEPTION = EVENT_KINDS = (
    "call",
    "resume",
    "line",
    "return",
    "yield",
    "unwind",
    "exception",
)
OPENING = frozenset((CALL, RESUME))
CLOSING = frozenset((RETURN, YIELD, UNWIND))


class Event(NamedTuple):
    """One moment of a run, as the tracer saw it.

    Attributes:
      kind: one of ``EVENT_KINDS``. ``resume`` re-enters a frame that yielded; ``unwind`` is a frame that
        dies by an exception.
      line: line number in the program's source, from 1.
      frame: the activation, numbered from 0 by first call in the trace; a generator keeps its number.
      depth: how many traced frames enclose this one; the entry call has depth 0.
      locals: name -> rendered text of the value, in canonical order, before the line runs.
      value: rendered result for ``return`` and ``yield``; ``TypeName(args)`` for ``exception``; else None.
    """

    kind: str
    line: int
    frame: int
    depth: int
    locals: dict[str, str]
    value: str | None


class Trace(NamedTuple):
    """One recorded run of a program: its source, its entry call, and the list of events.

    Attributes:
      functions: name of the function that each frame runs, indexed by ``Event.frame``.
      python: version of the interpreter that ran it, e.g. ``"3.11.7"``.
    """

    id: str
    source: str
    entry: str
    arguments: str
    python: str
    functions: list[str]
    events: list[Event]

    @property
    def result(self) -> str | None:
        """Rendered value that the entry call returned, or None if it died by an exception."""
        return self.events[-1].value


# Compact JSON, as traces are kept and sent; made once, since to make it costs as much as to use it.
encode_json = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode


_new_event: Any = partial(tuple.__new__, Event)  # a third of what Event(*event) takes


def to_events(events: Iterable[Iterable[Any]]) -> list[Event]:
    """Make events of sequences of their fields.

    Raises:
      TypeError: one is no sequence, or does not have as many fields.
    """
    made = list(map(_new_event, events))
    if not {len(Event._fields)}.issuperset(map(len, made)):
        raise TypeError("an event is [kind, line, frame, depth, locals, value]")
    return made


def to_json(trace: Trace) -> str:
    """Write a trace as one line of JSON."""
    run = run_to_json(trace.python, trace.functions, trace.events)
    return join_json(trace.id, trace.source, trace.entry, trace.arguments, run)


def run_to_json(python: str, functions: list[str], events: Iterable[Iterable[Any]]) -> str:
    """Write what only a run of its program tells: an object, the end of a trace's one."""
    return encode_json({"python": python, "functions": functions, "events": events})


def join_json(id: str, source: str, entry: str, arguments: str, run: str) -> str:
    """Write a trace as `to_json` does, from its program and what `run_to_json` wrote."""
    program = {"schema": SCHEMA_VERSION, "id": id, "source": source, "entry": entry, "arguments": arguments}
    return f"{encode_json(program)[:-1]},{run[1:]}"


def from_json(text: str | bytes) -> Trace:
    """Read a trace back.

    Raises:
      ValueError: the text is not JSON, not of this schema version, or lacks a field. Only the form is checked
        here; whether the events nest is `nd_jax.tracing.invariants.check`'s work.
    """
    record = json.loads(text)
    if not isinstance(record, dict):
        raise ValueError("a trace is a JSON object")
    if record.get("schema") != SCHEMA_VERSION:
        raise ValueError(f"schema {record.get('schema')!r}, this version reads {SCHEMA_VERSION}")
    try:
        *fields, events = map(record.__getitem__, Trace._fields)
        return Trace._make((*fields, to_events(events)))
    except KeyError:
        missing = [name for name in Trace._fields if name not in record]
        raise ValueError(f"missing {', '.join(missing)}") from None
    except TypeError as error:
        raise ValueError(str(error)) from error
