"""How fast programs are recorded: events against two other tracers, programs into a trace dataset.

    python -m benchmarks.tracing [--programs cruxeval.jsonl] [--rounds 5] [--copies 5] [--json FILE]

Events: 200 programs of the file (cruxeval), a loop of 10,000 rounds with five locals (loop) and fib(18)
(fib), under our recorder, under a callback that only tells the program's frames (bare), and under one that
copies all locals (deepcopy). They take turns, and the fastest round of each counts. Time is the processor's,
of the calls alone: to compile the programs is no tracer's work.

Programs: from the file to a trace dataset on disk, in limited processes on all cores, with the determinism
gate and without; each program several times, under an id of its own, so that starting processes weighs
little. Programs per second and core are programs per second of processor time (user and system) of all
processes together: this one, the zygotes, and the children that run programs. So other load on the machine
counts only as far as it slows a processor down; what the clock showed stands beside it.
"""

import argparse
import copy
import gc
import itertools
import linecache
import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

from nd_jax.console import console, table, write_json
from nd_jax.programs.jsonl import read_programs
from nd_jax.programs.program import Program
from nd_jax.programs.synthetic import SyntheticConfig, generate
from nd_jax.tracing.collect import collect
from nd_jax.tracing.pool import WorkerLimits
from nd_jax.tracing.recorder import prepare
from nd_jax.tracing.tracer import FILE as PROG
from nd_jax.tracing.tracer import Dropped, Recorder, TraceLimits

LOOP = """\
def f(n):
    total, text, items = 0, "", [1, 2, 3]
    for i in range(n):
        total += i
        items[i % 3] = total
    return total
"""
FIB = """\
def f(n):
    if n < 2:
        return n
    return f(n - 1) + f(n - 2)
"""
SAMPLE = 200
UNLIMITED = TraceLimits(events=sys.maxsize)

Tracer = Callable[..., Any]


def ours() -> tuple[Tracer, list[Any]]:
    """The tracer of `nd_jax.tracing`, and the list that it fills."""
    recorder = Recorder(UNLIMITED)
    return recorder.start, recorder.events


def bare() -> tuple[Tracer, list[Any]]:
    """A tracer that tells the program's frames and records nothing."""

    def trace(frame: FrameType, event: str, arg: Any) -> Tracer | None:
        return trace if frame.f_code.co_filename == PROG else None

    return trace, []


def deepcopy() -> tuple[Tracer, list[Any]]:
    """A tracer that keeps a copy of all locals."""
    events: list[Any] = []

    # fmt: off
    def peer(frame: FrameType, event: str, arg: Any) -> Tracer | None:  # events appended, nothing else
        if frame.f_code.co_filename != PROG: return None  # noqa: E701
        events.append((event, frame.f_lineno, linecache.getline(PROG, frame.f_lineno),
                       copy.deepcopy(frame.f_locals), copy.deepcopy(arg) if event == "return" else None))
        return peer
    # fmt: on

    return peer, events


TRACERS = {"ours": ours, "bare": bare, "deepcopy": deepcopy}


def run(programs: list[Program], make: Callable[[], tuple[Tracer, list[Any]]]) -> tuple[float, int]:
    """Run each program's call once under a tracer: processor seconds, and events recorded."""
    calls = []
    for program in programs:
        call = prepare(program)
        assert not isinstance(call, Dropped), (program.id, call)
        lines = [f"{line}\n" for line in program.source.split("\n")]
        calls.append((call, (len(program.source), None, lines, PROG), *make()))
    gc.collect()
    gc.disable()
    start = time.process_time()
    for call, source, tracer, _ in calls:
        linecache.cache[PROG] = source
        sys.settrace(tracer)
        call()
        sys.settrace(None)
    seconds = time.process_time() - start
    gc.enable()
    return seconds, sum(len(events) for *_, events in calls)


def measure_events(workloads: dict[str, list[Program]], rounds: int) -> dict[str, dict[str, float]]:
    """Events a second of our recorder on each workload, and the ratios to the other two tracers."""
    figures = {}
    for name, programs in workloads.items():
        events, seconds = 0, dict.fromkeys(TRACERS, float("inf"))
        for _, (tracer, make) in itertools.product(range(rounds), TRACERS.items()):
            taken, recorded = run(programs, make)
            seconds[tracer] = min(seconds[tracer], taken)
            events = max(events, recorded)
        figures[name] = {
            "events": events,
            "events_per_s": events / seconds["ours"],
            "ratio_deepcopy": seconds["deepcopy"] / seconds["ours"],
            "ratio_bare": seconds["bare"] / seconds["ours"],
        }
    return figures


def measure_programs(programs: list[Program], verify: bool) -> tuple[float, float]:
    """Programs recorded into a dataset: a second of processor time, and a second of the clock and core."""
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="nd-benchmark-") as folder:
        before, start = _processor_seconds(), time.perf_counter()
        collect(programs, Path(folder) / "traces", WorkerLimits(), cores, verify, len(programs))
        seconds, computed = time.perf_counter() - start, _processor_seconds() - before
    return len(programs) / computed, len(programs) / seconds / cores


def _processor_seconds() -> float:
    """Processor time of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def load(path: Path | None) -> list[Program]:
    """The programs of a file, or synthetic ones."""
    if path is None:
        console.print(f"no --programs given: {SAMPLE} synthetic programs stand for cruxeval")
        return list(generate(SyntheticConfig(), 0, 0, SAMPLE))
    return [program for program in read_programs(path) if isinstance(program, Program)]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
        epilog="example: python -m benchmarks.tracing --programs cruxeval.jsonl --json tracing.json",
    )
    parser.add_argument("--programs", type=Path, help="JSON lines that are recorded; else synthetic programs")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds, of which the fastest counts")
    parser.add_argument(
        "--copies", type=int, default=5, help="times that each program is recorded end to end"
    )
    parser.add_argument("--json", type=Path, help="write the figures here")
    options = parser.parse_args()
    programs = load(options.programs)
    workloads = {
        "cruxeval": programs[:SAMPLE],
        "loop": [Program("loop", LOOP, "f", "10000")],
        "fib": [Program("fib", FIB, "f", "18")],
    }
    figures = measure_events(workloads, options.rounds)
    rows = [(name, f"{f['events']:,}", f"{f['events_per_s']:,.0f}", f["ratio_deepcopy"], f["ratio_bare"])
            for name, f in figures.items()]  # fmt: skip
    table("events", ["workload", "events", "events/s", "times deepcopy", "times bare"], rows)
    many = [replace(program, id=f"{program.id}/{number}")
            for number in range(options.copies) for program in programs]  # fmt: skip
    rates = {"with the gate": measure_programs(many, True), "without": measure_programs(many, False)}
    rows = [(name, *(f"{rate:,.0f}" for rate in pair)) for name, pair in rates.items()]
    table(f"{len(many):,} programs into a dataset", ["", "programs/s a core", "by the clock"], rows)
    gated, ungated = rates.values()
    write_json(options.json, {
        "workloads": figures,
        "programs_per_s": ungated[0], "programs_per_s_gated": gated[0],
        "programs_per_clock_s": ungated[1], "programs_per_clock_s_gated": gated[1],
    })  # fmt: skip


if __name__ == "__main__":
    main()
