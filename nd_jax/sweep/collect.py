"""Keep what a study measured, small enough to be committed: points, and how each run came to its own."""

import json
from typing import Any

from nd_jax.console import console
from nd_jax.errors import UserError
from nd_jax.evaluation.report import read_metrics
from nd_jax.scaling.points import POINTS_FILE, Point, read_point, write_points
from nd_jax.sweep import job as jobs
from nd_jax.sweep.study import Job, Plan

CURVES_FILE = "curves.jsonl"
"""Of every run, its name and the loss at some of its steps."""
CURVE_POINTS = 100
"""Points of a curve, each the mean of the records it stands for."""


def collect(plan: Plan) -> tuple[list[Point], list[str]]:
    """Write the points and curves of the runs that are done into the study's folder of results.

    Returns:
      The points, and of every run that gives none why not.

    Raises:
      UserError: no run is done.
    """
    points: list[Point] = []
    left_out: list[str] = []
    curves: list[dict[str, Any]] = []
    for job in plan.jobs:
        if job.experiment is None:
            continue
        if (kind := jobs.state(job).kind) != "done":
            left_out.append(f"{job.name}: {kind}")
            continue
        curves.append(_curve(job))
        if job.result:
            point = read_point(job.folder)
            if isinstance(point, Point):
                points.append(point)
            else:
                left_out.append(f"{job.name}: {point}")
    if not points:
        raise UserError(f"no run of {plan.file} is done in {plan.out}: run `nd sweep {plan.file}` first")
    write_points(plan.results / POINTS_FILE, points)
    text = "".join(json.dumps(curve) + "\n" for curve in curves)
    (plan.results / CURVES_FILE).write_text(text, encoding="utf-8")
    console.print(f"wrote {plan.results / POINTS_FILE} ({len(points)} runs) and {CURVES_FILE}")
    return points, left_out


def _curve(job: Job) -> dict[str, Any]:
    """A run's training loss over tokens, thinned by means."""
    records = [record for record in read_metrics(job.folder / "metrics.jsonl") if "loss" in record]
    size = max(1, -(-len(records) // CURVE_POINTS))
    parts = [records[k : k + size] for k in range(0, len(records), size)]
    return {
        "name": job.name,
        "tokens": [part[-1]["tokens_seen"] for part in parts],
        "loss": [round(sum(record["loss"] for record in part) / len(part), 5) for part in parts],
    }
