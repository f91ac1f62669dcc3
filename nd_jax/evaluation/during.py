"""What is measured on held-out programs while a run trains: hooks for the training loop."""

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nd_jax.console import console
from nd_jax.data.pipeline import open_heldout
from nd_jax.decoding.engine import DecodeConfig, Decoder
from nd_jax.errors import UserError
from nd_jax.evaluation.states import StatesConfig, evaluate_states
from nd_jax.evaluation.walk import side_by_side
from nd_jax.language.tokenizer import Tokenizer
from nd_jax.model import transformer
from nd_jax.model.config import ModelConfig
from nd_jax.model.partition import replicated, shards
from nd_jax.tracing.dataset import open_traces
from nd_jax.tracing.schema import Trace
from nd_jax.training.config import Experiment
from nd_jax.training.heldout import heldout_loss
from nd_jax.training.loop import Check, Hook


def hooks(experiment: Experiment) -> list[Hook]:
    """Make the hooks that `HeldOutConfig` asks for; none, and says so, where no traces are held out."""
    config, data = experiment.heldout, experiment.data
    if not config.every_steps or not data.traces:
        return []
    try:
        stream = open_heldout(data)
        sets = [open_traces(path, "heldout") for path in data.traces]
    except UserError as error:
        console.print(f"Nothing is measured on held-out programs: {error}", style="yellow")
        return []
    made = [heldout_loss(experiment, stream)]
    count = max(config.sessions, config.samples)
    # From each dataset in turn, so that every one of them is seen.
    traces = [data_set[k] for k in range(count) for data_set in sets if k < len(data_set)][:count]
    if config.sessions:
        made.append(next_states(experiment, stream.tokenizer, traces))
    if config.samples and jax.process_count() == 1:
        made.append(samples(experiment, stream.tokenizer, traces[: config.samples]))
    return made


def next_states(experiment: Experiment, tokenizer: Tokenizer, traces: Sequence[Trace]) -> Hook:
    """Make the hook that gives ``heldout/state`` and ``heldout/event_line``, shares of states."""
    config, data = experiment.heldout, experiment.data

    def call(step: int, params: dict[str, Any], check: Check) -> Mapping[str, float]:
        predictor = _predictor(experiment.model, replicated(jax.tree.leaves(params)[0].sharding.mesh))

        def predict(*rows: np.ndarray) -> np.ndarray:
            check()
            return np.asarray(predictor(params, *rows))

        split = shards("batch")
        asked = StatesConfig(
            sessions=config.sessions, row_length=data.row_length, batch=-(-16 // split) * split,
            policy=data.policy,
        )  # fmt: skip
        try:
            figures = evaluate_states(traces, tokenizer, predict, asked)["all"]
        except UserError as error:  # no session fits a row
            console.print(f"No next states are measured: {error}", style="yellow")
            return {}
        return {f"heldout/{name}": float(figures[name]) for name in ("state", "event_line")}

    return Hook(config.every_steps, call)


@functools.cache
def _predictor(model: ModelConfig, whole: jax.sharding.NamedSharding) -> Any:
    def predict(params: Any, tokens: jax.Array, segments: jax.Array, positions: jax.Array) -> jax.Array:
        return jnp.argmax(transformer.bind(model, params)(tokens, segments, positions), axis=-1)

    return jax.jit(predict, out_shardings=whole)


def samples(experiment: Experiment, tokenizer: Tokenizer, traces: Sequence[Trace]) -> Hook:
    """Make the hook that gives sessions as text: the model's next states beside the real ones."""

    def call(step: int, params: dict[str, Any], check: Check) -> Mapping[str, str]:
        decoder = Decoder(experiment.model, params, DecodeConfig())
        texts = {}
        for number, trace in enumerate(traces):
            check()
            try:
                text = side_by_side(trace, tokenizer, decoder, experiment.data.row_length)
            except UserError as error:
                text = str(error)
            texts[f"session/{number}"] = f"```\n{text}\n```"
        return texts

    return Hook(experiment.heldout.every_steps, call)
