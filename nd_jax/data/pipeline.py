"""Global batches from rows: which rows a step reads, and which of them this host makes."""

import multiprocessing
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import grain
import numpy as np

from nd_jax.data.config import DataConfig
from nd_jax.data.layout import Rows, lay_out
from nd_jax.data.mixture import Mixture, RowsByNumber
from nd_jax.data.packed import PackedRows, open_packed, refuse_other_settings, write_packed
from nd_jax.data.rows import ROWS, RowSource, row_settings
from nd_jax.errors import UserError
from nd_jax.language.tokenizer import Tokenizer
from nd_jax.tracing.dataset import open_traces


@dataclass(frozen=True)
class RowStream:
    """All rows of a run in their order.

    Attributes:
      rows: the rows, by number.
      length: how many there are.
      settings: what decides them (`row_settings`).
      tokenizer: what encoded them.
    """

    rows: RowsByNumber
    length: int
    settings: dict[str, Any]
    tokenizer: Tokenizer


def open_heldout(config: DataConfig) -> RowStream:
    """Open rows made in the same way from the held-out traces, which no row of a run shows.

    Raises:
      UserError: the traces are not named or missing, or none is held out.
    """
    return _made(config, "heldout", Tokenizer.load(config.tokenizer))


def open_rows(config: DataConfig) -> RowStream:
    """Open the rows that the settings name: packed ones, or the train splits that they are made from.

    Raises:
      UserError: data or tokenizer is not named, missing or damaged, or the packed rows are of other settings.
    """
    if not config.tokenizer or not (config.traces or config.packed):
        raise UserError("name the data: --data.traces DIR (from `nd trace`) and --data.tokenizer DIR")
    tokenizer = Tokenizer.load(config.tokenizer)
    if config.packed:
        packed = open_packed(Path(config.packed))
        present = config.traces and all(Path(path).exists() for path in config.traces)
        traces = [open_traces(path, "train") for path in config.traces if present]
        named = [dataset.fingerprint for dataset in traces] or packed.settings["traces"]
        settings = row_settings(config, named, tokenizer)
        refuse_other_settings(packed.directory, packed.settings, settings)
        return RowStream(packed, packed.rows, settings, tokenizer)
    return _made(config, "train", tokenizer)


def _made(config: DataConfig, split: Literal["train", "heldout"], tokenizer: Tokenizer) -> RowStream:
    traces = [open_traces(path, split) for path in config.traces]
    settings = row_settings(config, [dataset.fingerprint for dataset in traces], tokenizer)
    sources = [RowSource(dataset, tokenizer, config) for dataset in traces]
    if len(sources) == 1:
        return RowStream(sources[0], ROWS, settings, tokenizer)
    weights = config.weights or [len(dataset) for dataset in traces]
    return RowStream(Mixture(sources, weights), ROWS, settings, tokenizer)


class _HostBatches:
    """A `grain` random-access source of one host's share of the global batches.

    By batch, since grain's own work for an element takes longer than reading a packed row.
    """

    def __init__(self, stream: RowStream, config: DataConfig, start_step: int, own: Sequence[int]):
        self._stream, self._config, self._start_step, self._own = stream, config, start_step, own

    def __len__(self) -> int:
        return ROWS // self._config.global_batch - self._start_step

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        first = (self._start_step + index) * self._config.global_batch
        rows = _block(self._stream, [first + row for row in self._own])
        return lay_out(rows, self._config, self._stream.tokenizer)


def global_batches(
    stream: RowStream, config: DataConfig, start_step: int = 0, own: Sequence[int] | None = None
) -> Iterator[dict[str, np.ndarray]]:
    """Iterate over this host's rows of the global batches from `start_step` on, without end.

    Step ``s`` reads rows ``s * global_batch .. (s + 1) * global_batch - 1``, whatever the number of hosts.

    Args:
      stream: the rows of the run.
      config: how they are laid out, and who makes them.
      start_step: the first step.
      own: the rows of a global batch, counted within it, that this host's devices hold; only these are made.
        Best neighbours, which share traces. None: all.

    Returns:
      Arrays ``[len(own), row_length]``, as `nd_jax.data.layout.lay_out` gives them.
    """
    own = range(config.global_batch) if own is None else own
    batches = grain.MapDataset.source(_HostBatches(stream, config, start_step, own))
    options = grain.ReadOptions(num_threads=config.threads, prefetch_buffer_size=config.prefetch)
    made = batches.to_iter_dataset(options)
    if config.workers:
        _parse_flags()
        made = made.mp_prefetch(
            grain.MultiprocessingOptions(
                num_workers=config.workers,
                per_worker_buffer_size=max(1, config.prefetch // config.workers),
            )
        )
    return iter(made)


def pack_rows(config: DataConfig, out: Path, rows: int, workers: int) -> int:
    """Write the first rows of a run into a folder; one that holds some of them is added to.

    Args:
      config: what decides the rows.
      out: the folder.
      rows: how many rows it shall hold.
      workers: processes that make rows.

    Returns:
      How many rows the folder holds.

    Raises:
      UserError: as `open_rows`, or the folder holds rows of other settings.
    """
    stream = open_rows(config)
    largest = max(stream.tokenizer.vocab_size, config.row_length)

    def make(blocks: list[range]) -> Iterable[Rows]:
        if workers <= 1:
            yield from (_block(stream, block) for block in blocks)
            return
        with multiprocessing.get_context("spawn").Pool(workers, _open_in_worker, (config,)) as pool:
            yield from pool.imap(_block_in_worker, blocks, chunksize=4)

    write_packed(out, rows, stream.settings, largest, make)
    return open_packed(out).rows


def _block(stream: RowStream, numbers: Sequence[int]) -> Rows:
    if isinstance(stream.rows, PackedRows):
        if numbers[-1] - numbers[0] == len(numbers) - 1:  # neighbours lie in the same records
            return stream.rows.block(range(numbers[0], numbers[-1] + 1))
        return Rows.join([stream.rows.block(range(number, number + 1)) for number in numbers])
    return Rows.join([stream.rows[number] for number in numbers])


_stream: RowStream  # of a worker process


def _open_in_worker(config: DataConfig) -> None:
    global _stream
    _stream = open_rows(config)


def _block_in_worker(numbers: range) -> Rows:
    return _block(_stream, numbers)


def _parse_flags() -> None:
    """Grain's workers read absl's flags, which nobody else here parses."""
    from absl import flags

    if not flags.FLAGS.is_parsed():
        flags.FLAGS.mark_as_parsed()
