"""The report page: Markdown and self-contained HTML."""

import json
import re
from pathlib import Path

import pytest

from nd_jax.errors import UserError
from nd_jax.evaluation.pages import report
from nd_jax.evaluation.report import (
    Figure,
    Table,
    Text,
    cruxeval_table,
    heat_map,
    loss_curve,
    markdown,
    read_metrics,
    settings_table,
    states_table,
    write_report,
)

SCORES = {
    "n": 4,
    "state": 0.5,
    "event_line": 0.75,
    "bindings": 1.0,
    "value": None,
    "n_bindings": 4,
    "n_value": 0,
}
STATES = {
    "by_action": {"step_into": {**SCORES, "state_95": [0.25, 0.75]}},
    "baselines": {"step_into": {**SCORES, "state": 0.25}},
}
VERDICTS = {"official": 0.5, "strict": 0.25, "exact": 0.125}
CRUXEVAL = {
    "task": "output",
    "n": 8,
    **VERDICTS,
    "baselines": {"first_argument": {**VERDICTS, "official": 0.0}},
}
METRICS = [{"step": 10 * k, "loss": 5 / (k + 1)} for k in range(20)]


def test_a_page_holds_all_its_parts_and_refers_to_nothing_outside(tmp_path):
    parts = [
        settings_table("Settings", {"model": {"d_model": 128}, "seed": 0}),
        loss_curve([*METRICS, {"step": 200, "eval": 1.0}, {"step": 210, "loss": None}]),
        states_table(STATES),
        cruxeval_table([CRUXEVAL]),
        Text("Session", "if a < b & c:\n```\n<|line_1|>"),
    ]
    page = write_report(tmp_path / "out", "A run <1>", parts)
    html = page.read_text(encoding="utf-8")
    assert "<h1>A run &lt;1&gt;</h1>" in html
    assert "if a &lt; b &amp; c:" in html
    assert "<|line_1|>" not in html
    assert html.count("<h2>") == len(parts)
    assert not re.search(r'(src|href)="(?!data:)', html)
    assert 'src="data:image/png;base64,iVBOR' in html
    text = (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    assert text.count("\n## ") == len(parts)
    assert "| model.d_model | 128 |" in text
    assert "````\nif a < b" in text
    assert "![Loss](loss.png)" in text
    assert (tmp_path / "out" / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_large_numbers_can_be_read_and_wide_tables_scroll(tmp_path):
    table = settings_table("Figures", {"tokens": 4059136.0, "programs": 20000, "share": 0.5, "done": True})
    for row in ("| tokens | 4,059,136 |", "| programs | 20,000 |", "| share | 0.500 |", "| done | True |"):
        assert row in markdown(table)
    html = write_report(tmp_path, "A run", [table]).read_text(encoding="utf-8")
    assert '<div class="table"><table>' in html
    assert 'name="viewport"' in html


def test_tables_of_scores_show_baselines_below_the_model():
    states = markdown(states_table(STATES))
    assert "| step_into | 4 | 0.500 | 0.750 | 1.000 | – | 0.25–0.75 |" in states
    assert "|   baseline | 4 | 0.250 | 0.750 | 1.000 | – | – |" in states
    cruxeval = markdown(cruxeval_table([CRUXEVAL]))
    assert "| output: model | 8 | 0.500 | 0.250 | 0.125 | – |" in cruxeval
    assert "|   first argument | 8 | 0.000 | 0.250 | 0.125 |" in cruxeval


def test_sampled_and_constrained_answers_stand_apart():
    sampled = {"n": 8, "samples": 10, **VERDICTS, "official_95": [0.2, 0.8],
               "pass_at": {"1": VERDICTS, "5": {**VERDICTS, "official": 0.75}}}  # fmt: skip
    constrained = {**VERDICTS, "official_95": [0.0, 1.0]}
    figures = {**CRUXEVAL, "sampled": {"0.8": sampled}, "constrained": constrained,
               "harness": {"pass_at_1": 62.5, "pass_at_5": 100.0}}  # fmt: skip
    text = markdown(cruxeval_table([figures]))
    assert "|   T=0.8 pass@1 of 10 | 8 | 0.500 | 0.250 | 0.125 | 0.20–0.80 |" in text
    assert "|   T=0.8 pass@5 of 10 | 8 | 0.750 |" in text
    assert "|   within the grammar | 8 | 0.500 | 0.250 | 0.125 | 0.00–1.00 |" in text
    assert "|   harness: pass@1 62.5, pass@5 100.0 | 8 | 0.625 | – |" in text


def test_a_heat_map_is_a_picture_with_holes():
    figure = heat_map("Map", ["step_into", "continue"], ["state", "value"], [[0.5, None], [1.0, 0.25]])
    assert figure.png.startswith(b"\x89PNG")


def a_run(directory: Path, score: float) -> Path:
    """A run with results of both kinds."""
    scores = {**SCORES, "state": score, "state_95": [0.0, 1.0]}
    running = {"n": 3, "whole": 0.5, "steps": 2.5, "after": {"1": 1.0, "2": 0.5}}
    groups = {kind: {"0": scores} for kind in ("by_event", "by_skip", "by_depth")}
    executed = {"n": 4, "returns_it": 0.5, "same_call": 0.25, "unanswered": {}}
    states = {**STATES, "by_action": {"step_into": scores}, **groups, "free_running": {"forward": running},
              "inverse_by_execution": executed}  # fmt: skip
    of_type = {"int": {"n": 8, "official": score, "official_95": [0.0, 1.0]}}
    figures = {**CRUXEVAL, "official": score, "breakdown": {"type": of_type}}
    wrong = [{"title": "sample_1 (output)", "answer": "answer <b>2</b> \ud800", "trace": "0 call f(<1>)"}]
    (directory / "eval").mkdir(parents=True)
    for name, content in (("states-synthetic-heldout", states), ("cruxeval-output", figures),
                          ("cruxeval-output-wrong", wrong), ("cruxeval-output-t0.8", figures)):  # fmt: skip
        (directory / "eval" / f"{name}.json").write_text(json.dumps(content))
    (directory / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n')
    return directory


def test_the_page_of_a_run_holds_all_its_results(tmp_path):
    run = a_run(tmp_path / "nano", 0.5)
    html = report([run]).read_text(encoding="utf-8")
    for title in ("Loss", "Next states: synthetic-heldout", "Accuracy by action and field: synthetic-heldout",
                  "Next states by kind: synthetic-heldout", "Free-running: synthetic-heldout",
                  "Inverse predictions, executed: synthetic-heldout", "CRUXEval",
                  "CRUXEval, output, by what programs are like", "sample_1 (output)"):  # fmt: skip
        assert html.count(f"<h2>{title}</h2>") == 1, title
    assert "answer &lt;b&gt;2&lt;/b&gt; \\ud800" in html
    assert not re.search(r'(src|href)="(?!data:)', html)
    assert (run / "eval/report.md").exists()
    with pytest.raises(UserError, match="no results there"):
        report([tmp_path])


def test_several_runs_stand_side_by_side(tmp_path):
    runs = [a_run(tmp_path / "a" / "nano", 0.5), a_run(tmp_path / "wide", 0.75)]
    html = report(runs, tmp_path / "page").read_text(encoding="utf-8")
    assert "<th>nano</th><th>wide</th>" in html
    row = "<tr><td>synthetic-heldout, step_into: state</td><td>0.500</td><td>0.750</td></tr>"
    assert row in html
    assert "<tr><td>output: official</td><td>0.500</td><td>0.750</td></tr>" in html
    assert "<h2>wide: Loss</h2>" in html


def test_cells_cannot_break_a_table():
    table = Table("T", ("a", "b"), [["x|y\nz", None]])
    assert "| x\\|y z | – |" in markdown(table)


def test_a_curve_without_points_is_still_a_picture():
    assert isinstance(loss_curve([]), Figure)


def test_metrics_are_read_but_for_a_line_that_was_cut_off(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "loss": 2.0}\n{"step": 2, "lo')
    assert read_metrics(path) == [{"step": 1, "loss": 2.0}]
    path.write_text('{"step": 1\n{"step": 2, "loss": 2.0}\n')
    with pytest.raises(UserError, match=r"metrics\.jsonl:1: not JSON"):
        read_metrics(path)
    with pytest.raises(UserError, match="no metrics there"):
        read_metrics(tmp_path / "nothing.jsonl")
