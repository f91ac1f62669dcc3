"""Compare what was measured of variants, on the states that all of them could be asked for."""

import io
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from nd_jax.ablation.measuring import StateScores, accuracy
from nd_jax.ablation.variants import BASE
from nd_jax.debugger.actions import FORWARD, INVERSE
from nd_jax.evaluation.marks import BINDINGS, VALUE
from nd_jax.evaluation.report import Table
from nd_jax.evaluation.statistics import interval

_STEPS = 1 << 32  # more than a session has


def compare(runs: Mapping[str, Sequence[StateScores]], seed: int) -> dict[str, dict[str, Any]]:
    """Compare variants by bits per state, best first.

    Args:
      runs: of each variant, the base among them, what was measured of its runs, one a seed.
      seed: seeds the resampling.

    Returns:
      By variant: ``states`` (that all runs have), ``bits`` a state, ``seeds`` (bits of each run),
      ``difference`` to the base and ``difference_95``, a paired bootstrap interval over states, those of a
      program drawn together; ``state``, ``event_line``, ``bindings`` and ``value``: accuracy, mean over runs;
      ``state_difference`` to the base and ``state_difference_95``; accuracy ``by_action``.
    """
    paired = _common(runs)
    bits = {name: np.mean([run.bits for run in some], axis=0) for name, some in paired.items()}
    right = {
        name: np.mean([run.event_line & run.rest for run in some], axis=0) for name, some in paired.items()
    }
    figures: dict[str, dict[str, Any]] = {}
    for name in sorted(paired, key=lambda name: float(bits[name].mean())):
        some = paired[name]
        actions = [action for action in (*FORWARD, *INVERSE) if (some[0].action == action).any()]
        figures[name] = {
            "states": len(bits[name]),
            "bits": float(bits[name].mean()),
            "seeds": [float(run.bits.mean()) for run in some],
            **difference(bits[name], bits[BASE], some[0].program, seed),
            **_mean_accuracy(some),
            **{
                f"state_{key}": value
                for key, value in difference(right[name], right[BASE], some[0].program, seed).items()
            },
            "by_action": {
                action: {
                    "n": int((some[0].action == action).sum()),
                    **_mean_accuracy([run.among(run.action == action) for run in some]),
                }
                for action in actions
            },
        }
    return figures


def compare_answers(right: Mapping[str, Sequence[Mapping[str, Sequence[bool]]]], seed: int) -> dict[str, Any]:
    """Compare variants, the base among them, by their answers to the same programs.

    Args:
      right: of each variant, for each run, by task, which programs were answered right.
      seed: seeds the resampling.

    Returns:
      By variant and task: ``score`` (mean over runs), the ``seeds``' scores, ``difference`` to the base and
      ``difference_95``, a paired bootstrap interval over programs.
    """
    figures: dict[str, Any] = {}
    base = {task: np.mean([run[task] for run in right[BASE]], axis=0) for task in right[BASE][0]}
    for name, runs in right.items():
        figures[name] = {}
        for task in base:
            scores = np.mean([run[task] for run in runs], axis=0)
            figures[name][task] = {
                "score": float(scores.mean()),
                "seeds": [float(np.mean(run[task])) for run in runs],
                **difference(scores, base[task], np.arange(len(scores)), seed),
            }
    return figures


def difference(values: np.ndarray, base: np.ndarray, programs: np.ndarray, seed: int) -> dict[str, Any]:
    """Mean difference of paired values to the base's, with its bootstrap interval."""
    change = values - base
    return {"difference": float(change.mean()), "difference_95": interval(change, programs, seed)}


def best(figures: Mapping[str, Mapping[str, Any]], count: int) -> list[str]:
    """The base, and so many of the other variants with the fewest bits per state."""
    others = sorted((name for name in figures if name != BASE), key=lambda name: figures[name]["bits"])
    return [BASE, *others[:count]]


