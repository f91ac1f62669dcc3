import json
import os
import resource
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest
from tiny_run import EXPERIMENT, WordTokenizer, batch, batches, digest, run

from nd_jax.errors import UserError
from nd_jax.model.partition import MeshConfig
from nd_jax.training.loop import Hook


def records(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def start(out, *arguments):
    """Start the tiny run in a process of its own, until it pauses."""
    program = [sys.executable, str(Path(__file__).with_name("tiny_run.py")), str(out), *map(str, arguments)]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
    if len(arguments) > 1:
        assert process.stdout
        while "paused" not in process.stdout.readline():
            assert process.poll() is None, "the run ended before its pause"
    return process


class Stop(Exception):
    pass


def interrupted(config, first, own, at):
    """Rows that end in an exception, as a crash does, when step `at` is asked for."""
    for step, rows in enumerate(batches(config, first, own), first):
        if step == at:
            raise Stop
        yield rows


@pytest.fixture(scope="module")
def whole(finished):
    """Of the run without interruption: the digest of its end and its records."""
    return digest(finished / "checkpoints/6"), records(finished)


def losses(lines):
    return [(line["step"], line["loss"], line["grad_norm"]) for line in lines]


def test_resumed_twice_equals_uninterrupted_bit_for_bit(tmp_path, whole):
    asked = []
    for at in (3, 5):
        with pytest.raises(Stop):
            run(tmp_path, batches=partial(interrupted, EXPERIMENT.data, at=at))

    def noted(first, own):
        asked.append(first)
        return batches(EXPERIMENT.data, first, own)

    run(tmp_path, batches=noted)
    assert asked == [4]  # it did resume, from the newest checkpoint
    assert digest(tmp_path / "checkpoints/6") == whole[0]
    assert losses(records(tmp_path)) == losses(whole[1])  # every step once


def test_killed_and_resumed_equals_uninterrupted_bit_for_bit(tmp_path, whole):
    process = start(tmp_path, 6, 5)
    process.kill()
    process.wait()
    assert "2" in {path.name for path in (tmp_path / "checkpoints").iterdir()}
    run(tmp_path)
    assert digest(tmp_path / "checkpoints/6") == whole[0]
    assert losses(records(tmp_path)) == losses(whole[1])


def test_sigterm_saves_and_ends_well(tmp_path, whole):
    process = start(tmp_path, 6, 3)
    process.terminate()
    (tmp_path / "go").touch()
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    summary = json.loads(output.splitlines()[-1])
    assert summary["stopped"] == "SIGTERM"
    assert 3 <= summary["step"] < 6
    assert f"Stopped by SIGTERM after step {summary['step']}" in " ".join(output.split())
    assert Path(summary["checkpoint"]).is_dir()
    run(tmp_path)
    assert digest(tmp_path / "checkpoints/6") == whole[0]


def ctrl_c(times, first, own):
    for step, rows in enumerate(batches(EXPERIMENT.data, first, own), first):
        for _ in range(times if step == 3 else 0):
            os.kill(os.getpid(), signal.SIGINT)
        yield rows


def test_ctrl_c_saves_and_a_second_one_aborts(tmp_path):
    before = signal.getsignal(signal.SIGINT)
    summary = run(tmp_path / "once", batches=partial(ctrl_c, 1))
    assert (summary["stopped"], summary["step"]) == ("SIGINT", 4)
    assert Path(summary["checkpoint"]).is_dir()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "twice", batches=partial(ctrl_c, 2))
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("at", [3, 4], ids=["on a save", "between saves"])
def test_nan_stops_and_names_the_last_good_checkpoint(tmp_path, at):
    def poisoned(first, own):
        for step, rows in enumerate(batches(EXPERIMENT.data, first, own), first):
            yield {**rows, "weights": rows["weights"] * np.float32("nan")} if step == at else rows

    with pytest.raises(
        UserError, match=rf"nan at step {at + 1}; last good checkpoint: .*checkpoints/{at // 2 * 2}\b"
    ):
        run(tmp_path, batches=poisoned)
    assert max(int(path.name) for path in (tmp_path / "checkpoints").iterdir()) == at // 2 * 2
    run(tmp_path)  # with good rows it goes on from there


