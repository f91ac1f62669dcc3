"""Rows as they are stored, and the arrays that a model is trained on."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nd_jax.data.config import DataConfig
from nd_jax.language.encoded import EncodedSession
from nd_jax.language.tokenizer import Tokenizer

KINDS = ("none", "context", "action", "place", "values")
"""What a target is, by its number in ``kinds``: nothing that is learned; of the program or the start state;
of an action; of a later state's event, line or frame; of the rest of it, names and values."""
CONTEXT, ACTION, PLACE, VALUES = range(1, len(KINDS))


class Rows(NamedTuple):
    """Some rows of packed sessions, without what follows from the loss weights.

    A row's padding counts as a last session of one run, which may have no tokens.

    Attributes:
      tokens: ``[rows, row_length]``.
      runs: tokens of each session's given part (program and start state), then of each action and each state
        in turn; of all rows in order, like the following.
      sessions: how many runs each session has.
      rows: how many sessions each row has.
    """

    tokens: np.ndarray
    runs: np.ndarray
    sessions: np.ndarray
    rows: np.ndarray

    @classmethod
    def of(cls, sessions: Sequence[EncodedSession], row_length: int, pad: int) -> "Rows":
        """Give the row that holds these sessions."""
        parts: list[bytes] = []
        runs: list[int] = []
        for session in sessions:
            parts += session.parts
            parts.append(session.end)
            runs += session.runs
        tokens = np.full((1, row_length), pad, np.int32)
        used = sum(runs)
        tokens[0, :used] = np.frombuffer(b"".join(parts), np.int32)
        return cls(
            tokens,
            np.array([*runs, row_length - used]),
            np.array([*(len(session.parts) - 1 for session in sessions), 1]),
            np.array([len(sessions) + 1]),
        )

    @classmethod
    def join(cls, blocks: Sequence["Rows"]) -> "Rows":
        """Put blocks of rows one after the other."""
        return cls(*map(np.concatenate, zip(*blocks, strict=True)))

    def between(self, first: int, last: int) -> "Rows":
        """Give some of the rows, from `first` up to `last`, which it leaves out."""
        before, end = int(self.rows[:first].sum()), int(self.rows[:last].sum())
        first_run, last_run = int(self.sessions[:before].sum()), int(self.sessions[:end].sum())
        return Rows(
            self.tokens[first:last],
            self.runs[first_run:last_run],
            self.sessions[before:end],
            self.rows[first:last],
        )

    def to_bytes(self, kind: type[np.integer]) -> bytes:
        """Store the rows as integers of one kind."""
        arrays = ([len(self.rows)], self.rows, self.sessions, self.runs, self.tokens.ravel())
        return np.concatenate(arrays).astype(kind).tobytes()

    @classmethod
    def from_bytes(cls, record: bytes, kind: type[np.integer]) -> "Rows":
        """Read what `to_bytes` gave."""
        numbers = np.frombuffer(record, kind).astype(np.int32)
        numbers.flags.writeable = False  # batches are views of it
        count, numbers = numbers[0], numbers[1:]
        rows, numbers = np.split(numbers, [count])
        sessions, numbers = np.split(numbers, [rows.sum()])
        runs, tokens = np.split(numbers, [sessions.sum()])
        return cls(tokens.reshape(count, -1), runs, sessions, rows)


def lay_out(block: Rows, config: DataConfig, tokenizer: Tokenizer) -> dict[str, np.ndarray]:
    """Give the arrays of some rows, each ``[rows, row_length]``.

    Returns:
      ``tokens``, ``targets`` (the next token of the same session), ``weights`` (loss weight of the target, 0
      where there is none), ``kinds`` (what the target is, a number of `KINDS`), ``segments`` (the session's
      number in its row from 1; 0 is padding), ``positions`` (from 0 in each session).
    """
    tokens, runs, sessions, rows = block
    tokens_N = tokens.reshape(-1)
    first_runs = np.cumsum(sessions) - sessions
    lengths = np.add.reduceat(runs, first_runs)
    paddings = np.cumsum(rows) - 1
    ends = np.cumsum(lengths)
    last_tokens = ends[lengths > 0] - 1

    numbers = np.arange(1, len(sessions) + 1) - np.repeat(paddings + 1 - rows, rows)
    numbers[paddings] = 0
    segments = np.repeat(numbers.astype(np.int32), lengths)
    positions = np.arange(tokens.size, dtype=np.int32) - np.repeat((ends - lengths).astype(np.int32), lengths)
    positions *= segments > 0

    # The start state is given, as the program is: only states after an action are the model's to say.
    kind_by_run = np.full(len(runs), VALUES, np.int8)
    kind_by_run[(np.arange(len(runs)) - np.repeat(first_runs, sessions)) % 2 == 1] = ACTION
    kind_by_run[first_runs] = CONTEXT
    kind_by_run[first_runs[paddings]] = 0
    kinds = np.repeat(kind_by_run, runs)
    kinds[(kinds == VALUES) & tokenizer.tells_place[tokens_N]] = PLACE
    kinds[:-1] = kinds[1:]
    kinds[last_tokens] = 0
    place_weight = np.float32(config.state_weight) * np.float32(config.place_weight)
    weight_by_kind = [0, config.context_weight, config.action_weight, place_weight, config.state_weight]
    weights = np.array(weight_by_kind, np.float32)[kinds]
    targets = np.empty_like(tokens_N)
    targets[:-1] = tokens_N[1:]
    targets[last_tokens] = tokenizer.pad
    flat = {"targets": targets, "weights": weights, "kinds": kinds}
    flat |= {"segments": segments, "positions": positions}
    return {"tokens": tokens} | {name: array.reshape(tokens.shape) for name, array in flat.items()}
