"""What `nd eval` does: evaluate a loaded model, print the tables, keep the figures beside the run."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from nd_jax.console import console, table, write_json
from nd_jax.data.builders import Cruxeval, load_programs
from nd_jax.decoding.choosing import Sampling
from nd_jax.decoding.engine import DecodeConfig, Decoder
from nd_jax.evaluation import cruxeval as tasks
from nd_jax.evaluation.report import (
    Table,
    breakdown_table,
    cruxeval_table,
    markdown,
    states_details,
    states_map,
    states_table,
)
from nd_jax.evaluation.states import StatesConfig, evaluate_states, predictor
from nd_jax.evaluation.walk import side_by_side
from nd_jax.language.tokenizer import Tokenizer
from nd_jax.programs.program import Program
from nd_jax.programs.splits import Selection
from nd_jax.tracing.dataset import open_traces
from nd_jax.tracing.pool import Outcome, record_one
from nd_jax.tracing.schema import RETURN, Trace
from nd_jax.training.checkpoint import load_for_inference
from nd_jax.training.config import Experiment

FOLDER = "eval"
"""Where results go, below the run that they are about."""


class Model(NamedTuple):
    """A trained model, loaded once for all that is asked of it.

    Attributes:
      run: the directory it came from.
      experiment: what it was trained as.
      params: its parameters.
      tokenizer: its tokenizer.
    """

    run: Path
    experiment: Experiment
    params: dict[str, Any]
    tokenizer: Tokenizer


def load(checkpoint: Path) -> Model:
    """Load a model from a run's directory or a checkpoint.

    Raises:
      UserError: there is no checkpoint, or it is damaged.
    """
    return Model(checkpoint, *load_for_inference(checkpoint))


def states(
    traces: Path,
    model: Model,
    split: Selection = "heldout",
    limit: int | None = None,
    sessions: int = 1000,
    seed: int = 0,
    executed: int = 0,
    out: Path | None = None,
) -> dict[str, Any]:
    """Measure a model's next-state accuracy; the arguments are those of `nd eval states`."""
    dataset = open_traces(traces, split)
    chosen = [dataset[k] for k in range(min(len(dataset), limit or sessions))]
    data = model.experiment.data
    config = StatesConfig(sessions=sessions, row_length=data.row_length, seed=seed, policy=data.policy)
    predict = predictor(model.experiment.model, model.params)
    figures = evaluate_states(chosen, model.tokenizer, predict, config)
    if executed:
        figures["inverse_by_execution"] = _execute(chosen[:executed], model)
    where = f"{traces.name}, {split}"
    tables = [states_table(figures, f"Next states: {where}"), *states_details(figures, where)]
    _print(tables)
    directory = out or model.run / FOLDER
    name = f"states-{traces.name}-{split}"
    write_json(directory / f"{name}.json", figures)
    text = "\n\n".join(map(markdown, tables))
    (directory / f"{name}.md").write_text(text + "\n", encoding="utf-8")
    (directory / f"{name}.png").write_bytes(states_map(figures, where).png)
    return figures


def _execute(traces: Sequence[Trace], model: Model) -> dict[str, Any]:
    """Ask for the entry call behind each trace's final return, and run the calls that the model names."""
    returned = [trace for trace in traces if trace.events[-1].kind == RETURN]
    programs = [
        Program(trace.id, trace.source, trace.entry, trace.arguments, trace.events[-1].value)
        for trace in returned
    ]
    outcomes = [Outcome(trace.id, trace) for trace in returned]
    config = tasks.CruxevalConfig(task="input", row_length=model.experiment.data.row_length)
    decode = DecodeConfig(max_new_tokens=config.max_new)
    decoder = Decoder(model.experiment.model, model.params, decode, "predicting entry calls")
    answers = tasks.answer(programs, outcomes, model.tokenizer, decoder, config)
    scores = tasks.score(programs, outcomes, answers, config).figures
    return {
        "n": scores["n"],
        "returns_it": scores["official"],
        "same_call": scores["exact"],
        "unanswered": scores["unanswered"],
    }


