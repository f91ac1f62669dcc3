"""Next-state accuracy, measured on models whose answers are rigged."""

import json
from collections.abc import Callable
from dataclasses import replace

import jax
import numpy as np
import pytest
from flax import nnx
from forms import FORMS, in_form

from nd_jax.debugger.actions import STEP_INTO
from nd_jax.debugger.policy import PolicyConfig, full_walk
from nd_jax.debugger.tree import StateTree
from nd_jax.errors import UserError
from nd_jax.evaluation.marks import Mark, Marker
from nd_jax.evaluation.states import StatesConfig, evaluate_states, predictor
from nd_jax.language.render import render, write
from nd_jax.language.session import show
from nd_jax.language.symbols import ARG, DEL, EVENTS, STATE_END, pointer
from nd_jax.model import transformer
from nd_jax.model.config import ModelConfig
from nd_jax.programs.program import Program
from nd_jax.tracing.recorder import TraceLimits, trace_program
from nd_jax.tracing.schema import Trace

CONFIG = StatesConfig(sessions=60, row_length=400, batch=4)
PARTS = ("event_line", "bindings", "value")
STEP_ONLY = PolicyConfig(
    **dict.fromkeys(
        (
            "forward_from_root",
            "inverse_from_root",
            "forward_from_anywhere",
            "inverse_from_anywhere",
            "turning",
        ),
        0.0,
    ),
    inverse_step_only=0.0,
    root_skip=0.0,
    inverse_root_skip=0.0,
)


def perfect(tokens: np.ndarray, segments: np.ndarray, positions: np.ndarray) -> np.ndarray:
    return np.roll(tokens, -1, axis=1)


def spoiling(tokenizer, wrong: Callable[[list[int], Mark], list[int]]):
    """A model that is right but for the tokens that `wrong` names, by their place in the session."""
    marker = Marker(tokenizer)

    def predict(tokens: np.ndarray, segments: np.ndarray, positions: np.ndarray) -> np.ndarray:
        predicted = perfect(tokens, segments, positions)
        for b in range(len(tokens)):
            for number in range(1, segments[b].max() + 1):
                (where,) = np.nonzero(segments[b] == number)
                ids = tokens[b, where].tolist()
                for mark in marker.mark(ids):
                    for t in wrong(ids, mark):
                        predicted[b, where[t] - 1] = tokenizer.pad
        return predicted

    return predict


def test_a_perfect_model_scores_one_everywhere(traces, tokenizer):
    figures = evaluate_states(traces, tokenizer, perfect, CONFIG)
    assert set(figures["by_action"]) >= {
        "step_into",
        "step_over",
        "step_return",
        "inv_step_into",
        "inv_step_call",
    }
    for scores in (*figures["by_action"].values(), *figures["by_event"].values(), figures["all"]):
        assert scores["state"] == scores["event_line"] == 1.0
        assert {scores["bindings"], scores["value"]} <= {1.0, None}
        assert scores["state_95"] == [1.0, 1.0]
    assert figures["all"]["n"] == sum(scores["n"] for scores in figures["by_action"].values())
    assert set(figures["by_event"]) == set(EVENTS)
    assert (figures["programs"], figures["sessions"], figures["dropped"]) == (5, 60, {})


def test_states_are_counted_by_skip_and_depth(traces, tokenizer):
    figures = evaluate_states(traces, tokenizer, perfect, CONFIG)
    for kind in ("by_skip", "by_depth"):
        assert sum(scores["n"] for scores in figures[kind].values()) == figures["all"]["n"]
    assert list(figures["by_depth"]) == ["0", "1"]
    assert {"0", "1", "2-3"} <= set(figures["by_skip"])
    walk = evaluate_states(traces, tokenizer, perfect, replace(CONFIG, policy=STEP_ONLY))
    assert list(walk["by_skip"]) == ["0"]


def test_free_running_goes_to_the_first_wrong_state(traces, tokenizer):
    """A model wrong at every exception, and right otherwise, gets as far as the first one."""
    straight, raises = traces[4], traces[2]
    kinds = [event.kind for event in raises.events]
    first, states = kinds.index("exception") - 1, len(kinds) - 1

    def wrong(ids: list[int], mark: Mark) -> list[int]:
        return [mark.begin] if mark.event == "exception" else []

    config = replace(CONFIG, sessions=2, policy=STEP_ONLY)
    running = evaluate_states([straight, raises], tokenizer, spoiling(tokenizer, wrong), config)[
        "free_running"
    ]
    assert running["forward"]["n"] == 2
    assert running["forward"]["whole"] == 0.5
    assert running["forward"]["steps"] == (5 + first) / 2
    assert running["forward"]["after"]["1"] == 1.0
    assert running["forward"]["after"]["4"] == (1 + (first >= 4)) / 2
    assert "32" not in running["forward"]["after"]
    assert first < states
    assert set(evaluate_states(traces, tokenizer, perfect, CONFIG)["free_running"]) == {"forward", "inverse"}


