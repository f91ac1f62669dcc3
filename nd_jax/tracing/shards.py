"""Writes the ArrayRecord files of one split."""

import hashlib
from pathlib import Path
from typing import Any

from nd_jax.tracing import tfds_format

SHARD_BYTES = 128 << 20  # a file is closed when it holds more; one holds 128 KiB at least, whatever is in it
# Each record is read by itself. Snappy's are a quarter larger than Zstandard's, and take a quarter of the
# time to write and half of it to read.
_OPTIONS = "group_size:1,snappy"


class Shards:
    """Writes the shards of one split under names of their own, until their number is known."""

    def __init__(self, directory: Path, split: str) -> None:
        self._directory, self._split = directory, split
        self.lengths: list[int] = []
        self.bytes = 0
        self._filled = 0
        self._writer: Any = None
        self._hash = hashlib.blake2b(digest_size=16)

    @property
    def records(self) -> int:
        return sum(self.lengths)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()

    def _path(self, index: int) -> Path:
        return self._directory / f"{self._split}-{index}"

    def write(self, trace_id: bytes, trace: bytes) -> None:
        from array_record.python.array_record_module import ArrayRecordWriter

        if self._writer is None or self._filled > SHARD_BYTES:
            self.close()
            self._writer = ArrayRecordWriter(str(self._path(len(self.lengths))), _OPTIONS)
            self.lengths.append(0)
            self._filled = 0
        record = tfds_format.encode_example({"id": trace_id, "trace": trace})
        self._writer.write(record)
        self._hash.update(len(trace).to_bytes(8, "little") + trace)
        self.lengths[-1] += 1
        self._filled += len(record)
        self.bytes += len(record)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def describe(self) -> list[dict[str, Any]]:
        count = len(self.lengths)
        return [
            {
                "file": tfds_format.shard_name(self._split, index, count),
                "records": self.lengths[index],
                "bytes": self._path(index).stat().st_size,
            }
            for index in range(count)
        ]

    def publish(self, directory: Path) -> None:
        count = len(self.lengths)
        for index in range(count):
            self._path(index).replace(directory / tfds_format.shard_name(self._split, index, count))
