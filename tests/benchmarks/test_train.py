"""The benchmarks of the training step, on tiny shapes: figures are there, both sides do the same work."""

import json
import os
import re
from pathlib import Path

import jax
import pytest

from benchmarks import mup, train
from nd_jax.errors import UserError

TINY = {
    "model.vocab_size": 64, "model.d_model": 32, "model.n_layers": 1, "model.n_heads": 2,
    "model.n_kv_heads": 2, "model.head_dim": 16, "model.d_ff": 32, "data.row_length": 16,
    "data.global_batch": 2,
}  # fmt: skip
WORDS = [word for name, size in TINY.items() for word in (f"--{name}", str(size))]
INTEROP = Path(os.environ.get("ND_INTEROP", Path(__file__).parents[2] / ".venv-interop/bin/python"))


@pytest.fixture(autouse=True)
def small_matmul(monkeypatch):
    monkeypatch.setattr(train, "MATMUL", dict.fromkeys(train.MATMUL, 64))


def run(tmp_path: Path, *words: str) -> dict:
    train.main([*words, "--rounds", "1", "--json", str(tmp_path / "figures.json"), *WORDS])
    return json.loads((tmp_path / "figures.json").read_text())


def test_the_command_for_a_gpu_measures_every_case(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(train, "device_of", lambda kind: jax.devices("cpu")[0])
    figures = run(tmp_path, "--device", "gpu")
    assert list(figures["cases"]) == ["125M, 2,048", "125M, 4,096", "1.8B, 2,048", "1.8B, 4,096"]
    for case in figures["cases"].values():
        assert case["mfu"] == pytest.approx(
            case["tokens_per_s"] * case["flops_per_token"] / case["peak_flops"]
        )
        assert case["attention"] == "blocked"
        assert case["rows"] * case["length"] == 32
    assert figures["ratio_to_torch"] is None
    assert {"loop_overhead", "input_wait", "tokens_per_s", "mfu"} <= figures.keys()
    shown = capsys.readouterr().out
    assert re.search(r"attention +blocked", shown)
    assert "input_wait" in shown


def test_a_case_that_fails_leaves_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(train, "device_of", lambda kind: jax.devices("cpu")[0])
    cases = train.CASES["gpu"]
    monkeypatch.setitem(train.CASES, "gpu", {"too large": cases["1.8B, 2,048"], "fits": cases["125M, 2,048"]})
    measure = train.measure

    def fail_first(kind, case, overrides, interop, rounds, with_loop):
        if with_loop:
            raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: out of memory\nand more")
        return measure(kind, case, overrides, interop, rounds, with_loop)

    monkeypatch.setattr(train, "measure", fail_first)
    figures = run(tmp_path, "--device", "gpu")
    assert figures["cases"]["too large"] == {"error": "RESOURCE_EXHAUSTED: out of memory"}
    assert figures["cases"]["fits"]["tokens_per_s"] > 0


def test_without_a_gpu_it_says_so():
    with pytest.raises(UserError, match="no gpu here"):
        train.device_of("gpu")


def test_pytorch_takes_the_same_steps(tmp_path):
    if not INTEROP.exists():
        pytest.skip(f"no {INTEROP}: `make interop` makes it, or ND_INTEROP names another")
    figures = run(tmp_path, "--device", "cpu", "--interop", str(INTEROP))
    assert figures["ratio_to_torch"] > 0
    assert figures["largest_loss_difference"] < 1e-4
    # Three steps at a learning rate of 1e-3 are seen in the loss.
    assert abs(figures["loss"] - figures["first_loss"]) > 1e-3


def test_an_optimum_lies_between_the_points_of_the_grid():
    losses = {2.0**exponent: (exponent + 6.25) ** 2 for exponent in range(-9, -3)}
    assert mup.optimum(losses) == pytest.approx(-6.25)
    assert (
        mup.optimum({rate: -rate for rate in losses}) is None
    )  # the best is at the end: the grid is too short
    told = mup.summary({"muP": {"32": losses, "64": {rate * 2: loss for rate, loss in losses.items()}}})
    assert told["muP"]["moves_by"] == pytest.approx(1.0)
