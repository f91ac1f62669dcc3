"""A tiny experiment with made-up rows, for the tests; as a program: `tiny_run.py OUT STEPS [WHERE]`, which
stops before step WHERE until there is a file OUT/go, or compiles for ever.
"""

import hashlib
import json
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np

from nd_jax.data.config import DataConfig
from nd_jax.model.config import ModelConfig
from nd_jax.training.config import CheckpointConfig, Experiment, MetricsConfig, ScheduleConfig, TrainConfig

MODEL = ModelConfig(
    vocab_size=320, d_model=16, n_layers=2, n_heads=4, n_kv_heads=2, head_dim=8, d_ff=32, attention_block=8
)  # fmt: skip
EXPERIMENT = Experiment(
    model=MODEL,
    data=DataConfig(row_length=16, global_batch=8),
    schedule=ScheduleConfig(warmup_steps=2),
    train=TrainConfig(steps=6),
    checkpoint=CheckpointConfig(every_steps=2, keep=10),
    metrics=MetricsConfig(every_steps=1, tensorboard=False, peak_flops=1e12),
)


class WordTokenizer:
    """Stands for a tokenizer: one file, one fingerprint."""

    def __init__(self, words: str = "abc", vocab_size: int = 32):
        self.words, self.vocab_size = words, vocab_size

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(self.words.encode()).hexdigest()[:16]

    def save(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "words.txt").write_text(self.words)


def row(index: int, config: DataConfig, vocab: int = 32) -> dict[str, np.ndarray]:
    """Two documents and some padding; a function of the index."""
    rng = np.random.default_rng((config.seed, index))
    T = config.row_length
    end, cut = T - int(rng.integers(0, T // 4)), int(rng.integers(2, T // 2))
    segments = np.where(np.arange(T) < cut, 1, np.where(np.arange(T) < end, 2, 0)).astype(np.int32)
    tokens = np.cumsum(rng.integers(0, 3, T)) % vocab * (segments > 0)
    weights = np.where(segments > 0, rng.choice([0.1, 1.0], T), 0.0)
    weights[[cut - 1, end - 1]] = 0.0
    positions = np.where(segments == 2, np.arange(T) - cut, np.arange(T)) * (segments > 0)
    return {
        "tokens": tokens.astype(np.int32), "targets": np.roll(tokens, -1).astype(np.int32),
        "weights": weights.astype(np.float32), "segments": segments, "positions": positions.astype(np.int32),
        "kinds": np.where(weights > 0, np.where(weights < 1, 1, 3), 0).astype(np.int8),
    }  # fmt: skip


def batch(step: int, config: DataConfig, own: Sequence[int] | None = None) -> dict[str, np.ndarray]:
    own = range(config.global_batch) if own is None else own
    rows = [row(step * config.global_batch + i, config) for i in own]
    return {name: np.stack([r[name] for r in rows]) for name in rows[0]}


def batches(config: DataConfig, step: int, own: Sequence[int]):
    while True:
        yield batch(step, config, own)
        step += 1


def run(out: Path, experiment: Experiment = EXPERIMENT, **more) -> dict:
    from nd_jax.training.loop import train

    arguments = {
        "batches": partial(batches, experiment.data),
        "data_fingerprint": f"rows of seed {experiment.data.seed}",
        "tokenizer": WordTokenizer(), "devices": jax.devices()[:1],
    } | more  # fmt: skip
    return train(experiment, out=out, **arguments)


def arrays(checkpoint: Path) -> dict[str, np.ndarray]:
    """Read a checkpoint's parameters and optimizer state, by path."""
    import orbax.checkpoint as ocp

    found = {}
    for item in ("params", "optimizer"):
        tree = ocp.StandardCheckpointer().restore(checkpoint.resolve() / item)
        for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
            found[f"{item}{path}"] = np.asarray(leaf)
    return found


def digest(checkpoint: Path) -> str:
    """Hash every bit of them."""
    hashed = hashlib.sha256()
    for path, array in sorted(arrays(checkpoint).items()):
        hashed.update(path.encode() + array.tobytes())
    return hashed.hexdigest()


def paused(go: Path, at: int | None, config: DataConfig, step: int, own: Sequence[int]):
    """Rows; before those of step `at` it says so and waits for the file `go`, or to be killed."""
    for rows in batches(config, step, own):
        if step == at:
            print("paused", flush=True)
            while not go.exists():
                time.sleep(0.05)
        yield rows
        step += 1


def compile_for_ever(*_):
    print("paused", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    from nd_jax.training import distributed, loop

    jax.config.update("jax_platforms", "cpu")
    out, steps = Path(sys.argv[1]), int(sys.argv[2])
    where = sys.argv[3] if len(sys.argv) > 3 else ""
    if where == "compiling":
        loop.make_step = lambda *_: SimpleNamespace(lower=compile_for_ever)
    pause_at = int(where) if where.isdigit() else None
    experiment = replace(EXPERIMENT, train=replace(EXPERIMENT.train, steps=steps))
    rows = partial(paused, out / "go", pause_at, experiment.data)
    print(json.dumps(run(out, experiment, batches=rows)), flush=True)
    distributed.end_process()