def cruxeval(
    data: Path | None,
    chosen: Sequence[tasks.Task],
    answers: Model | Path,
    config: tasks.CruxevalConfig = tasks.CruxevalConfig(),
    temperatures: Sequence[float] = (),
    constrained: bool = False,
    out: Path | None = None,
) -> dict[str, Any]:
    """Score a model, or a file of answers, on CRUXEval.

    Args:
      data: the CRUXEval file; without it, it is downloaded by its tfds builder.
      chosen: tasks; one for a file of answers.
      answers: the model, or the file.
      config: what is common to all; a model is first asked greedily, whatever its sampling says.
      temperatures: then as `config.sampling` says, at each of these.
      constrained: then greedily within the grammar.
      out: where results go; by default `FOLDER` beside what is scored.

    Returns:
      Figures by task, as `nd_jax.evaluation.cruxeval.score` gives them, those of the greedy answers; of the
      others below ``sampled`` by temperature, and ``constrained``. A model's have ``decoding``: the engine's
      log.
    """
    programs = load_programs(Cruxeval) if data is None else tasks.load(data)
    beside = answers.run if isinstance(answers, Model) else answers.parent
    directory = out or beside / FOLDER
    outcomes = tasks.run_all(programs, config)
    figures: dict[str, Any] = {}
    for task in chosen:
        config = replace(config, task=task)
        if isinstance(answers, Path):
            result = tasks.score(programs, outcomes, tasks.read_predictions(answers, programs), config)
            tasks.write(result, directory)
            figures[task] = result.figures
            continue
        plain = replace(
            config, sampling=Sampling(), pass_at=(1,), row_length=answers.experiment.data.row_length
        )
        ways = {"": plain}
        for temperature in temperatures:
            sampling = replace(config.sampling, temperature=temperature)
            ways[f"-t{temperature:g}"] = replace(plain, sampling=sampling, pass_at=config.pass_at)
        if constrained:
            ways["-constrained"] = replace(plain, constrained=True)
        by_way = {
            suffix: _ask(programs, outcomes, answers, way, directory, suffix) for suffix, way in ways.items()
        }
        figures[task] = by_way.pop("")
        if constrained:
            figures[task]["constrained"] = by_way.pop("-constrained")
        if by_way:
            figures[task]["sampled"] = {
                suffix.removeprefix("-t"): scores for suffix, scores in by_way.items()
            }
    _print([cruxeval_table(figures.values()), *map(breakdown_table, figures.values())])
    console.print(f"answers and figures: {directory}")
    return figures


def _ask(
    programs: Sequence[Program],
    outcomes: Sequence[Outcome],
    model: Model,
    config: tasks.CruxevalConfig,
    directory: Path,
    suffix: str,
) -> dict[str, Any]:
    """Ask the model in one way, score it and keep the result."""
    label = f"answering ({config.task}{suffix})"
    decode = DecodeConfig(max_new_tokens=config.max_new)
    decoder = Decoder(model.experiment.model, model.params, decode, label)
    answers = tasks.answer(programs, outcomes, model.tokenizer, decoder, config)
    result = tasks.score(programs, outcomes, answers, config)
    result.figures["decoding"] = log = decoder.log()
    console.print(
        f"{label}: {log['tokens']} tokens in {log['seconds']:.1f} s ({log['tokens_per_s']:.0f} tokens/s), "
        f"{log['compilations']} compiled programs"
    )
    tasks.write(result, directory, suffix)
    return result.figures


def step_beside(model: Model, source: str, entry: str, arguments: str) -> str:
    """Record a program and step it with the model beside the recording (`nd_jax.evaluation.walk`).

    Raises:
      UserError: the program could not be recorded, or not be written with the model's tokenizer.
    """
    trace = record_one(Program(entry, source, entry, arguments))
    decoder = Decoder(model.experiment.model, model.params, DecodeConfig())
    return side_by_side(trace, model.tokenizer, decoder, model.experiment.data.row_length)


def _print(tables: Sequence[Table]) -> None:
    for shown in tables:
        table(shown.title, list(shown.columns), shown.rows)
