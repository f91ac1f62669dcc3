"""`nd eval report`: what was evaluated of runs, as one page; several runs stand side by side."""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from nd_jax.console import console
from nd_jax.errors import UserError
from nd_jax.evaluation.report import (
    VERDICTS,
    Part,
    Table,
    breakdown_table,
    cruxeval_table,
    loss_curve,
    read_metrics,
    states_details,
    states_map,
    states_table,
    write_report,
    wrong_pairs,
)
from nd_jax.evaluation.verbs import FOLDER

LOSS_FILE = "loss.json"
"""What `nd eval loss` keeps below a run."""

WRONG_SHOWN = 20
"""Wrong answers shown of every task of a run."""


def report(runs: Sequence[Path], out: Path | None = None) -> Path:
    """Write the page of one or several runs.

    Args:
      runs: directories of runs, with the results of `nd eval` below them.
      out: directory of the page; by default `FOLDER` below the first run.

    Returns:
      The page.

    Raises:
      UserError: a run has no results.
    """
    found = {_name(run, runs): run for run in runs}
    results = {name: read_results(run) for name, run in found.items()}
    parts: list[Part] = []
    if len(results) > 1:
        parts += _side_by_side(results)
    for name, run in found.items():
        prefix = f"{name}: " if len(found) > 1 else ""
        parts += [_named(part, prefix) for part in _parts(run, results[name])]
    title = "Evaluation: " + ", ".join(found)
    page = write_report(out or runs[0] / FOLDER, title, parts)
    console.print(f"report: {page} (and report.md beside it)")
    return page


def read_results(run: Path) -> dict[str, dict[str, Any]]:
    """Results that `nd eval` kept below a run, by file name: states and CRUXEval's greedy answers.

    Raises:
      UserError: there is none.
    """
    names = re.compile(r"states-.+|cruxeval-(output|input)")
    results = {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((run / FOLDER).glob("*.json"))
        if names.fullmatch(path.stem)
    }
    if not results:
        raise UserError(f"{run / FOLDER}: no results there; run `nd eval states` or `nd eval cruxeval` first")
    return results


def read_loss(run: Path) -> dict[str, Any] | None:
    """What `nd eval loss` kept below a run; None where it did not."""
    path = run / FOLDER / LOSS_FILE
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def _name(run: Path, runs: Sequence[Path]) -> str:
    """A run's own name; its path where two have the same."""
    return run.name if [other.name for other in runs].count(run.name) == 1 else str(run)


def _named(part: Part, prefix: str) -> Part:
    return type(part)(**{**vars(part), "title": prefix + part.title})


def _parts(run: Path, results: dict[str, dict[str, Any]]) -> Iterable[Part]:
    """All parts about one run."""
    if (run / "metrics.jsonl").is_file():
        yield loss_curve(read_metrics(run / "metrics.jsonl"))
    for name, figures in results.items():
        if name.startswith("states-"):
            where = name.removeprefix("states-")
            yield states_table(figures, f"Next states: {where}")
            yield states_map(figures, where)
            yield from states_details(figures, where)
    tasks = [figures for name, figures in results.items() if name.startswith("cruxeval-")]
    if tasks:
        yield cruxeval_table(tasks)
        yield from map(breakdown_table, tasks)
    for figures in tasks:
        path = run / FOLDER / f"cruxeval-{figures['task']}-wrong.json"
        if path.is_file():
            wrong = json.loads(path.read_text(encoding="utf-8"))
            yield from wrong_pairs(wrong[:: max(1, len(wrong) // WRONG_SHOWN)][:WRONG_SHOWN])


def _side_by_side(results: dict[str, dict[str, dict[str, Any]]]) -> Iterable[Part]:
    """Tables with a column a run: of what every one of them was evaluated on, or some."""
    states: dict[str, dict[str, Any]] = {}
    scores: dict[str, dict[str, Any]] = {}
    for run, result in results.items():
        for name, figures in result.items():
            if name.startswith("states-"):
                for action, row in figures["by_action"].items():
                    for part in ("state", "event_line"):
                        label = f"{name.removeprefix('states-')}, {action}: {part}"
                        states.setdefault(label, {})[run] = row[part]
            else:
                for verdict in VERDICTS:
                    scores.setdefault(f"{figures['task']}: {verdict}", {})[run] = figures[verdict]
                best = max(baseline["official"] for baseline in figures["baselines"].values())
                scores.setdefault(f"{figures['task']}: best baseline, official", {})[run] = best
    for title, rows in (("Next states, run by run", states), ("CRUXEval, run by run", scores)):
        if rows:
            table = [[label, *(values.get(run) for run in results)] for label, values in rows.items()]
            yield Table(title, ("share right", *results), table)