def test_a_model_that_knows_nothing_scores_zero(traces, tokenizer):
    figures = evaluate_states(
        traces, tokenizer, lambda tokens, *_: np.full_like(tokens, tokenizer.pad), CONFIG
    )
    assert [figures["all"][part] for part in ("state", *PARTS)] == [0.0] * 4


def test_an_off_by_one_model_scores_near_zero(traces, tokenizer):
    figures = evaluate_states(traces, tokenizer, lambda tokens, *_: tokens, CONFIG)
    assert figures["all"]["state"] == 0.0


@pytest.mark.parametrize("part", PARTS)
def test_a_model_wrong_on_one_part_loses_that_part_only(traces, tokenizer, part):
    def wrong(ids: list[int], mark: Mark) -> list[int]:
        if part == "event_line":
            return [mark.begin]
        return [mark.end - 1] if mark.part == part else []

    figures = evaluate_states(traces, tokenizer, spoiling(tokenizer, wrong), CONFIG)
    scores = figures["all"]
    assert scores[part] == 0.0
    assert [scores[other] for other in PARTS if other != part] == [1.0, 1.0]
    spoiled = scores["n"] if part == "event_line" else scores[f"n_{part}"]
    assert scores["state"] == pytest.approx(1 - spoiled / scores["n"])


def test_a_model_wrong_on_deletions_loses_bindings_of_those_states_only(traces, tokenizer):
    delete = tokenizer.symbol_id(DEL)

    def wrong(ids: list[int], mark: Mark) -> list[int]:
        return [t for t in range(mark.begin, mark.end) if ids[t] == delete]

    scores = evaluate_states(traces, tokenizer, spoiling(tokenizer, wrong), CONFIG)["all"]
    assert 0.9 < scores["bindings"] < 1.0
    assert scores["event_line"] == scores["value"] == 1.0