def _common(runs: Mapping[str, Sequence[StateScores]]) -> dict[str, list[StateScores]]:
    """Leave of every run the states that all runs have, in one order."""
    keys = {name: [run.session * _STEPS + run.step for run in some] for name, some in runs.items()}
    shared = reduce(np.intersect1d, [key for some in keys.values() for key in some])
    return {
        name: [
            run.among(np.searchsorted(key, shared)) for run, key in zip(some, keys[name], strict=True)
        ]  # a run's states are in ascending order
        for name, some in runs.items()
    }


def _mean_accuracy(runs: Sequence[StateScores]) -> dict[str, float | None]:
    by_run: list[dict[str, Any]] = [accuracy(run) for run in runs]
    return {
        name: None if value is None else float(np.mean([run[name] for run in by_run]))
        for name, value in by_run[0].items()
    }


def _change(difference: float, ends: Sequence[float]) -> list[str]:
    """A difference to the base and its interval, as tables show them."""
    low, high = ends
    return [f"{difference:+.3f}", f"{low:+.3f} to {high:+.3f}"]


def comparison_table(title: str, figures: Mapping[str, Mapping[str, Any]]) -> Table:
    """Show a comparison by bits per state."""
    rows = []
    for name, row in figures.items():
        spread = max(row["seeds"]) - min(row["seeds"])
        change = _change(row["difference"], row["difference_95"])
        rows.append([name, len(row["seeds"]), row["bits"], spread, *change])
    states = next(iter(figures.values()))["states"]
    note = f"{states} states, the same for all; below 0 is better than the base."
    return Table(title, ["variant", "runs", "bits/state", "spread", "to the base", "95 %"], rows, note)


def accuracy_table(
    title: str, figures: Mapping[str, Mapping[str, Any]], tokens: Mapping[str, Mapping[str, float]]
) -> Table:
    """Show accuracy by field beside ``tokens_mean`` and ``tokens_p95`` of a trace (`tokens`, by variant)."""
    fields = ("state", "event_line", BINDINGS, VALUE)
    rows = []
    for name, row in figures.items():
        change = _change(row["state_difference"], row["state_difference_95"])
        lengths = (tokens[name]["tokens_mean"], tokens[name]["tokens_p95"])
        rows.append([name, row["state"], *change, *(row[field] for field in fields[1:]), *lengths])
    columns = ["variant", "state", "to the base", "95 %", *fields[1:], "tokens/trace", "p95"]
    return Table(title, columns, rows)


def answers_table(answers: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> Table:
    """Show what `compare_answers` gave."""
    rows = [
        [name, task, len(row["seeds"]), row["score"], *_change(row["difference"], row["difference_95"])]
        for name, by_task in answers.items()
        for task, row in by_task.items()
    ]
    columns = ["variant", "task", "runs", "score", "to the base", "95 %"]
    return Table("CRUXEval (official)", columns, rows)


def action_table(title: str, figures: Mapping[str, Mapping[str, Any]]) -> Table:
    """Show accuracy by action and field."""
    fields = ("n", "state", "event_line", BINDINGS, VALUE)
    rows = [
        [name, action, *(scores[field] for field in fields)]
        for name, row in figures.items()
        for action, scores in row["by_action"].items()
    ]
    return Table(title, ["variant", "action", *fields], rows)


def plot(comparisons: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> bytes:
    """Draw each comparison's differences to the base with their intervals, as a PNG file."""
    from matplotlib.figure import Figure

    tall = max(map(len, comparisons.values()))
    picture = Figure(figsize=(5 * len(comparisons), 1.5 + 0.35 * tall), layout="constrained")
    for axes, (title, figures) in zip(
        picture.subplots(1, len(comparisons), squeeze=False)[0], comparisons.items(), strict=True
    ):
        names = [name for name in reversed(list(figures)) if name != BASE]
        middle = np.array([figures[name]["difference"] for name in names])
        ends = np.array([figures[name]["difference_95"] for name in names]).reshape(-1, 2)
        axes.errorbar(middle, range(len(names)), xerr=np.abs(ends - middle[:, None]).T, fmt="o", capsize=3)
        axes.axvline(0, color="0.6", linewidth=1)
        axes.set_yticks(range(len(names)), names)
        axes.set_xlabel("bits per state, difference to the base")
        axes.set_title(title)
    buffer = io.BytesIO()
    picture.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()