def test_hooks_are_called_and_their_figures_recorded(tmp_path):
    called = []

    def look(step, params, check):
        called.append((step, float(params["norm"].sum())))
        return {"heldout/loss": step / 10}

    run(tmp_path, hooks=[Hook(3, look), Hook(4, lambda *_: None)])
    assert [step for step, _ in called] == [3, 6]
    assert called[0][1] != called[1][1]
    assert [line for line in records(tmp_path) if "heldout/loss" in line] == [
        {"step": 3, "heldout/loss": 0.3}, {"step": 6, "heldout/loss": 0.6}
    ]  # fmt: skip


def test_a_signal_during_a_hook_leaves_it_and_saves(tmp_path, whole):
    reached = []

    def look(step, params, check):
        check()
        os.kill(os.getpid(), signal.SIGTERM)
        reached.append(step)
        check()
        reached.append("its end")

    summary = run(tmp_path, hooks=[Hook(3, look)])
    assert (summary["stopped"], summary["step"], reached) == ("SIGTERM", 3, [3])
    run(tmp_path)
    assert digest(tmp_path / "checkpoints/6") == whole[0]


def test_late_rows_are_named_and_do_not_hold_up_a_stop(tmp_path, whole, capsys):
    said = threading.Event()

    def late(first, own):
        for step, rows in enumerate(batches(EXPERIMENT.data, first, own), first):
            if step == 3:
                text = ""
                while "Step 4 has waited" not in text:
                    text += capsys.readouterr().out
                    threading.Event().wait(0.01)
                said.set()
                os.kill(os.getpid(), signal.SIGTERM)
                threading.Event().wait()  # for ever
            yield rows

    impatient = replace(EXPERIMENT, guard=replace(EXPERIMENT.guard, input_seconds=0.05))
    summary = run(tmp_path, impatient, batches=late)
    assert said.is_set()
    assert (summary["stopped"], summary["step"]) == ("SIGTERM", 3)
    run(tmp_path)
    assert digest(tmp_path / "checkpoints/6") == whole[0]


