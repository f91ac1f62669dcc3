"""A checkpoint as a Hugging Face folder, and back.

The folder holds what stock `transformers`, vLLM and llama.cpp read (weights, ``config.json``,
``generation_config.json``, ``tokenizer.json``), the SentencePiece model with its spec, a model card, and the
checkpoint's record (``nd_run.json``), with which `read_folder` brings it back bit for bit.
"""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from nd_jax.errors import UserError
from nd_jax.export.card import card
from nd_jax.export.fast_tokenizer import tokenizer_config, tokenizer_json
from nd_jax.export.hugging_face import params, settings, weights
from nd_jax.language.symbols import STATE_END
from nd_jax.language.tokenizer import Tokenizer
from nd_jax.training.checkpoint import (
    FOLDER,
    RunRecord,
    find_checkpoint,
    load_for_inference,
    read_record,
    record_from_dict,
    record_to_dict,
)

RECORD_FILE, WEIGHTS_FILE, INDEX_FILE = "nd_run.json", "model.safetensors", "model.safetensors.index.json"
MAX_SHARD_BYTES = 5 * 10**9
"""Weights beyond this are written into several files."""


class Trained(NamedTuple):
    """A trained model with what its checkpoint says of it.

    Attributes:
      record: of its run.
      params: its parameters.
      tokenizer: its tokenizer.
    """

    record: RunRecord
    params: dict[str, Any]
    tokenizer: Tokenizer


def load(directory: Path) -> tuple[Trained, Path]:
    """Load a run's newest checkpoint, or the one given; and say where the run's results are.

    Raises:
      UserError: there is no checkpoint, or it is damaged.
    """
    path = find_checkpoint(directory)
    _, parameters, tokenizer = load_for_inference(path)
    run = path.parent.parent if path.parent.name == FOLDER else path
    return Trained(read_record(path), parameters, tokenizer), run


def write_folder(
    model: Trained, run: Path, out: Path, licence: str, max_shard_bytes: int = MAX_SHARD_BYTES
) -> None:
    """Write the folder; one that this function wrote before is replaced.

    Args:
      model: the model.
      run: where `nd eval` kept its results, for the card.
      out: the new folder.
      licence: of the weights, as the Hugging Face hub names it.
      max_shard_bytes: most bytes of weights in one file (a single larger array has its own).

    Raises:
      UserError: `out` holds something else.
    """
    if out.exists() and not (out / RECORD_FILE).is_file() and any(out.iterdir() if out.is_dir() else [out]):
        raise UserError(f"{out} is there and no exported model: give another --out")
    new = out.with_name(f"{out.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    config, length = model.record.experiment.model, model.record.experiment.data.row_length
    tokenizer = model.tokenizer
    special = {
        "bos_token_id": tokenizer.bos,
        "eos_token_id": tokenizer.end,
        "pad_token_id": tokenizer.pad,
    }
    # A state's end stops it too: what comes then is the user's, an action.
    stops = [tokenizer.symbol_id(STATE_END), tokenizer.end]
    _write_weights(new, weights(config, model.params), max_shard_bytes)
    _write_json(new / "config.json", settings(config, length, **special))
    _write_json(new / "generation_config.json", {**special, "eos_token_id": stops, "do_sample": False})
    _write_json(new / "tokenizer.json", tokenizer_json(tokenizer))
    _write_json(new / "tokenizer_config.json", tokenizer_config(tokenizer, length))
    _write_json(new / RECORD_FILE, record_to_dict(model.record))
    tokenizer.save(new)
    (new / "README.md").write_text(card(model.record, tokenizer, run, licence), encoding="utf-8")
    if out.exists():
        shutil.rmtree(out)
    new.rename(out)


def read_folder(folder: Path) -> Trained:
    """Read a folder that `write_folder` wrote.

    Raises:
      UserError: it is none, or a file is missing or damaged.
    """
    if not (folder / RECORD_FILE).is_file():
        raise UserError(f"{folder} has no {RECORD_FILE}: only a folder that `nd export` wrote comes back")
    try:
        record = record_from_dict(json.loads((folder / RECORD_FILE).read_text(encoding="utf-8")))
        index = folder / INDEX_FILE
        names = {WEIGHTS_FILE}
        if index.is_file():
            names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        named: dict[str, np.ndarray] = {}
        for name in sorted(names):
            named |= load_file(folder / name)
        told = params(record.experiment.model, named)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise UserError(f"{folder} is damaged ({type(error).__name__}: {error}): export it again") from error
    return Trained(record, told, Tokenizer.load(folder))


def _write_weights(folder: Path, named: dict[str, np.ndarray], max_bytes: int) -> None:
    shards = list(_shards(named, max_bytes))
    if len(shards) == 1:
        _write_shard(folder / WEIGHTS_FILE, named)
        return
    places: dict[str, str] = {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        _write_shard(folder / file, shard)
        places |= dict.fromkeys(shard, file)
    total = sum(array.nbytes for array in named.values())
    _write_json(folder / INDEX_FILE, {"metadata": {"total_size": total}, "weight_map": places})


def _write_shard(path: Path, named: dict[str, np.ndarray]) -> None:
    save_file(named, path, {"format": "pt"})  # transformers asks for this word
    path.chmod(0o644)  # else for its owner alone, unlike the other files


def _shards(named: dict[str, np.ndarray], max_bytes: int) -> Iterator[dict[str, np.ndarray]]:
    shard: dict[str, np.ndarray] = {}
    size = 0
    for name, array in named.items():
        if shard and size + array.nbytes > max_bytes:
            yield shard
            shard, size = {}, 0
        shard[name] = array
        size += array.nbytes
    yield shard


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
