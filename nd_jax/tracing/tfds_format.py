"""The files of a ``tensorflow_datasets`` folder, written and read without TensorFlow.

A record is a ``tf.train.Example`` with the byte features ``id`` and ``trace``. tfds itself takes 165 us to
write one and 1.7 s to import, this takes 3 us; the tests hold each to read the other's.
"""

import json
from pathlib import Path
from typing import Any

NAME = "nd_traces"
_FEATURES = ("id", "trace")  # in the order of the wire


def shard_name(split: str, index: int, count: int) -> str:
    """Name a shard as tfds does."""
    return f"{NAME}-{split}.array_record-{index:05d}-of-{count:05d}"


def encode_example(values: dict[str, bytes]) -> bytes:
    """Write an Example: Features (1); an entry (1) each: key (1), Feature (2): BytesList (1): value (1)."""
    entries = b""
    for name in _FEATURES:
        feature = _field(1, _field(1, values[name]))
        entries += _field(1, _field(1, name.encode()) + _field(2, feature))
    return _field(1, entries)


def decode_example(record: bytes) -> dict[str, bytes]:
    """Read the byte features of an Example.

    Raises:
      ValueError: the bytes are no such Example.
    """
    values = {}
    for entry in _fields(_only(record)):
        name, feature = _fields(entry)
        values[name.decode()] = _only(_only(feature))
    return values


def _field(number: int, data: bytes) -> bytes:
    """Write a length-delimited field of the protocol-buffer wire format."""
    head = bytearray([number << 3 | 2])
    size = len(data)
    while size > 0x7F:
        head.append(size & 0x7F | 0x80)
        size >>= 7
    head.append(size)
    return bytes(head) + data


def _fields(data: bytes) -> list[bytes]:
    """Split a message into its length-delimited fields."""
    found, position = [], 0
    while position < len(data):
        if data[position] & 7 != 2:
            raise ValueError("a field of another kind")
        position += 1
        size = shift = 0
        while True:
            if position >= len(data):
                raise ValueError("it ends inside a field")
            byte = data[position]
            position += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        if position + size > len(data):
            raise ValueError("it ends inside a field")
        found.append(data[position : position + size])
        position += size
    return found


def _only(data: bytes) -> bytes:
    (value,) = _fields(data)
    return value


def write_description(
    directory: Path, splits: dict[str, list[int]], sizes: dict[str, int], text: str
) -> None:
    """Write what tfds reads about a folder: its features, and the records of each shard of each split."""
    text_feature = {"pythonClassName": "tensorflow_datasets.core.features.text_feature.Text", "text": {}}
    features = {
        "featuresDict": {"features": dict.fromkeys(_FEATURES, text_feature)},
        "pythonClassName": "tensorflow_datasets.core.features.features_dict.FeaturesDict",
    }
    description = {
        "description": text,
        "fileFormat": "array_record",
        "name": NAME,
        "splits": [
            {
                "filepathTemplate": "{DATASET}-{SPLIT}.{FILEFORMAT}-{SHARD_X_OF_Y}",
                "name": split,
                "numBytes": str(sizes[split]),
                "shardLengths": [str(length) for length in lengths],
            }
            for split, lengths in splits.items()
        ],
        "version": "1.0.0",
    }
    write_json(directory / "features.json", features)
    write_json(directory / "dataset_info.json", description)


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file whole or not at all."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    partial.replace(path)
