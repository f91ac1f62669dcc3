import json
from dataclasses import replace

import pytest
from test_loop import records
from tiny_run import EXPERIMENT, run

from nd_jax.errors import UserError
from nd_jax.training.profile import read_steps


def with_profile(steps):
    return replace(EXPERIMENT, metrics=replace(EXPERIMENT.metrics, profile=steps))


@pytest.mark.parametrize("text", ["10", "5:3", "0:3", "a:b", "1:2:3"])
def test_what_is_no_range_is_refused_before_anything_is_made(tmp_path, text):
    with pytest.raises(UserError, match="--profile"):
        run(tmp_path, with_profile(text))
    assert not list(tmp_path.iterdir())


def test_ranges():
    assert read_steps("10:15") == (10, 15)
    assert read_steps("") == (0, -1)


@pytest.mark.parametrize("steps", ["3:4", "5:99"])
def test_steps_are_traced_once(tmp_path, monkeypatch, steps):
    called = []
    monkeypatch.setattr("jax.profiler.start_trace", lambda folder: called.append(folder))
    monkeypatch.setattr("jax.profiler.stop_trace", lambda: called.append("stop"))
    run(tmp_path, with_profile(steps))
    assert called == [str(tmp_path / "profile"), "stop"]
    assert json.dumps(records(tmp_path))
