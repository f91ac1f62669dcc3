"""Programs and traces that several tests of this room use."""

import json
import re
from pathlib import Path

from nd_jax.programs.program import Program
from nd_jax.tracing.recorder import trace_program
from nd_jax.tracing.schema import EXCEPTION, LINE, OPENING, UNWIND, YIELD, Trace
from nd_jax.tracing.tracer import TraceLimits

HARD_PROGRAMS = Path(__file__).parents[1] / "hard_programs.jsonl"


def program(source: str, arguments: str = "", entry: str = "f", id: str = "p") -> Program:
    return Program(id, source, entry, arguments)


def traced(source: str, arguments: str = "", entry: str = "f", id: str = "p") -> Trace:
    trace = trace_program(program(source, arguments, entry, id), TraceLimits())
    assert isinstance(trace, Trace), trace
    return trace


def hard_programs() -> list[tuple[Program, str]]:
    """The programs of hard_programs.jsonl, each with what is written of its run."""
    found = []
    for line in HARD_PROGRAMS.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        match = re.fullmatch(r"(\w+)\((.*)\)", record["call"], re.DOTALL)
        assert match is not None
        found.append((Program(record["id"], record["code"], *match.groups()), record["expected"]))
    return found


def compact(trace: Trace) -> str:
    """Write a trace's events as hard_programs.jsonl does: ``C1 L2 >C3 >R3=0 R2=0``."""
    words = []
    for event in trace.events:
        letter = "C" if event.kind in OPENING else {LINE: "L", EXCEPTION: "X"}.get(event.kind, "R")
        end = ""
        if event.kind == EXCEPTION:
            end = ":" + (event.value or "").partition("(")[0]
        elif event.kind == UNWIND:
            end = "~unwind"
        elif letter == "R":
            end = f"{'^' if event.kind == YIELD else '='}{event.value}"
        words.append(f"{'>' * event.depth}{letter}{event.line}{end}")
    return " ".join(words)
