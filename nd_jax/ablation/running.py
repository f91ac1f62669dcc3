"""Run a study: train and measure every variant, then the best ones again; whatever is done is kept.

Each run has a folder below ``runs/``, with the checkpoints that a killed one goes on from, and once it is
done ``result.json`` and what was measured of each state. `run` called again takes up where it stopped.
"""

import dataclasses
import datetime
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nd_jax import files
from nd_jax.ablation.comparing import (
    accuracy_table,
    action_table,
    answers_table,
    best,
    compare,
    compare_answers,
    comparison_table,
    plot,
)
from nd_jax.ablation.measuring import StateScores, measure
from nd_jax.ablation.variants import BASE, VARIANTS, AblationConfig, Variant
from nd_jax.console import console, table, write_json
from nd_jax.errors import UserError
from nd_jax.evaluation.report import Table, markdown
from nd_jax.evaluation.verbs import load
from nd_jax.language.measure import evaluate
from nd_jax.language.tokenizer import Tokenizer
from nd_jax.language.training import train_on_datasets
from nd_jax.tracing.dataset import TraceDataset, finished, open_traces
from nd_jax.tracing.schema import Trace
from nd_jax.training.config import Experiment, load_config, to_dict
from nd_jax.training.run import run as train

HELDOUT, CRUXEVAL = "heldout", "cruxeval"
"""Names of what is measured on."""


def run(config: AblationConfig, variants: Mapping[str, Variant] = VARIANTS) -> dict[str, Any]:
    """Do what is left of a study, show its tables, and write ``ablation.json``, ``.md`` and ``.png``.

    Returns:
      ``stage_1`` and ``stage_2``: by what was measured on (``heldout``, ``cruxeval``) the comparison
      (`nd_jax.ablation.comparing.compare`) of every variant once, and of the finalists over all seeds;
      ``answers``: the finalists' on CRUXEval (`nd_jax.ablation.comparing.compare_answers`);
      ``runs``: the result of each; ``not_compared``: runs that their time did not suffice for.

    Raises:
      UserError: the folder holds a study of other settings, a variant is not known, or data is missing.
    """
    if unknown := [name for name in config.variants if name not in variants]:
        raise UserError(f"no variant {unknown[0]!r}; there are {', '.join(variants)}")
    names = list(dict.fromkeys([BASE, *config.variants]))
    if (asking := [name for name in names if variants[name].more_traces]) and not config.more_traces:
        raise UserError(f"variant {asking[0]!r} needs further datasets: --more-traces DIR ...")
    study = _Study(config, {name: variants[name] for name in names})
    study.announce(len(names) + (min(config.finalists, len(names) - 1) + 1) * config.seeds)
    for name in names:
        study.run(name, config.seed)
    whole = [name for name in names if study.results[_key(name, config.seed)]["whole"]]
    if BASE not in whole:
        raise UserError(
            f"the base did not see {config.tokens} tokens in {config.max_seconds:g} s: give fewer --tokens "
            "and another --out"
        )
    stages = {"stage_1": study.compare(whole, [config.seed])}
    chosen = best(stages["stage_1"][HELDOUT], config.finalists)
    seeds = [config.seed + k for k in range(config.seeds + 1)]
    for seed in seeds[1:]:
        for name in chosen:
            study.run(name, seed)
    finalists = [name for name in chosen if all(study.results[_key(name, seed)]["whole"] for seed in seeds)]
    answers = {}
    if BASE in finalists:
        stages["stage_2"] = study.compare(finalists, seeds)
        if config.cruxeval:
            right = {name: [study.answer_cruxeval(name, seed) for seed in seeds] for name in finalists}
            answers = compare_answers(right, config.seed)
    return study.write(stages, answers)


def _key(name: str, seed: int) -> str:
    return f"{name}-{seed}"


