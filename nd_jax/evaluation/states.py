"""Next-state accuracy: how often the model knows what the debugger would show after an action.

Sessions are sampled from traces as in training, with a seed of their own, and given to the model as they
are: teacher forcing, one forward pass, the most likely token at every position. A state is right if all its
tokens are: exactly then greedy decoding from the true history would write it, since up to its first wrong
token both see the same. The parts of a state (`nd_jax.evaluation.marks`) are judged alone, each given the
true tokens before it: ``bindings`` can be right where ``event_line`` is wrong. A part counts only where the
state has it.

So this also tells how far the model gets on its own, writing every state itself (free-running): up to the
first state that is wrong here. ``skip`` is how many states of the trace an action passed over, ``depth`` how
many calls deep the state is.

The baseline says "next line, nothing changed" (for inverse actions, the line before): a line event, the same
frame, no binding. It never says a value.
"""

import functools
import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from nd_jax.console import track
from nd_jax.debugger.actions import FORWARD, INVERSE, is_forward
from nd_jax.debugger.policy import PolicyConfig, sample_trajectory
from nd_jax.debugger.tree import StateTree
from nd_jax.errors import UserError
from nd_jax.evaluation.marks import BINDINGS, VALUE, Mark, Marker
from nd_jax.evaluation.statistics import interval
from nd_jax.language.session import Unrenderable, show
from nd_jax.language.tokenizer import Tokenizer
from nd_jax.model import transformer
from nd_jax.model.config import ModelConfig
from nd_jax.tracing.schema import EVENT_KINDS, Trace

