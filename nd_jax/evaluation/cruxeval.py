"""CRUXEval with a neural debugger: what does this call return (output), which call returns this (input)?

`run_all` records the programs, `answer` asks a model, `read_predictions` reads answers from a file, `score`
judges either, `write` keeps the results.
"""

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, Protocol

from nd_jax.console import track
from nd_jax.decoding.choosing import GREEDY, Sampling
from nd_jax.decoding.engine import Generation
from nd_jax.decoding.grammar import Constraint, Grammar
from nd_jax.errors import UserError
from nd_jax.evaluation import baselines, prompts, report
from nd_jax.evaluation.breakdown import breakdown
from nd_jax.evaluation.harness import harness
from nd_jax.evaluation.prompts import Question, Unanswered
from nd_jax.evaluation.scoring import Verdict, score_inputs, score_output
from nd_jax.evaluation.statistics import interval, pass_at_k
from nd_jax.language.symbols import STATE_END
from nd_jax.language.tokenizer import Tokenizer
from nd_jax.programs.jsonl import read_programs
from nd_jax.programs.program import Program
from nd_jax.tracing.pool import Outcome, WorkerLimits, record
from nd_jax.tracing.pretty import show_trace
from nd_jax.tracing.schema import Trace

Task = Literal["output", "input"]
VERDICTS = ("official", "strict", "exact")


@dataclass(frozen=True)
class CruxevalConfig:
    """How CRUXEval is answered and scored."""

    task: Task = "output"
    """output: what does the call return; input: which call returns this."""

    row_length: int = 256
    """Tokens a question may have: as many as the model was trained on. A longer one goes unanswered."""

    max_new: int = 128
    """Tokens an answer may have."""

    sampling: Sampling = GREEDY
    """Greedy, or how answers are drawn, and how many to a program."""

    constrained: bool = False
    """Let the model write only what the trace language's grammar allows."""

    pass_at: tuple[int, ...] = (1,)
    """The k of every pass@k; each needs so many answers to every program."""

    official: bool = False
    """Also score as the official harness does, its quirks included."""

    wrong_shown: int = 40
    """How many wrong answers are kept with their traces, for people to read."""

    workers: int = os.cpu_count() or 1
    """Processes that run programs at the same time."""

    limits: WorkerLimits = field(default_factory=WorkerLimits)
    """What one program may use."""


class Decoder(Protocol):
    """What is needed of `nd_jax.decoding.engine.Decoder`."""

    def generate(
        self,
        prompts: list[list[int]],
        stop_ids: list[int],
        max_new: int,
        sampling: Sampling,
        constraint: Constraint | None,
        /,
    ) -> list[list[Generation]]:
        """Continue each prompt `sampling.samples` times, up to a stop token, which is included."""
        ...


@dataclass(frozen=True)
class Answers:
    """Answers to one task.

    Attributes:
      texts: for every program its answers; none where there was no way to answer, "" for one of several
        samples that says nothing.
      reasons: program's index -> why it has none: (reason to count by, detail).
      samples: how many answers were asked for.
    """

    texts: list[list[str]]
    reasons: dict[int, tuple[str, str]]
    samples: int = 1


@dataclass(frozen=True)
class Result:
    """What an evaluation gave.

    Attributes:
      figures: ``{task, n, official, strict, exact, official_95, pass_at, samples, baselines, unanswered,
        flags, breakdown}``; scores are fractions of 1; the first three are pass@1, ``pass_at`` has every k's;
        baselines by name each ``{official, strict, exact}``; ``unanswered`` and ``flags`` count reasons;
        ``breakdown`` as `nd_jax.evaluation.breakdown` gives it. With ``official`` also ``harness``:
        ``{pass_at_1, pass_at_5}`` in percent, as the harness prints them.
      rows: for every answer ``{id, task, answer, reference, official, strict, exact, reason}``.
      generations: the answers in the official harness's form, ``{id: [answer, ...]}``.
      wrong: ``{title, answer, trace}`` of wrong answers, for people to read.
      harness: what the official harness would write; None if not asked for.
    """

    figures: dict[str, Any]
    rows: list[dict[str, Any]]
    generations: dict[str, list[str]]
    wrong: list[dict[str, str]]
    harness: dict[str, Any] | None


def load(path: Path) -> list[Program]:
    """Read the programs, each of which must state its output.

    Raises:
      UserError: a line is no program, states no output, or has the id of another; or there is none.
    """
    programs: list[Program] = []
    seen: set[str] = set()
    for number, item in enumerate(read_programs(path), 1):
        if not isinstance(item, Program):
            raise UserError(f"{item.place}: {item.reason} ({item.detail}); mend or remove the line")
        if item.output is None:
            raise UserError(f"{path}: program {number} ({item.id}) states no output to score against")
        if item.id in seen:
            raise UserError(f"{path}: two programs have the id {item.id}")
        seen.add(item.id)
        programs.append(item)
    if not programs:
        raise UserError(f"{path}: no programs in it")
    return programs


