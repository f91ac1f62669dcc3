"""CRUXEval with a neural debugger: what does this call return (output), which call returns this (input)?

`answer` asks a model, `read_predictions` reads answers from a file, `score` judges either, `write` keeps the
results.
"""

import json
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, Literal, Protocol

from nd_jax.errors import UserError
from nd_jax.evaluation import baselines, prompts, report
from nd_jax.evaluation.prompts import Question, Unanswered
from nd_jax.evaluation.scoring import Verdict, score_inputs, score_output
from nd_jax.language.symbols import STATE_END
from nd_jax.language.tokenizer import Tokenizer
from nd_jax.programs.jsonl import read_programs
from nd_jax.programs.program import Program
from nd_jax.tracing.pool import WorkerLimits, record

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

    workers: int = os.cpu_count() or 1
    """Processes that run programs at the same time."""

    limits: WorkerLimits = field(default_factory=WorkerLimits)
    """What one program may use."""


class Decoder(Protocol):
    """What is needed of `nd_jax.decoding.engine.Decoder`."""

    def greedy(self, prompts: list[list[int]], stop_ids: list[int], max_new: int, /) -> list[list[int]]:
        """Continue each prompt by the most likely tokens, up to a stop token, which is included."""
        ...


@dataclass(frozen=True)
class Answers:
    """Answers to one task.

    Attributes:
      texts: for every program its answers; none where there was no way to answer.
      reasons: program's index -> why it has none: (reason to count by, detail).
    """

    texts: list[list[str]]
    reasons: dict[int, tuple[str, str]]


@dataclass(frozen=True)
class Result:
    """What an evaluation gave.

    Attributes:
      figures: ``{task, n, official, strict, exact, baselines, unanswered, flags}``; scores are fractions of
      1, baselines
        by name each ``{official, strict, exact}``; ``unanswered`` and ``flags`` count reasons.
      rows: for every answer ``{id, task, answer, reference, official, strict, exact, reason}``.
      generations: the answers in the official harness's form, ``{id: [answer, ...]}``.
    """

    figures: dict[str, Any]
    rows: list[dict[str, Any]]
    generations: dict[str, list[str]]


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


def answer(
    programs: Sequence[Program], tokenizer: Tokenizer, decoder: Decoder, config: CruxevalConfig
) -> Answers:
    """Ask the model, greedily, one answer to each program."""
    ask = _ask_outputs if config.task == "output" else _ask_inputs
    questions = ask(programs, tokenizer, config)
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
    stop = [tokenizer.symbol_id(STATE_END)]
    written = (
        decoder.greedy([question.ids for question in asked.values()], stop, config.max_new) if asked else []
    )
    texts: list[list[str]] = [[] for _ in programs]
    for (index, question), ids in zip(asked.items(), written, strict=True):
        program = programs[index]
        try:
            if config.task == "output":
                text = prompts.read_output(question, ids, tokenizer)
            else:
                text = prompts.read_input(question, ids, tokenizer, program.source, program.entry)
        except Unanswered as unanswered:
            reasons[index] = (unanswered.reason, unanswered.detail)
        else:
            texts[index] = [text]
    return Answers(texts, reasons)


def _ask_outputs(
    programs: Sequence[Program], tokenizer: Tokenizer, config: CruxevalConfig
) -> list[Question | Unanswered]:
    """Questions with the arguments as the tracer shows them: the programs run, in workers."""
    questions: list[Question | Unanswered] = []
    for program, outcome in zip(
        programs, record(programs, config.limits, config.workers, verify=False), strict=True
    ):
        if outcome.trace is None:
            questions.append(Unanswered(f"not recorded: {outcome.reason}", outcome.detail))
            continue
        try:
            questions.append(prompts.output_question(program.source, outcome.trace.events[0], tokenizer))
        except Unanswered as unanswered:
            questions.append(unanswered)
    return questions


def _ask_inputs(
    programs: Sequence[Program], tokenizer: Tokenizer, config: CruxevalConfig
) -> list[Question | Unanswered]:
    """Questions made of source and output: a program's arguments are never read."""
    questions: list[Question | Unanswered] = []
    for program in programs:
        try:
            questions.append(prompts.input_question(program.source, program.output or "", tokenizer))
        except Unanswered as unanswered:
            questions.append(unanswered)
    return questions


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
    return Answers(texts, {index: ("no prediction", "") for index, row in enumerate(texts) if not row})


def score(programs: Sequence[Program], answers: Answers, config: CruxevalConfig) -> Result:
    """Score answers and the trivial baselines; of several answers to a program the mean counts (pass@1)."""
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
    figures = {
        "task": config.task,
        "n": len(programs),
        **_shares(given),
        "baselines": {
            name: _shares([[verdict] for verdict in column])
            for name, column in zip(trivial, columns, strict=True)
        },
        "unanswered": dict(Counter(reason for reason, _ in answers.reasons.values())),
        "flags": dict(flags),
    }
    return Result(
        figures,
        [
            row
            for index, program in enumerate(programs)
            for row in _rows(program, index, answers, given[index], config.task)
        ],
        {program.id: row or [""] for program, row in zip(programs, answers.texts, strict=True)},
    )


def _shares(verdicts: Sequence[Sequence[Verdict]]) -> dict[str, float]:
    return {
        name: fmean(fmean([getattr(verdict, name) for verdict in row] or [0.0]) for row in verdicts)
        for name in VERDICTS
    }


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


def write(result: Result, directory: Path) -> None:
    """Write ``cruxeval-TASK`` ``.json`` (figures), ``.jsonl`` (answers), ``.md``, and ``-generations.json``.

    The official harness takes a generations file whose path holds the word "input" for the input task's, and
    any other for the output task's: mind the directory's name.
    """
    directory.mkdir(parents=True, exist_ok=True)
    stem = f"cruxeval-{result.figures['task']}"
    table = report.markdown(report.cruxeval_table([result.figures]))
    for name, text in (
        (f"{stem}.json", json.dumps(result.figures, indent=2)),
        (f"{stem}.jsonl", "\n".join(json.dumps(row) for row in result.rows)),
        (f"{stem}-generations.json", json.dumps(result.generations, indent=1)),
        (f"{stem}.md", table),
    ):
        (directory / name).write_text(text + "\n", encoding="utf-8")
