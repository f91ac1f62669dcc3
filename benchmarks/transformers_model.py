"""Reads a model that `benchmarks.peer.write_model` wrote, where transformers is and nd_jax is not."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers


def load(folder: Path, threads: int, **options: Any) -> Any:
    """The stock model with our weights, float32; `options` of ``from_config``."""
    torch.set_num_threads(threads)
    settings = json.loads((folder / "config.json").read_text())
    config = transformers.AutoConfig.for_model(**settings)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, **options)
    state = {name: torch.from_numpy(array) for name, array in np.load(folder / "weights.npz").items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    tied = {"lm_head.weight"} if settings["tie_word_embeddings"] else set()
    assert set(missing) <= tied, missing
    assert not unexpected, unexpected
    return model