def run_all(programs: Sequence[Program], config: CruxevalConfig) -> list[Outcome]:
    """Record the programs in limited workers: for the output task's questions, and to show traces."""
    outcomes = record(programs, config.limits, config.workers, verify=False)
    return list(track(outcomes, "recording CRUXEval", len(programs)))


def answer(
    programs: Sequence[Program],
    outcomes: Sequence[Outcome],
    tokenizer: Tokenizer,
    decoder: Decoder,
    config: CruxevalConfig,
) -> Answers:
    """Ask the model.

    Args:
      programs: from `load`.
      outcomes: from `run_all`. Only the output task reads them, and of a trace only its first event.
      tokenizer: the model's.
      decoder: the model.
      config: task, sampling and sizes.
    """
    if config.task == "output":
        questions = [_ask_output(*pair, tokenizer) for pair in zip(programs, outcomes, strict=True)]
    else:
        questions = [_ask_input(program, tokenizer) for program in programs]
    reasons: dict[int, tuple[str, str]] = {}
    asked: dict[int, Question] = {}
    for index, question in enumerate(questions):
        if isinstance(question, Unanswered):
            reasons[index] = (question.reason, question.detail)
        elif len(question.ids) > config.row_length:
            reasons[index] = (
                "question too long",
                f"{len(question.ids)} tokens, the model reads {config.row_length}",
            )
        else:
            asked[index] = question
    constraint = None
    if config.constrained:
        shown = [question.history for question in asked.values()]
        constraint = Constraint(Grammar(tokenizer), shown)
    ids = [question.ids for question in asked.values()]
    stop = [tokenizer.symbol_id(STATE_END)]
    written = decoder.generate(ids, stop, config.max_new, config.sampling, constraint) if asked else []
    texts: list[list[str]] = [[] for _ in programs]
    for (index, question), row in zip(asked.items(), written, strict=True):
        read: list[str] = []
        for generation in row:
            try:
                read.append(_read(programs[index], question, generation.ids, tokenizer, config.task))
            except Unanswered as unanswered:
                read.append("")
                reasons[index] = (unanswered.reason, unanswered.detail)
        if any(read):
            texts[index] = read
            reasons.pop(index, None)
    return Answers(texts, reasons, config.sampling.samples)


def _read(program: Program, question: Question, ids: list[int], tokenizer: Tokenizer, task: Task) -> str:
    if task == "output":
        return prompts.read_output(question, ids, tokenizer)
    return prompts.read_input(question, ids, tokenizer, program.source, program.entry)


def _ask_output(program: Program, outcome: Outcome, tokenizer: Tokenizer) -> Question | Unanswered:
    """A question with the arguments as the tracer shows them."""
    if outcome.trace is None:
        return Unanswered(f"not recorded: {outcome.reason}", outcome.detail)
    try:
        return prompts.output_question(program.source, outcome.trace.events[0], tokenizer)
    except Unanswered as unanswered:
        return unanswered


def _ask_input(program: Program, tokenizer: Tokenizer) -> Question | Unanswered:
    """A question made of source and output: the program's arguments are never read."""
    try:
        return prompts.input_question(program.source, program.output or "", tokenizer)
    except Unanswered as unanswered:
        return unanswered


def read_predictions(path: Path, programs: Sequence[Program]) -> Answers:
    """Read answers in the official harness's form, ``{id: [answer, ...]}``; having none counts as wrong.

    Raises:
      UserError: the file is missing, of another form, or names a program that is not there.
    """
    try:
        predictions = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read predictions from {path}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path}: not JSON ({error}); expected {{id: [answer, ...]}}") from error
    if not isinstance(predictions, dict):
        raise UserError(f"{path}: expected {{id: [answer, ...]}}, found a {type(predictions).__name__}")
    for name, texts in predictions.items():
        if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            raise UserError(f"{path}: {name}: expected a list of texts")
    if unknown := sorted(set(predictions) - {program.id for program in programs}):
        raise UserError(f"{path}: {len(unknown)} ids are not in the data, such as {unknown[0]!r}")
    texts = [predictions.get(program.id, []) for program in programs]
    reasons = {index: ("no prediction", "") for index, row in enumerate(texts) if not row}
    return Answers(texts, reasons, max(1, *map(len, texts)))


