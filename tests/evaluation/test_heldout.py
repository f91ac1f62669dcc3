"""The loss on held-out rows: what training would report of them, and the same rows for every model."""

import jax
import numpy as np
import pytest

from nd_jax.data.config import DataConfig
from nd_jax.data.layout import lay_out
from nd_jax.data.rows import RowSource
from nd_jax.errors import UserError
from nd_jax.evaluation import heldout
from nd_jax.evaluation.heldout import heldout_loss
from nd_jax.evaluation.verbs import Model
from nd_jax.model import transformer
from nd_jax.model.config import ModelConfig
from nd_jax.training.config import Experiment

CONFIG = ModelConfig(
    vocab_size=380, d_model=16, n_layers=1, n_heads=2, n_kv_heads=2, head_dim=8, d_ff=16, attention_block=64
)
DATA = DataConfig(traces=("held",), row_length=192, place_weight=3.0)


@pytest.fixture
def model(tokenizer, traces, tmp_path, monkeypatch):
    monkeypatch.setattr(heldout, "open_traces", lambda path, split: {"heldout": traces}[split])
    experiment = Experiment(model=CONFIG, data=DATA)
    return Model(tmp_path, experiment, transformer.init(CONFIG, jax.random.key(0)), tokenizer)


def test_it_is_the_weighted_mean_over_the_first_rows(model, traces, tmp_path):
    figures = heldout_loss(model, [tmp_path], 35)  # two batches of 16
    source = RowSource(traces, model.tokenizer, DATA)
    loss = right = weight = 0.0
    for number in range(32):
        row = lay_out(source[number], DATA, model.tokenizer)
        logits_BxTxV = transformer.bind(CONFIG, model.params)(
            row["tokens"], row["segments"], row["positions"]
        )
        logs_BxTxV = np.asarray(jax.nn.log_softmax(logits_BxTxV))
        nll_BxT = -np.take_along_axis(logs_BxTxV, row["targets"][..., None], -1)[..., 0]
        loss += float((nll_BxT * row["weights"]).sum())
        right += float(((logs_BxTxV.argmax(-1) == row["targets"]) * row["weights"]).sum())
        weight += float(row["weights"].sum())
    assert figures["rows"] == 32
    assert figures["loss"] == pytest.approx(loss / weight, rel=1e-4)
    assert figures["accuracy"] == pytest.approx(right / weight, rel=1e-4, abs=1e-6)


def test_too_few_rows_are_refused(model, tmp_path):
    with pytest.raises(UserError, match="at least 16"):
        heldout_loss(model, [tmp_path], 8)
    with pytest.raises(UserError, match="--traces"):
        heldout_loss(model, [], 100)
