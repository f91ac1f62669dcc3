"""A study: the runs that a study file names, each as a job that needs nothing but its folder.

A study file is Python with a top-level ``study = Study(...)``. Nothing here imports jax.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nd_jax.errors import UserError
from nd_jax.scaling.ladder import tokens
from nd_jax.sweep.combine import Variation
from nd_jax.training.config import Experiment, load_config, run_file

PREPARE = "prepare"
"""Folder of the commands that make what all runs read, below the study's."""


@dataclass(frozen=True)
class Study:
    """What a study file gives. ``{out}`` in a text stands for the study's folder, ``{run}`` for a run's."""

    runs: Sequence[Variation]
    """What to train, made by `nd_jax.sweep.combine`. A run that starts from another one of them
    (``train.start_from = "{out}/NAME/checkpoints/STEP"``) stands behind it."""

    config: str = "configs/nano.py"
    """Config file whose experiment they vary, or ``FILE.py:NAME``."""

    prepare: Sequence[str] = ()
    """Commands of `nd`, without the word itself, that make what all runs read, one after the other."""

    evaluate: Sequence[str] = ()
    """Commands of `nd` after each run that no other one starts from."""

    out: str = ""
    """The study's folder; by default ``runs/NAME``, as the study file (or its folder) is named."""

    results: str = ""
    """Folder for the metrics that `nd sweep collect` keeps; by default the study's folder."""


@dataclass(frozen=True)
class Job:
    """One run, or one command that prepares them.

    Attributes:
      name: below the study's folder.
      folder: where it leaves everything.
      commands: words of `nd`, in order.
      after: names of the jobs that it needs.
      experiment: of a run, its settings.
      result: whether it is one of the study's results: nothing else starts from it.
    """

    name: str
    folder: Path
    commands: tuple[tuple[str, ...], ...]
    after: tuple[str, ...] = ()
    experiment: Experiment | None = None
    result: bool = False

    @property
    def first_step(self) -> int:
        """The step that the run starts from."""
        start = self.experiment.train.start_from if self.experiment else ""
        return int(Path(start).name) if start and Path(start).name.isdigit() else 0

    @property
    def flops(self) -> float:
        """What the run itself computes, the run that it starts from left out; 0 for a preparation."""
        if self.experiment is None:
            return 0.0
        per_step = self.experiment.data.global_batch * self.experiment.data.row_length
        own = tokens(self.experiment) - self.first_step * per_step
        return own * self.experiment.model.flops_per_token(self.experiment.data.row_length)


@dataclass(frozen=True)
class Plan:
    """A study's jobs, in an order that they can be done in.

    Attributes:
      file: the study file.
      out: the study's folder.
      results: folder for what is collected.
      jobs: preparations first.
    """

    file: Path
    out: Path
    results: Path
    jobs: tuple[Job, ...]

    def job(self, name: str) -> Job:
        """Find a job by its name.

        Raises:
          UserError: there is none.
        """
        for job in self.jobs:
            if job.name == name:
                return job
        raise UserError(f"{self.file} has no run {name!r}; it has {', '.join(job.name for job in self.jobs)}")


def load_plan(file: Path, out: Path | None = None, results: Path | None = None) -> Plan:
    """Read a study file.

    Args:
      file: the study file.
      out: the study's folder, instead of the file's own.
      results: folder for what is collected, likewise.

    Raises:
      UserError: an error in the file (with its line), no `study` in it, or runs that do not fit together.
      SystemExit: 2 for an override of a wrong name or type, with the nearest right one printed.
    """
    study = run_file(file).get("study")
    if not isinstance(study, Study):
        raise UserError(f"{file} has no top-level `study = Study(...)`")
    own = file.resolve().parent.name if file.stem == "study" else file.stem
    folder = out or Path(study.out or f"runs/{own}")
    jobs: list[Job] = []
    for number, command in enumerate(study.prepare, 1):
        name = f"{PREPARE}/{number}"
        words = tuple(shlex.split(_filled(command, folder, folder / name)))
        jobs.append(Job(name, folder / name, (words,), after=tuple(job.name for job in jobs)))
    jobs += _runs(file, study, folder, after=tuple(job.name for job in jobs))
    return Plan(file, folder, results or (Path(study.results) if study.results else folder), tuple(jobs))


def _runs(file: Path, study: Study, out: Path, after: tuple[str, ...]) -> list[Job]:
    if not study.runs:
        raise UserError(f"{file}: the study has no runs")
    runs: dict[str, Job] = {}
    needed: set[str] = set()
    for name, overrides in study.runs:
        if name in runs or name == PREPARE or "/" in name:
            raise UserError(f"{file}: {name!r} cannot name one run: give each a name of its own, without /")
        folder = out / name
        config = _filled(str(overrides.get("config", study.config)), out, folder)
        settings = _words(overrides, out, folder)
        try:
            experiment = load_config(config, settings)
        except UserError as error:
            raise UserError(f"{file}, run {name}: {error}") from error
        start = experiment.train.start_from
        starts = next((other for other in runs if start and (out / other) in Path(start).parents), None)
        if start and starts is None and out in Path(start).parents:
            raise UserError(f"{file}: {name} starts from {start}, of no run before it: put that one first")
        needed |= {starts} if starts else set()
        train = ("train", config, "--out", str(folder), "--json", str(folder / "train.json"), *settings)
        runs[name] = Job(name, folder, (train,), (*after, starts) if starts else after, experiment)
    return [_with_evaluation(job, study.evaluate, out, name not in needed) for name, job in runs.items()]


def _with_evaluation(job: Job, commands: Sequence[str], out: Path, result: bool) -> Job:
    evaluations = [tuple(shlex.split(_filled(command, out, job.folder))) for command in commands if result]
    return Job(job.name, job.folder, (*job.commands, *evaluations), job.after, job.experiment, result)


def _words(overrides: Mapping[str, Any], out: Path, run: Path) -> list[str]:
    """Overrides as words of the command line."""
    words: list[str] = []
    for name, value in overrides.items():
        if name == "config":
            continue
        several = value if isinstance(value, (tuple, list)) else (value,)
        words += [f"--{name}", *(_filled(str(one), out, run) for one in several)]
    return words


def _filled(text: str, out: Path, run: Path) -> str:
    return text.replace("{out}", str(out)).replace("{run}", str(run))