Predict = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""tokens, segments, positions, each `[B, T]` int32 -> the most likely next token everywhere, `[B, T]`."""

SKIPS = (0, 1, 3, 7, 15)
"""Upper ends of the ranges of skipped states."""
DEPTHS = (0, 1, 2)
"""Upper ends of the ranges of depths."""
STEPS = (1, 2, 4, 8, 16, 32)
"""Numbers of steps after which free-running is looked at."""


@dataclass(frozen=True)
class StatesConfig:
    """Which sessions are evaluated, and how they are laid out."""

    sessions: int = 1000
    """Sessions sampled: one on each of the first traces, and further ones where there are fewer traces."""

    row_length: int = 256
    """Tokens per row; a session that is longer is cut after the last state that fits."""

    batch: int = 16
    """Rows of one forward pass."""

    seed: int = 0
    """Seeds the sessions and the resampling of intervals."""

    policy: PolicyConfig = field(default_factory=PolicyConfig)
    """How sessions are sampled."""


@dataclass(frozen=True)
class Encoded:
    """A sampled session as ids, the number of its program, and of each state an action led to: where it is in
    the ids, how many states the action skipped, and how deep it is.
    """

    program: int
    ids: list[int]
    marks: list[Mark]
    skips: list[int]
    depths: list[int]


def predictor(config: ModelConfig, params: dict[str, Any]) -> Predict:
    """Let a model predict. Compiled once for every model configuration and batch shape."""
    return lambda tokens, segments, positions: np.asarray(
        _most_likely(config, params, tokens, segments, positions)
    )


@functools.partial(jax.jit, static_argnums=0)
def _most_likely(
    config: ModelConfig,
    params: dict[str, Any],
    tokens_BxT: jax.Array,
    segments_BxT: jax.Array,
    positions_BxT: jax.Array,
) -> jax.Array:
    model = transformer.bind(config, params)
    return jnp.argmax(model(tokens_BxT, segments_BxT, positions_BxT), axis=-1)


def evaluate_states(
    traces: Sequence[Trace], tokenizer: Tokenizer, predict: Predict, config: StatesConfig
) -> dict[str, Any]:
    """Measure next-state accuracy.

    Returns:
      ``by_action``: for every action that occurred ``{n, state, event_line, bindings, value}``: the number of
      states, and the share of right ones of those that have the part (None where none has; ``n_bindings`` and
      ``n_value`` say how many have), with ``state_95``, a bootstrap interval over programs for ``state``.
      ``by_event``, ``by_skip``, ``by_depth`` and ``all`` likewise. ``baselines``: the baseline's figures by
      action. ``free_running``: by direction of a session's first action ``{n, whole, steps, after}``:
      sessions, the share right to their end, mean number of states before the first wrong one, and by number
      of steps the share still right of the sessions that have so many. Also ``programs``, ``sessions``, and
      ``dropped``: sessions left out, by reason.

    Raises:
      UserError: there are no traces, or none gives a session that fits a row.
    """
    if not len(traces):
        raise UserError("no traces to evaluate on: record more programs, or name another split")
    dropped: Counter[str] = Counter()
    sessions = list(_sample(traces, tokenizer, config, dropped))
    if not sessions:
        raise UserError(
            f"none of {config.sessions} sessions fits a row of {config.row_length} tokens: {dict(dropped)}"
        )
    wrong = _wrong_tokens(sessions, predict, config, tokenizer.pad)
    scores = _Scores(sessions, wrong, config.seed)
    marks = scores.marks
    actions = [action for action in (*FORWARD, *INVERSE) if any(mark.action == action for mark in marks)]
    events = [event for event in EVENT_KINDS if any(mark.event == event for mark in marks)]
    by_action = {action: np.array([mark.action == action for mark in marks]) for action in actions}
    by_event = {event: np.array([mark.event == event for mark in marks]) for event in events}
    skips = np.array([skip for session in sessions for skip in session.skips])
    depths = np.array([depth for session in sessions for depth in session.depths])
    return {
        "by_action": {action: scores.model(chosen) for action, chosen in by_action.items()},
        "baselines": {action: scores.baseline(chosen) for action, chosen in by_action.items()},
        "by_event": {event: scores.model(chosen) for event, chosen in by_event.items()},
        "by_skip": {name: scores.model(chosen) for name, chosen in _ranges(skips, SKIPS)},
        "by_depth": {name: scores.model(chosen) for name, chosen in _ranges(depths, DEPTHS)},
        "free_running": _free_running(sessions, wrong),
        "all": scores.model(np.ones(len(marks), bool)),
        "programs": len({session.program for session in sessions}),
        "sessions": len(sessions),
        "dropped": dict(dropped),
    }


def _sample(
    traces: Sequence[Trace], tokenizer: Tokenizer, config: StatesConfig, dropped: Counter[str]
) -> Iterable[Encoded]:
    marker = Marker(tokenizer)
    room = config.row_length
    for k in range(config.sessions):
        program = k % len(traces)
        tree = StateTree(traces[program])
        rng = random.Random(f"{config.seed}/{k}")
        trajectory = sample_trajectory(tree, rng, config.policy, max_states=max(2, room // 2))
        try:
            session = tokenizer.encode_session(show(tree, trajectory, tokenizer.spec)).cut(room)
        except Unrenderable as error:
            dropped[error.reason] += 1
            continue
        if session.steps:
            marks = marker.mark(session.ids)
            places = [trajectory.start, *(place for _, place in trajectory.steps)][: len(marks) + 1]
            skips = [abs(after - before) - 1 for before, after in itertools.pairwise(places)]
            depths = [tree.events[place].depth for place in places[1:]]
            yield Encoded(program, session.ids, marks, skips, depths)
        else:
            dropped["too long for the row" if trajectory.steps else "one state only"] += 1


def _wrong_tokens(
    sessions: Sequence[Encoded], predict: Predict, config: StatesConfig, pad: int
) -> list[np.ndarray]:
    """For every session, which of its tokens the model did not predict, `[its length]` bool."""
    rows = _pack([len(session.ids) for session in sessions], config.row_length)
    wrong: list[np.ndarray] = [np.zeros(0, bool)] * len(sessions)
    shape = (config.batch, config.row_length)
    for first in track(range(0, len(rows), config.batch), "predicting states"):
        tokens, segments, positions = (
            np.full(shape, pad, np.int32),
            np.zeros(shape, np.int32),
            np.zeros(shape, np.int32),
        )
        places: list[tuple[int, int, slice]] = []  # (session, row of the batch, where in the row)
        for b, row in enumerate(rows[first : first + config.batch]):
            begin = 0
            for number, k in enumerate(row, 1):
                where = slice(begin, begin + len(sessions[k].ids))
                tokens[b, where] = sessions[k].ids
                segments[b, where] = number
                positions[b, where] = np.arange(len(sessions[k].ids))
                places.append((k, b, where))
                begin = where.stop
        predicted = predict(tokens, segments, positions)
        for k, b, where in places:
            # Nothing predicts a session's first token.
            wrong[k] = np.concatenate([[True], predicted[b, where][:-1] != tokens[b, where][1:]])
    return wrong


def _pack(lengths: Sequence[int], room: int) -> list[list[int]]:
    """Lay sessions into rows, the longest first, each into the first row with room for it."""
    rows: list[list[int]] = []
    left: list[int] = []
    for k in sorted(range(len(lengths)), key=lambda k: -lengths[k]):
        row = next((r for r, space in enumerate(left) if space >= lengths[k]), len(rows))
        if row == len(rows):
            rows.append([])
            left.append(room)
        rows[row].append(k)
        left[row] -= lengths[k]
    return rows


class _Scores:
    """What was right, state by state, and the figures of any choice of states."""

    def __init__(self, sessions: Sequence[Encoded], wrong: Sequence[np.ndarray], seed: int):
        pairs = [(s, w, mark) for s, w in zip(sessions, wrong, strict=True) for mark in s.marks]
        self.marks = [mark for _, _, mark in pairs]
        self._seed = seed
        self._programs = np.array([session.program for session, _, _ in pairs])
        self._has = {name: np.array([mark.part == name for mark in self.marks]) for name in (BINDINGS, VALUE)}
        self._model = (
            np.array([not w[mark.event_line].any() for _, w, mark in pairs]),
            np.array([not w[mark.rest].any() for _, w, mark in pairs]),
        )
        self._baseline = (
            np.array([mark.baseline_event_line for mark in self.marks]),
            np.array([mark.baseline_rest for mark in self.marks]),
        )

    def model(self, chosen: np.ndarray) -> dict[str, Any]:
        """The model's figures on the chosen states, `[states]` bool."""
        right = (self._model[0] & self._model[1])[chosen]
        between = interval(right, self._programs[chosen], self._seed)
        return {**self._figures(self._model, chosen), "state_95": between}

    def baseline(self, chosen: np.ndarray) -> dict[str, Any]:
        """The baseline's figures on the chosen states."""
        return self._figures(self._baseline, chosen)

    def _figures(self, right: tuple[np.ndarray, np.ndarray], chosen: np.ndarray) -> dict[str, Any]:
        event_line, rest = right
        has = {name: chosen & self._has[name] for name in (BINDINGS, VALUE)}
        return {
            "n": int(chosen.sum()),
            "state": _share((event_line & rest)[chosen]),
            "event_line": _share(event_line[chosen]),
            **{name: _share(rest[states]) for name, states in has.items()},
            **{f"n_{name}": int(states.sum()) for name, states in has.items()},
        }