def test_a_model_that_says_what_the_baseline_says_gets_its_figures(traces, tokenizer):
    marker = Marker(tokenizer)
    line, state_end = tokenizer.symbol_id(EVENTS["line"]), tokenizer.symbol_id(STATE_END)
    lines = [tokenizer.symbol_id(pointer(number)) for number in range(1, tokenizer.spec.lines + 1)]

    def predict(tokens: np.ndarray, segments: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Say LINE, then the next line's pointer, then the state's end: whatever comes, by position."""
        predicted = np.full_like(tokens, tokenizer.pad)
        for b in range(len(tokens)):
            for number in range(1, segments[b].max() + 1):
                (where,) = np.nonzero(segments[b] == number)
                ids = tokens[b, where].tolist()
                before = next(
                    t for t in range(len(ids)) if ids[t] in map(tokenizer.symbol_id, EVENTS.values())
                )
                for mark in marker.mark(ids):
                    step = -1 if mark.action.startswith("inv_") else 1
                    predicted[b, where[mark.begin] - 1] = line
                    if ids[before + 1] in lines:  # else a return that hides its line
                        index = lines.index(ids[before + 1]) + step
                        predicted[b, where[mark.begin]] = (
                            lines[index] if 0 <= index < len(lines) else tokenizer.pad
                        )
                    predicted[b, where[mark.begin + 1]] = state_end
                    before = mark.begin
        return predicted

    figures = evaluate_states(traces, tokenizer, predict, CONFIG)
    for action, scores in figures["by_action"].items():
        baseline = figures["baselines"][action]
        assert {name: value for name, value in scores.items() if name != "state_95"} == baseline
    assert 0 < figures["baselines"]["step_into"]["state"] < 1


def test_the_baseline_by_hand(traces, tokenizer):
    """Of five step_into states four come on the next line; three of them change nothing."""
    straight = traces[4]
    assert [event.line for event in straight.events] == [1, 2, 3, 4, 5, 5]
    figures = evaluate_states([straight], tokenizer, perfect, StatesConfig(sessions=1, policy=STEP_ONLY))
    assert figures["baselines"] == {
        "step_into": {
            "n": 5, "state": 0.6, "event_line": 0.8, "bindings": 0.75, "value": 0.0, "n_bindings": 4,
            "n_value": 1,
        }
    }  # fmt: skip


def test_the_baseline_stays_in_the_frame(tokenizer):
    """Back from the lambda on line 2 the next line is line 3, but of another frame."""
    program = Program("p", "def f():\n    x = (lambda: 1)()\n    return x\n", "f", "")
    trace = trace_program(program, TraceLimits())
    assert isinstance(trace, Trace)
    assert [(event.line, event.frame) for event in trace.events] == [
        (1, 0), (2, 0), (2, 1), (2, 1), (2, 1), (3, 0), (3, 0),
    ]  # fmt: skip
    figures = evaluate_states([trace], tokenizer, perfect, StatesConfig(sessions=1, policy=STEP_ONLY))
    baseline = figures["baselines"]["step_into"]
    assert [baseline[part] for part in ("state", *PARTS)] == [1 / 6, 1 / 6, 3 / 4, 0.0]


@pytest.mark.parametrize("form", FORMS)
def test_marks_cover_the_states_that_actions_led_to(traces, tokenizer, form):
    tokenizer = in_form(tokenizer, form)
    for trace in traces:
        session = show(StateTree(trace), full_walk(StateTree(trace), STEP_INTO), tokenizer.spec)
        ids, _ = tokenizer.encode(render(session, tokenizer.spec))
        marks = Marker(tokenizer).mark(ids)
        assert [mark.event for mark in marks] == [state.event for state in session.states[1:]]
        for mark, state in zip(marks, session.states[1:], strict=True):
            assert ids[mark.end - 1] == tokenizer.symbol_id(STATE_END)
            assert (mark.part == "bindings") == (state.locals is not None)
            assert (mark.part == "value") == (state.value is not None)
            assert mark.part != "value" or ids[mark.rest[0]] == tokenizer.symbol_id(ARG)
            assert sorted(mark.event_line + mark.rest) == list(range(mark.begin, mark.end))
            where = tokenizer.segments(ids[t] for t in mark.event_line)
            said = [segment.text for segment in where if segment.kind == "source"]
            assert said == [session.context[state.line - 1] + "\n"] * tokenizer.spec.echo_line
            assert pointer(state.line) in [segment.text for segment in where]


@pytest.mark.parametrize("form", FORMS)
def test_the_baseline_is_the_same_in_every_form(traces, tokenizer, form):
    """Where no name is deleted, which a form with all names does not write."""
    compared = 0
    for tree in map(StateTree, traces):
        session = show(tree, full_walk(tree, STEP_INTO), tokenizer.spec)
        if DEL not in write(session):
            plain, other = (
                Marker(some).mark(some.encode_session(session).ids)
                for some in (tokenizer, in_form(tokenizer, form))
            )
            assert [mark[-3:] for mark in plain] == [mark[-3:] for mark in other]
            compared += len(plain)
    assert compared > 20


def test_long_sessions_are_cut_at_a_state_and_hopeless_ones_counted(traces, tokenizer):
    short = StatesConfig(sessions=40, row_length=110, batch=2)
    figures = evaluate_states(traces, tokenizer, perfect, short)
    assert figures["all"]["state"] == 1.0
    assert figures["sessions"] + figures["dropped"]["too long for the row"] == 40
    with pytest.raises(UserError, match="none of 40 sessions fits a row of 20 tokens"):
        evaluate_states(traces, tokenizer, perfect, StatesConfig(sessions=40, row_length=20))
    with pytest.raises(UserError, match="no traces"):
        evaluate_states([], tokenizer, perfect, CONFIG)


def test_the_same_seed_gives_the_same_figures_as_json(traces, tokenizer):
    config = ModelConfig(vocab_size=tokenizer.vocab_size, d_model=16, n_layers=1, head_dim=8, d_ff=16)
    rng = np.random.default_rng(0)  # compiling the real initialisation takes longer than all other tests here
    shapes = nnx.to_pure_dict(transformer.abstract(config)[1])
    params = jax.tree.map(lambda leaf: rng.normal(size=leaf.shape).astype(np.float32), shapes)
    predict = predictor(config, params)
    small = StatesConfig(sessions=20, row_length=256, batch=2)
    once, again = (evaluate_states(traces, tokenizer, predict, small) for _ in range(2))
    assert json.loads(json.dumps(once)) == again
    other = evaluate_states(traces, tokenizer, predict, replace(small, seed=1))
    assert other["all"]["n"] != once["all"]["n"]


def test_the_layout_of_rows_does_not_matter(traces, tokenizer):
    """A model that is right at some positions of a session is judged the same in rows laid out otherwise."""

    def predict(tokens: np.ndarray, segments: np.ndarray, positions: np.ndarray) -> np.ndarray:
        for b in range(len(tokens)):
            starts = tokens[b] == tokenizer.bos
            np.testing.assert_array_equal(np.cumsum(starts) * (segments[b] > 0), segments[b])
            assert not positions[b, starts].any()
            same = segments[b, 1:] == segments[b, :-1]
            assert (np.diff(positions[b])[same & (segments[b, 1:] > 0)] == 1).all()
        return np.where(positions % 7, perfect(tokens, segments, positions), tokenizer.pad)

    few, many = (
        evaluate_states(traces, tokenizer, predict, StatesConfig(sessions=20, row_length=400, batch=batch))
        for batch in (1, 8)
    )
    assert few == many
    assert 0 < few["all"]["state"] < 1
