"""The report page: Markdown and self-contained HTML."""

import re

import pytest

from nd_jax.errors import UserError
from nd_jax.evaluation.report import (
    Figure,
    Table,
    Text,
    cruxeval_table,
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


def test_tables_of_scores_show_baselines_below_the_model():
    states = markdown(states_table(STATES))
    assert "| step_into | 4 | 0.500 | 0.750 | 1.000 | – | 0.25–0.75 |" in states
    assert "|   baseline | 4 | 0.250 | 0.750 | 1.000 | – | – |" in states
    cruxeval = markdown(cruxeval_table([CRUXEVAL]))
    assert "| output: model | 8 | 0.500 | 0.250 | 0.125 |" in cruxeval
    assert "|   first argument | 8 | 0.000 | 0.250 | 0.125 |" in cruxeval


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
