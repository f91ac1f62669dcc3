"""A whole study on a tiny scale: killed, gone on with, and the same as one that was not."""

import dataclasses
import json
from functools import partial

import jax
import numpy as np
import pytest

from nd_jax.ablation import measuring, running
from nd_jax.ablation.measuring import StateScores, measure
from nd_jax.ablation.variants import VARIANTS, AblationConfig, Variant
from nd_jax.debugger.policy import PolicyConfig
from nd_jax.errors import UserError
from nd_jax.evaluation.verbs import load
from nd_jax.language.symbols import EVENTS, STATE_END, TokenizerSpec
from nd_jax.model import transformer
from nd_jax.programs.synthetic import SyntheticConfig, generate
from nd_jax.tracing.dataset import TraceWriter, open_traces
from nd_jax.tracing.recorder import TraceLimits, trace_program
from nd_jax.tracing.schema import Trace
from nd_jax.training.loop import Hook

EXPERIMENT = """
from nd_jax.data.config import DataConfig
from nd_jax.model.config import ModelConfig
from nd_jax.training.config import CheckpointConfig, Experiment, MetricsConfig
config = Experiment(
    model=ModelConfig(d_model=16, n_layers=1, n_heads=1, n_kv_heads=1, head_dim=16, d_ff=16),
    data=DataConfig(row_length=192, global_batch=8, threads=0),
    checkpoint=CheckpointConfig(every_steps=2, keep=1, asynchronous=False),
    metrics=MetricsConfig(tensorboard=False, peak_flops=1e9),
)
"""
STEPS = 5
TINY = {
    "base": Variant("small", TokenizerSpec(vocab_size=450, lines=64, frames=16)),
    "more": Variant(
        "more pieces", TokenizerSpec(vocab_size=470, lines=64, frames=16), context_weight=1.0,
        random_line_numbers=True, more_traces=True,
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> AblationConfig:
    folder = tmp_path_factory.mktemp("ablation")
    (folder / "tiny.py").write_text(EXPERIMENT)
    programs = generate(SyntheticConfig(max_lines=6, helpers=0.0, nested=0.0), 0, 0, 80)
    traces = [trace_program(program, TraceLimits()) for program in programs]
    with TraceWriter(folder / "traces") as writer:
        for k, trace in enumerate(traces):
            assert isinstance(trace, Trace), trace
            writer.add(trace, "train" if k % 4 else "heldout")
    with TraceWriter(folder / "other") as writer:
        for trace in traces[:9]:
            writer.add(trace, "train")
    return AblationConfig(
        traces=folder / "traces", more_traces=(folder / "other",),
        out=folder / "study", experiment=folder / "tiny.py", tokens=STEPS * 8 * 192,
        variants=tuple(TINY), finalists=1, seeds=1, sessions=30, json=folder / "figures.json",
        max_seconds=1e9,
    )  # fmt: skip


@pytest.fixture(scope="module")
def figures(config):
    return running.run(config, TINY)


def killed(*_):
    raise KeyboardInterrupt


def test_all_runs_are_compared(config, figures):
    assert set(figures["runs"]) == {"base-0", "more-0", "base-1", "more-1"}
    assert figures["not_compared"] == []
    one, two = figures["stage_1"]["heldout"], figures["stage_2"]["heldout"]
    assert set(one) == set(two) == {"base", "more"}
    assert one["base"]["difference"] == 0
    assert [len(row["seeds"]) for row in two.values()] == [2, 2]
    assert two["base"]["seeds"][0] != two["base"]["seeds"][1]
    assert json.loads(config.json.read_text()) == json.loads((config.out / "ablation.json").read_text())
    assert "bits/state" in (config.out / "ablation.md").read_text()
    assert (config.out / "ablation.png").read_bytes().startswith(b"\x89PNG")
    experiment = load(config.out / "runs/more-1").experiment
    data = experiment.data
    told = experiment.model.vocab_size, data.context_weight, data.random_line_numbers, data.seed
    assert told == (TINY["more"].spec.vocab_size, 1.0, True, 1)
    assert data.traces == (str(config.traces), *map(str, config.more_traces))
    assert load(config.out / "runs/base-1").experiment.data.traces == (str(config.traces),)


def test_what_is_done_is_not_done_again(config, figures, monkeypatch):
    monkeypatch.setattr(running, "train", killed)
    monkeypatch.setattr(running, "measure", killed)
    assert running.run(config, TINY) == json.loads(config.json.read_text())


def test_a_killed_study_goes_on_to_the_same_figures(config, figures, monkeypatch):
    again = dataclasses.replace(config, out=config.out.with_name("killed"))
    train = running.train
    monkeypatch.setattr(running, "train", partial(train, hooks=[Hook(3, killed)]))  # after checkpoint 2
    with pytest.raises(KeyboardInterrupt):
        running.run(again, TINY)
    monkeypatch.setattr(running, "train", train)
    with monkeypatch.context() as patch:
        patch.setattr(running, "measure", killed)
        with pytest.raises(KeyboardInterrupt):
            running.run(again, TINY)
    trained = []

    def watched(experiment, folder):
        trained.append(folder.name)
        return train(experiment, folder)

    monkeypatch.setattr(running, "train", watched)
    found = running.run(again, TINY)
    assert trained == ["base-0", "more-0", "base-1", "more-1"]
    assert found["stage_1"] == figures["stage_1"]
    assert found["stage_2"] == figures["stage_2"]


def test_bits_are_those_of_a_states_own_tokens(config, figures, monkeypatch):
    """Compared with a plain log-softmax of the model's logits, one session at a time."""
    seen = []

    def spy(model, sessions, length):
        seen.extend(sessions)
        return predict(model, sessions, length)

    folder = config.out / "runs/base-0"
    model, stored = load(folder), StateScores.load(folder / "heldout.npz")
    traces = list(open_traces(config.traces, "heldout"))
    scores = measure(traces, model, PolicyConfig(), config.sessions, config.seed)
    for ours, theirs in zip(scores, stored, strict=True):
        assert np.array_equal(ours, theirs)
    assert len(scores.bits) > 30
    predict = measuring._predict
    monkeypatch.setattr(measuring, "_predict", spy)
    measure(traces, model, PolicyConfig(), 3, config.seed)
    ids = np.array(seen[0])
    bound = transformer.bind(model.experiment.model, model.params)
    logits = bound(ids[None], np.ones((1, len(ids)), np.int32), np.arange(len(ids))[None])
    bits = -np.asarray(jax.nn.log_softmax(logits[0]))[np.arange(len(ids) - 1), ids[1:]] / np.log(2)
    (start_end, second, *_) = np.flatnonzero(ids == model.tokenizer.symbol_id(STATE_END))
    events = [model.tokenizer.symbol_id(symbol) for symbol in EVENTS.values()]
    first = start_end + np.flatnonzero(np.isin(ids[start_end:], events))[0]
    chosen = (scores.session == scores.session[0]) & (scores.step == 0)
    expected = bits[first - 1 : second].sum()
    assert scores.bits[chosen][0] == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": 1}, "other settings (tokens)"),
        ({"variants": ("base", "mroe")}, "no variant 'mroe'"),
        ({"more_traces": ()}, "variant 'more' needs further datasets"),
    ],
)
def test_mistakes_are_named(config, figures, change, message):
    with pytest.raises(UserError) as refusal:
        running.run(dataclasses.replace(config, **change), TINY)
    assert message in str(refusal.value)


def test_a_run_that_time_cut_short_is_not_compared(config, figures, monkeypatch):
    path = config.out / "runs/more-0/result.json"
    before = path.read_text()
    path.write_text(json.dumps({**json.loads(before), "whole": False}))
    try:
        found = running.run(config, TINY)
    finally:
        path.write_text(before)
        running.run(config, TINY)
    assert found["not_compared"] == ["more-0"]
    assert list(found["stage_1"]["heldout"]) == ["base"]


def test_the_variants_leave_pieces_for_text():
    for variant in VARIANTS.values():
        assert len(variant.spec.control_symbols) + 256 + 100 < variant.spec.vocab_size
