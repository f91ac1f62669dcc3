"""Verbs that measure a trained model, and the one that debugs with it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import tyro

from nd_jax.errors import UserError
from nd_jax.programs.splits import Selection
from nd_jax.quickstart import QuickstartConfig
from nd_jax.tracing.pool import WorkerLimits

QUICKSTART = QuickstartConfig()


def eval_cruxeval(
    data: Path | None = None,
    task: Literal["output", "input", "both"] = "both",
    checkpoint: Path = QUICKSTART.out,
    predictions: Path | None = None,
    temperatures: tuple[float, ...] = (),
    samples: int = 10,
    top_p: float = 1.0,
    pass_at: tuple[int, ...] = (1,),
    constrained: bool = False,
    official: bool = False,
    seed: int = 0,
    out: Path | None = None,
    max_new: int = 128,
    workers: int = os.cpu_count() or 1,
    json: Path | None = None,
) -> None:
    """Score a model, or a file of answers, on CRUXEval, with the trivial baselines beside it.

    output: what does the call return (forward); input: which call returns this (inverse).

    Examples:
      nd eval cruxeval --data cruxeval.jsonl --checkpoint runs/quickstart
      nd eval cruxeval --data cruxeval.jsonl --temperatures 0.2 0.8 --pass-at 1 5 10 --constrained
      nd eval cruxeval --data cruxeval.jsonl --task input --predictions answers.json --official

    Args:
      data: the CRUXEval file; without it, it is downloaded by its tfds builder.
      task: which of the two; both, one after the other.
      checkpoint: run directory or checkpoint of the model.
      predictions: score these answers instead, in the official form {id: [answer, ...]}; needs one --task.
      temperatures: besides the greedy answers, draw some at each of these.
      samples: how many to draw for each program.
      top_p: draw from the most likely tokens that together have this probability.
      pass_at: the k of pass@k; each needs at least k answers to every program.
      constrained: also answer within the trace language's grammar, scored apart.
      official: also score as the official harness does, its quirks included.
      seed: seeds the drawing.
      out: directory for the answers, figures and tables; by default `eval` beside what is scored.
      max_new: tokens an answer may have.
      workers: processes that execute the answers to the input task.
      json: also write {task, n, official, strict, exact, baselines} to this file (by task where both ran).
    """
    from nd_jax.console import write_json
    from nd_jax.decoding.choosing import Sampling
    from nd_jax.evaluation.cruxeval import CruxevalConfig
    from nd_jax.evaluation.verbs import cruxeval, load

    tasks = ("output", "input") if task == "both" else (task,)
    if predictions is not None and task == "both":
        raise UserError("--predictions answers one task: add --task output or --task input")
    if max(pass_at) > 1 and predictions is None and not temperatures:
        raise UserError(f"pass@{max(pass_at)} needs several answers to a program: add --temperatures 0.2 0.8")
    if temperatures and max(pass_at) > samples:
        raise UserError(f"pass@{max(pass_at)} cannot be estimated from {samples} samples: raise --samples")
    config = CruxevalConfig(
        sampling=Sampling(top_p=top_p, samples=samples, seed=seed), pass_at=pass_at, official=official,
        max_new=max_new, workers=workers,
    )  # fmt: skip
    answers = predictions or load(checkpoint)
    figures = cruxeval(data, tasks, answers, config, temperatures, constrained, out)
    write_json(json, figures if task == "both" else figures[task])


def eval_states(
    traces: Path,
    checkpoint: Path = QUICKSTART.out,
    split: Selection = "heldout",
    limit: int | None = None,
    sessions: int = 1000,
    seed: int = 0,
    executed: int = 200,
    out: Path | None = None,
    json: Path | None = None,
) -> None:
    """Measure next-state accuracy by action, event, skip and depth, with the trivial baseline beside it.

    Teacher-forced and free-running; entry calls that the model names for a return are also run.

    Examples:
      nd eval states --traces runs/quickstart/traces
      nd eval states --traces traces/cruxeval --split all --limit 200 --checkpoint runs/nano

    Args:
      traces: directory of a trace dataset.
      checkpoint: run directory or checkpoint of the model.
      split: heldout: the programs that training never saw.
      limit: only the first so many traces.
      sessions: how many debugger sessions to sample on them.
      seed: seeds the sampling.
      executed: on how many traces to ask for the entry call behind the return, and run it.
      out: directory for figures, tables and a heat map; by default below the checkpoint's run.
      json: also write {by_action: {step_into: {n, state, event_line, bindings, value}}, baselines} there.
    """
    from nd_jax.console import write_json
    from nd_jax.evaluation.verbs import load, states

    write_json(json, states(traces, load(checkpoint), split, limit, sessions, seed, executed, out))


def eval_loss(
    checkpoint: Path = QUICKSTART.out,
    traces: tuple[Path, ...] = (),
    rows: int = 400,
    json: Path | None = None,
) -> None:
    """Measure the loss on rows of held-out programs: the same for every model with this data and tokenizer.

    Kept below the run, where `nd scaling fit` takes it for the run's final loss.

    Examples:
      nd eval loss --checkpoint runs/nano
      nd eval loss --checkpoint runs/nano --traces traces/synthetic --rows 1000

    Args:
      checkpoint: run directory or checkpoint of the model.
      traces: directories of trace datasets; by default those that the model was trained on.
      rows: how many rows, of the length that it was trained on.
      json: also write {loss, accuracy, rows, weight} to this file.
    """
    from nd_jax.console import console, write_json
    from nd_jax.evaluation.heldout import heldout_loss
    from nd_jax.evaluation.pages import LOSS_FILE
    from nd_jax.evaluation.verbs import FOLDER, load

    model = load(checkpoint)
    named = traces or tuple(map(Path, model.experiment.data.traces))
    figures = heldout_loss(model, named, rows)
    console.print(f"held-out loss {figures['loss']:.4f} nats per token, {figures['accuracy']:.1%} right")
    write_json(checkpoint / FOLDER / LOSS_FILE, figures)
    write_json(json, figures)


def eval_report(runs: tyro.conf.Positional[tuple[Path, ...]], out: Path | None = None) -> None:
    """Put all that was evaluated of one run, or of several side by side, on one HTML page.

    Examples:
      nd eval report runs/quickstart
      nd eval report runs/nano runs/wide --out comparison

    Args:
      runs: directories of runs, each with the results of `nd eval` below it.
      out: directory of the page (report.html, and report.md with its pictures); by default `eval` below
        the first run.
    """
    from nd_jax.evaluation.pages import report

    report(runs, out)


def debug(
    file: tyro.conf.Positional[Path],
    call: tyro.conf.Positional[str],
    checkpoint: Path = QUICKSTART.out,
    backwards: bool = False,
    limits: WorkerLimits = WorkerLimits(),
) -> None:
    r"""Step through a program with the model, in pdb's words, beside the real execution.

    s, n, r, c, b LINE and l are pdb's; rs, rn, rf and rc go backwards; `help` lists all. The call is recorded
    first, in a limited worker; the model sees the program, the first state, and its own states since.

    Examples:
      nd debug average.py "average([3, 4, 8])"
      nd debug average.py "average([3, 4, 8])" --backwards --checkpoint runs/nano
      echo "s\ns\nc" | nd debug average.py "average([3, 4, 8])"

    Args:
      file: a Python file that defines functions.
      call: a call of one of them.
      checkpoint: run directory or checkpoint of the model.
      backwards: begin at the program's end: the model says what must have happened before.
      limits: what the recorded call may use.
    """
    from nd_jax.debug import debug

    debug(file, call, checkpoint, backwards, limits)


VERBS: dict[str, Callable[..., None]] = {
    "eval states": eval_states,
    "eval cruxeval": eval_cruxeval,
    "eval loss": eval_loss,
    "eval report": eval_report,
    "debug": debug,
}
