"""Traces on disk: a folder of ArrayRecord shards that `tensorflow_datasets` reads too.

While traces come in, `TraceWriter` appends them to a journal, a text file in ``unfinished/``: a run that is
killed loses at most the line it was writing, and a second run continues where it stood. At the end the
journal becomes shards, then the folder's description, and is removed::

    nd_traces-train.array_record-00000-of-00001    records, in the order they were added
    nd_traces-heldout.array_record-00000-of-00001
    dropped.jsonl                                  {"id", "reason", "detail"}, one a line
    metadata.json                                  what `TraceDataset.info` gives
    dataset_info.json, features.json               what tfds reads

`nd_jax.programs.splits.split_of` says which side a trace falls on.
"""

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

from nd_jax.errors import UserError
from nd_jax.files import write_json
from nd_jax.programs.splits import Selection, Split, split_of
from nd_jax.tracing import tfds_format
from nd_jax.tracing.records import Records
from nd_jax.tracing.schema import SCHEMA_VERSION, Trace, encode_json, from_json, to_json
from nd_jax.tracing.shards import Shards

SPLITS = ("train", "heldout")
_METADATA, _UNFINISHED, _DROPPED = "metadata.json", "unfinished", "dropped.jsonl"
_JOURNAL = f"{_UNFINISHED}/journal"


class TraceWriter:
    """Writes a folder of traces. A context manager: only a block that ends well finishes the folder.

    Args:
      directory: the folder to make. One that is finished is refused; one that a killed run left unfinished,
      with
        the same ``settings``, is continued.
      settings: how the traces are made (limits, source of the programs ...), kept in the metadata.

    Attributes:
      seen: ids of the programs that a killed run recorded or dropped, and how often each; the caller leaves
        them out, as `has` tells.
      recorded: traces added so far, by split.
      dropped: programs dropped so far, by reason.

    Raises:
      UserError: the folder is finished, holds something else, or was begun with other settings.
    """

    def __init__(self, directory: Path | str, settings: Mapping[str, Any] | None = None) -> None:
        self.directory = Path(directory)
        self._settings = json.loads(json.dumps(dict(settings or {})))
        self.seen: Counter[str] = Counter()
        self.recorded: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        unfinished = self.directory / _UNFINISHED
        if finished(self.directory):
            raise UserError(
                f"{self.directory} already holds traces; give another folder, or remove this one first"
            )
        if self.directory.exists() and not unfinished.exists() and any(self.directory.iterdir()):
            raise UserError(f"{self.directory} is not empty and holds no traces; give a new folder")
        unfinished.mkdir(parents=True, exist_ok=True)
        self._journal_path = self.directory / _JOURNAL
        self._continue()
        self._seen_left = Counter(self.seen)
        self._journal = open(self._journal_path, "ab", buffering=0)  # noqa: SIM115  # closed in __exit__
        if self._journal.tell() == 0:
            self._write("begun", self._settings)

    def _continue(self) -> None:
        """Take up what a killed run left: count its lines, cut off the one it did not finish."""
        if not self._journal_path.exists():
            return
        end = 0
        with open(self._journal_path, "rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                kind, head, _ = line.split(b"\t", 2)
                if end == 0 and json.loads(head) != self._settings:
                    raise UserError(
                        f"{self.directory} was begun with other settings, {head.decode()}; "
                        "use those, or remove the folder to begin anew"
                    )
                if end:
                    record = json.loads(head)
                    self.seen[record["id"]] += 1
                    self._count(kind.decode(), record)
                end += len(line)
        with open(self._journal_path, "r+b") as file:
            file.truncate(end)

    def _count(self, kind: str, head: Any) -> None:
        if kind == "dropped":
            self.dropped[head["reason"]] += 1
        else:
            self.recorded[kind] += 1

    def _write(self, kind: str, head: Any, body: str = "") -> None:
        line = f"{kind}\t{encode_json(head)}\t{body}\n"
        self._journal.write(line.encode("utf-8", "backslashreplace"))

    def has(self, program_id: str) -> bool:
        """Tell whether a killed run has written a program; true as often as it has, for two may share an id.

        To be asked once for each program, in order, before it is added or dropped.
        """
        if not self._seen_left[program_id]:
            return False
        self._seen_left[program_id] -= 1
        return True

    def add(self, trace: Trace, split: Split | None = None, json: str | None = None) -> None:
        """Add a trace; ``split`` is its program's and ``json`` its text, where they are known already."""
        split = split or split_of(trace.source)
        head = {"id": trace.id, "python": trace.python, "events": len(trace.events),
                "frames": len(trace.functions)}  # fmt: skip
        self._write(split, head, json or to_json(trace))
        self._count(split, head)

    def drop(self, program_id: str, reason: str, detail: str = "") -> None:
        """Note a program that has no trace, and why."""
        head = {"id": program_id, "reason": reason, "detail": detail}
        self._write("dropped", head)
        self._count("dropped", head)

    def __enter__(self) -> "TraceWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._journal.close()
        if kind is None:
            self._finish()

    def _finish(self) -> None:
        shards = {split: Shards(self.directory / _UNFINISHED, split) for split in SPLITS}
        frames = events = 0
        versions: Counter[str] = Counter()
        with (
            open(self._journal_path, "rb") as journal,
            open(self.directory / _UNFINISHED / _DROPPED, "wb") as dropped,
        ):
            for line in journal:
                kind, head, body = line.rstrip(b"\n").split(b"\t", 2)
                if kind == b"dropped":
                    dropped.write(head + b"\n")
                elif kind != b"begun":
                    record = json.loads(head)
                    shards[kind.decode()].write(record["id"].encode(), body)
                    versions[record["python"]] += 1
                    events += record["events"]
                    frames += record["frames"]
        for split in shards.values():
            split.close()
        info = {
            "schema": SCHEMA_VERSION,
            "traces": {split: shards[split].records for split in SPLITS},
            "events": events,
            "frames": frames,
            "recorded": sum(self.recorded.values()),
            "dropped": dict(self.dropped.most_common()),
            "python": dict(versions),
            "settings": self._settings,
            "shards": {split: shards[split].describe() for split in SPLITS},
            "fingerprint": _combine(shards[split].digest for split in SPLITS),
        }
        text = f"Recorded runs of Python programs (trace schema {SCHEMA_VERSION}); see metadata.json."
        for split in shards.values():
            split.publish(self.directory)
        (self.directory / _UNFINISHED / _DROPPED).replace(self.directory / _DROPPED)
        tfds_format.write_description(
            self.directory,
            {split: shards[split].lengths for split in SPLITS if shards[split].records},
            {split: shards[split].bytes for split in SPLITS},
            text,
        )
        write_json(self.directory / _METADATA, info)
        self._journal_path.unlink()  # from here on the folder is finished, whatever else is left
        shutil.rmtree(self.directory / _UNFINISHED)


def _combine(digests: Iterator[str]) -> str:
    return hashlib.blake2b(" ".join(digests).encode(), digest_size=16).hexdigest()


class TraceDataset(Sequence[Trace]):
    """The traces of a folder, by index; opens its files when first read, in each process anew. Picklable.

    Attributes:
      info: the folder's metadata: counts, drops by reason, interpreter, settings.
      fingerprint: hash of all records' content, the same wherever and in however many files they lie.
    """

    def __init__(self, directory: Path, splits: tuple[str, ...], info: dict[str, Any]) -> None:
        self.directory, self.splits, self.info = directory, splits, info
        self.fingerprint: str = info["fingerprint"]
        self._length = sum(info["traces"][split] for split in splits)
        self._source: Records | None = None

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Trace: ...
    @overload
    def __getitem__(self, index: slice) -> list[Trace]: ...
    def __getitem__(self, index: int | slice) -> Trace | list[Trace]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(self._length))]
        position = index + self._length if index < 0 else index
        if not 0 <= position < self._length:
            raise IndexError(f"trace {index} of {self._length}")
        try:
            return from_json(tfds_format.decode_example(self._records()[position])["trace"])
        except (ValueError, KeyError, IndexError, RuntimeError) as error:
            raise UserError(
                f"{self.directory}: record {position} cannot be read ({error}); record it anew"
            ) from error

    def _records(self) -> Records:
        if self._source is None:
            shards = [shard for split in self.splits for shard in self.info["shards"][split]]
            self._source = Records([self.directory / shard["file"] for shard in shards])
        return self._source

    def dropped(self) -> Iterator[dict[str, str]]:
        """Give the programs that have no trace: ``{"id", "reason", "detail"}``."""
        with open(self.directory / _DROPPED, encoding="utf-8") as file:
            for line in file:
                yield json.loads(line)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_source": None}

    def __repr__(self) -> str:
        return f"TraceDataset({str(self.directory)!r}, {'+'.join(self.splits)}, {len(self)} traces)"


