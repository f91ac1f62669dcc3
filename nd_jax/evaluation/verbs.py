"""What `nd eval` does: load a checkpoint, evaluate it, print the tables, keep the figures beside the run."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from nd_jax.console import console, table, write_json
from nd_jax.data.builders import Cruxeval, load_programs
from nd_jax.decoding.engine import DecodeConfig, Decoder
from nd_jax.errors import UserError
from nd_jax.evaluation import cruxeval as tasks
from nd_jax.evaluation.report import cruxeval_table, markdown, states_table
from nd_jax.evaluation.states import StatesConfig, evaluate_states, predictor
from nd_jax.evaluation.walk import side_by_side
from nd_jax.programs.program import Program
from nd_jax.tracing.dataset import open_traces
from nd_jax.tracing.pool import WorkerLimits, record
from nd_jax.training.checkpoint import load_for_inference

FOLDER = "eval"
"""Where results go, below the run that they are about."""


def states(
    traces: Path,
    checkpoint: Path,
    split: Literal["train", "heldout", "all"] = "heldout",
    limit: int | None = None,
    sessions: int = 1000,
    seed: int = 0,
    out: Path | None = None,
) -> dict[str, Any]:
    """Measure a model's next-state accuracy; the arguments are those of `nd eval states`."""
    experiment, params, tokenizer = load_for_inference(checkpoint)
    dataset = open_traces(traces, split)
    chosen = [dataset[k] for k in range(min(len(dataset), limit or sessions))]
    config = StatesConfig(
        sessions=sessions, row_length=experiment.data.row_length, seed=seed, policy=experiment.data.policy
    )
    figures = evaluate_states(chosen, tokenizer, predictor(experiment.model, params), config)
    shown = states_table(figures, f"Next states: {traces.name}, {split}")
    table(shown.title, list(shown.columns), shown.rows)
    directory = out or checkpoint / FOLDER
    name = f"states-{traces.name}-{split}"
    write_json(directory / f"{name}.json", figures)
    (directory / f"{name}.md").write_text(markdown(shown) + "\n", encoding="utf-8")
    return figures


def cruxeval(
    data: Path | None,
    chosen: Sequence[tasks.Task],
    checkpoint: Path,
    predictions: Path | None = None,
    out: Path | None = None,
    max_new: int = tasks.CruxevalConfig.max_new,
    workers: int = tasks.CruxevalConfig.workers,
) -> dict[str, Any]:
    """Score a model, or a file of answers, on CRUXEval; the arguments are those of `nd eval cruxeval`.

    Returns:
      Figures by task.
    """
    programs = load_programs(Cruxeval) if data is None else tasks.load(data)
    directory = out or (predictions.parent if predictions else checkpoint) / FOLDER
    figures: dict[str, Any] = {}
    if predictions is not None:
        config = tasks.CruxevalConfig(task=chosen[0], workers=workers)
        answers = {chosen[0]: (config, tasks.read_predictions(predictions, programs))}
    else:
        experiment, params, tokenizer = load_for_inference(checkpoint)
        answers = {}
        for task in chosen:
            config = tasks.CruxevalConfig(
                task=task, row_length=experiment.data.row_length, max_new=max_new, workers=workers
            )
            decoder = Decoder(
                experiment.model, params, DecodeConfig(max_new_tokens=max_new), f"answering ({task})"
            )
            answers[task] = config, tasks.answer(programs, tokenizer, decoder, config)
    for task, (config, given) in answers.items():
        result = tasks.score(programs, given, config)
        tasks.write(result, directory)
        figures[task] = result.figures
    shown = cruxeval_table(figures.values())
    table(shown.title, list(shown.columns), shown.rows)
    console.print(f"answers and figures: {directory}")
    return figures


def step_beside(checkpoint: Path, source: str, entry: str, arguments: str) -> str:
    """Record a program and step it with the model beside the recording (`nd_jax.evaluation.walk`).

    Raises:
      UserError: the program could not be recorded, or not be written with the model's tokenizer.
    """
    (outcome,) = record([Program(entry, source, entry, arguments)], WorkerLimits(), workers=1, verify=False)
    if outcome.trace is None:
        raise UserError(f"{entry}({arguments}) could not be recorded: {outcome.reason} {outcome.detail}")
    experiment, params, tokenizer = load_for_inference(checkpoint)
    decoder = Decoder(experiment.model, params, DecodeConfig())
    return side_by_side(outcome.trace, tokenizer, decoder, experiment.data.row_length)
