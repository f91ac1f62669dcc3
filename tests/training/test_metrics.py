import json
from dataclasses import replace
from types import SimpleNamespace

import jax
import pytest
from tiny_run import EXPERIMENT

from nd_jax.model.partition import MeshConfig, make_mesh
from nd_jax.training import metrics
from nd_jax.training.metrics import Recorder, peak_flops

SEEN = {
    "accuracy": 0.5,
    "tokens": 100.0,
    "grad_norm": 1.0,
    "param_norm": 2.0,
    "learning_rate": 0.1,
    "progress": 0.5,
}


def lines(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def test_records_of_steps_to_be_redone_are_dropped(tmp_path):
    kept = [{"step": step, "loss": 1.0 / step} for step in (1, 2)]
    later = [{"step": 3, "loss": 0.1}, {"step": 4, "heldout": 3}]
    (tmp_path / "metrics.jsonl").write_text(
        "".join(json.dumps(x) + "\n" for x in kept + later) + '{"step": 1, "lo'
    )
    with Recorder(EXPERIMENT, tmp_path, start=2, devices=1) as recorder:
        assert recorder.last == kept[-1]
        recorder.begin()
        recorder.step(3, {**SEEN, "loss": 9.0, "weight": 1.0})
    assert lines(tmp_path)[:2] == kept
    assert [(line["step"], line["loss"]) for line in lines(tmp_path)[2:]] == [(3, 9.0)]


def test_a_record_weighs_its_steps_by_their_tokens(tmp_path, capsys):
    experiment = replace(EXPERIMENT, metrics=replace(EXPERIMENT.metrics, every_steps=2, tensorboard=True))
    with Recorder(experiment, tmp_path, start=0, devices=1) as recorder:
        recorder.begin()
        recorder.step(1, {**SEEN, "loss": 1.0, "weight": 30.0})
        recorder.step(2, {**SEEN, "loss": 5.0, "weight": 10.0})
        recorder.step(3, {**SEEN, "loss": 7.0, "weight": 0.0})
        recorder.flush(3, {**SEEN, "loss": 7.0, "weight": 0.0})
    assert [(line["step"], line["loss"]) for line in lines(tmp_path)] == [(2, 2.0), (3, 0.0)]
    assert list((tmp_path / "tensorboard").iterdir())
    printed = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[:2] for line in printed] == [
        ["step 2", "loss 2.0000"],
        ["step 3", "loss 0.0000"],
    ]
    assert all(word in printed[0] for word in ("tokens/s", "MFU", "ETA", "input wait 0%"))


def test_time_put_aside_is_left_out_of_the_throughput(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(metrics.time, "perf_counter", lambda: now[0])
    with Recorder(EXPERIMENT, tmp_path, start=0, devices=2) as recorder:
        recorder.begin()
        with recorder.aside():
            now[0] += 100.0
        with recorder.input_wait():
            now[0] += 0.5
        now[0] += 1.5
        recorder.step(1, {**SEEN, "loss": 1.0, "weight": 1.0})
    (line,) = lines(tmp_path)
    assert (line["step_seconds"], line["tokens_per_s"], line["input_wait"]) == (2.0, 64.0, 0.25)
    assert line["mfu"] == pytest.approx(EXPERIMENT.model.flops_per_token(16) * 64.0 / 2e12)


def test_peaks_are_known_by_device_kind():
    def device(kind):
        return SimpleNamespace(platform="gpu", device_kind=kind)

    assert peak_flops(device("NVIDIA H100 PCIe")) == 756e12
    assert peak_flops(device("NVIDIA H100 80GB HBM3")) == 989e12
    assert peak_flops(device("NVIDIA Unheard")) is None
    assert 1e8 < (peak_flops(jax.devices()[0]) or 0) < 1e14


def test_the_cpus_peak_is_measured_under_any_mesh():
    with jax.set_mesh(make_mesh(MeshConfig(replica=2, fsdp=4, tensor=1))):
        assert peak_flops(jax.devices()[0])
