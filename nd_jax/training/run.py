"""A training run from its experiment: open the data it names, and train."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nd_jax.data.pipeline import global_batches, open_rows
from nd_jax.data.rows import fingerprint
from nd_jax.errors import UserError
from nd_jax.training.config import Experiment
from nd_jax.training.loop import Hook, train


def run(experiment: Experiment, out: Path, hooks: Sequence[Hook] = ()) -> dict[str, Any]:
    """Train on the rows that the experiment names; resumes what `out` holds.

    Returns:
      The run's figures, as `nd_jax.training.loop.train` gives them.

    Raises:
      UserError: a dataset or the tokenizer is missing, or what `train` refuses.
    """
    data = experiment.data
    stream = open_rows(data)
    steps = experiment.train.steps
    if steps and steps * data.global_batch > stream.length:
        raise UserError(
            f"{data.packed} holds {stream.length} rows, {steps} steps read {steps * data.global_batch}: pack "
            "more into it with `nd pack`, or give fewer --train.steps"
        )
    batches = functools.partial(global_batches, stream, data)
    return train(experiment, batches, fingerprint(data, stream.settings), stream.tokenizer, out, hooks)