class _Study:
    """A folder with the runs of a study."""

    def __init__(self, config: AblationConfig, variants: Mapping[str, Variant]):
        self.config, self.variants = config, variants
        self.results: dict[str, dict[str, Any]] = {}
        self.experiment = load_config(config.experiment)
        train_split, heldout = (open_traces(config.traces, split) for split in ("train", "heldout"))
        _same_settings(config, self.experiment, train_split)
        self.traces: dict[str, Sequence[Trace]] = {HELDOUT: heldout}
        if config.cruxeval is not None:
            self.traces[CRUXEVAL] = _record(config, config.cruxeval)
        for name, dataset in self.traces.items():
            if not len(dataset):
                raise UserError(f"there are no traces to measure on ({name}): record more programs")
        self._runs = 0
        self._made_seconds: list[float] = []

    def announce(self, runs: int) -> None:
        """Say how many runs there are at most; the time left is told by those that were made."""
        self._runs = runs

    def run(self, name: str, seed: int) -> None:
        """Train and measure a variant with a seed, unless that is done."""
        key = _key(name, seed)
        folder = self.config.out / "runs" / key
        done = folder / "result.json"
        number = len(self.results) + 1
        if done.exists():
            self.results[key] = json.loads(done.read_text(encoding="utf-8"))
            console.print(f"{number} of {self._runs}: {key} is done")
            return
        console.rule(f"{number} of {self._runs}: {key}{self._time_left(number)}", align="left")
        start = time.perf_counter()
        variant = self.variants[name]
        tokenizer = self._tokenizer(variant)
        experiment = self._experiment(variant, tokenizer, seed)
        figures = train(experiment, folder)
        if figures["stopped"] != "finished":
            raise UserError("stopped before the end; the same command goes on from here")
        model = load(folder)
        result: dict[str, Any] = {
            "variant": name,
            "seed": seed,
            "tokens": figures["step"] * experiment.data.global_batch * experiment.data.row_length,
            "whole": figures["step"] == experiment.train.steps,
            "train_seconds": figures["seconds"],
            "parameters": figures["parameters"],
            "loss": figures.get("loss"),
        }
        for where, traces in self.traces.items():
            count = self.config.sessions
            some = [traces[k] for k in range(min(len(traces), count))]
            scores = measure(some, model, experiment.data.policy, count, self.config.seed)
            scores.save(folder / f"{where}.npz")
            measured = evaluate(tokenizer, some)
            result[where] = {name: getattr(measured, name) for name in ("tokens_mean", "tokens_p95")}
            result[where]["refused"] = sum(measured.refused.values())
        self._keep(key, result)
        self._made_seconds.append(time.perf_counter() - start)

    def answer_cruxeval(self, name: str, seed: int) -> dict[str, list[bool]]:
        """Ask a run for CRUXEval's answers, unless that is done: by task, which programs it has right."""
        from nd_jax.evaluation.cruxeval import CruxevalConfig
        from nd_jax.evaluation.verbs import FOLDER, cruxeval

        key = _key(name, seed)
        if "right" not in self.results[key]:
            model = load(self.config.out / "runs" / key)
            config = CruxevalConfig(workers=self.config.workers)
            right = {}
            for task in cruxeval(self.config.cruxeval, ("output", "input"), model, config):
                rows = (model.run / FOLDER / f"cruxeval-{task}.jsonl").read_text(encoding="utf-8")
                right[task] = [json.loads(row)["official"] for row in rows.splitlines()]
            self._keep(key, {**self.results[key], "right": right})
        return self.results[key]["right"]

    def compare(self, names: Sequence[str], seeds: Sequence[int]) -> dict[str, Any]:
        """Compare variants, by what they were measured on."""
        compared = {}
        for where in self.traces:
            files = {
                name: [self.config.out / "runs" / _key(name, seed) / f"{where}.npz" for seed in seeds]
                for name in names
            }
            runs = {name: list(map(StateScores.load, paths)) for name, paths in files.items()}
            compared[where] = compare(runs, self.config.seed)
        return compared

    def write(self, stages: dict[str, Any], answers: dict[str, Any]) -> dict[str, Any]:
        """Show the tables, and write them with all figures and the plot."""
        tables: list[Table] = []
        drawn = {}
        for stage, compared in stages.items():
            for where, figures in compared.items():
                title = f"{stage.replace('_', ' ')}, {where}"
                results = {name: self.results[_key(name, self.config.seed)] for name in figures}
                tokens = {name: result[where] for name, result in results.items()}
                tables.append(comparison_table(title, figures))
                tables.append(accuracy_table(f"{title}, accuracy and length", figures, tokens))
                tables.append(action_table(f"{title}, by action", figures))
                drawn[title] = figures
        if answers:
            tables.append(answers_table(answers))
        runs = [
            [key, r["parameters"], r["tokens"], r["train_seconds"], "yes" if r["whole"] else "no"]
            for key, r in self.results.items()
        ]
        tables.append(Table("runs", ["run", "parameters", "tokens", "seconds", "whole"], runs))
        for shown in tables:
            table(shown.title, list(shown.columns), shown.rows)
        figures = {
            **stages,
            "answers": answers,
            "runs": {
                key: {name: value for name, value in result.items() if name != "right"}
                for key, result in self.results.items()
            },
            "not_compared": [key for key, result in self.results.items() if not result["whole"]],
        }
        out = self.config.out
        write_json(out / "ablation.json", figures)
        write_json(self.config.json, figures)
        (out / "ablation.md").write_text("\n\n".join(map(markdown, tables)) + "\n", encoding="utf-8")
        (out / "ablation.png").write_bytes(plot(drawn))
        console.print(f"tables, figures and plot: {out / 'ablation'}.md, .json and .png")
        return figures

    def _tokenizer(self, variant: Variant) -> Tokenizer:
        """Train a variant's tokenizer, or take the one that another run of it left."""
        folder = self._tokenizer_folder(variant)
        if not folder.exists():
            datasets = [self.config.traces, *self.config.more_traces]
            tokenizer = train_on_datasets(datasets, variant.spec, self.config.seed)
            partial = folder.with_name(f"{folder.name}.partial")
            tokenizer.save(partial)
            partial.rename(folder)
        return Tokenizer.load(folder)

    def _tokenizer_folder(self, variant: Variant) -> Path:
        # A form by its name, sizes by themselves; forms that are off are left out.
        settings = dataclasses.asdict(variant.spec).items()
        names = (name if value is True else str(value) for name, value in settings if value is not False)
        return self.config.out / "tokenizers" / "-".join(names)

    def _experiment(self, variant: Variant, tokenizer: Tokenizer, seed: int) -> Experiment:
        """What a run trains: the shared experiment, with the variant's settings and the study's budget."""
        shared, config = self.experiment, self.config
        settings = {
            name: setting
            for name in ("context_weight", "place_weight", "random_line_numbers")
            if (setting := getattr(variant, name)) is not None
        }
        traces = [config.traces, *(config.more_traces if variant.more_traces else ())]
        data = dataclasses.replace(
            shared.data, traces=tuple(map(str, traces)), packed="", seed=seed,
            tokenizer=str(self._tokenizer_folder(variant)), **settings,
        )  # fmt: skip
        steps = max(1, round(config.tokens / (data.global_batch * data.row_length)))
        return dataclasses.replace(
            shared,
            data=data,
            model=dataclasses.replace(shared.model, vocab_size=tokenizer.vocab_size),
            train=dataclasses.replace(shared.train, steps=steps, max_seconds=config.max_seconds, seed=seed),
        )

    def _keep(self, key: str, result: dict[str, Any]) -> None:
        path = self.config.out / "runs" / key / "result.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_json(path, result)
        self.results[key] = result

    def _time_left(self, number: int) -> str:
        if not self._made_seconds:
            return ""
        mean = sum(self._made_seconds) / len(self._made_seconds)
        left = datetime.timedelta(seconds=round(mean * (self._runs - number + 1)))
        return f" (at most {left} left)"


