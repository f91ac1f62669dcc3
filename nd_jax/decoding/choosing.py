"""How the next token is chosen: greedily or sampled, from all tokens or from those that a grammar allows."""

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from nd_jax.decoding.cache import Array
from nd_jax.errors import UserError


@dataclass(frozen=True)
class Sampling:
    """How continuations are drawn."""

    temperature: float = 0.0
    """Scores are divided by it before drawing; 0 takes the most likely token always."""
    top_p: float = 1.0
    """Draw from the most likely tokens that together have this probability; 1 draws from all."""
    samples: int = 1
    """Continuations of every prompt."""
    seed: int = 0
    """With the prompt and the sample's number, decides what is drawn."""

    def validate(self) -> None:
        """Raise UserError for values that cannot be."""
        if self.temperature < 0 or not 0 < self.top_p <= 1 or self.samples < 1:
            raise UserError(
                f"sampling: temperature={self.temperature} must be at least 0, top_p={self.top_p} in (0, 1] "
                f"and samples={self.samples} at least 1"
            )
        if self.temperature == 0 and (self.samples > 1 or self.top_p < 1):
            raise UserError("sampling: at temperature 0 all samples are the same: give a temperature")


GREEDY = Sampling()


class Rules(NamedTuple):
    """What a compiled program is told of choosing; what is None is left out of it."""

    stops_V: np.ndarray
    """True for the ids that end a continuation."""
    limit: int
    """Tokens a continuation may have."""
    temperature: float | None
    """None: greedy."""
    top_p: float | None
    """None: all tokens."""
    moves_QxV: np.ndarray | None
    """The grammar's state after a token in each state, -1 where it is not allowed; None: no grammar."""


def make_rules(
    stop_ids: Iterable[int], vocab_size: int, limit: int, sampling: Sampling, moves_QxV: np.ndarray | None
) -> Rules:
    """The rules of one call; other stop ids, limits, temperatures and seeds compile nothing again."""
    stops_V = np.zeros(vocab_size, bool)
    stops_V[list(stop_ids)] = True
    temperature = sampling.temperature or None
    return Rules(stops_V, limit, temperature, sampling.top_p if sampling.top_p < 1 else None, moves_QxV)


def checksum(ids: Sequence[int]) -> int:
    """Stands for a prompt in its random key."""
    return zlib.crc32(np.asarray(ids, np.int32).tobytes())


def prompt_key(key: jax.Array, prompt: Array, sample: Array) -> jax.Array:
    """The random key of one continuation, from the seed's key, the prompt's checksum and the sample."""
    return jax.random.fold_in(jax.random.fold_in(key, prompt), sample)


class Chosen(NamedTuple):
    """The next token of every slot.

    Attributes:
      token_B: its id.
      logprob_B: its log-probability under the model as it is: no temperature, no grammar.
      place_B: the grammar's state after it.
    """

    token_B: jax.Array
    logprob_B: jax.Array
    place_B: jax.Array


def choose(
    logits_BxV: jax.Array,
    keys_B: jax.Array,
    counts_B: jax.Array,
    place_B: jax.Array,
    allowed_BxV: Array | None,
    rules: Rules,
) -> Chosen:
    """Choose each slot's next token from its own scores and key alone.

    Args:
      logits_BxV: float32 scores.
      keys_B: a random key per prompt.
      counts_B: tokens generated before this one; makes the token's key.
      place_B: the grammar's state before it.
      allowed_BxV: tokens that the slot's prompt allows anywhere, beside the grammar; None without a grammar.
      rules: how.
    """
    scores_BxV = logits_BxV
    if rules.moves_QxV is not None:
        scores_BxV = jnp.where((rules.moves_QxV[place_B] >= 0) & allowed_BxV, scores_BxV, -jnp.inf)
    if rules.temperature is not None:
        scores_BxV = scores_BxV / rules.temperature
        if rules.top_p is not None:
            scores_BxV = nucleus(scores_BxV, rules.top_p)
        token_keys_B = jax.vmap(jax.random.fold_in)(keys_B, counts_B)
        scores_BxV += jax.vmap(lambda key: jax.random.gumbel(key, logits_BxV.shape[1:]))(token_keys_B)
    token_B = jnp.argmax(scores_BxV, axis=-1).astype(jnp.int32)
    score_B = jnp.take_along_axis(logits_BxV, token_B[:, None], axis=1)[:, 0]
    logprob_B = score_B - jax.nn.logsumexp(logits_BxV, axis=-1)
    if rules.moves_QxV is not None:
        place_B = jnp.asarray(rules.moves_QxV)[place_B, token_B].astype(jnp.int32)
    return Chosen(token_B, logprob_B, place_B)


def nucleus(scores_BxV: jax.Array, top_p: jax.Array | float) -> jax.Array:
    """Scores with all at -inf but the most likely tokens that together have probability `top_p` or more."""
    sorted_BxV = jnp.sort(scores_BxV, axis=-1, descending=True)
    probabilities_BxV = jax.nn.softmax(sorted_BxV, axis=-1)
    before_BxV = jnp.cumsum(probabilities_BxV, axis=-1) - probabilities_BxV
    least_Bx1 = jnp.min(jnp.where(before_BxV < top_p, sorted_BxV, jnp.inf), axis=-1, keepdims=True)
    return jnp.where(scores_BxV >= least_Bx1, scores_BxV, -jnp.inf)
