"""The points of a scaling study: what each run cost and how good it became."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from nd_jax.errors import UserError
from nd_jax.evaluation.pages import read_loss, read_results
from nd_jax.evaluation.report import read_metrics
from nd_jax.training.checkpoint import FOLDER, find_checkpoint, read_record

POINTS_FILE = "points.jsonl"
LAST_SHARE = 0.02
"""Share of a run at its end whose mean loss is its final loss: one record alone is noisy."""


@dataclass(frozen=True)
class Point:
    """One finished run."""

    name: str
    """Of the run."""
    parameters: float
    """N, embeddings included."""
    tokens: float
    """D, padding included."""
    flops: float
    """Training compute (`ModelConfig.flops_per_token`); where a file has none, 6 N D."""
    loss: float
    """Final loss, nats per token: on held-out rows (`nd eval loss`), or of training, whose rows are fresh, so
    that it is one on unseen sessions, but on others for every run."""
    scores: dict[str, float] = field(default_factory=dict)
    """Other figures by name, each from 0 to 1: next-state accuracy, CRUXEval."""


def read_points(paths: Sequence[Path]) -> tuple[list[Point], list[str]]:
    """Read a study.

    Args:
      paths: files of points (JSON lines: parameters, tokens, loss, and if known name, flops, scores), folders
        that hold `POINTS_FILE`, runs, or folders of runs.

    Returns:
      The points, and of every run that is none why not: it is unfinished, or another run of its folder starts
      from it, so that its own loss, of a learning rate that has not decayed, compares with no other's.

    Raises:
      UserError: a path is missing or holds neither, or a line is no point.
    """
    points: list[Point] = []
    left_out: list[str] = []
    for path in paths:
        file = path / POINTS_FILE if path.is_dir() else path
        if file.is_file():
            points += _read_file(file)
            continue
        if not path.is_dir():
            raise UserError(f"no {path}: give a file of points, a run, or a folder of runs")
        runs = [path] if (path / FOLDER).is_dir() else sorted(p.parent for p in path.glob(f"**/{FOLDER}"))
        if not runs:
            raise UserError(
                f"{path} holds no run and no {POINTS_FILE}: give a folder that `nd train` wrote to"
            )
        begun = {start.resolve() for run in runs if (start := _start(run)) is not None}
        measured = any(map(read_loss, runs))
        for run in runs:
            point = "another run goes on from it" if run.resolve() in begun else read_point(run)
            if measured and isinstance(point, Point) and read_loss(run) is None:
                point = "no held-out loss, which others have: run `nd eval loss`"
            if isinstance(point, Point):
                points.append(point)
            else:
                left_out.append(f"{run}: {point}")
    return points, left_out


def write_points(path: Path, points: Sequence[Point]) -> None:
    """Write points as `read_points` reads them: all that a study has to keep of its runs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(asdict(point)) + "\n" for point in points), encoding="utf-8")


def _read_file(path: Path) -> list[Point]:
    points = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            told: dict[str, Any] = json.loads(line)
            size, tokens = float(told["parameters"]), float(told["tokens"])
            point = Point(
                name=str(told.get("name", f"{path.stem}:{number}")),
                parameters=size,
                tokens=tokens,
                flops=float(told.get("flops", 6 * size * tokens)),
                loss=float(told["loss"]),
                scores=dict(told.get("scores", {})),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{path}:{number}: no point ({type(error).__name__}: {error}): a line is "
                '{"parameters": N, "tokens": D, "loss": L}'
            ) from error
        numbers = (point.parameters, point.tokens, point.flops, point.loss)
        if not all(math.isfinite(value) and value > 0 for value in numbers):
            raise UserError(f"{path}:{number}: parameters, tokens, flops and loss must be positive numbers")
        points.append(point)
    return points


def _start(run: Path) -> Path | None:
    """The run whose checkpoint a run started from."""
    try:
        start = read_record(find_checkpoint(run)).experiment.train.start_from
    except UserError:
        return None
    return Path(start).parent.parent if start else None


def read_point(run: Path) -> Point | str:
    """A run's point, or why it is none."""
    try:
        experiment = read_record(find_checkpoint(run)).experiment
        records = [record for record in read_metrics(run / "metrics.jsonl") if "loss" in record]
    except UserError as error:
        return str(error)
    if not records:
        return "unfinished (0%)"
    # A record's progress is that before its step: the last step of a run of 100 has 0.99.
    steps, last = experiment.train.steps, records[-1]
    if not (steps and last["step"] >= steps) and last["progress"] < 0.999:
        return f"unfinished ({last['progress']:.0%})"
    if (heldout := read_loss(run)) is not None:
        loss = heldout["loss"]
    else:
        end = min(1 - LAST_SHARE, last["progress"])
        loss = fmean(record["loss"] for record in records if record["progress"] >= end)
    if not math.isfinite(loss):
        return "its loss diverged"
    tokens = records[-1]["tokens_seen"]
    flops = tokens * experiment.model.flops_per_token(experiment.data.row_length)
    return Point(run.name, experiment.model.parameters(), tokens, flops, loss, _scores(run))


def _scores(run: Path) -> dict[str, float]:
    try:
        results = read_results(run)
    except UserError:
        return {}
    scores = {}
    for name, figures in results.items():
        if name.startswith("cruxeval-"):
            scores[f"CRUXEval {figures['task']}"] = figures["official"]
        elif (step := figures["by_action"].get("step_into")) and step["state"] is not None:
            scores[f"next state, {name.removeprefix('states-')}"] = step["state"]
    return scores