def score(
    programs: Sequence[Program], outcomes: Sequence[Outcome], answers: Answers, config: CruxevalConfig
) -> Result:
    """Score answers and the trivial baselines; of several answers to a program the mean counts (pass@1).

    Raises:
      UserError: a pass@k is asked for with fewer answers to a program.
    """
    trivial = (baselines.output_answers if config.task == "output" else baselines.input_answers)(programs)
    texts = [
        [*given, *(column[index] for column in trivial.values())] for index, given in enumerate(answers.texts)
    ]
    if config.task == "output":
        verdicts = [[score_output(p, text) for text in row] for p, row in zip(programs, texts, strict=True)]
    else:
        verdicts = score_inputs(programs, texts, config.limits, config.workers)
    given = [row[: len(row) - len(trivial)] for row in verdicts]
    columns = zip(*(row[len(row) - len(trivial) :] for row in verdicts), strict=True)
    flags = Counter(verdict.flag.partition(":")[0] for row in given for verdict in row if verdict.flag)
    passed = {
        k: {name: _passed(given, name, k, answers.samples) for name in VERDICTS} for k in config.pass_at
    }
    first = {name: _passed(given, name, 1, answers.samples) for name in VERDICTS}
    generations = {
        program.id: row or [""] * answers.samples
        for program, row in zip(programs, answers.texts, strict=True)
    }
    official = None
    if config.official:
        official = harness(programs, list(generations.values()), config.task, config.workers)
    traces = [outcome.trace for outcome in outcomes]
    figures = {
        "task": config.task,
        "n": len(programs),
        **{name: fmean(scores) for name, scores in first.items()},
        "official_95": interval(first["official"], range(len(programs)), seed=0),
        "samples": answers.samples,
        "pass_at": {
            str(k): {name: fmean(scores) for name, scores in by_name.items()} for k, by_name in passed.items()
        },
        "baselines": {
            name: {verdict: fmean(getattr(v, verdict) for v in column) for verdict in VERDICTS}
            for name, column in zip(trivial, columns, strict=True)
        },
        "unanswered": dict(Counter(reason for reason, _ in answers.reasons.values())),
        "flags": dict(flags),
        "breakdown": breakdown(programs, traces, {"official": first["official"]}),
    }
    if official is not None:
        figures["harness"] = {name: official[name] for name in ("pass_at_1", "pass_at_5")}
    rows = [
        row
        for index, program in enumerate(programs)
        for row in _rows(program, index, answers, given[index], config.task)
    ]
    return Result(figures, rows, generations, _wrong(programs, traces, rows, config.wrong_shown), official)


def _passed(verdicts: Sequence[Sequence[Verdict]], name: str, k: int, samples: int) -> list[float]:
    """pass@k of every program by one verdict; a program without an answer has `samples` wrong ones."""
    return [
        pass_at_k(sum(getattr(verdict, name) for verdict in row), len(row) or samples, k) for row in verdicts
    ]


def _wrong(
    programs: Sequence[Program], traces: Sequence[Trace | None], rows: Sequence[dict[str, Any]], count: int
) -> list[dict[str, str]]:
    """The first wrong answers, one a program, spread evenly over the file, each with what really happens."""
    first = {row["id"]: row for row in reversed(rows) if row["answer"] is not None and not row["official"]}
    places = [index for index, program in enumerate(programs) if program.id in first]
    shown = places[:: max(1, len(places) // count)][:count] if count else []
    return [
        {
            "title": f"{row['id']} ({row['task']})",
            "answer": f"answer     {row['answer'][:400]}\nreference  {row['reference']}"
            + (f"\nflag       {row['reason']}" if row["reason"] else ""),
            "trace": _beginning(
                programs[index].source if (trace := traces[index]) is None else show_trace(trace)
            ),
        }
        for index in shown
        for row in (first[programs[index].id],)
    ]


def _beginning(text: str, lines: int = 80) -> str:
    """A text's first lines: some programs take hundreds of steps."""
    shown = text.splitlines()
    left = len(shown) - lines
    return "\n".join([*shown[:lines], f"... {left} more lines"] if left > 0 else shown)


def _rows(
    program: Program, index: int, answers: Answers, verdicts: Sequence[Verdict], task: Task
) -> list[dict[str, Any]]:
    reference = program.output if task == "output" else f"{program.entry}({program.arguments})"
    start = {"id": program.id, "task": task}
    if not verdicts:
        reason = ": ".join(filter(None, answers.reasons[index]))
        wrong = dict.fromkeys(VERDICTS, False)
        return [{**start, "answer": None, "reference": reference, **wrong, "reason": reason}]
    return [
        {
            **start,
            "answer": text,
            "reference": reference,
            **{name: getattr(verdict, name) for name in VERDICTS},
            "reason": verdict.flag,
        }
        for text, verdict in zip(answers.texts[index], verdicts, strict=True)
    ]


def write(result: Result, directory: Path, suffix: str = "") -> None:
    """Write ``cruxeval-TASK`` ``.json`` (figures), ``.jsonl`` (answers), ``.md``, ``-generations.json``, and
    ``-wrong.json``.

    The official harness takes a generations file whose path holds the word "input" for the input task's, and
    any other for the output task's: mind the directory's name.

    Args:
      result: from `score`.
      directory: where to.
      suffix: behind the task's name, to tell sampled and constrained answers from the plain ones.
    """
    directory.mkdir(parents=True, exist_ok=True)
    stem = f"cruxeval-{result.figures['task']}{suffix}"
    table = report.markdown(report.cruxeval_table([result.figures]))
    files = {
        f"{stem}.json": json.dumps(result.figures, indent=2),
        f"{stem}.jsonl": "\n".join(json.dumps(row) for row in result.rows),
        f"{stem}-generations.json": json.dumps(result.generations, indent=1),
        f"{stem}-wrong.json": json.dumps(result.wrong, indent=1),
        f"{stem}.md": table,
    }
    if result.harness is not None:
        files[f"{stem}-harness.json"] = json.dumps(result.harness, indent=1)
    for name, text in files.items():
        (directory / name).write_text(text + "\n", encoding="utf-8")
