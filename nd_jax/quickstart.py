"""The whole way on one machine: record, tokenise, train, evaluate, and step a program with the model.

Each stage leaves its result in the run's directory and is skipped where that is there, so that a second call
goes on where the first one stopped. Heavy imports stand inside the stages: the command line reads the
settings alone.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nd_jax.errors import UserError
from nd_jax.programs.synthetic import PLAIN, SyntheticConfig

if TYPE_CHECKING:
    from nd_jax.evaluation.verbs import Model
    from nd_jax.programs.jsonl import Rejected
    from nd_jax.programs.program import Program
    from nd_jax.tracing.dataset import TraceDataset


@dataclass(frozen=True)
class QuickstartConfig:
    """Sizes of the quickstart; the defaults take about 10 minutes on 2 cores."""

    out: Path = Path("runs/quickstart")
    """Directory of everything it makes."""

    programs: int = 20_000
    """Synthetic programs to record; one in twenty is held out."""

    generator: SyntheticConfig = field(
        default_factory=lambda: SyntheticConfig(
            loops=0.68,
            whiles=0.1,
            nested=0.0,
            helpers=0.38,
            predicates=1.0,
            branches=0.7,
            max_lines=8,
            bare_helpers=True,
            subjects=PLAIN,
        )
    )
    """What they are like: shorter and plainer than the generator's default, so that a small model learns in
    minutes to find its way in them."""

    vocab_size: int = 1024
    """Pieces of the tokenizer; a small model cannot carry the shipped 8,192."""

    experiment: Path = Path("configs/nano.py")
    """What to train."""

    train_seconds: float = 360.0
    """Wall time of training; the learning rate follows the elapsed share."""

    sessions: int = 1500
    """Debugger sessions that next-state accuracy is measured on."""

    cruxeval: Path | None = None
    """CRUXEval's file, to evaluate on it too; its programs are never trained on."""

    cruxeval_traces: int = 200
    """How many of CRUXEval's traces next-state accuracy is measured on."""

    workers: int = 2
    """Processes that record programs and execute answers."""

    seed: int = 0
    """Seeds programs, tokenizer and evaluation."""

    json: Path | None = None
    """Also write all figures to this file."""


EXAMPLE = """\
def double(n):
    return n * 2

def f(numbers):
    total = 0
    for n in numbers:
        total += double(n)
    return total
"""
"""The program that is stepped through at the end, called as ``f([1, 3])``."""


def run(config: QuickstartConfig) -> dict[str, Any]:
    """Run the stages that are not done yet, and write the report.

    Returns:
      Figures by stage: ``trace``, ``tokenizer``, ``programs`` (what the held-out programs do), ``train``,
      ``states``; with CRUXEval's file also ``cruxeval_states`` and ``cruxeval``; and ``seconds`` by stage.

    Raises:
      UserError: the directory holds a quickstart of other settings.
    """
    from nd_jax.console import console, write_json

    _same_settings(config)
    figures: dict[str, Any] = {"seconds": {}}
    stages: dict[str, tuple[str, Callable[[QuickstartConfig], Any]]] = {
        "trace": ("recording programs", _record),
        "tokenizer": ("training the tokenizer", _train_tokenizer),
        "train": ("training the model", _train),
        "evaluation": ("evaluating the model", _evaluate),
        "session": ("stepping a program with the model", _step),
    }
    for number, (name, (title, stage)) in enumerate(stages.items(), 1):
        console.rule(f"{number} of {len(stages)}: {title}", align="left")
        start = time.perf_counter()
        figures[name] = stage(config)
        figures["seconds"][name] = time.perf_counter() - start
    page = _report(config, figures)
    write_json(config.out / "figures.json", figures)
    write_json(config.json, figures)
    console.print(f"\nreport: {page} (and report.md beside it)")
    return figures


def _same_settings(config: QuickstartConfig) -> None:
    """Refuse to mix two quickstarts in one directory."""
    settings = {name: str(value) for name, value in dataclasses.asdict(config).items()}
    for name in ("out", "workers", "json", "cruxeval", "cruxeval_traces", "sessions"):
        del settings[name]  # what may differ from call to call
    path = config.out / "quickstart.json"
    if path.exists():
        before = json.loads(path.read_text(encoding="utf-8"))
        changed = [
            f"{name} was {before.get(name)}" for name in settings if settings[name] != before.get(name)
        ]
        if changed:
            raise UserError(
                f"{config.out} holds a quickstart with other settings ({', '.join(changed)}): "
                "give another --out, or remove it"
            )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def _record(config: QuickstartConfig) -> dict[str, Any]:
    from nd_jax.programs.synthetic import generate
    from nd_jax.tracing.collect import show_counts

    programs = generate(config.generator, config.seed, 0, config.programs)
    return show_counts(_traces(programs, config.out / "traces", config, config.programs))


def _traces(
    programs: Iterable[Program | Rejected], out: Path, config: QuickstartConfig, total: int | None = None
) -> TraceDataset:
    """Record programs into `out`, unless a call before this one did."""
    from nd_jax.tracing.collect import collect
    from nd_jax.tracing.dataset import finished, open_traces
    from nd_jax.tracing.pool import WorkerLimits

    if finished(out):
        return open_traces(out, "all")
    return collect(programs, out, WorkerLimits(), config.workers, verify=True, total=total)


