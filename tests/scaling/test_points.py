"""Which runs are points of a study, and what their loss is."""

import json
from types import SimpleNamespace

import pytest

from nd_jax.scaling import points
from nd_jax.training.config import Experiment, TrainConfig


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Makes a run of so many of its 40 steps, and gives its folder."""
    experiments = {}
    monkeypatch.setattr(points, "find_checkpoint", lambda run: run)
    monkeypatch.setattr(
        points, "read_record", lambda run: SimpleNamespace(experiment=experiments[run.resolve()])
    )

    def make(name, done=40, heldout=None, start_from=""):
        run = tmp_path / name
        (run / "checkpoints").mkdir(parents=True)
        experiments[run] = Experiment(train=TrainConfig(steps=40, start_from=start_from))
        records = [
            {"step": step, "loss": 100.0 - step, "progress": (step - 1) / 40, "tokens_seen": 5.0 * step}
            for step in range(10, done + 1, 10)
        ]
        (run / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
        if heldout is not None:
            (run / "eval").mkdir()
            (run / "eval/loss.json").write_text(json.dumps({"loss": heldout}))
        return run

    return make


def test_a_short_run_is_finished_by_its_steps(runs):
    whole, cut = points.read_point(runs("whole")), points.read_point(runs("cut", done=30))
    assert isinstance(whole, points.Point)
    assert (whole.tokens, whole.loss) == (200.0, 60.0)  # of the last record: progress 39 / 40
    assert cut == "unfinished (72%)"


def test_the_loss_on_held_out_rows_counts(runs, tmp_path):
    runs("a", heldout=2.5)
    runs("b")
    found, left_out = points.read_points([tmp_path])
    assert [(point.name, point.loss) for point in found] == [("a", 2.5)]
    assert "no held-out loss, which others have" in left_out[0]


def test_a_run_that_others_start_from_is_left_out(runs, tmp_path):
    trunk = runs("trunk")
    runs("decay", start_from=str(trunk / "checkpoints/20"))
    found, left_out = points.read_points([tmp_path])
    assert [point.name for point in found] == ["decay"]
    assert left_out == [f"{trunk}: another run goes on from it"]