def finished(directory: Path | str) -> bool:
    """Tell whether a folder holds a whole trace dataset (`open_traces` says what else it may be)."""
    return (Path(directory) / _METADATA).exists() and not (Path(directory) / _JOURNAL).exists()


def open_traces(directory: Path | str, split: Selection = "train") -> TraceDataset:
    """Open a folder of traces for reading.

    Raises:
      UserError: there is none, it is unfinished, of another schema version, or a file is missing or
      truncated.
    """
    directory = Path(directory)
    if split not in (*SPLITS, "all"):
        raise UserError(f"no split {split!r}; there are train, heldout and all")
    if (directory / _UNFINISHED).exists() and not finished(directory):
        raise UserError(
            f"{directory} is unfinished: its recording was interrupted; run the same command again"
        )
    try:
        info = json.loads((directory / _METADATA).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = "is no folder" if not directory.is_dir() else "has no readable metadata.json"
        raise UserError(f"{directory} {found}; traces are made by `nd trace --out`") from None
    if not isinstance(info, dict) or "fingerprint" not in info or "shards" not in info:
        raise UserError(
            f"{directory}/{_METADATA} does not describe traces; traces are made by `nd trace --out`"
        )
    if info.get("schema") != SCHEMA_VERSION:
        raise UserError(
            f"{directory} has trace schema {info.get('schema')}, this version reads {SCHEMA_VERSION}; "
            "record it anew"
        )
    for shard in (shard for name in SPLITS for shard in info["shards"][name]):
        path = directory / shard["file"]
        size = path.stat().st_size if path.is_file() else None
        if size != shard["bytes"]:
            state = "is missing" if size is None else f"has {size} bytes instead of {shard['bytes']}"
            raise UserError(f"{path} {state}; record it anew")
    return TraceDataset(directory, SPLITS if split == "all" else (split,), info)
