"""The figures of a plan against the formulas, on small meshes; what cannot be planned is refused."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import jax
import pytest
from tiny_run import EXPERIMENT

from nd_jax.cli import main
from nd_jax.errors import UserError
from nd_jax.model.config import MeshConfig, ModelConfig
from nd_jax.planning.plan import plan, read_mesh
from nd_jax.planning.step import grid, measure

MODEL = ModelConfig(vocab_size=512, d_model=64, n_layers=4, n_heads=4, n_kv_heads=4, head_dim=16, d_ff=192,
                    tied_embeddings=False, dtype="float32", attention="blocked", attention_block=32,
                    scan_layers=True, loss_chunk=64)  # fmt: skip
ROWS, LENGTH = 8, 128
SMALL = replace(EXPERIMENT, model=MODEL, data=replace(EXPERIMENT.data, row_length=LENGTH, global_batch=ROWS))
ROOT = Path(__file__).parent.parent.parent


def measured(experiment, **mesh):
    sizes = MeshConfig(**{"replica": 1, "fsdp": 1, "tensor": 1} | mesh)
    devices = 1
    for size in mesh.values():
        devices *= size
    return measure(replace(experiment, mesh=sizes), jax.devices()[:devices])


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_device_holds_its_share_of_what_the_formulas_say(optimizer):
    experiment = replace(SMALL, optimizer=replace(SMALL.optimizer, name=optimizer))
    figures = measured(experiment, replica=2, fsdp=4)
    held = figures["bytes"]
    norms = 4 * MODEL.d_model * (2 * MODEL.n_layers + 1)  # every device holds them whole
    assert held["parameters"] == (MODEL.parameter_bytes() - norms) / 4 + norms
    moments = experiment.optimizer.state_bytes(MODEL)
    assert held["optimizer"] == pytest.approx((moments - 2 * norms) / 4 + 2 * norms, abs=64)
    assert held["batch"] == pytest.approx(ROWS / 8 * (5 * 4 * LENGTH + 2 * 4), abs=16)
    if optimizer == "adamw":
        # Layers are gathered forward and backward, embedding and head once. Their gradients are reduced over
        # fsdp, and a quarter of each over the replicas; the head's once, whatever the loss's chunks.
        layers, table = 4 * MODEL.matrix_parameters(), 4 * MODEL.vocab_size * MODEL.d_model
        moved = {name: traffic["bytes"] for name, traffic in figures["collectives"].items()}
        assert moved["all-gather"] == 2 * layers + 2 * table
        assert moved["all-reduce"] == pytest.approx(1.25 * layers + 2 * table, rel=0.02)
    assert figures["unknown_loops"] == 0


@pytest.mark.parametrize("remat", ["none", "dots", "full"])
def test_one_devices_work_and_activations_are_near_the_formulas(remat):
    model = replace(MODEL, remat=remat, attention_block=16)
    figures = measured(replace(SMALL, model=model))
    blocks = 6 * MODEL.n_layers * 64 * 16  # causal blocks of 16 meet 16 / 2 keys too many
    expected = ROWS * LENGTH * (model.flops_per_token(LENGTH) + blocks)
    matrices = 2 * model.matrix_parameters()
    attention = 2 * model.n_layers * 64 * (LENGTH + 16)
    recomputed = {"none": 0, "dots": attention, "full": matrices + attention}[remat] * ROWS * LENGTH
    assert figures["matmul_flops"] == pytest.approx(expected + recomputed, rel=0.05)
    assert figures["collectives"] == {}
    ratio = figures["bytes"]["activations"] / model.activation_bytes(ROWS, LENGTH)
    assert 0.5 < ratio < 2


def test_the_verb_compiles_for_devices_that_are_not_there(tmp_path, capsys, monkeypatch):
    sizes = {"vocab_size": 64, "d_model": 32, "n_layers": 2, "n_heads": 2, "head_dim": 8, "d_ff": 32}
    words = [word for name, size in sizes.items() for word in (f"--model.{name}", str(size))]
    monkeypatch.setattr(sys, "argv", [
        "nd", "plan", str(ROOT / "configs/nano.py"), "--mesh", "replica=2,fsdp=8", "--chip", "h100",
        "--json", str(tmp_path / "plan.json"), "--data.global_batch", "16", "--data.row_length", "32",
        "--optimizer.name", "adamw", "--model.scan_layers", "True", *words,
    ])  # fmt: skip
    main()
    figures = json.loads((tmp_path / "plan.json").read_text())
    assert figures["mesh"] == {"replica": 2, "fsdp": 8, "sequence": 1, "tensor": 1}
    assert figures["fits"] is True
    assert figures["total_bytes"] == sum(figures["bytes"].values())
    assert figures["flops_per_step"] == figures["flops_per_token"] * 16 * 32
    shown = capsys.readouterr().out
    assert "h100: fits (estimate" in shown
    assert "all-gather" in shown


def test_what_cannot_be_planned_is_refused():
    assert read_mesh("replica=2,fsdp=32") == MeshConfig(replica=2, fsdp=32, tensor=1)
    for text in ("fsdp", "fsdp=0", "fsdp=-1", "data=8", ""):
        with pytest.raises(UserError, match="write AXIS=SIZE with one of replica, fsdp"):
            read_mesh(text)
    experiment = replace(SMALL, mesh=MeshConfig(replica=1, fsdp=8, tensor=1))
    with pytest.raises(UserError, match="chip 'h1000' is unknown; use one of v4"):
        plan(experiment, "h1000")
    with pytest.raises(UserError, match="TPU's compiler needs a TPU"):
        plan(experiment, "h100", "tpu")
    with pytest.raises(UserError, match=r"a plan needs every size"):
        plan(replace(experiment, mesh=MeshConfig()))
    with pytest.raises(UserError, match="does not divide the batch=8"):
        plan(replace(experiment, mesh=MeshConfig(replica=1, fsdp=16, tensor=1)))


def test_tpus_are_wired_in_squares_and_cubes():
    assert [grid("v5e", n) for n in (1, 8, 64)] == ["1x1", "2x4", "8x8"]
    assert [grid("v5p", n) for n in (4, 8, 64, 128)] == ["2x2x1", "2x2x2", "4x4x4", "4x4x8"]
    with pytest.raises(UserError, match="not 24"):
        grid("v5e", 24)