def full(limit, first, own):
    """Rows; from the third step to the fifth no file can grow beyond a size, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for step, rows in enumerate(batches(EXPERIMENT.data, first, own), first):
        if step in (3, 5):  # the save under way succeeds, or fails, before that changes
            for thread in threading.enumerate():  # joined, it would raise here
                while thread.name == "save_finalize" and thread.is_alive():
                    threading.Event().wait(0.01)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit if 3 <= step < 5 else soft, hard))
        yield rows


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_full_disk_costs_one_checkpoint(tmp_path, whole, capsys, asynchronous):
    config = replace(EXPERIMENT.checkpoint, asynchronous=asynchronous)
    run(tmp_path, replace(EXPERIMENT, checkpoint=config), batches=partial(full, 1000))
    said = "".join(capsys.readouterr().out.split())
    assert "THECHECKPOINTOFSTEP4COULDNOTBESAVED" in said
    assert "thenewestisthatofstep2" in said
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["2", "6"]
    assert digest(tmp_path / "checkpoints/6") == whole[0]


def test_a_run_whose_last_checkpoint_cannot_be_saved_says_so(tmp_path, capsys):  # else into a full file
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    short = replace(EXPERIMENT, train=replace(EXPERIMENT.train, steps=4))
    try:
        with pytest.raises(UserError, match=r"of step 4 could not be saved .* newest is that of step 2"):
            run(tmp_path, short, batches=partial(full, 1000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def poisoned(kinds, first, own):
    """Rows; the weights of some steps, by number, are not finite or their targets nonsense."""
    for step, rows in enumerate(batches(EXPERIMENT.data, first, own), first):
        if kinds.get(step) == "nan":
            rows["weights"] = rows["weights"] * np.float32("nan")
        yield rows


def test_what_is_not_finite_is_left_out_and_counted(tmp_path, whole):
    skipping = replace(EXPERIMENT, guard=replace(EXPERIMENT.guard, nonfinite="skip"))
    run(tmp_path, skipping, batches=partial(poisoned, {2: "nan", 4: "nan"}))
    lines = records(tmp_path)
    assert [line["skipped"] for line in lines] == [0, 0, 1, 1, 2, 2]
    for got, expected in zip(losses(lines[:2]), losses(whole[1]), strict=False):
        assert got == pytest.approx(expected, rel=1e-5)  # another program rounds otherwise
    assert all("NaN" not in json.dumps(line) for line in lines)
    assert lines[2]["param_norm"] == lines[1]["param_norm"]  # nothing changed


def test_a_loss_that_jumps_ends_the_run_where_asked(tmp_path):
    guard = replace(EXPERIMENT.guard, spike="stop", spike_steps=2, spike_deviations=-1e6)  # any loss jumps
    with pytest.raises(UserError, match=r"the loss jumped to \d.* at step 3; last good checkpoint: .*/2"):
        run(tmp_path, replace(EXPERIMENT, guard=guard))


def test_too_many_steps_left_out_end_the_run(tmp_path):
    guard = replace(EXPERIMENT.guard, nonfinite="skip", most_skips=2)
    with pytest.raises(UserError, match="2 steps in a row were left out, the last of them 4"):
        run(tmp_path, replace(EXPERIMENT, guard=guard), batches=partial(poisoned, {2: "nan", 3: "nan"}))


def test_a_run_by_wall_time_ends_and_keeps_its_time_on_resumption(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("nd_jax.training.loop.time.perf_counter", lambda: now[0])

    def ticking(first, own):
        for rows in batches(EXPERIMENT.data, first, own):
            now[0] += 1.0
            yield rows

    timed = replace(EXPERIMENT, train=replace(EXPERIMENT.train, steps=None, max_seconds=8.0))

    def crashing(first, own):
        return (rows for step, rows in enumerate(ticking(first, own), first) if step < 5 or crash())

    def crash():
        raise Stop

    with pytest.raises(Stop):
        run(tmp_path, timed, batches=crashing)
    now[0] = 1000.0  # the time between crash and resumption does not count
    summary = run(tmp_path, timed, batches=ticking)
    progress = [line["progress"] for line in records(tmp_path)]
    # One step more, since the end is noticed in the metrics of the step before.
    assert progress == [0.0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0, 1.0]
    assert 8.0 <= summary["seconds"] <= 12.0


def test_resuming_on_another_mesh_agrees_to_rounding(tmp_path, whole):
    with pytest.raises(Stop):
        run(tmp_path, batches=partial(interrupted, EXPERIMENT.data, at=5))
    sharded = replace(EXPERIMENT, mesh=MeshConfig(replica=2, fsdp=2, tensor=2))
    run(tmp_path, sharded, devices=jax.devices())
    for got, expected in zip(losses(records(tmp_path)), losses(whole[1]), strict=False):
        assert got == pytest.approx(expected, rel=2e-5)


def test_metrics_report_each_step_and_the_throughput(whole):
    lines = whole[1]
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5, 6]
    rows = batch(0, EXPERIMENT.data)
    first = lines[0]
    assert first["weight"] == pytest.approx(rows["weights"].sum())
    assert first["fill"] == (rows["segments"] > 0).mean()
    assert first["tokens_per_s"] == pytest.approx(128 / first["step_seconds"])
    flops = EXPERIMENT.model.flops_per_token(16) * first["tokens_per_s"]
    assert first["mfu"] == pytest.approx(flops / 1e12)
    assert lines[-1]["tokens_seen"] == 6 * 128
    assert all(0 <= line["input_wait"] <= 1 for line in lines)


@pytest.mark.parametrize(
    ("train", "said"),
    [
        ({"steps": None}, "--train.steps or --train.max_seconds"),
        ({"accumulation": 3}, "train.accumulation=3 does not divide data.global_batch=8"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(tmp_path, train, said):
    with pytest.raises(UserError, match=said):
        run(tmp_path, replace(EXPERIMENT, train=replace(EXPERIMENT.train, **train)))
    assert not list(tmp_path.iterdir())


def test_a_vocabulary_too_small_for_the_tokenizer_is_refused(tmp_path):
    with pytest.raises(UserError, match=r"--model\.vocab_size 321"):
        run(tmp_path, tokenizer=WordTokenizer(vocab_size=321))
