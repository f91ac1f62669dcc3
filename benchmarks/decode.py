"""How fast greedy decoding is on this machine, beside transformers' `generate` with the same weights.

    make interop
    python -m benchmarks.decode [--models 5M 30M] [--interop .venv-interop/bin/python] [--json FILE]

Batch 16, 64 prompt and 64 new tokens, float32, KV cache, random weights, CPU. PyTorch is in an environment of
its own, so `generate` runs in a process of its own; the two take turns, and each figure is the fastest run:
other load on the machine only ever adds time. Nothing is compiled while the clock runs. Without that
environment our own speed alone is printed.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx

from benchmarks.peer import start, write_model
from nd_jax.console import console, table, track, write_json
from nd_jax.decoding.engine import DecodeConfig, Decoder
from nd_jax.model.config import ModelConfig
from nd_jax.model.transformer import abstract

BATCH, PROMPT, NEW = 16, 64, 64
MODELS = {
    "5M": ModelConfig(
        vocab_size=2048,
        d_model=256,
        n_layers=6,
        n_heads=4,
        n_kv_heads=4,
        head_dim=64,
        d_ff=704,
        dtype="float32",
    ),
    "30M": ModelConfig(
        vocab_size=8192,
        d_model=512,
        n_layers=8,
        n_heads=8,
        n_kv_heads=8,
        head_dim=64,
        d_ff=1408,
        dtype="float32",
    ),
}


class Decoded(NamedTuple):
    """One decoding of the batch.

    Attributes:
      seconds: wall time.
      cpu_seconds: time of all cores together; it says more where other load takes turns with us.
      ids: the new ones.
    """

    seconds: float
    cpu_seconds: float
    ids: list[list[int]]


Run = Callable[[], Decoded]


def ours(model: ModelConfig, params: dict[str, Any], prompts: list[list[int]]) -> Run:
    """Our engine, compiled."""
    config = DecodeConfig(batch_size=BATCH, refill=BATCH, buckets=(PROMPT,), max_new_tokens=NEW)
    decoder = Decoder(model, params, config)
    decoder.greedy(prompts, ())

    def run() -> Decoded:
        start, cpu_start = time.perf_counter(), time.process_time()
        ids = decoder.greedy(prompts, ())
        return Decoded(time.perf_counter() - start, time.process_time() - cpu_start, ids)

    return run


def theirs(
    python: Path, folder: Path, model: ModelConfig, params: dict[str, Any], prompts: list[list[int]]
) -> Run:
    """The `generate` of transformers in a process of its own, warmed up."""
    write_model(folder, model, params, PROMPT + NEW)
    np.save(folder / "prompts.npy", np.array(prompts))
    answer = start(python, "transformers_generate.py", folder, NEW, os.cpu_count())

    def run() -> Decoded:
        return Decoded(**answer())

    run()
    return run


def compare(name: str, interop: Path | None, rounds: int) -> dict[str, Any]:
    """Time one model on both sides: tokens/s of each, ratios, and the share of equal ids."""
    model = MODELS[name]
    rng = np.random.default_rng(0)
    shapes = nnx.to_pure_dict(
        abstract(model)[1]
    )  # compiling the real initialisation takes longer than all else
    params = jax.tree.map(lambda leaf: rng.normal(scale=0.1, size=leaf.shape).astype(np.float32), shapes)
    params = jax.device_put(params)
    prompts = rng.integers(0, model.vocab_size, (BATCH, PROMPT)).tolist()
    with tempfile.TemporaryDirectory() as folder:
        sides = {"ours": ours(model, params, prompts)}
        if interop is not None:
            sides["transformers"] = theirs(interop, Path(folder), model, params, prompts)
        runs: dict[str, list[Decoded]] = {side: [] for side in sides}
        for _ in track(range(rounds), f"{name} ({model.parameters() / 1e6:.1f}M parameters)"):
            for side, run in sides.items():
                runs[side].append(run())
    wall = {side: min(run.seconds for run in row) for side, row in runs.items()}
    cpu = {side: min(run.cpu_seconds for run in row) for side, row in runs.items()}
    figures: dict[str, Any] = {"tokens_per_s": BATCH * NEW / wall["ours"]}
    if "transformers" in sides:
        figures |= {
            "transformers_tokens_per_s": BATCH * NEW / wall["transformers"],
            "ratio_to_transformers": wall["transformers"] / wall["ours"],
            "cpu_time_ratio": cpu["transformers"] / cpu["ours"],
            "same_ids": float(np.mean(np.equal(runs["ours"][0].ids, runs["transformers"][0].ids))),
        }
    return figures


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--interop", type=Path, default=Path(".venv-interop/bin/python"))
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    interop = options.interop if options.interop.exists() else None
    if interop is None:
        console.print(f"{options.interop} is not there: run `make interop` to compare with transformers")
    figures = {name: compare(name, interop, options.rounds) for name in options.models}
    columns = list(figures[options.models[0]])
    rows = [[name, *(row[column] for column in columns)] for name, row in figures.items()]
    table("Greedy decoding", ["model", *columns], rows)
    write_json(
        options.json, {column: {name: row[column] for name, row in figures.items()} for column in columns}
    )


if __name__ == "__main__":
    main()
