"""Record or evaluate many programs, each in a limited process, none in the caller's.

`record` gives traces, `evaluate` the values of expressions. Both are lazy, keep the input's order, hold a
bounded number of programs, and lose to a bad program that program only. `nd_jax.tracing.worker` has the
process model, `nd_jax.tracing.sandbox` the walls.
"""

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeVar

from nd_jax.errors import UserError
from nd_jax.programs.program import Program
from nd_jax.programs.splits import Split
from nd_jax.tracing import worker
from nd_jax.tracing.invariants import check
from nd_jax.tracing.schema import EXCEPTION, Trace, join_json, to_events
from nd_jax.tracing.sharing import may_share
from nd_jax.tracing.tracer import Dropped
from nd_jax.tracing.zygote import Interrupted, WorkerLimits, Zygote

__all__ = ["Evaluation", "EvaluationOutcome", "Outcome", "WorkerLimits", "evaluate", "record"]

S = TypeVar("S")
T = TypeVar("T")
_SPLITS: dict[Any, Split] = {status: split for split, status in worker.RECORDED.items()}
_FORGED = Dropped("forged result", "what it sent is no result")


class Outcome(NamedTuple):
    """What became of a program: its trace, or a short reason to count by and the detail to read.

    Attributes:
      split: the side that `nd_jax.programs.splits.split_of` gives the program of a trace.
      json: the trace as `nd_jax.tracing.schema.to_json` writes it.
    """

    program_id: str
    trace: Trace | None
    reason: str | None = None
    detail: str = ""
    split: Split | None = None
    json: str | None = None


class Evaluation(NamedTuple):
    """Expressions to evaluate, each in the namespace of a fresh run of ``source``."""

    id: str
    source: str
    expressions: tuple[str, ...]


class EvaluationOutcome(NamedTuple):
    """For each expression the text of its value, or its error (``TypeName: ...``, or the limit passed)."""

    id: str
    values: list[str | None]
    errors: list[str | None]


def record(
    programs: Iterable[Program], limits: WorkerLimits, workers: int, verify: bool
) -> Iterator[Outcome]:
    """Record programs in ``workers`` limited processes at a time.

    Args:
      programs: read as results are taken.
      limits: what one program may use.
      workers: how many programs run at once.
      verify: run each program twice more, in another process with another hash seed: a traced run must give
        the same bytes, an untraced one the same result; else the program is dropped as ``nondeterministic``.

    Yields:
      One outcome a program, in input order.
    """
    return _Pool(limits, workers).run(programs, lambda slot, chunk: _record(slot, chunk, verify))


def record_one(program: Program, limits: WorkerLimits = WorkerLimits()) -> Trace:
    """Record a program that a person waits for, once.

    Raises:
      UserError: it could not be recorded.
    """
    (outcome,) = record([program], limits, workers=1, verify=False)
    if outcome.trace is None:
        reason = f"{outcome.reason} {outcome.detail}".rstrip()
        raise UserError(f"{program.entry}({program.arguments}) could not be recorded: {reason}")
    return outcome.trace


def evaluate(jobs: Iterable[Evaluation], limits: WorkerLimits, workers: int) -> Iterator[EvaluationOutcome]:
    """Evaluate expressions in limited processes, each from fresh globals.

    What runs here may be hostile, and a value is only what its process said. To score an answer that could
    lie about its own result, evaluate the answer to the text of a literal first, and run the trusted program
    on that literal.
    """
    return _Pool(limits, workers).run(jobs, _evaluate)


class _Slot:
    """What runs the jobs of one batch at a time: a zygote for each hash seed, started when first needed."""

    def __init__(self, limits: WorkerLimits) -> None:
        self._limits = limits
        self._zygotes: dict[int, Zygote] = {}
        self._stopped = False

    def stop(self) -> None:
        """Make a thread that is waiting for a zygote end soon."""
        self._stopped = True
        for zygote in list(self._zygotes.values()):
            zygote.kill()

    def close(self) -> None:
        """End the zygotes; no thread is waiting for one."""
        for zygote in self._zygotes.values():
            zygote.close()

    def run(self, jobs: Sequence[list[Any]], hash_seed: int, secluded: bool = False) -> list[bytes | Dropped]:
        """Run jobs, many in one process as far as they may share one; results in their order.

        ``secluded``: one that may not runs alone, and finds no other's text in its process's memory.
        """
        results: list[bytes | Dropped] = [_FORGED] * len(jobs)
        for group in _groups([may_share(job[1:]) for job in jobs], secluded):
            for index, result in zip(group, self._run([jobs[i] for i in group], hash_seed), strict=True):
                if len(group) > 1 and not isinstance(result, Dropped) and b'["memory"' in result[:64]:
                    result = self._run([jobs[index]], hash_seed)[0]  # it may have found it filled by others
                results[index] = result
        return results

    def _run(self, jobs: Sequence[list[Any]], hash_seed: int) -> list[bytes | Dropped]:
        for _ in range(3):
            if self._stopped:
                break
            try:
                if hash_seed not in self._zygotes:
                    self._zygotes[hash_seed] = Zygote(self._limits, hash_seed)
                return self._zygotes[hash_seed].run(jobs)
            except Interrupted:
                self._zygotes.pop(hash_seed).close()
        raise RuntimeError("the recording process was killed again and again from outside")