def _share(right: np.ndarray) -> float | None:
    return float(right.mean()) if len(right) else None


def _ranges(numbers: np.ndarray, ends: Sequence[int]) -> Iterable[tuple[str, np.ndarray]]:
    """The ranges that any of the numbers is in, with which of them are."""
    low = 0
    for high in (*ends, None):
        chosen = (numbers >= low) & ((numbers <= high) if high is not None else True)
        if chosen.any():
            yield (f"{low}+" if high is None else str(low) if low == high else f"{low}-{high}"), chosen
        low = 0 if high is None else high + 1


def _free_running(sessions: Sequence[Encoded], wrong: Sequence[np.ndarray]) -> dict[str, Any]:
    """How far sessions go right, by the direction of their first action."""
    reached: dict[str, list[tuple[int, int]]] = {}  # (right states before the first wrong one, states)
    for session, tokens in zip(sessions, wrong, strict=True):
        right = [not tokens[mark.begin : mark.end].any() for mark in session.marks]
        direction = "forward" if is_forward(session.marks[0].action) else "inverse"
        first = right.index(False) if False in right else len(right)
        reached.setdefault(direction, []).append((first, len(right)))
    return {
        direction: {
            "n": len(pairs),
            "whole": float(np.mean([first == count for first, count in pairs])),
            "steps": float(np.mean([first for first, _ in pairs])),
            "after": {
                str(steps): float(np.mean(still))
                for steps in STEPS
                if (still := [first >= steps for first, count in pairs if count >= steps])
            },
        }
        for direction, pairs in sorted(reached.items())
    }
