"""A training run from its experiment: open the data it names, and train."""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nd_jax.data.pipeline import global_batches
from nd_jax.data.rows import RowSource, fingerprint
from nd_jax.errors import UserError
from nd_jax.language.tokenizer import Tokenizer
from nd_jax.tracing.dataset import open_traces
from nd_jax.training.config import Experiment
from nd_jax.training.loop import Hook, train


def run(experiment: Experiment, out: Path, hooks: Sequence[Hook] = ()) -> dict[str, Any]:
    """Train on the train splits of the experiment's trace datasets; resumes what `out` holds.

    Returns:
      The run's figures, as `nd_jax.training.loop.train` gives them.

    Raises:
      UserError: a dataset or the tokenizer is missing, or what `train` refuses.
    """
    data = experiment.data
    if not data.traces or not data.tokenizer:
        raise UserError("name the data: --data.traces DIR (from `nd trace`) and --data.tokenizer DIR")
    tokenizer = Tokenizer.load(data.tokenizer)
    datasets = [open_traces(Path(path), "train") for path in data.traces]
    sources = [RowSource(dataset, tokenizer, data) for dataset in datasets]
    rows = fingerprint(data, [dataset.fingerprint for dataset in datasets], tokenizer)
    batches = functools.partial(global_batches, sources, data)
    return train(experiment, batches, rows, tokenizer, out, hooks)
