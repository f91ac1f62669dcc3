"""Batched decoding with continuous refill: ragged prompts in, generated ids out, few compilations.

Prompts of one length bucket share a batch of slots. A slot's keys and values lie in two parts: its prompt,
and behind it, in a ring, what it generates. All slots write to the ring at the same place, the clock's, so a
step is one in-place write whatever each slot's prompt and progress; a slot sees as much of the ring,
backwards from the clock, as it has generated. So a finished slot takes the next prompt while others go on.
"""

import functools
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from nd_jax.console import track
from nd_jax.decoding.cache import Array, Cache, empty, extend, place, prefill
from nd_jax.decoding.choosing import GREEDY, Rules, Sampling, checksum, choose, make_rules, prompt_key
from nd_jax.decoding.grammar import Constraint
from nd_jax.errors import UserError
from nd_jax.model.config import ModelConfig
from nd_jax.model.partition import check_fit, params_shardings
from nd_jax.model.transformer import abstract, bind, compute_dtype


@dataclass(frozen=True)
class DecodeConfig:
    """How prompts are batched and how much may be generated."""

    batch_size: int = 32
    """Slots: continuations generated at once."""
    refill: int = 8
    """Slots that must be free before the next prompts are read, so many at once."""
    buckets: tuple[int, ...] = (64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
    """Prompt lengths that programs are compiled for; a prompt takes the smallest that holds it."""
    max_new_tokens: int = 64
    """Room for generated tokens behind every prompt; a call may ask for fewer."""
    cache_dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Type of cached keys and values; auto is the model's compute type."""

    def validate(self) -> None:
        """Raise UserError for sizes that cannot be."""
        if min(self.batch_size, self.refill, self.max_new_tokens, *self.buckets) < 1 or not self.buckets:
            raise UserError("decode.batch_size, refill, max_new_tokens and buckets must all be at least 1")
        if self.refill > self.batch_size:
            raise UserError(f"decode.refill={self.refill} is more than decode.batch_size={self.batch_size}")
        if list(self.buckets) != sorted(set(self.buckets)):
            raise UserError(f"decode.buckets must grow: {self.buckets}")
        if self.cache_dtype not in ("auto", "float32", "bfloat16"):
            raise UserError(
                f"decode.cache_dtype={self.cache_dtype!r} is unknown; use auto, float32 or bfloat16"
            )


class Generation(NamedTuple):
    """One continuation.

    Attributes:
      ids: generated ids, up to and including the stop id.
      logprobs: each id's log-probability under the model as it is, whatever the temperature or grammar.
    """

    ids: list[int]
    logprobs: list[float]


def cache_dtype(name: str, model: ModelConfig) -> jnp.dtype:
    """The type that a `cache_dtype` field means for this model."""
    return compute_dtype(model) if name == "auto" else jnp.dtype(name)


def check_ids(ids: Sequence[int], vocab_size: int, what: str) -> None:
    """Raise UserError for ids that the model lacks: a lookup under jit would silently take another's row."""
    if len(ids) == 0:
        raise UserError(f"{what} is empty: a generation needs at least one token to follow")
    if min(ids) < 0 or max(ids) >= vocab_size:
        raise UserError(f"{what} has an id outside 0..{vocab_size - 1}: another tokenizer than the model's?")


class _Slots(NamedTuple):
    """What the device knows of every slot."""

    cache: Cache  # P slots for the prompt, then a ring of N
    clock: jax.Array  # steps taken; its remainder by N is the place in the ring
    token_B: jax.Array  # generated last, to be read next
    lengths_B: jax.Array  # of the prompt
    counts_B: jax.Array  # tokens generated
    active_B: jax.Array
    keys_B: jax.Array
    place_B: jax.Array  # in the grammar
    allowed_BxV: jax.Array | None
    out_BxN: jax.Array
    logprobs_BxN: jax.Array


class _Arrivals(NamedTuple):
    """Prompts on their way into slots; one that fills up a group goes to a slot that is not there."""

    slots_R: np.ndarray
    tokens_RxP: np.ndarray
    lengths_R: np.ndarray
    prompts_R: np.ndarray  # a checksum of the prompt
    samples_R: np.ndarray
    allowed_RxV: np.ndarray | None


@functools.partial(jax.jit, static_argnames=("model", "config", "bucket", "constrained"))
def _open(model: ModelConfig, config: DecodeConfig, bucket: int, constrained: bool) -> _Slots:
    """Slots that hold nothing yet."""
    B, N = config.batch_size, config.max_new_tokens
    zeros_B, zero = jnp.zeros(B, jnp.int32), jnp.int32(0)
    return _Slots(
        cache=empty(model, B, bucket + N, cache_dtype(config.cache_dtype, model)),
        clock=zero,
        token_B=zeros_B,
        lengths_B=zeros_B,
        counts_B=zeros_B + 1,  # so that an empty slot sees its own token: else it would leave nan in the ring
        active_B=jnp.zeros(B, bool),
        keys_B=jax.random.split(jax.random.key(0), B),
        place_B=zeros_B,
        allowed_BxV=jnp.zeros((B, model.vocab_size), bool) if constrained else None,
        out_BxN=jnp.zeros((B, N), jnp.int32),
        logprobs_BxN=jnp.zeros((B, N), jnp.float32),
    )


@functools.partial(jax.jit, static_argnames=("model", "config"), donate_argnames=("slots",))
def _refill(
    model: ModelConfig,
    config: DecodeConfig,
    params: dict[str, Any],
    slots: _Slots,
    arrivals: _Arrivals,
    seed: jax.Array,
    rules: Rules,
) -> _Slots:
    """Read prompts into slots and generate the first token of each."""
    module = bind(model, params)
    x_RxPxD, cache = prefill(module, jnp.asarray(arrivals.tokens_RxP), slots.cache.keys[0].dtype)
    last_R = jnp.maximum(arrivals.lengths_R - 1, 0)
    logits_RxV = module.logits(jnp.take_along_axis(x_RxPxD, last_R[:, None, None], axis=1)[:, 0])
    key = jax.random.key(seed)
    keys_R = jax.vmap(prompt_key, (None, 0, 0))(key, arrivals.prompts_R, arrivals.samples_R)
    zeros_R = jnp.zeros_like(arrivals.lengths_R)
    chosen = choose(logits_RxV, keys_R, zeros_R, zeros_R, arrivals.allowed_RxV, rules)

    def put(array: jax.Array, values: Array | None) -> jax.Array:
        return array.at[arrivals.slots_R].set(values, mode="drop")

    allowed = slots.allowed_BxV
    return slots._replace(
        cache=place(slots.cache, cache, arrivals.slots_R),
        token_B=put(slots.token_B, chosen.token_B),
        lengths_B=put(slots.lengths_B, arrivals.lengths_R),
        counts_B=put(slots.counts_B, zeros_R + 1),
        active_B=put(slots.active_B, ~rules.stops_V[chosen.token_B] & (rules.limit > 1)),
        keys_B=put(slots.keys_B, keys_R),
        place_B=put(slots.place_B, chosen.place_B),
        allowed_BxV=None if allowed is None else put(allowed, arrivals.allowed_RxV),
        out_BxN=slots.out_BxN.at[arrivals.slots_R, 0].set(chosen.token_B, mode="drop"),
        logprobs_BxN=slots.logprobs_BxN.at[arrivals.slots_R, 0].set(chosen.logprob_B, mode="drop"),
    )


@functools.partial(jax.jit, static_argnames=("model", "config"), donate_argnames=("slots",))
def _advance(
    model: ModelConfig,
    config: DecodeConfig,
    params: dict[str, Any],
    slots: _Slots,
    least: jax.Array,
    rules: Rules,
) -> _Slots:
    """Generate until fewer than `least` slots are active."""
    module = bind(model, params)
    blocks = module.decoding_layers()
    N = config.max_new_tokens
    S = slots.cache.keys[0].shape[2]
    P = S - N
    ring_N, out_N = jnp.arange(N), jnp.arange(N)

    def step(slots: _Slots) -> _Slots:
        # The token read now is each slot's number counts_B - 1, and takes the clock's place in the ring.
        now = slots.clock % N
        in_prompt_BxP = jnp.arange(P) < slots.lengths_B[:, None]
        generated_BxN = (now - ring_N) % N < slots.counts_B[:, None]
        seen_BxS = jnp.concatenate([in_prompt_BxP, generated_BxN], axis=1)
        positions_B = slots.lengths_B + slots.counts_B - 1
        x_Bx1xD, cache = extend(
            module,
            blocks,
            slots.token_B[:, None],
            positions_B[:, None],
            P + now,
            seen_BxS[:, None],
            slots.cache,
        )
        logits_BxV = module.logits(x_Bx1xD[:, 0])
        chosen = choose(logits_BxV, slots.keys_B, slots.counts_B, slots.place_B, slots.allowed_BxV, rules)
        here_BxN = (out_N == slots.counts_B[:, None]) & slots.active_B[:, None]
        counts_B = slots.counts_B + slots.active_B
        return slots._replace(
            cache=cache,
            clock=slots.clock + 1,
            token_B=chosen.token_B,
            counts_B=counts_B,
            active_B=slots.active_B & ~rules.stops_V[chosen.token_B] & (counts_B < rules.limit),
            place_B=chosen.place_B,
            out_BxN=jnp.where(here_BxN, chosen.token_B[:, None], slots.out_BxN),
            logprobs_BxN=jnp.where(here_BxN, chosen.logprob_B[:, None], slots.logprobs_BxN),
        )

    return jax.lax.while_loop(lambda slots: slots.active_B.sum() >= least, step, slots)


class _Job(NamedTuple):
    """One continuation to generate: of which prompt, and its number among the prompt's samples."""

    prompt: int
    sample: int


class Decoder:
    """Decoding with fixed parameters.

    What is generated for a prompt depends on that prompt, the seed and the sample's number alone, not on its
    slot, the batch's size or its neighbours; only where two tokens' scores are within rounding may another
    batch size choose the other.
    """

    def __init__(
        self,
        model: ModelConfig,
        params: dict[str, Any],
        config: DecodeConfig,
        progress: str | None = None,
        mesh: Mesh | None = None,
    ):
        """Args:
        model: the shape of the model.
        params: its parameters; moved to where the mesh says.
        config: batching.
        progress: label of a progress bar over a call's continuations; none without it.
        mesh: from `nd_jax.model.partition.make_mesh`; without one, everything is on one device.

        Raises:
          UserError: the mesh does not divide the model or the batch.
        """
        config.validate()
        model.validate()
        self.model = model
        self.config = config
        self.progress = progress
        self.mesh = mesh
        if mesh is not None:
            if (parts := mesh.shape["sequence"]) > 1:
                raise UserError(f"mesh sequence={parts}: decoding does not split positions; use 1")
            for rows in (config.batch_size, config.refill):
                check_fit(mesh.shape, model, rows)
            params = jax.device_put(params, params_shardings(abstract(model)[1], mesh))
        self.params = params
        self.shapes: set[tuple[int, bool, bool, bool]] = set()
        """Bucket, sampled, nucleus, constrained of every call so far."""
        self.generated = 0
        """Tokens generated so far."""
        self.seconds = 0.0
        """Time it took, compilation included."""

    @property
    def compilations(self) -> int:
        """Programs needed so far: one to read prompts and one to go on, per bucket and way of choosing."""
        return 2 * len(self.shapes)

    def log(self) -> dict[str, float]:
        """What was done so far: ``{tokens, seconds, tokens_per_s, compilations}``."""
        speed = self.generated / self.seconds if self.seconds else 0.0
        return {
            "tokens": self.generated,
            "seconds": self.seconds,
            "tokens_per_s": speed,
            "compilations": self.compilations,
        }

    def greedy(
        self,
        prompts: Sequence[Sequence[int]],
        stop_ids: Iterable[int],
        max_new_tokens: int | None = None,
    ) -> list[list[int]]:
        """The most likely continuation of every prompt, token by token; arguments as in `generate`."""
        return [row[0].ids for row in self.generate(prompts, stop_ids, max_new_tokens)]

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        stop_ids: Iterable[int],
        max_new_tokens: int | None = None,
        sampling: Sampling = GREEDY,
        constraint: Constraint | None = None,
    ) -> list[list[Generation]]:
        """Continue every prompt.

        Args:
          prompts: token ids, each at least one; any lengths up to the largest bucket.
          stop_ids: a continuation ends with the first of these.
          max_new_tokens: or after so many ids; default and maximum: the config's.
          sampling: greedy, or how to draw.
          constraint: what the grammar allows after each prompt; None allows everything.

        Returns:
          For each prompt, in order, its `sampling.samples` continuations.

        Raises:
          UserError: a prompt is empty, too long, or holds ids that the model lacks.
        """
        limit = self.config.max_new_tokens if max_new_tokens is None else max_new_tokens
        if not 1 <= limit <= self.config.max_new_tokens:
            raise UserError(
                f"max_new_tokens={limit} is outside 1..{self.config.max_new_tokens} (decode.max_new_tokens)"
            )
        sampling.validate()
        moves_QxV = None if constraint is None else constraint.moves_QxV
        rules = make_rules(stop_ids, self.model.vocab_size, limit, sampling, moves_QxV)
        by_bucket: dict[int, list[_Job]] = {}
        for index, prompt in enumerate(prompts):
            check_ids(prompt, self.model.vocab_size, f"prompt {index}")
            jobs = by_bucket.setdefault(self.bucket(len(prompt)), [])
            jobs += (_Job(index, sample) for sample in range(sampling.samples))
        results = [[Generation([], [])] * sampling.samples for _ in prompts]
        start = time.perf_counter()
        finished = self._finished(by_bucket, prompts, constraint, sampling, rules)
        total = len(prompts) * sampling.samples
        for job, generation in track(finished, self.progress, total) if self.progress else finished:
            results[job.prompt][job.sample] = generation
            self.generated += len(generation.ids)
        self.seconds += time.perf_counter() - start
        return results

    def bucket(self, length: int) -> int:
        """The prompt length that a prompt of `length` tokens is filled up to."""
        for bucket in self.config.buckets:
            if length <= bucket:
                return bucket
        raise UserError(
            f"a prompt of {length} tokens is longer than decode.buckets allow ({self.config.buckets[-1]})"
        )

    def _finished(
        self,
        by_bucket: dict[int, list[_Job]],
        prompts: Sequence[Sequence[int]],
        constraint: Constraint | None,
        sampling: Sampling,
        rules: Rules,
    ) -> Iterator[tuple[_Job, Generation]]:
        """Every job with its continuation, as they come."""
        B, R = self.config.batch_size, self.config.refill
        for bucket, jobs in sorted(by_bucket.items()):
            self.shapes.add(
                (bucket, rules.temperature is not None, rules.top_p is not None, constraint is not None)
            )
            waiting = deque(jobs)
            held: list[_Job | None] = [None] * B
            slots = self._compute(_open, bucket, constraint is not None)
            while waiting or any(held):
                free = [slot for slot, job in enumerate(held) if job is None]
                while waiting and len(free) >= min(R, len(waiting)):
                    taken = {free.pop(0): waiting.popleft() for _ in range(min(R, len(waiting)))}
                    for slot, job in taken.items():
                        held[slot] = job
                    arrivals = self._arrivals(bucket, taken, prompts, constraint)
                    slots = self._compute(_refill, self.params, slots, arrivals, sampling.seed, rules)
                least = B - R + 1 if waiting else 1
                slots = self._compute(_advance, self.params, slots, least, rules)
                active_B, counts_B, out_BxN, logprobs_BxN = jax.device_get(
                    (slots.active_B, slots.counts_B, slots.out_BxN, slots.logprobs_BxN)
                )
                for slot, job in enumerate(held):
                    if job is not None and not active_B[slot]:
                        held[slot], count = None, counts_B[slot]
                        ids, logprobs = out_BxN[slot, :count], logprobs_BxN[slot, :count]
                        yield job, Generation(ids.tolist(), logprobs.tolist())

    def _compute(self, function: Callable[..., _Slots], *arguments: Any) -> _Slots:
        """Call one of the jitted functions under the mesh."""
        with nullcontext() if self.mesh is None else jax.set_mesh(self.mesh):
            return function(self.model, self.config, *arguments)

    def _arrivals(
        self,
        bucket: int,
        taken: dict[int, _Job],
        prompts: Sequence[Sequence[int]],
        constraint: Constraint | None,
    ) -> _Arrivals:
        B, R = self.config.batch_size, self.config.refill
        arrivals = _Arrivals(
            slots_R=np.full(R, B, np.int32),
            tokens_RxP=np.zeros((R, bucket), np.int32),
            lengths_R=np.zeros(R, np.int32),
            prompts_R=np.zeros(R, np.uint32),
            samples_R=np.zeros(R, np.uint32),
            allowed_RxV=None if constraint is None else np.ones((R, self.model.vocab_size), bool),
        )
        for row, (slot, job) in enumerate(taken.items()):
            prompt = prompts[job.prompt]
            arrivals.slots_R[row] = slot
            arrivals.tokens_RxP[row, : len(prompt)] = prompt
            arrivals.lengths_R[row] = len(prompt)
            arrivals.prompts_R[row] = checksum(prompt)
            arrivals.samples_R[row] = job.sample
            if constraint is not None and arrivals.allowed_RxV is not None:
                arrivals.allowed_RxV[row] = constraint.allowed_V(job.prompt)
        return arrivals
