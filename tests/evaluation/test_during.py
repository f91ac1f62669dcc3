"""What is measured while a run trains is what `nd eval` measures, on the mesh's parameters."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from flax import nnx

from nd_jax.data.config import DataConfig
from nd_jax.decoding.engine import DecodeConfig, Decoder
from nd_jax.evaluation import during
from nd_jax.evaluation.states import StatesConfig, evaluate_states, predictor
from nd_jax.evaluation.walk import side_by_side
from nd_jax.model import transformer
from nd_jax.model.config import ModelConfig
from nd_jax.model.partition import MeshConfig, make_mesh, params_shardings
from nd_jax.tracing.dataset import TraceWriter
from nd_jax.training.config import Experiment, HeldOutConfig


@pytest.fixture(scope="module")
def experiment(tokenizer) -> Experiment:
    model = ModelConfig(vocab_size=tokenizer.vocab_size, d_model=16, n_layers=1, head_dim=8, d_ff=16)
    return Experiment(
        model=model,
        data=DataConfig(row_length=256),
        heldout=HeldOutConfig(every_steps=5, batches=1, sessions=12, samples=2),
    )


@pytest.fixture(scope="module")
def params(experiment) -> dict:
    rng = np.random.default_rng(0)
    shapes = nnx.to_pure_dict(transformer.abstract(experiment.model)[1])
    return jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), shapes)


@pytest.fixture
def mesh(experiment):
    mesh = make_mesh(MeshConfig(replica=1, fsdp=2), devices=jax.devices()[:2])
    with jax.set_mesh(mesh):
        yield mesh


@pytest.fixture
def on_mesh(experiment, params, mesh) -> dict:
    return jax.device_put(params, params_shardings(transformer.abstract(experiment.model)[1], mesh))


class Counted:
    """A check that counts its calls."""

    def __init__(self):
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1


def test_next_states_are_those_of_an_evaluation(experiment, params, on_mesh, traces, tokenizer):
    check = Counted()
    hook = during.next_states(experiment, tokenizer, traces)
    config = StatesConfig(sessions=12, row_length=256, policy=experiment.data.policy)
    expected = evaluate_states(traces, tokenizer, predictor(experiment.model, params), config)["all"]
    assert hook.every_steps == 5
    assert hook.call(5, on_mesh, check) == {
        "heldout/state": expected["state"], "heldout/event_line": expected["event_line"]
    }  # fmt: skip
    assert check.calls


def test_rows_that_hold_no_session_are_named_not_fatal(experiment, on_mesh, traces, tokenizer, capsys):
    short = replace(experiment, data=replace(experiment.data, row_length=20))
    assert during.next_states(short, tokenizer, traces).call(5, on_mesh, Counted()) == {}
    assert "No next states are measured" in capsys.readouterr().out


def test_samples_step_beside_the_recording(experiment, params, traces, tokenizer):
    check = Counted()
    texts = during.samples(experiment, tokenizer, traces[:2]).call(5, params, check)
    assert texts is not None
    decoder = Decoder(experiment.model, params, DecodeConfig())
    expected = [side_by_side(trace, tokenizer, decoder, 256) for trace in traces[:2]]
    assert list(texts.values()) == [f"```\n{text}\n```" for text in expected]
    assert check.calls == 2


def test_hooks_are_those_asked_for(experiment, traces, tokenizer, tmp_path, capsys):
    for name, split in (("some", "heldout"), ("none", "train")):
        with TraceWriter(tmp_path / name) as writer:
            for trace in traces:
                writer.add(trace, split)
    tokenizer.save(tmp_path / "tokenizer")

    def asked(*names: str, **heldout: int) -> list:
        data = DataConfig(
            traces=tuple(str(tmp_path / name) for name in names), tokenizer=str(tmp_path / "tokenizer"),
            row_length=256, global_batch=2, threads=0,
        )  # fmt: skip
        return during.hooks(replace(experiment, data=data, heldout=replace(experiment.heldout, **heldout)))

    assert len(asked("some")) == 3  # loss, next states, samples
    assert len(asked("some", sessions=0)) == 2
    assert len(asked("some", sessions=0, samples=0)) == 1
    assert asked("some", every_steps=0) == asked() == []
    assert capsys.readouterr().out == ""
    assert asked("none") == []
    assert "Nothing is measured on held-out programs" in capsys.readouterr().out
