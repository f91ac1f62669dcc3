"""Tiny models of both layouts with random weights and a tokenizer trained on a few synthetic programs."""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
import pytest

from nd_jax.data.config import DataConfig
from nd_jax.debugger.policy import PolicyConfig
from nd_jax.export.folder import Trained
from nd_jax.language.symbols import TokenizerSpec
from nd_jax.language.tokenizer import Tokenizer
from nd_jax.language.training import train, training_texts
from nd_jax.model.config import ModelConfig
from nd_jax.model.transformer import init
from nd_jax.programs.program import Program
from nd_jax.programs.synthetic import SyntheticConfig, generate
from nd_jax.tracing.recorder import TraceLimits, trace_program
from nd_jax.tracing.schema import Trace
from nd_jax.training.checkpoint import RunRecord
from nd_jax.training.config import Experiment

SPEC = TokenizerSpec(vocab_size=480, lines=32, frames=8)
LLAMA = ModelConfig(
    vocab_size=480, d_model=24, n_layers=2, n_heads=4, n_kv_heads=2, head_dim=6, d_ff=40, rope_theta=500.0
)
MODELS = {
    "llama": LLAMA,
    "qwen3": dataclasses.replace(LLAMA, qk_norm=True, tied_embeddings=False),
}
INTEROP = Path(os.environ.get("ND_INTEROP", Path(__file__).parents[2] / ".venv-interop/bin/python"))


@pytest.fixture(scope="session")
def interop() -> Path:
    """Python of an environment with transformers."""
    if not INTEROP.exists():
        pytest.skip(f"no {INTEROP}: `make interop` makes it, or ND_INTEROP names another")
    return INTEROP


@pytest.fixture(scope="session")
def traces() -> list[Trace]:
    programs = generate(SyntheticConfig(), 0, 0, 80)
    recorded = (trace_program(p, TraceLimits(events=400)) for p in programs if isinstance(p, Program))
    return [trace for trace in recorded if isinstance(trace, Trace)]


@pytest.fixture(scope="session")
def tokenizer(traces: list[Trace]) -> Tokenizer:
    texts = training_texts(traces, SPEC, PolicyConfig(), seed=0, max_states=64)
    return train(texts, SPEC, {"for": "tests"})


@pytest.fixture(scope="session")
def trained(tokenizer: Tokenizer) -> Callable[[str], Trained]:
    """Gives a model by its layout."""

    def make(layout: str) -> Trained:
        config = MODELS[layout]
        rng = np.random.default_rng(1)
        params = jax.tree.map(
            lambda x: np.asarray(x) + 0.3 * rng.normal(size=x.shape).astype(np.float32),
            init(config, jax.random.key(0)),
        )
        data = DataConfig(traces=("made/up",), row_length=96, global_batch=4)
        return Trained(
            RunRecord(Experiment(model=config, data=data), 7, 1.5, tokenizer.fingerprint, "rows"),
            params,
            tokenizer,
        )

    return make
