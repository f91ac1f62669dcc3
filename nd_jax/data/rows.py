"""Rows as pure functions of their index (DESIGN decision 1).

Row ``i`` owns ``k`` traces of the epoch's shuffled order, ``k`` being the row length over the mean session
length. It samples one session on each with a generator seeded by ``(seed, i)``, and packs them one after the
other; then, to fill, sessions of the next row's traces, and further ones of all these. A session is taken
where its program and a step fit into the room left, and is cut there, after a state. (To cut a row's longest
walk instead fills rows better, 0.95 to 0.93 at 256, and teaches less: what stands at the ends of long walks,
loops' exits and returns, gets rarer.)

The position of a run in its data is thus one integer, and a row is the same on any number of hosts.
"""

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import lru_cache
from typing import Any, NamedTuple

import grain

from nd_jax.data.config import DataConfig
from nd_jax.data.layout import Rows
from nd_jax.debugger.policy import sample_trajectory
from nd_jax.debugger.tree import StateTree
from nd_jax.errors import UserError
from nd_jax.language.encoded import ID_BYTES, EncodedSession
from nd_jax.language.session import Unrenderable, show
from nd_jax.language.tokenizer import Tokenizer
from nd_jax.tracing.schema import Trace

ROWS = 10**12
"""Length of every source: more rows than a run reads, since the order never wraps."""

SAMPLER = 4
"""Version of the way to sample, pack and mix; another version's rows are other rows."""

SMALLEST_ROOM = 16
"""Tokens below which no session is tried."""

FEWEST_OF_STATE = 3
"""Tokens of the shortest state: event, pointer and end; with its action there is one more."""


class _Program(NamedTuple):
    """A trace made ready to sample sessions on."""

    tree: StateTree
    context: bytes
    """Its program, encoded."""
    most_states: int
    """States of a session beyond which none can fit a row."""


class RowSource:
    """A `grain` random-access source of packed rows (`nd_jax.data.layout`) over one trace dataset."""

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
        self._keep_programs()
        self.mean_tokens = self._mean_tokens()
        self.traces_per_row = max(1, round(config.row_length / self.mean_tokens))

    def __len__(self) -> int:
        """Give the number of rows, past which no run goes."""
        return ROWS

    def __getstate__(self) -> dict:
        """Leave the programs at hand behind when a worker process takes the source over."""
        return {name: value for name, value in self.__dict__.items() if name not in ("_program", "_trace_at")}

    def __setstate__(self, state: dict) -> None:
        """Let the copy keep programs of its own."""
        self.__dict__.update(state)
        self._keep_programs()

    def _keep_programs(self) -> None:
        """Keep programs at hand: neighbouring rows use the same."""
        self._program = lru_cache(maxsize=64)(self._read_program)
        self._trace_at = lru_cache(maxsize=64)(self._find_trace)

    def __getitem__(self, index: int) -> Rows:
        """Make a row."""
        k, length = self.traces_per_row, self.config.row_length
        rng = random.Random(_hash(self.config.seed, index))
        programs: list[_Program | None] = []
        sessions: list[EncodedSession] = []
        used = 0
        for attempt in range(4 * k):
            if length - used < SMALLEST_ROOM:
                break
            if attempt < 2 * k:
                programs.append(self._program(self._trace_at(index * k + attempt)))
            program = programs[attempt % (2 * k)]
            if program is None or len(program.context) >= (length - used) * ID_BYTES:
                continue
            if session := self._session(program, rng, length - used):
                if self.config.random_line_numbers:
                    free = self.tokenizer.spec.lines - len(program.tree.lines)
                    session = self.tokenizer.renumber(session, rng.randint(0, free))
                sessions.append(session)
                used += session.length
        return Rows.of(sessions, length, self.tokenizer.pad)

    def _find_trace(self, place: int) -> int:
        """Which trace stands at a place of the order that runs through the epochs."""
        n = len(self.traces)
        epoch, place = divmod(place, n)
        seed = _epoch_seed(self.config.seed, epoch)
        return grain.experimental.index_shuffle(place, max_index=n - 1, seed=seed, rounds=4) if n > 1 else 0

    def _read_program(self, trace: int) -> _Program | None:
        """Make a trace ready; None if the language refuses its program or a row has no room for a session."""
        tree = StateTree(self.traces[trace])
        try:
            context = self.tokenizer.encode_context(tree.lines)
        except Unrenderable:
            return None
        steps = _most_steps(context, self.config.row_length)
        return _Program(tree, context, steps + 1) if steps > 0 else None

    def _session(self, program: _Program, rng: random.Random, room: int) -> EncodedSession | None:
        """Sample, render and encode a session, cut to the room; None if refused or not one step fits."""
        trajectory = sample_trajectory(program.tree, rng, self.config.policy, program.most_states)
        most = _most_steps(program.context, room) + 1  # one that does not fit tells that the session is cut
        if len(trajectory.steps) > most:
            trajectory = trajectory._replace(steps=trajectory.steps[:most])
        try:
            shown = show(program.tree, trajectory, self.tokenizer.spec)
            session = self.tokenizer.encode_session(shown, program.context, room)
        except Unrenderable:
            return None
        return session if session.steps else None

    def _mean_tokens(self) -> float:
        sample = range(0, len(self.traces), max(1, len(self.traces) // 256))
        rng = random.Random(self.config.seed)
        programs = filter(None, map(self._read_program, sample))
        room = self.config.row_length
        lengths = [session.length for program in programs if (session := self._session(program, rng, room))]
        if not lengths:
            raise UserError(
                f"no trace fits a row of {self.config.row_length} tokens with this tokenizer: raise "
                "--data.row_length or record smaller programs"
            )
        return sum(lengths) / len(lengths)


def row_settings(config: DataConfig, datasets: Sequence[str], tokenizer: Tokenizer) -> dict[str, Any]:
    """Give all that decides which rows there are, as JSON holds it: equal settings give the same rows.

    Args:
      config: the settings.
      datasets: the trace datasets' fingerprints.
      tokenizer: what encodes them.
    """
    return {
        "row_length": config.row_length,
        "seed": config.seed,
        "weights": list(config.weights),
        "policy": asdict(config.policy),
        "random_line_numbers": config.random_line_numbers,
        "traces": list(datasets),
        "tokenizer": tokenizer.fingerprint,
        "sampler": SAMPLER,
    }


def fingerprint(config: DataConfig, settings: Mapping[str, Any]) -> str:
    """Name the batches: equal for two runs exactly when they train on the same rows in the same order.

    Args:
      config: the settings.
      settings: what decides the rows (`row_settings`).
    """
    names = ("global_batch", "state_weight", "place_weight", "action_weight", "context_weight")
    text = json.dumps([{name: getattr(config, name) for name in names}, settings], sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _most_steps(context: bytes, room: int) -> int:
    """How many steps fit behind a program and a start state, if all of them are the shortest."""
    return (room - len(context) // ID_BYTES - FEWEST_OF_STATE) // (FEWEST_OF_STATE + 1)


@lru_cache(maxsize=16)
def _epoch_seed(seed: int, epoch: int) -> int:
    return _hash(seed, epoch) & 0xFFFFFFFF


def _hash(*numbers: int) -> int:
    """Mix integers into 64 well spread bits, the same on every platform and version."""
    text = ",".join(map(str, numbers)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
