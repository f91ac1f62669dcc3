"""What is measured on held-out programs while a run trains."""

import json
from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest
from test_loop import records
from tiny_run import EXPERIMENT, batches, row, run

from nd_jax.data.layout import KINDS
from nd_jax.model.config import MeshConfig
from nd_jax.training import heldout
from nd_jax.training.heldout import heldout_loss

EVALUATED = replace(EXPERIMENT, heldout=replace(EXPERIMENT.heldout, every_steps=3, batches=2))


def rows_of_another_seed(stream, config, start, own):
    return batches(replace(config, seed=77), start, own)


@pytest.fixture
def hook(monkeypatch):
    monkeypatch.setattr(heldout, "global_batches", rows_of_another_seed)
    return heldout_loss(EVALUATED, stream=None)


def held_out(out):
    return [line for line in records(out) if "heldout/loss" in line]


def test_the_heldout_loss_is_the_same_on_every_mesh(tmp_path, hook):
    run(tmp_path / "one", EVALUATED, hooks=[hook])
    sharded = replace(EVALUATED, mesh=MeshConfig(replica=2, fsdp=2, tensor=2))
    run(tmp_path / "eight", sharded, hooks=[hook], devices=jax.devices())
    one, eight = held_out(tmp_path / "one"), held_out(tmp_path / "eight")
    assert [line["step"] for line in one] == [3, 6]
    assert one[0]["heldout/loss"] > one[1]["heldout/loss"] > 4
    for a, b in zip(one, eight, strict=True):
        assert a == pytest.approx(b, rel=2e-4)
    # tiny rows have kinds 1 and 3 alone, told by their weights: 0.1 and 1
    named = {name for name in one[0] if name.startswith("heldout/loss/")}
    assert named == {f"heldout/loss/{KINDS[1]}", f"heldout/loss/{KINDS[3]}"}
    rows = [row(i, replace(EXPERIMENT.data, seed=77)) for i in range(16)]
    light, heavy = (sum(np.sum(r["kinds"] == kind) for r in rows) for kind in (1, 3))
    mean = one[0][f"heldout/loss/{KINDS[1]}"] * 0.1 * light + one[0][f"heldout/loss/{KINDS[3]}"] * heavy
    assert one[0]["heldout/loss"] == pytest.approx(mean / (0.1 * light + heavy), rel=1e-5)


def test_losses_by_kind_add_up_to_the_loss(finished):
    for step, line in enumerate(records(finished)):
        rows = [row(step * 8 + i, EXPERIMENT.data) for i in range(8)]
        light, heavy = (sum(np.sum(r["kinds"] == kind) for r in rows) for kind in (1, 3))
        mean = line["loss/context"] * 0.1 * light + line["loss/place"] * heavy
        assert line["loss"] == pytest.approx(mean / (0.1 * light + heavy), rel=1e-5)
        assert "loss/action" not in line


def test_goodput_counts_the_whole_life(tmp_path, monkeypatch):
    from nd_jax.training.metrics import Recorder

    now = [100.0]
    monkeypatch.setattr("nd_jax.training.metrics.time.perf_counter", lambda: now[0])
    monkeypatch.setattr("nd_jax.training.metrics.time.time", lambda: now[0])
    step = dict.fromkeys(("loss", "accuracy", "weight", "tokens", "grad_norm", "param_norm"), 1.0)
    step |= {"learning_rate": 0.1, "progress": 0.5}

    def train(start, before):
        with Recorder(EXPERIMENT, tmp_path, start, 1, before) as recorder:
            now[0] += 10.0  # compiling
            recorder.begin()
            now[0] += 30.0
            with recorder.input_wait():
                now[0] += 5.0
            with recorder.aside():
                now[0] += 5.0
            recorder.step(start + 1, step)
            return recorder.productive

    assert train(0, 0.0) == 30.0
    now[0] += 50.0  # nobody trains
    assert train(1, 30.0) == 60.0
    assert [json.loads(line)["goodput"] for line in (tmp_path / "metrics.jsonl").open()] == [0.6, 0.4]
    assert train(0, 0.0) == 30.0  # resumed from before both steps: they count no more
    (line,) = records(tmp_path)
    assert line["goodput"] == 30 / 200


def test_texts_go_to_tensorboard_and_figures_to_wandb(tmp_path, monkeypatch):
    import sys
    from types import SimpleNamespace

    logged, started = [], []
    fake = SimpleNamespace(log=lambda values, step: logged.append((step, values)), finish=lambda: None)
    module = SimpleNamespace(init=lambda **given: started.append(given) or fake, __spec__=object())
    monkeypatch.setitem(sys.modules, "wandb", module)
    told = replace(EXPERIMENT.metrics, wandb="debuggers", tensorboard=True)
    hooks = [heldout.Hook(6, lambda *_: {"session/0": "def f()", "heldout/loss": 1.0})]
    for steps in (2, 6):
        train = replace(EXPERIMENT.train, steps=steps)
        run(tmp_path, replace(EXPERIMENT, metrics=told, train=train), hooks=hooks)
    assert [step for step, _ in logged] == [1, 2, 3, 4, 5, 6, 6]
    assert logged[-1][1] == {"heldout/loss": 1.0}
    assert started[0]["project"] == "debuggers"
    assert started[0]["id"] == started[1]["id"]
    boards = b"".join(path.read_bytes() for path in (tmp_path / "tensorboard").iterdir())
    assert b"def f()" in boards
    assert "session/0" not in records(tmp_path)[-1]


def test_the_metrics_of_a_step_are_fetched_after_the_next_was_dispatched(tmp_path, monkeypatch):
    from nd_jax.training import loop

    order = []
    read, make = loop.read_metrics, loop.make_step

    class Noted:
        def __init__(self, step):
            self.step, self.count = step, 0

        def lower(self, *given):
            return self

        def compile(self):
            return self

        def __call__(self, *given):
            order.append("dispatch")
            return self.step(*given)

    monkeypatch.setattr(loop, "make_step", lambda *given: Noted(make(*given)))
    monkeypatch.setattr(loop, "read_metrics", lambda metrics: order.append("fetch") or read(metrics))
    seldom = replace(EXPERIMENT, checkpoint=replace(EXPERIMENT.checkpoint, every_steps=100))
    run(tmp_path, seldom, batches=partial(batches, EXPERIMENT.data))
    assert order == ["dispatch"] + ["dispatch", "fetch"] * 5 + ["fetch"]
