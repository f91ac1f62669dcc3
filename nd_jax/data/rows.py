"""Rows as pure functions of their index (DESIGN decision 1).

Row ``i`` owns ``k`` traces of the epoch's shuffled order, ``k`` being the row length over the mean session
length. It samples one trajectory on each with a generator seeded by ``(seed, i)``, renders and tokenises it,
and packs the sessions one after the other; then further sessions of the same traces, to fill. A session that
does not fit is cut after the last state that does. The position of a run in its data is thus one integer, and
a row is the same on any number of hosts.
"""

import hashlib
import json
import random
from collections.abc import Sequence
from dataclasses import asdict
from functools import lru_cache

import grain
import numpy as np

from nd_jax.data.config import DataConfig
from nd_jax.debugger.policy import sample_trajectory
from nd_jax.debugger.tree import StateTree
from nd_jax.errors import UserError
from nd_jax.language.session import Unrenderable, show
from nd_jax.language.symbols import STATE_END, Role
from nd_jax.language.tokenizer import Tokenizer
from nd_jax.tracing.schema import Trace

ROWS = 10**12
"""Length of every source: more rows than a run reads, since the order never wraps."""

SMALLEST_ROOM = 16
"""Tokens below which no session is tried: a context and two states never fit."""


class RowSource:
    """A `grain` random-access source of packed rows over one trace dataset.

    Each row is a dict of arrays ``[row_length]``: ``tokens``, ``targets`` (the next token of the same
    session), ``weights`` (loss weight of the target, 0 where there is none), ``segments`` (the session's
    number in the row from 1; 0 is padding), ``positions`` (from 0 in each session).
    """

    def __init__(self, traces: Sequence[Trace], tokenizer: Tokenizer, config: DataConfig):
        """Estimate the mean session length on a fixed sample of the traces.

        Raises:
          UserError: the dataset is empty, or none of its traces fits a row.
        """
        if not len(traces):
            raise UserError(
                "the trace dataset has no traces of this split: record more programs with `nd trace`"
            )
        self.traces = traces
        self.tokenizer = tokenizer
        self.config = config
        self._state_end = tokenizer.symbol_id(STATE_END)
        self._tree = lru_cache(maxsize=64)(self._load)
        self.mean_tokens = self._mean_tokens()
        self.traces_per_row = max(1, round(config.row_length / self.mean_tokens))

    def __len__(self) -> int:
        """Give the number of rows, past which no run goes."""
        return ROWS

    def __getstate__(self) -> dict:
        """Leave the cache behind when a worker process takes the source over."""
        return {name: value for name, value in self.__dict__.items() if name != "_tree"}

    def __setstate__(self, state: dict) -> None:
        """Give the copy a cache of its own."""
        self.__dict__.update(state)
        self._tree = lru_cache(maxsize=64)(self._load)

    def _load(self, index: int) -> StateTree:
        return StateTree(self.traces[index])

    def _session(self, index: int, rng: random.Random, room: int) -> tuple[list[int], list[int]] | None:
        """Sample, render and encode a session of one trace; ids and roles cut to `room` tokens, or None."""
        tree = self._tree(index)
        trajectory = sample_trajectory(tree, rng, self.config.policy, max_states=room // 2)
        try:
            session = show(tree, trajectory, self.tokenizer.spec)
            ids, roles = self.tokenizer.encode_session(session)
        except Unrenderable:
            return None
        ids, roles = cut(ids, roles, room, self._state_end)
        return (ids, roles) if Role.ACTION in roles else None

    def _mean_tokens(self) -> float:
        sample = range(0, len(self.traces), max(1, len(self.traces) // 256))
        rng = random.Random(self.config.seed)
        room = self.config.row_length
        sessions = [session for index in sample if (session := self._session(index, rng, room))]
        if not sessions:
            raise UserError(
                f"no trace fits a row of {room} tokens with this tokenizer: raise --data.row_length or "
                "record smaller programs"
            )
        return sum(len(ids) for ids, _ in sessions) / len(sessions)

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        """Make a row."""
        config, n, k = self.config, len(self.traces), self.traces_per_row
        rng = random.Random(_hash(config.seed, index))
        tokens: list[int] = []
        roles: list[int] = []
        lengths: list[int] = []
        for j in range(4 * k):
            room = config.row_length - len(tokens)
            if room < SMALLEST_ROOM:
                break
            epoch, place = divmod(index * k + j % k, n)
            seed = _hash(config.seed, epoch) & 0xFFFFFFFF
            trace = _shuffled(place, n, seed)
            if session := self._session(trace, rng, room):
                tokens += session[0]
                roles += session[1]
                lengths.append(len(session[0]))
        return pack(tokens, roles, lengths, config, self.tokenizer.pad)


def cut(ids: list[int], roles: list[int], room: int, state_end: int) -> tuple[list[int], list[int]]:
    """Cut a session to `room` tokens after the last state that fits; nothing is left where none does."""
    if len(ids) <= room:
        return ids, roles
    end = next((t for t in range(room, 0, -1) if ids[t - 1] == state_end), 0)
    return ids[:end], roles[:end]


def pack(
    tokens: Sequence[int], roles: Sequence[int], lengths: Sequence[int], config: DataConfig, pad: int
) -> dict[str, np.ndarray]:
    """Lay sessions, given one after the other with their lengths, into one row of arrays."""
    used, room = len(tokens), config.row_length
    row = {
        "tokens": np.full(room, pad, np.int32),
        "targets": np.full(room, pad, np.int32),
        "weights": np.zeros(room, np.float32),
        "segments": np.zeros(room, np.int32),
        "positions": np.zeros(room, np.int32),
    }
    if not used:
        return row
    by_role = np.zeros(3, np.float32)
    by_role[[Role.CONTEXT, Role.ACTION, Role.STATE]] = (
        config.context_weight, config.action_weight, config.state_weight,
    )  # fmt: skip
    row["tokens"][:used] = tokens
    row["targets"][: used - 1] = row["tokens"][1:used]
    token_weights = by_role[np.asarray(roles)]
    start = 0
    for segment, length in enumerate(lengths, 1):
        stop = start + length
        # The start state is given, as the context is: only states after an action are the model's to say.
        given = start + roles[start:stop].index(Role.ACTION)
        token_weights[start:given] = config.context_weight
        row["weights"][start : stop - 1] = token_weights[start + 1 : stop]
        row["targets"][stop - 1] = pad
        row["segments"][start:stop] = segment
        row["positions"][start:stop] = np.arange(length)
        start = stop
    return row


def fingerprint(config: DataConfig, dataset_fingerprints: Sequence[str], tokenizer: Tokenizer) -> str:
    """Name the rows: equal for two runs exactly when they would train on the same rows in the same order."""
    knobs = asdict(config)
    for name in ("traces", "tokenizer", "threads", "prefetch"):
        del knobs[name]
    text = json.dumps([knobs, list(dataset_fingerprints), tokenizer.fingerprint], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _shuffled(place: int, n: int, seed: int) -> int:
    """Which of n traces stands at a place of the order that the seed gives."""
    return grain.experimental.index_shuffle(place, max_index=n - 1, seed=seed, rounds=4) if n > 1 else 0


def _hash(*numbers: int) -> int:
    """Mix integers into 64 well spread bits, the same on every platform and version."""
    text = ",".join(map(str, numbers)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
