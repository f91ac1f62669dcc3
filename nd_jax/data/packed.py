"""Rows on disk, for when reading them must be faster than making them.

A folder of ArrayRecord files, each record so many rows (`Rows.to_bytes`), and ``packed.json``: the settings
that decided the rows, how many there are, and the files. The description is rewritten after every file, so
what a killed run left is a folder of fewer rows, which the next run takes up.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter

from nd_jax.data.layout import Rows
from nd_jax.data.rows import ROWS
from nd_jax.errors import UserError
from nd_jax.files import write_json
from nd_jax.tracing.records import Records

DESCRIPTION = "packed.json"
FORMAT = 1
ROWS_PER_RECORD = 64
"""Rows that are read and unpacked together; a host reads neighbouring rows."""
RECORDS_PER_FILE = 4096


class PackedRows:
    """A `grain` random-access source of the rows in a folder.

    Attributes:
      rows: how many there are.
      settings: what decided them, as `nd_jax.data.rows.row_settings` gave it.
    """

    def __init__(self, directory: Path, description: Mapping[str, Any]):
        self.directory = directory
        self.rows: int = description["rows"]
        self.settings: dict[str, Any] = description["settings"]
        self._rows_per_record: int = description["rows_per_record"]
        self._kind = np.dtype(description["integers"]).type
        self._files = [directory / file["name"] for file in description["files"]]
        self._open()

    def _open(self) -> None:
        self._records: Records | None = None
        self._record = lru_cache(maxsize=16)(self._read)

    def __getstate__(self) -> dict[str, Any]:
        """Leave open files behind when a worker process takes the source over."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_records", "_record")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Let the copy open the files anew."""
        self.__dict__.update(state)
        self._open()

    def __len__(self) -> int:
        """Give the length that every source of rows has; a row past the last is refused when asked for."""
        return ROWS

    def __getitem__(self, index: int) -> Rows:
        """Read a row."""
        return self.block(range(index, index + 1))

    def block(self, numbers: range) -> Rows:
        """Read rows that follow one another."""
        if numbers.stop > self.rows:
            raise UserError(
                f"{self.directory} holds {self.rows} rows and row {max(numbers.start, self.rows)} is asked "
                "for: pack more into it with `nd pack`, or make them on the fly (without --data.packed)"
            )
        per_record, parts = self._rows_per_record, []
        for record in range(numbers.start // per_record, -(-numbers.stop // per_record)):
            first, last = numbers.start - record * per_record, numbers.stop - record * per_record
            parts.append(self._record(record).between(max(first, 0), min(last, per_record)))
        return parts[0] if len(parts) == 1 else Rows.join(parts)

    def _read(self, record: int) -> Rows:
        if self._records is None:
            self._records = Records(self._files)
        return Rows.from_bytes(self._records[record], self._kind)


def open_packed(directory: Path) -> PackedRows:
    """Open a folder of packed rows.

    Raises:
      UserError: there is none, or a file is missing or truncated.
    """
    description = _describe(directory)
    if description is None:
        raise UserError(f"{directory} holds no packed rows; `nd pack` makes them")
    for file in description["files"]:
        path = directory / file["name"]
        size = path.stat().st_size if path.is_file() else None
        if size != file["bytes"]:
            state = "is missing" if size is None else f"has {size} bytes instead of {file['bytes']}"
            raise UserError(f"{path} {state}: pack the rows anew")
    return PackedRows(directory, description)


def write_packed(
    directory: Path,
    rows: int,
    settings: Mapping[str, Any],
    largest: int,
    make: Callable[[list[range]], Iterable[Rows]],
) -> None:
    """Write the first so many rows into a folder, after those that it holds already.

    Args:
      directory: the folder.
      rows: how many rows it shall hold.
      settings: what decides the rows.
      largest: the largest number in them: the vocabulary's size or the row length.
      make: gives the rows of each range in turn.

    Raises:
      UserError: the folder holds rows of other settings.
    """
    integers = "uint16" if largest < 1 << 16 else "uint32"
    found = _describe(directory)
    if found is not None:
        refuse_other_settings(directory, found["settings"], settings)
    files: list[dict[str, Any]] = found["files"] if found else []
    per_record = found["rows_per_record"] if found else ROWS_PER_RECORD
    per_file = per_record * RECORDS_PER_FILE
    if files and files[-1]["rows"] < min(per_file, rows - per_file * (len(files) - 1)):
        files.pop()  # it was the last one and not full: written anew
    directory.mkdir(parents=True, exist_ok=True)
    while (first := per_file * len(files)) < rows:
        last = min(first + per_file, rows)
        path = directory / f"rows-{len(files):05d}.array_record"
        partial = path.with_suffix(".partial")
        writer = ArrayRecordWriter(str(partial), "group_size:1,zstd:1")
        records = [range(k, min(k + per_record, last)) for k in range(first, last, per_record)]
        for block in make(records):
            writer.write(block.to_bytes(np.dtype(integers).type))
        writer.close()
        partial.replace(path)
        files.append({"name": path.name, "rows": last - first, "bytes": path.stat().st_size})
        description = {
            "format": FORMAT, "rows": last, "rows_per_record": per_record, "integers": integers,
            "files": files, "settings": dict(settings),
        }  # fmt: skip
        write_json(directory / DESCRIPTION, description)


def refuse_other_settings(directory: Path, there: Mapping[str, Any], here: Mapping[str, Any]) -> None:
    """Refuse a folder whose rows were decided by other settings.

    Raises:
      UserError: it names what differs.
    """
    there, here = _flat(there), _flat(here)
    if changed := [name for name in here | there if here.get(name) != there.get(name)]:
        differences = "; ".join(f"{name}: {there.get(name)} there, {here.get(name)} here" for name in changed)
        raise UserError(f"{directory} holds rows of other settings ({differences}): use those, or pack anew")


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {prefix + name: value}
    return flat


def _describe(directory: Path) -> dict[str, Any] | None:
    path = directory / DESCRIPTION
    if not path.is_file():
        return None
    try:
        description = json.loads(path.read_text(encoding="utf-8"))
        if description["format"] != FORMAT:
            raise UserError(f"{directory} has format {description['format']} of packed rows: pack them anew")
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} is damaged ({error!r}): pack the rows anew") from error
    return description
