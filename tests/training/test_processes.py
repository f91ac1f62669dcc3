"""Two real processes, with gloo between them."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from jax._src.distributed import State
from test_loop import losses, records
from tiny_run import EXPERIMENT, batches, digest, run

from nd_jax.errors import UserError
from nd_jax.model.partition import MeshConfig, batch_sharding, make_mesh
from nd_jax.training import distributed
from nd_jax.training.config import DistributedConfig
from nd_jax.training.distributed import initialize, own_rows, place


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def until_paused(process):
    lines = []
    while not lines or "paused" not in lines[-1]:
        lines.append(process.stdout.readline())
        assert lines[-1], "".join(lines)
    return lines


def read_json(lines):
    return [json.loads(line) for line in lines if line.startswith("{")]


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """What two processes printed: trained together, one of them asked to stop."""
    out, port = tmp_path_factory.mktemp("together"), free_port()
    program = [sys.executable, str(Path(__file__).with_name("process_run.py")), str(out), str(port)]
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": "1"}
    processes = [
        subprocess.Popen([*program, str(k)], stdout=subprocess.PIPE, text=True, env=environment)
        for k in range(2)
    ]
    try:
        printed = [until_paused(process) for process in processes]
        processes[1].terminate()
        (out / "go").touch()
        for lines, process in zip(printed, processes, strict=True):
            lines += process.communicate(timeout=600)[0].splitlines()
        assert [process.returncode for process in processes] == [0, 0], printed
    finally:
        for process in processes:
            process.kill()
    return out, [read_json(lines) for lines in printed]


def test_sigterm_to_one_process_ends_all_at_the_same_step(together):
    out, said = together
    ends = [lines[-1] for lines in said]
    assert ends[0]["step"] == ends[1]["step"] < 6
    assert [end["stopped"] for end in ends] == ["another host's signal", "SIGTERM"]
    assert {end["checkpoint"] for end in ends} == {str(out / "fsdp/checkpoints" / str(ends[0]["step"]))}


def test_rows_are_made_by_those_whose_devices_hold_them(together):
    own = [[line["own"] for line in lines if "own" in line] for lines in together[1]]
    whole = list(range(8))
    assert own == [[whole, whole, whole[:4]], [whole, whole, whole[4:]]]


@pytest.mark.parametrize("axis", ["sequence", "tensor", "fsdp"])
def test_processes_train_what_one_trains(together, finished, axis):
    got, expected = losses(records(together[0] / axis)), losses(records(finished))
    assert len(got) >= 2
    for one, other in zip(got, expected, strict=False):
        assert one == pytest.approx(other, rel=2e-5)


def test_one_process_goes_on_with_the_same_batches(together, finished):
    out, said = together
    asked = []

    def noted(first, own):
        asked.append((first, list(own)))
        return batches(EXPERIMENT.data, first, own)

    run(out / "fsdp", batches=noted)
    assert asked == [(said[0][-1]["step"], list(range(8)))]
    for one, other in zip(losses(records(out / "fsdp")), losses(records(finished)), strict=True):
        assert one == pytest.approx(other, rel=2e-5)
    assert digest(out / "fsdp/checkpoints/6")


def test_rows_are_placed_where_they_belong():
    mesh = make_mesh(MeshConfig(replica=2, fsdp=2, tensor=2))
    sharding = batch_sharding(mesh)
    assert own_rows(sharding, 8) == list(range(8))
    rows = np.arange(24).reshape(8, 3)
    jax.tree.map(np.testing.assert_array_equal, place({"a": rows}, sharding, range(8), 8), {"a": rows})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "--distributed.coordinator, --distributed.processes, --distributed.process"),
        ({"coordinator": "h:1", "processes": 2, "process": 2}, "--distributed.process 2 of --distributed.p"),
        ({"coordinator": "h", "processes": 2, "process": 0}, "give HOST:PORT"),
    ],
)
def test_flags_that_say_too_little_are_refused(given, said):
    with pytest.raises(UserError, match=said):
        initialize(DistributedConfig("flags", **given))


def test_a_cluster_that_is_not_there_is_refused(monkeypatch):
    for name in ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "JAX_COORDINATOR_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    # Past jax's own refusal, since this process has used jax already.
    monkeypatch.setattr(jax.distributed, "initialize", lambda **given: State().initialize(**given))
    with pytest.raises(UserError, match=r"cluster slurm: the processes do not find each other \("):
        initialize(DistributedConfig("slurm"))


@pytest.mark.parametrize("cluster", ["slurm", "gke", "tpu", "flags", "auto"])
def test_jax_is_told_where_to_look(monkeypatch, cluster):
    told = {}
    monkeypatch.setattr(jax.distributed, "initialize", lambda **given: told.update(given))
    initialize(DistributedConfig(cluster, "host:1", 4, 3))
    assert told["cluster_detection_method"] == distributed.METHODS.get(cluster)
    assert (told["coordinator_address"], told["num_processes"], told["process_id"]) == ("host:1", 4, 3)


def test_the_ways_to_find_a_cluster_are_known_to_jax():
    from jax._src import clusters

    known = {kind.name for kind in clusters.ClusterEnv._cluster_types} | {"deactivate"}
    assert set(distributed.METHODS.values()) <= known


def test_a_stop_during_compilation_saves_and_ends(tmp_path):
    program = [sys.executable, str(Path(__file__).with_name("tiny_run.py")), str(tmp_path), "6", "compiling"]
    process = subprocess.Popen(program, stdout=subprocess.PIPE, text=True)
    until_paused(process)
    process.terminate()
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    summary = json.loads(output.splitlines()[-1])
    assert (summary["stopped"], summary["step"]) == ("SIGTERM", 0)
    assert Path(summary["checkpoint"]).is_dir()
