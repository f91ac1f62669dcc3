"""PyTorch in a process of its own, which takes turns with ours."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nd_jax.export.hugging_face import settings, weights
from nd_jax.model.config import ModelConfig


def write_model(folder: Path, model: ModelConfig, params: dict[str, Any], length: int) -> None:
    """Write a model as `transformers_model.load` reads it."""
    np.savez(folder / "weights.npz", **weights(model, params))  # pyright: ignore[reportArgumentType]
    (folder / "config.json").write_text(json.dumps(settings(model, length)))


def start(python: Path, script: str, *arguments: object) -> Callable[[], dict[str, Any]]:
    """Start a script of this folder; what is given asks it for a turn, and gives its answer."""
    process = subprocess.Popen(
        [python, Path(__file__).with_name(script), *map(str, arguments)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    asks, answers = process.stdin, process.stdout

    def turn() -> dict[str, Any]:
        print(file=asks, flush=True)
        return json.loads(answers.readline())

    return turn
