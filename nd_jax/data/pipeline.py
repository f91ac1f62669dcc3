"""Global batches from rows: which rows a step reads, and which of them this host makes."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

import grain
import numpy as np

from nd_jax.data.config import DataConfig
from nd_jax.data.rows import RowSource
from nd_jax.errors import UserError


def row_dataset(sources: Sequence[RowSource], config: DataConfig) -> grain.MapDataset:
    """Mix the sources by weight into one index-addressable dataset of rows."""
    datasets = [grain.MapDataset.source(cast(Any, source)) for source in sources]
    if len(datasets) == 1:
        return datasets[0]
    if config.weights and len(config.weights) != len(datasets):
        raise UserError(
            f"{len(config.weights)} --data.weights for {len(datasets)} --data.traces: give one for each"
        )
    weights = config.weights or tuple(len(source.traces) for source in sources)
    return grain.MapDataset.mix(datasets, weights=weights)


def global_batches(
    sources: Sequence[RowSource], config: DataConfig, start_step: int = 0, host: int = 0, hosts: int = 1
) -> Iterator[dict[str, np.ndarray]]:
    """Iterate over this host's share of the global batches from `start_step` on, without end.

    Step ``s`` reads rows ``s * global_batch .. (s + 1) * global_batch - 1``, whatever the number of hosts;
    host ``h`` makes every ``hosts``-th of them. Arrays are ``[global_batch / hosts, row_length]``.

    Raises:
      UserError: the global batch does not divide by the number of hosts.
    """
    if config.global_batch % hosts:
        raise UserError(f"a global batch of {config.global_batch} rows does not divide by {hosts} hosts")
    rows = row_dataset(sources, config)[start_step * config.global_batch :][host::hosts]
    batches = rows.batch(config.global_batch // hosts, drop_remainder=True)
    options = grain.ReadOptions(num_threads=config.threads, prefetch_buffer_size=config.prefetch)
    return iter(batches.to_iter_dataset(options))
