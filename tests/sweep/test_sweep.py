"""What a study's file means, and what becomes of its runs: done, failed, left, resumed, told."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from standin import ROOT, nd

from nd_jax.errors import UserError
from nd_jax.sweep import cluster
from nd_jax.sweep import job as jobs
from nd_jax.sweep.study import load_plan
from nd_jax.sweep.times import Times, speed
from nd_jax.sweep.trunk import trunk_with_decays

FILE = f"""
from nd_jax.sweep import combine
from nd_jax.sweep.study import Study
from nd_jax.sweep.trunk import trunk_with_decays

study = Study(
    config={str(ROOT / "configs/nano.py")!r},
    runs=combine.chain(
        trunk_with_decays("small", {{"model.d_model": 64, "data.traces": ("{{out}}/traces",)}}, (10, 20)),
        combine.one("wide", {{"model.d_model": 256}}),
    ),
    prepare=("trace --synthetic 30 --out {{out}}/traces",),
    evaluate=("eval loss --checkpoint {{run}}",),
)
"""
NAMES = ["prepare/1", "small-trunk", "small-10", "small-20", "wide"]


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "some.py"
    path.write_text(FILE)
    return path


@pytest.fixture
def plan(file, tmp_path):
    return load_plan(file, tmp_path / "runs")


def sweep(plan, *words) -> int:
    return nd("sweep", plan.file, "--out", plan.out, "--chip", "h100", *words)


def kinds(plan) -> list[str]:
    return [jobs.state(job).kind for job in plan.jobs]


@pytest.fixture(autouse=True)
def nothing_to_collect(monkeypatch):
    """The stand-in leaves no checkpoints."""
    monkeypatch.setattr("nd_jax.sweep.collect.collect", lambda plan: ([], []))


def test_a_study_is_jobs_in_order(plan):
    assert [job.name for job in plan.jobs] == NAMES
    prepare, trunk, _, decay, wide = plan.jobs
    assert prepare.commands == (("trace", "--synthetic", "30", "--out", f"{plan.out}/traces"),)
    assert (trunk.after, decay.after) == (("prepare/1",), ("prepare/1", "small-trunk"))
    assert [job.result for job in plan.jobs] == [False, False, True, True, True]
    assert trunk.experiment.schedule.shape == "constant"
    assert (trunk.experiment.train.steps, trunk.experiment.checkpoint.keep_steps) == (16, (8, 16))
    assert decay.experiment.train.start_from == f"{plan.out}/small-trunk/checkpoints/16"
    assert decay.experiment.data.traces == (f"{plan.out}/traces",)
    assert decay.commands[1] == ("eval", "loss", "--checkpoint", f"{plan.out}/small-20")
    assert len(trunk.commands) == 1
    assert wide.experiment.model.d_model == 256
    assert decay.flops == pytest.approx(trunk.flops / 4)  # 4 of 20 steps, where the trunk has 16


def test_a_whole_run_is_the_trunk_and_its_decay():
    trunk, short, long = trunk_with_decays("a", {}, (7, 30), decay_share=0.3)
    assert trunk.overrides["train.steps"] == 21
    for decay, start in ((short, 5), (long, 21)):
        steps, share = decay.overrides["train.steps"], decay.overrides["schedule.decay_share"]
        assert steps * (1 - share) == pytest.approx(start)
        assert decay.overrides["train.start_from"].endswith(f"/{start}")
    with pytest.raises(UserError, match="leave none"):
        trunk_with_decays("a", {}, (1, 30))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("study = Study(", "other = Study(", "no top-level `study"),
        ('combine.one("wide"', 'combine.one("small-10"', "'small-10' cannot name one run"),
        ('combine.one("wide"', 'combine.one("a/b"', "'a/b' cannot name one run"),
        ('"model.d_model": 256', '"train.start_from": "{out}/x/checkpoints/3"', "of no run before it"),
        ('"model.d_model": 256', '"config": "absent.py"', "run wide: no config file"),
    ],
)
def test_a_study_that_cannot_be_is_named(file, tmp_path, old, new, said):
    file.write_text(FILE.replace(old, new))
    with pytest.raises(UserError, match=said):
        load_plan(file, tmp_path / "runs")


def test_what_is_done_is_not_done_again(plan, fake):
    assert sweep(plan) == 0
    assert fake.called == [
        "trace traces",
        "train small-trunk",
        *(f"{verb} {name}" for name in ("small-10", "small-20", "wide") for verb in ("train", "eval")),
    ]
    assert kinds(plan) == ["done"] * 5
    fake.called.clear()
    assert sweep(plan) == 0
    assert fake.called == []


def test_a_failed_run_is_told_and_the_others_go_on(plan, fake, capsys):
    fake.failing = "small-trunk"
    assert sweep(plan, "--json", plan.out / "told.json") == 1
    assert kinds(plan) == ["done", "failed", "waiting", "waiting", "done"]
    shown = capsys.readouterr().out
    assert "nd train returned 1\nValueError: too wide" in shown.replace("Traceback\n", "")
    assert "small-10: left out, it needs small-trunk" in shown
    assert json.loads((plan.out / "told.json").read_text())["runs"]["small-trunk"]["state"] == "failed"
    assert nd("sweep", "status", plan.file, "--out", plan.out, "--chip", "h100") == 0
    assert "ValueError: too wide" in capsys.readouterr().out
    fake.failing = ""
    fake.called.clear()
    assert sweep(plan) == 0
    assert fake.called[0] == "train small-trunk"
    assert "train wide" not in fake.called


def test_a_training_that_was_stopped_is_neither_done_nor_failed(plan, fake):
    fake.stopped = "SIGTERM"
    with pytest.raises(KeyboardInterrupt):
        jobs.do(plan.job("small-trunk"))
    assert jobs.state(plan.job("small-trunk")).kind == "unfinished"
    fake.stopped = "finished"
    assert jobs.do(plan.job("small-trunk")).kind == "done"


def test_other_settings_are_refused(plan, file, fake, capsys):
    assert sweep(plan) == 0
    file.write_text(FILE.replace("256", "512"))
    assert sweep(plan) == 2
    assert "model.d_model: 256 -> 512" in capsys.readouterr().err


def test_a_run_under_way_is_told_with_its_progress(plan):
    folder = plan.job("small-20").folder
    folder.mkdir(parents=True)
    records = [{"step": 17, "loss": 2.0, "progress": 0.85}, {"step": 18, "loss": 1.5, "progress": 0.9}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records) + '{"step": 19, "l')
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert jobs.state(plan.job("small-20")) == jobs.State("running", 0.5, 1.5)
    assert jobs.state(plan.job("small-20")).kind == "waiting"


def test_times_are_learned_from_runs_that_are_done(plan, fake):
    wide, trunk = plan.job("wide"), plan.job("small-trunk")
    times = Times(plan, 1e9)
    assert times.left([wide]) == pytest.approx(wide.flops / 1e9)
    assert times.left([plan.jobs[0]]) is None
    jobs.do(trunk)  # says that it took 2 s
    learned = Times(plan, 1e9)
    assert learned.flops_per_second == pytest.approx(trunk.flops / 2, rel=0.01)
    assert learned.left([trunk, wide], 0.5) == pytest.approx(wide.flops / trunk.flops, rel=0.01)
    assert speed("h100", 4, 0.5) == 2 * 989e12
    with pytest.raises(UserError, match="h100"):
        speed("abacus", 1, 0.5)


def test_a_killed_sweep_loses_no_finished_job(file, plan):
    """Kill the sweep and its run while the first training fails to find its tokenizer, or before."""
    command = [sys.executable, "-m", "nd_jax", "sweep", str(file), "--out", str(plan.out), "--chip", "h100"]
    process = subprocess.Popen(command, cwd=ROOT, start_new_session=True, stdout=subprocess.DEVNULL)
    done = plan.jobs[0].folder / "done.json"
    while not done.exists():
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = done.stat().st_mtime_ns
    assert jobs.do(plan.jobs[0]).kind == "done"
    assert done.stat().st_mtime_ns == before
    assert (plan.out / "traces/dataset_info.json").exists()


def test_slurm_gets_jobs_with_their_order(plan, fake, capsys):
    config = cluster.SlurmConfig(partition="gpu", account="lab", hours=2, gpus=4)
    told = cluster.slurm_parameters(config, plan.job("small-20"), ["17", "18"])
    assert told["slurm_additional_parameters"] == {"dependency": "afterok:17:18", "account": "lab"}
    assert (told["slurm_partition"], told["timeout_min"], told["gpus_per_node"]) == ("gpu", 120, 4)
    assert (
        cluster.slurm_parameters(cluster.SlurmConfig(), plan.jobs[0], [])["slurm_additional_parameters"] == {}
    )
    jobs.do(plan.jobs[0])
    assert sweep(plan, "--on", "slurm", "--dry-run") == 0
    shown = capsys.readouterr().out
    assert f"nd sweep run {plan.file} small-20 --out {plan.out}" in shown
    assert "prepare/1 --out" not in shown  # it is done


def test_submitit_runs_a_job(tmp_path):
    submitit = pytest.importorskip("submitit", reason="the extra `slurm` is not installed")
    executor = submitit.AutoExecutor(tmp_path, cluster="debug")
    job = executor.submit(cluster.Submitted((sys.executable, "-c", f"open({str(tmp_path / 'x')!r}, 'w')")))
    assert job.result() is None
    assert (tmp_path / "x").exists()
    assert cluster.Submitted(("a", "b")).checkpoint().function.command == ["a", "b"]


def test_gke_gets_the_commands_of_xpk(plan, fake, capsys):
    where = ("--on", "gke", "--gke.cluster", "tpus", "--gke.docker-image", "image", "--gke.zone", "z")
    assert sweep(plan, *where, "--dry-run") == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if "small-20" in line and "xpk" in line)
    assert line.startswith("xpk workload create --cluster=tpus --zone=z --workload=runs-small-20 ")
    assert f"--command=nd sweep run {plan.file} small-20 --out {plan.out}" in line
    assert "when prepare/1, small-trunk are done" in line
    assert sweep(plan, "--on", "gke", "--dry-run") == 2
    long = cluster.workload(plan, jobs.Job("d_model=64,learning_rate=0.001,seed=12345", plan.out, ()))
    assert len(long) < 40
    assert long.replace("-", "").isalnum()
    assert long[0].isalpha()