def _groups(shares: Sequence[bool], secluded: bool) -> list[list[int]]:
    """Part jobs, by index, into those of one process each.

    A job that may not share its process is the last in one, unless secluded: those before it are harmless, so
    it finds what it would find in a new one, and to start that costs as much as ten programs.
    """
    last = [index for index, share in enumerate(shares) if not share]
    sharing = [index for index, share in enumerate(shares) if share]
    if secluded:
        return [group for group in (sharing, *([index] for index in last)) if group]
    count = max(1, len(last))
    parts = [sharing[len(sharing) * i // count : len(sharing) * (i + 1) // count] for i in range(count)]
    return [group for i in range(count) if (group := parts[i] + last[i : i + 1])]


class _Pool:
    """Runs tasks on batches in threads, each with a slot; gives results in order, a bounded number ahead."""

    def __init__(self, limits: WorkerLimits, workers: int) -> None:
        self._limits, self._workers = limits, max(1, workers)

    def run(self, items: Iterable[S], task: Callable[[_Slot, list[S]], list[T]]) -> Iterator[T]:
        slots = [_Slot(self._limits) for _ in range(self._workers)]
        idle: SimpleQueue[_Slot] = SimpleQueue()
        for slot in slots:
            idle.put(slot)

        def work(chunk: list[S]) -> list[T]:
            slot = idle.get()
            try:
                return task(slot, chunk)
            finally:
                idle.put(slot)

        executor = ThreadPoolExecutor(self._workers)
        pending: deque[Future[list[T]]] = deque()
        try:
            for chunk in _chunks(items, self._limits.batch):
                pending.append(executor.submit(work, chunk))
                if len(pending) > 2 * self._workers:
                    yield from pending.popleft().result()
            while pending:
                yield from pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
            for slot in slots:
                slot.stop()
            executor.shutdown()
            for slot in slots:
                slot.close()


def _chunks(items: Iterable[S], size: int) -> Iterator[list[S]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, max(1, size))):
        yield chunk


def _record(slot: _Slot, programs: list[Program], verify: bool) -> list[Outcome]:
    jobs = [["record", program.source, program.entry, program.arguments] for program in programs]
    payloads = slot.run(jobs, hash_seed=0)
    found = [_trace(program, payload) for program, payload in zip(programs, payloads, strict=True)]
    if verify:
        again = [index for index, trace in enumerate(found) if isinstance(trace, Trace)]
        gates = slot.run([[kind, *jobs[i][1:]] for i in again for kind in ("run", "trace")], hash_seed=1)
        for index, untraced, traced in zip(again, gates[::2], gates[1::2], strict=True):
            found[index] = _compare(found[index], payloads[index], untraced, traced)
    return [_outcome(*parts) for parts in zip(programs, found, payloads, strict=True)]


def _outcome(program: Program, trace: Trace | Dropped, payload: bytes | Dropped) -> Outcome:
    if isinstance(trace, Dropped):
        return Outcome(program.id, None, *trace)
    assert isinstance(payload, bytes)
    text = join_json(program.id, program.source, program.entry, program.arguments, payload[1:].decode())
    return Outcome(program.id, trace, split=_SPLITS[payload[:1]], json=text)


def _trace(program: Program, payload: bytes | Dropped) -> Trace | Dropped:
    """Read what a worker sent, which may be anything."""
    if isinstance(payload, Dropped):
        return payload
    try:
        text = payload[1:].decode()
        content = json.loads(text)
        if payload[:1] == worker.DROPPED:
            reason, detail = content
            whole = "".join((reason, detail)).isprintable()
            return Dropped(reason[:80], detail[:400]) if whole else _FORGED
        # The text itself is kept: it must be one line, an object of these fields and no others.
        if payload[:1] not in _SPLITS or text[:1] != "{" or "\n" in text:
            return _FORGED
        if list(content) != ["python", "functions", "events"]:
            return _FORGED
        trace = Trace(
            program.id, program.source, program.entry, program.arguments, content["python"],
            content["functions"], to_events(content["events"]),
        )  # fmt: skip
    except (ValueError, TypeError, RecursionError):
        return _FORGED
    broken = check(trace)
    return trace if broken is None else Dropped("broken trace", broken)


def _compare(
    trace: Trace | Dropped, first: bytes | Dropped, untraced: bytes | Dropped, second: bytes | Dropped
) -> Trace | Dropped:
    """Keep a trace only if a second run sent the same bytes and an untraced one had the same result."""
    for run in (untraced, second):
        if isinstance(run, Dropped):
            return run
    if isinstance(trace, Dropped):
        return trace
    if second[1:] != first[1:]:
        return Dropped("nondeterministic", "a second run, under another hash seed, has another trace")
    root = trace.events[-1].value
    raised = [event.value for event in trace.events if event.kind == EXCEPTION and not event.depth]
    if _value(untraced)[0] not in (raised if root is None else [root]):
        return Dropped("nondeterministic", "the result without a tracer is another")
    return trace


def _evaluate(slot: _Slot, jobs: list[Evaluation]) -> list[EvaluationOutcome]:
    flat = [["evaluate", job.source, expression] for job in jobs for expression in job.expressions]
    payloads = iter(slot.run(flat, hash_seed=0, secluded=True))
    outcomes = []
    for job in jobs:
        values: list[str | None] = []
        errors: list[str | None] = []
        for payload in islice(payloads, len(job.expressions)):
            value, error = _value(payload)
            values.append(value)
            errors.append(error)
        outcomes.append(EvaluationOutcome(job.id, values, errors))
    return outcomes


def _value(payload: bytes | Dropped) -> tuple[str | None, str | None]:
    if isinstance(payload, Dropped):
        return None, f"{payload.reason}: {payload.detail}"
    text = payload[1:].decode(errors="replace")
    return (text, None) if payload[:1] == worker.TEXT else (None, text)
