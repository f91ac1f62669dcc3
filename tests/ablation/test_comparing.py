"""Comparisons of made-up measurements whose figures are known."""

import numpy as np
import pytest

from nd_jax.ablation.comparing import (
    accuracy_table,
    answers_table,
    best,
    compare,
    compare_answers,
    comparison_table,
    difference,
    plot,
)
from nd_jax.ablation.measuring import StateScores


def scores(bits, sessions=None, right=None, action="step_into") -> StateScores:
    n = len(bits)
    sessions = np.arange(n) if sessions is None else np.array(sessions)
    right = np.ones(n, bool) if right is None else np.array(right)
    return StateScores(
        session=sessions, step=np.zeros(n, int), program=sessions, action=np.full(n, action),
        bits=np.array(bits, float), event_line=right, rest=right, part=np.full(n, "value"),
    )  # fmt: skip


def test_only_states_that_all_have_are_compared():
    figures = compare(
        {"base": [scores([1, 2, 3, 4])], "other": [scores([9, 1, 2], sessions=[1, 2, 3])]}, seed=0
    )
    assert figures["base"]["states"] == figures["other"]["states"] == 3
    assert figures["base"]["bits"] == 3
    assert figures["other"]["bits"] == 4
    assert figures["other"]["difference"] == 1
    assert list(figures) == ["base", "other"]


def test_the_interval_of_a_constant_difference_has_no_width():
    base = np.array([1.0, 50.0, 3.0, 400.0])
    found = difference(base - 0.5, base, np.arange(4), seed=0)
    assert found["difference"] == -0.5
    assert found["difference_95"] == [-0.5, -0.5]


def test_the_interval_is_that_of_the_mean():
    rng = np.random.default_rng(0)
    base = rng.normal(20, 10, 2000)
    found = difference(base + rng.normal(1, 2, 2000), base, np.arange(2000), seed=0)
    low, high = found["difference_95"]
    half = 1.96 * 2 / np.sqrt(2000)  # the pairs' own spread, not that of the states
    assert (high - low) / 2 == pytest.approx(half, rel=0.15)
    assert low < 1 < high


def test_states_of_a_program_are_drawn_together():
    change = np.repeat([0.0, 2.0], 500)
    apart = difference(change, 0 * change, np.arange(1000), seed=0)["difference_95"]
    together = difference(change, 0 * change, np.repeat([0, 1], 500), seed=0)["difference_95"]
    assert apart[1] - apart[0] < 0.2
    assert together == [0.0, 2.0]


def test_seeds_are_averaged_state_by_state():
    runs = {"base": [scores([2, 2]), scores([4, 4])], "b": [scores([1, 3]), scores([1, 3])]}
    figures = compare(runs, seed=0)
    assert figures["base"]["bits"] == 3
    assert figures["base"]["seeds"] == [2, 4]
    assert figures["b"]["difference"] == -1


def test_accuracy_by_action_and_field():
    mixed = scores([1, 1, 1, 1], right=[True, False, True, True])
    mixed = mixed._replace(
        action=np.array(["step_into", "step_into", "step_over", "step_over"]),
        part=np.array(["value", "bindings", "bindings", ""]),
    )
    row = compare({"base": [mixed]}, seed=0)["base"]
    assert (row["state"], row["bindings"], row["value"]) == (0.75, 0.5, 1.0)
    assert row["by_action"]["step_into"] == {
        "n": 2, "state": 0.5, "event_line": 0.5, "bindings": 0.0, "value": 1.0
    }  # fmt: skip
    assert row["by_action"]["step_over"]["value"] is None


def test_the_best_go_on_with_the_base():
    figures = {name: {"bits": bits} for name, bits in [("base", 1), ("a", 4), ("b", 2), ("c", 3)]}
    assert best(figures, 2) == ["base", "b", "c"]


def test_table_and_plot():
    figures = compare({"base": [scores([1, 2])], "other": [scores([2, 2])]}, seed=0)
    tokens = {name: {"tokens_mean": 10.0, "tokens_p95": 20.0} for name in figures}
    for shown in (comparison_table("a", figures), accuracy_table("a", figures, tokens)):
        assert all(len(row) == len(shown.columns) for row in shown.rows)
    assert plot({"a": figures}).startswith(b"\x89PNG")


def test_states_right_are_compared_with_the_base_too():
    some = scores([1, 1, 1, 1], right=[True, False, False, False])
    other = scores([1, 1, 1, 1], right=[True, True, True, False])
    row = compare({"base": [some], "other": [other, some]}, seed=0)["other"]
    assert row["state_difference"] == 0.25
    low, high = row["state_difference_95"]
    assert 0 <= low < 0.25 < high <= 0.5


def test_answers_are_compared_program_by_program():
    right = {
        "base": [{"output": [True, False, False, False]}],
        "other": [{"output": [True, True, True, False]}, {"output": [True, True, False, False]}],
    }
    found = compare_answers(right, seed=0)
    assert found["base"]["output"]["difference_95"] == [0.0, 0.0]
    row = found["other"]["output"]
    assert (row["score"], row["seeds"], row["difference"]) == (0.625, [0.75, 0.5], 0.375)
    assert row["difference_95"][0] >= 0
    assert "+0.375" in str(answers_table(found).rows)