def _same_settings(config: AblationConfig, experiment: Experiment, traces: TraceDataset) -> None:
    """Refuse to mix two studies in one folder."""
    names = ("tokens", "max_seconds", "sessions", "seed")
    settings = {name: getattr(config, name) for name in names}
    settings |= {
        "cruxeval": str(config.cruxeval),
        "traces": traces.fingerprint,
        "more_traces": [open_traces(path, "train").fingerprint for path in config.more_traces],
        "experiment": to_dict(experiment),
    }
    path = config.out / "study.json"
    if path.exists():
        before = json.loads(path.read_text(encoding="utf-8"))
        if changed := [name for name in settings if before.get(name) != settings[name]]:
            raise UserError(
                f"{config.out} holds a study with other settings ({', '.join(changed)}): "
                "give another --out, or remove it"
            )
    write_json(path, settings)


def _record(config: AblationConfig, file: Path) -> TraceDataset:
    """Record CRUXEval's programs, unless a call before this one did."""
    from nd_jax.programs.jsonl import read_programs
    from nd_jax.tracing.collect import collect
    from nd_jax.tracing.pool import WorkerLimits

    out = config.out / "cruxeval_traces"
    if not finished(out):
        collect(read_programs(file), out, WorkerLimits(), config.workers, verify=True)
    return open_traces(out, "all")
