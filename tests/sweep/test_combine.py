import pytest

from nd_jax.errors import UserError
from nd_jax.sweep import combine
from nd_jax.sweep.combine import Variation

SIZES = combine.values("model.d_model", 64, 128)
RATES = combine.values("optimizer.learning_rate", 3e-3, 1e-2)


def test_a_product_has_every_pair_and_a_zip_each_once():
    assert combine.product(SIZES, RATES) == [
        Variation("d_model=64,learning_rate=0.003", {"model.d_model": 64, "optimizer.learning_rate": 3e-3}),
        Variation("d_model=64,learning_rate=0.01", {"model.d_model": 64, "optimizer.learning_rate": 1e-2}),
        Variation("d_model=128,learning_rate=0.003", {"model.d_model": 128, "optimizer.learning_rate": 3e-3}),
        Variation("d_model=128,learning_rate=0.01", {"model.d_model": 128, "optimizer.learning_rate": 1e-2}),
    ]
    zipped = combine.zip(SIZES, RATES)
    assert [tuple(one.overrides.values()) for one in zipped] == [(64, 3e-3), (128, 1e-2)]


def test_a_chain_has_one_list_after_the_other():
    wide = combine.one("wide", {"model.d_model": 512, "train.steps": 9})
    assert combine.chain(SIZES, wide) == [*SIZES, *wide]
    assert [one.name for one in combine.product(wide, RATES)] == [
        "wide,learning_rate=0.003",
        "wide,learning_rate=0.01",
    ]


def test_names_are_names_of_folders():
    (one,) = combine.values("config", "configs/nano.py")
    assert one.name == "config=configs-nano"
    assert combine.values("data.traces", ("a/b", "c"))[0].name == "traces=a-b+c"


def test_what_does_not_combine_is_named():
    with pytest.raises(UserError, match="these have 2, 1"):
        combine.zip(SIZES, combine.one("a", {}))
    with pytest.raises(UserError, match=r"model\.d_model is varied twice, by d_model=64"):
        combine.product(SIZES, SIZES)
