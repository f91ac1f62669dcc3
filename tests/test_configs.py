"""The shipped experiments: they load, fit together, and cost what the formulas say."""

from pathlib import Path

import jax
import pytest

from nd_jax.training.config import load_config
from nd_jax.training.optimizer import make_optimizer
from nd_jax.training.state import abstract_params

LADDER = Path(__file__).parent.parent / "configs/ladder.py"  # many experiments: tests/scaling/test_ladder.py
CONFIGS = sorted(set(LADDER.parent.glob("*.py")) - {LADDER})
SIZES = {"nd_1m": 1e6, "nd_5m": 5e6, "nd_30m": 30e6, "nd_125m": 125e6, "nd_350m": 350e6, "nd_760m": 760e6,
         "nd_1p8b": 1.8e9, "nano": 0.65e6}  # fmt: skip


def nbytes(tree) -> int:
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_config_loads_and_has_the_size_of_its_name(path):
    experiment = load_config(path)
    model = experiment.model
    model.validate()
    assert model.parameters() == pytest.approx(SIZES[path.stem], rel=0.05)
    params = abstract_params(model)  # shapes alone: the largest would take 7 GB
    assert nbytes(params) == model.parameter_bytes()
    state = jax.eval_shape(make_optimizer(experiment.optimizer, model).init, params)
    moments = [leaf for leaf in jax.tree.leaves(state) if leaf.size > 5]  # not counts and coefficients
    assert nbytes(moments) == experiment.optimizer.state_bytes(model)


def test_the_ladder_is_whole():
    assert {path.stem for path in CONFIGS} == SIZES.keys()
