"""A ladder's rungs follow their rules, and its config file gives experiments that can be trained."""

import dataclasses
from pathlib import Path

import pytest

from nd_jax.errors import UserError
from nd_jax.model.config import ModelConfig
from nd_jax.scaling.ladder import LadderConfig, chip_hours, flops, rungs, tokens
from nd_jax.scaling.verbs import ladder
from nd_jax.training.config import Experiment, load_config, load_configs, run_name

CONFIG = Path(__file__).parents[2] / "configs/ladder.py"
RULES = LadderConfig()
BASE = Experiment(model=ModelConfig(vocab_size=1024))


@pytest.fixture(scope="module")
def made():
    return rungs(RULES, BASE)


def test_sizes_are_near_what_was_asked_for_and_grow(made):
    sizes = [rung.experiment.model.parameters() for rung in made]
    assert len(sizes) == RULES.rungs
    assert sizes == sorted(set(sizes))
    assert 0.5 < sizes[0] / RULES.smallest < 2
    assert 0.7 < sizes[-1] / RULES.largest < 1.4


def test_settings_follow_the_rules(made):
    for name, experiment in made:
        model = experiment.model
        model.validate()
        assert model.n_heads * model.head_dim == model.d_model
        assert model.n_layers == max(1, round(model.d_model / RULES.aspect))
        assert model.d_ff >= model.d_model * RULES.feed_forward > model.d_ff - model.head_dim
        wanted = RULES.tokens_per_parameter * model.parameters()
        step = experiment.data.global_batch * experiment.data.row_length
        assert 0 <= tokens(experiment) - wanted < step
        assert experiment.data.global_batch & (experiment.data.global_batch - 1) == 0
        rate = experiment.optimizer.learning_rate * model.d_model
        assert rate == pytest.approx(RULES.reference_learning_rate * RULES.reference_width)
        assert name == f"{model.parameters() / 1e3:.0f}k"
    batches = [rung.experiment.data.global_batch for rung in made]
    assert batches == sorted(batches)
    assert batches[-1] > batches[0]


def test_costs(made):
    experiment = made[0].experiment
    assert flops(experiment) == tokens(experiment) * experiment.model.flops_per_token(256)
    assert chip_hours(experiment, 1e12, 0.5) == pytest.approx(flops(experiment) / 5e11 / 3600)
    shown = ladder({"one": experiment}, "h100", None, 0.5)
    assert shown["peak_flops"] == 989e12
    assert shown["rungs"]["one"]["chip_hours"] == pytest.approx(chip_hours(experiment, 989e12, 0.5))
    with pytest.raises(UserError, match="v5p"):
        ladder({"one": experiment}, "abacus", None, 0.5)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"rungs": 1}, "at least 2"), ({"smallest": 1e7}, "to a larger"), ({"rungs": 60}, "fewer rungs")],
)
def test_rules_that_give_no_ladder_are_refused(change, message):
    with pytest.raises(UserError, match=message):
        rungs(dataclasses.replace(RULES, **change), BASE)


def test_the_config_file_is_read_by_rung():
    configs = load_configs(CONFIG)
    name = next(iter(configs))
    assert load_config(f"{CONFIG}:{name}") == configs[name]
    changed = load_config(f"{CONFIG}:{name}", ["--train.steps", "3"])
    assert changed == dataclasses.replace(
        configs[name], train=dataclasses.replace(configs[name].train, steps=3)
    )
    assert run_name(Path(f"configs/ladder.py:{name}")) == f"ladder-{name}"
    assert run_name(Path("configs/nano.py")) == "nano"
    with pytest.raises(UserError, match=name):
        load_config(CONFIG)
    with pytest.raises(UserError, match=f"'huge'; it has {name}"):
        load_config(f"{CONFIG}:huge")
