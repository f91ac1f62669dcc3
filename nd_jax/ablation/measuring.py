"""How well a model says each state of some sessions, kept state by state, so that models can be paired.

The sessions are the same whatever tokenizer a model has. A state's bits are those of all its tokens, so that
they can be compared between tokenizers, which tokens and their perplexity cannot.
"""

import functools
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from nd_jax.console import track
from nd_jax.debugger.policy import PolicyConfig, sample_trajectory
from nd_jax.debugger.tree import StateTree
from nd_jax.evaluation.marks import BINDINGS, VALUE, Mark, Marker
from nd_jax.evaluation.verbs import Model
from nd_jax.language.session import Unrenderable, show
from nd_jax.model import transformer
from nd_jax.model.config import ModelConfig
from nd_jax.model.loss import next_token_losses
from nd_jax.tracing.schema import Trace

BATCH = 16
"""Sessions of one forward pass, one a row."""


class StateScores(NamedTuple):
    """What a model made of states that an action led to; arrays ``[states]``, by session and step.

    Attributes:
      session: number of the session.
      step: number of the action in it, from 0.
      program: number of the program.
      action: name of the action.
      bits: negative log-likelihood of the state's tokens, given all before them, base 2.
      event_line: event, line and frame are the most likely ones.
      rest: so is all that follows them.
      part: what that is: bindings, value, or nothing.
    """

    session: np.ndarray
    step: np.ndarray
    program: np.ndarray
    action: np.ndarray
    bits: np.ndarray
    event_line: np.ndarray
    rest: np.ndarray
    part: np.ndarray

    def save(self, path: Path) -> None:
        """Write the arrays into one file, whole or not at all."""
        partial = path.with_name(f"partial-{path.name}")
        np.savez_compressed(partial, **self._asdict())
        partial.replace(path)

    @classmethod
    def load(cls, path: Path) -> "StateScores":
        """Read what `save` wrote."""
        with np.load(path) as arrays:
            return cls(**{name: arrays[name] for name in cls._fields})

    def among(self, chosen: np.ndarray) -> "StateScores":
        """Give some of the states, by index or mask."""
        return StateScores(*(array[chosen] for array in self))


def measure(
    traces: Sequence[Trace], model: Model, policy: PolicyConfig, sessions: int, seed: int
) -> StateScores:
    """Sample sessions of traces and let a model predict their states, each given all that came before.

    A session is cut to the rows that the model was trained on; one that its tokenizer cannot write, or of
    which no step fits, is left out.
    """
    marker, length = Marker(model.tokenizer), model.experiment.data.row_length
    sampled: list[tuple[int, list[int], list[Mark]]] = []
    for k in range(sessions):
        tree = StateTree(traces[k % len(traces)])
        rng = random.Random(f"{seed}/{k}")
        trajectory = sample_trajectory(tree, rng, policy, max_states=max(2, length // 2))
        try:
            session = model.tokenizer.encode_session(show(tree, trajectory, model.tokenizer.spec))
        except Unrenderable:
            continue
        if (session := session.cut(length)).steps:
            sampled.append((k, session.ids, marker.mark(session.ids)))
    states: list[tuple[Any, ...]] = []
    for first in track(range(0, len(sampled), BATCH), "measuring states"):
        some = sampled[first : first + BATCH]
        nll, right = _predict(model, [ids for _, ids, _ in some], length)
        for (k, _, marks), bits, hits in zip(some, nll / np.log(2), right, strict=False):
            states += [
                (k, step, k % len(traces), mark.action, *_score(mark, bits, hits), mark.part or "")
                for step, mark in enumerate(marks)
            ]
    kinds = (np.int64, np.int64, np.int64, str, np.float64, bool, bool, str)
    columns = zip(*states, strict=True) if states else [()] * len(kinds)
    return StateScores(*(np.array(list(c), kind) for c, kind in zip(columns, kinds, strict=True)))


def _score(mark: Mark, bits: np.ndarray, right: np.ndarray) -> tuple[float, bool, bool]:
    """Bits, and what is right, of a state; the token at place t is predicted at t - 1."""
    event_line, rest = (bool(right[np.array(part, int) - 1].all()) for part in (mark.event_line, mark.rest))
    return float(bits[mark.begin - 1 : mark.end - 1].sum()), event_line, rest


def _predict(model: Model, sessions: Sequence[Sequence[int]], length: int) -> tuple[np.ndarray, np.ndarray]:
    """Loss in nats and correctness of the token after each, `[BATCH, length]`."""
    tokens, segments = np.full((BATCH, length), model.tokenizer.pad, np.int32), np.zeros((BATCH, length), int)
    for b, ids in enumerate(sessions):
        tokens[b, : len(ids)] = ids
        segments[b, : len(ids)] = 1
    positions = np.arange(length) * segments
    both = _losses(
        model.experiment.model, model.params, tokens, segments.astype(np.int32), positions.astype(np.int32)
    )
    nll_BxT, right_BxT = map(np.asarray, both)
    return nll_BxT.astype(np.float64), right_BxT


@functools.partial(jax.jit, static_argnums=0)
def _losses(
    config: ModelConfig,
    params: dict[str, Any],
    tokens_BxT: jax.Array,
    segments_BxT: jax.Array,
    positions_BxT: jax.Array,
) -> tuple[jax.Array, jax.Array]:
    model = transformer.bind(config, params)
    targets_BxT = jnp.roll(tokens_BxT, -1, axis=1)
    weights_BxT = jnp.zeros(tokens_BxT.shape, jnp.float32)
    losses = next_token_losses(model, tokens_BxT, targets_BxT, weights_BxT, segments_BxT, positions_BxT)
    return losses.nll_BxT, losses.correct_BxT


def accuracy(scores: StateScores) -> dict[str, float | None]:
    """Shares of states that are right as a whole, and by field where they have it; None where none has."""
    return {
        "state": _share(scores.event_line & scores.rest),
        "event_line": _share(scores.event_line),
        **{part: _share(scores.rest[scores.part == part]) for part in (BINDINGS, VALUE)},
    }


def _share(right: np.ndarray) -> float | None:
    return float(right.mean()) if len(right) else None
