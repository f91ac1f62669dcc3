"""The loss on held-out rows: the same rows for every model, so that models differ by what they are alone.

The training loss of a small run is a mean over few rows, other ones for every run: between two runs it
scatters by several percent, more than a scaling law can bear.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np

from nd_jax.console import track
from nd_jax.data.layout import Rows, lay_out
from nd_jax.data.rows import RowSource
from nd_jax.errors import UserError
from nd_jax.evaluation.verbs import Model
from nd_jax.tracing.dataset import open_traces
from nd_jax.training.step import loss_sums

BATCH = 16
"""Rows that the model reads at once."""


def heldout_loss(model: Model, traces: Sequence[Path], rows: int) -> dict[str, Any]:
    """Measure a model on the first rows of held-out programs, made and weighed as it was trained.

    Args:
      model: the model.
      traces: directories of trace datasets; each gives as many rows.
      rows: how many rows in all.

    Returns:
      ``{loss, accuracy, rows, weight}``: nats per weighted token, and the weighted share predicted right.

    Raises:
      UserError: a dataset is missing or has no held-out programs, or there are too few rows.
    """
    data, config = model.experiment.data, model.experiment.model
    if not traces or rows < BATCH:
        raise UserError(f"name held-out traces (--traces DIR) and at least {BATCH} --rows")
    sources = [RowSource(open_traces(path, "heldout"), model.tokenizer, data) for path in traces]
    sums = jax.jit(partial(loss_sums, config))
    loss = right = weight = 0.0
    for first in track(range(0, rows - rows % BATCH, BATCH), "held-out rows"):
        numbers = range(first, first + BATCH)
        block = Rows.join([sources[k % len(sources)][k // len(sources)] for k in numbers])
        batch = lay_out(block, data, model.tokenizer)
        of_batch = np.asarray(sums(model.params, batch))
        loss, right = loss + float(of_batch[0]), right + float(of_batch[1])
        weight += float(batch["weights"].sum())
    return {"loss": loss / weight, "accuracy": right / weight, "rows": rows - rows % BATCH, "weight": weight}