def _train_tokenizer(config: QuickstartConfig) -> dict[str, Any]:
    from nd_jax.console import console
    from nd_jax.language.measure import evaluate
    from nd_jax.language.symbols import SMALL
    from nd_jax.language.tokenizer import Tokenizer
    from nd_jax.language.training import train_on_datasets
    from nd_jax.tracing.dataset import open_traces

    out = config.out / "tokenizer"
    if out.exists():
        console.print(f"already in {out}")
        tokenizer = Tokenizer.load(out)
    else:
        # Spelled, values are learned with fewer tokens (BUILD.md, "The nano model").
        spec = dataclasses.replace(SMALL, vocab_size=config.vocab_size, values="letters")
        tokenizer = train_on_datasets([config.out / "traces"], spec, config.seed)
        tokenizer.save(out)
    figures = dataclasses.asdict(evaluate(tokenizer, open_traces(config.out / "traces", "heldout")))
    console.print(
        f"{tokenizer.vocab_size} pieces; a held-out trace with every step shown takes "
        f"{figures['tokens_mean']:.0f} tokens (95 %: {figures['tokens_p95']:.0f}), "
        f"{figures['roundtrip_failures']} of {figures['traces']} do not come back"
    )
    return figures


def _train(config: QuickstartConfig) -> dict[str, Any]:
    from nd_jax.training.config import load_config
    from nd_jax.training.run import run as train

    experiment = load_config(config.experiment)
    traces, tokenizer = str(config.out / "traces"), str(config.out / "tokenizer")
    experiment = dataclasses.replace(
        experiment,
        model=dataclasses.replace(experiment.model, vocab_size=config.vocab_size),
        data=dataclasses.replace(experiment.data, traces=(traces,), tokenizer=tokenizer),
        train=dataclasses.replace(experiment.train, steps=None, max_seconds=config.train_seconds),
    )
    figures = train(experiment, config.out)
    if figures["stopped"] != "finished":
        raise UserError("stopped before the end; the same command goes on from here")
    return figures


def _evaluate(config: QuickstartConfig) -> dict[str, Any]:
    from nd_jax.evaluation.cruxeval import CruxevalConfig
    from nd_jax.evaluation.verbs import cruxeval, states
    from nd_jax.programs.describe import describe
    from nd_jax.programs.jsonl import read_programs
    from nd_jax.tracing.dataset import open_traces

    traces, model = config.out / "traces", _model(config.out)
    figures: dict[str, Any] = {
        "programs": describe(open_traces(traces, "heldout")),
        "states": states(traces, model, sessions=config.sessions, seed=config.seed),
    }
    if config.cruxeval is not None:
        recorded = config.out / "cruxeval_traces"
        _traces(read_programs(config.cruxeval), recorded, config)
        limit, sessions = config.cruxeval_traces, 2 * config.cruxeval_traces
        figures["cruxeval_states"] = states(recorded, model, "all", limit, sessions, config.seed)
        answering = CruxevalConfig(workers=config.workers)
        figures["cruxeval"] = cruxeval(config.cruxeval, ("output", "input"), model, answering)
    return figures


@functools.lru_cache(maxsize=1)
def _model(run: Path) -> Model:
    """The trained model, loaded once for the stages that use it."""
    from nd_jax.evaluation.verbs import load

    return load(run)


def _step(config: QuickstartConfig) -> str:
    from nd_jax.console import console
    from nd_jax.evaluation.verbs import step_beside

    text = step_beside(_model(config.out), EXAMPLE, "f", "[1, 3]")
    console.print(text, markup=False)
    return text


def _report(config: QuickstartConfig, figures: dict[str, Any]) -> Path:
    from nd_jax.evaluation import report

    evaluation = figures["evaluation"]
    parts = [
        report.settings_table("Recorded programs", figures["trace"]),
        report.settings_table(
            "Held-out programs", evaluation["programs"], "Shares of the programs; none was trained on."
        ),
        report.settings_table("Tokenizer", figures["tokenizer"]),
        report.settings_table(
            "Training",
            figures["train"],
            "Of the last logged step. loss: nats per token; input_wait and mfu are shares: of the time spent "
            "waiting for rows, and of this machine's matmul speed.",
        ),
        report.loss_curve(report.read_metrics(config.out / "metrics.jsonl")),
        report.states_table(evaluation["states"]),
    ]
    if "cruxeval" in evaluation:
        title = f"Next states, the first {config.cruxeval_traces} CRUXEval traces"
        parts += [
            report.states_table(evaluation["cruxeval_states"], title),
            report.cruxeval_table(evaluation["cruxeval"].values()),
        ]
    parts += [
        report.Text("A program, stepped with the model beside the real execution", figures["session"]),
        report.settings_table("Seconds", figures["seconds"]),
    ]
    return report.write_report(config.out, "Quickstart: a neural debugger", parts)
