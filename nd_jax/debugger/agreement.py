"""How far our forward actions stop where bdb stops, counted by action.

For every program it is recorded, then stepped by bdb: the stops must be the trace's states. From a state each
action is then given to bdb, and its next stop compared with the state our action leads to: event, line,
locals, value. Two differences are meant, and hold only where `oracle.Place` says that they can:

- bdb ignores a generator's yields: a step in a generator's or coroutine's frame, or out of one that such a
  frame called, runs on; ours stops at the yield.
- bdb waits in library frames which our tree does not hold: a step out of a function that library code called.

Standard library only, so that it runs under other interpreters than the package is installed for.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from nd_jax.debugger import oracle
from nd_jax.debugger.actions import BREAKPOINT, STEP_INTO, STEP_OVER, STEP_RETURN, Action, target
from nd_jax.debugger.tree import StateTree
from nd_jax.programs.jsonl import read_programs
from nd_jax.programs.program import Program
from nd_jax.tracing.recorder import trace_program
from nd_jax.tracing.schema import CLOSING, EXCEPTION, OPENING, UNWIND, Trace
from nd_jax.tracing.tracer import TraceLimits

STEPS = {"step": STEP_INTO, "next": STEP_OVER, "return": STEP_RETURN}
ACTIONS = (*STEPS.values(), BREAKPOINT)
_TO_THE_END = 10**9
_LIMITS = TraceLimits(events=400)
_ROOT = str(Path(__file__).parents[2])
_START = "import sys; sys.path.insert(0, sys.argv[1]); from nd_jax.debugger.agreement import main; main()"


class Agreement:
    """What became of the comparisons made so far.

    Attributes:
      positions: states that actions were given at.
      tried, agreed, expected: comparisons by action; ``expected`` are those that differ as they are meant to.
      differing: each comparison that differs and is not meant to, in words.
      other_stops: programs that bdb steps through otherwise than they were recorded.
    """

    def __init__(self) -> None:
        self.positions = 0
        self.tried, self.agreed, self.expected = (dict.fromkeys(ACTIONS, 0) for _ in range(3))
        self.differing: list[str] = []
        self.other_stops: list[str] = []

    def compare(self, tree: StateTree, every: int, lines: Sequence[int]) -> None:
        """Give bdb each action at every n-th state of a trace, breakpoints at each of the lines."""
        stepped = oracle.run(tree.trace, _TO_THE_END, "step")
        if [_without_class_names(stop) for stop in stepped.stops] != [
            _stop_of(tree, i) for i in range(len(tree))
        ]:
            self.other_stops.append(tree.trace.id)
            return
        for i in range(0, len(tree), every):
            self.positions += 1
            place = stepped.places[i]
            alike = place.from_traced and not place.suspends and not place.caller_suspends
            for command, name in STEPS.items():
                self._compare(tree, i, command, name, (), target(tree, i, Action(name)), alike)
            for line in lines:  # bdb runs on to the end where no breakpoint is hit; we stop at the last state
                hit = tree.next_visit(i, (line,))
                self._compare(tree, i, "continue", BREAKPOINT, (line,), hit, alike=True)

    def _compare(
        self,
        tree: StateTree,
        i: int,
        command: str,
        name: str,
        lines: tuple[int, ...],
        to: int | None,
        alike: bool,
    ) -> None:
        answer = _without_class_names(oracle.run(tree.trace, i, command, lines).answer)
        self.tried[name] += 1
        if answer == _stop_of(tree, to):
            self.agreed[name] += 1
        elif not alike and name in (STEP_OVER, STEP_RETURN):
            self.expected[name] += 1
        else:
            self.differing.append(f"{tree.trace.id} {command}{lines}@{i}: bdb {answer}, tree {to}")


def _stop_of(tree: StateTree, i: int | None) -> oracle.Stop | None:
    """Give the stop that bdb should make at a state."""
    if i is None:
        return None
    kind, line, _, _, shown, value = tree.events[i]
    event = "call" if kind in OPENING else "return" if kind in CLOSING else kind
    if kind == EXCEPTION:
        assert value is not None
        value = value.partition("(")[0]
    elif kind == UNWIND:
        value = "None"
    names = sorted(shown)
    return oracle.Stop(event, line, tuple(names), tuple(shown[name] for name in names), value)


def _without_class_names(stop: oracle.Stop | None) -> oracle.Stop | None:
    """Leave out what a class body's frame binds for the interpreter, as the recorder does."""
    if stop is None or "__qualname__" not in stop.names:
        return stop
    kept = [(n, v) for n, v in zip(stop.names, stop.locals, strict=True) if not n.startswith("__")]
    return stop._replace(names=tuple(n for n, _ in kept), locals=tuple(v for _, v in kept))


def hard_programs(file: Path) -> Iterator[Program]:
    """Read programs of which each line says ``id``, ``code`` and the whole ``call``."""
    for line in file.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        match = re.fullmatch(r"(\w+)\((.*)\)", record["call"], re.DOTALL)
        assert match is not None, record["call"]
        yield Program(record["id"], record["code"], *match.groups())


def compare_hard(trees: Iterable[StateTree]) -> Agreement:
    """Compare at every state, with a breakpoint at every line."""
    agreement = Agreement()
    for tree in trees:
        agreement.compare(tree, 1, range(1, len(tree.lines) + 1))
    return agreement


def compare_found(trees: Iterable[StateTree], positions: int) -> Agreement:
    """Compare at so many states of each trace, with breakpoints at lines it hits and at one it does not."""
    agreement = Agreement()
    for tree in trees:
        lines = [*list(tree.visits)[::3], *tree.unvisited[:1]]
        agreement.compare(tree, max(1, len(tree) // positions), lines)
    return agreement


def _trees(programs: Iterable[Program]) -> Iterator[StateTree]:
    for program in programs:
        trace = trace_program(program, _LIMITS)
        if isinstance(trace, Trace):
            yield StateTree(trace)


def run_with(python: str, hard: Path, files: Sequence[Path], limit: int, positions: int) -> dict[str, Any]:
    """Compare under an interpreter: the hard programs, then the first programs of each file.

    Returns:
      ``{"python": version, "programs": {file's stem: the attributes of its `Agreement`}}``.
    """
    job = json.dumps([str(hard), [str(file) for file in files], limit, positions])
    command = [python, "-S", "-s", "-P", "-B", "-X", "utf8", "-W", "ignore", "-c", _START, _ROOT, job]
    done = subprocess.run(command, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Do the job that `run_with` gives, and print what it returns."""
    hard, files, limit, positions = json.loads(sys.argv[2])
    found = {Path(hard).stem: compare_hard(_trees(hard_programs(Path(hard))))}
    for file in files:
        programs = (item for item in read_programs(file) if isinstance(item, Program))
        found[Path(file).stem] = compare_found(_trees(islice(programs, limit)), positions)
    version = ".".join(map(str, sys.version_info[:3]))
    print(
        "\n" + json.dumps({"python": version, "programs": {name: vars(one) for name, one in found.items()}})
    )
