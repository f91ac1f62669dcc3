import jax.numpy as jnp
import pytest

from nd_jax.training.config import GuardConfig
from nd_jax.training.guard import new_guard, watch

NAN = float("nan")


def judge(losses, weights=None, norms=None, **config):
    """Of each step: whether it is a spike and left out; and the guard at the end."""
    guard, seen = new_guard(), []
    for k, loss in enumerate(losses):
        weight = weights[k] if weights else 1.0
        norm = norms[k] if norms else 1.0
        guard, spike, skip = watch(guard, *map(jnp.float32, (loss, norm, weight)), GuardConfig(**config))
        seen.append((bool(spike), bool(skip)))
    return seen, {name: float(value) for name, value in guard.items()}


STEADY = [2.0, 2.1, 1.9, 2.0, 2.1, 1.9]


def test_a_jump_is_judged_by_the_deviation_of_the_losses_before():
    seen, guard = judge([*STEADY, 2.3, 5.0, 2.0], spike="skip", spike_steps=6)
    assert seen[6:] == [(False, False), (True, True), (False, False)]
    assert (guard["skipped"], guard["skipped_in_a_row"], guard["steps"]) == (1, 0, 8)
    assert guard["mean"] == pytest.approx(2.04, abs=0.05)  # the jump did not move it


@pytest.mark.parametrize("policy", ["ignore", "stop"])
def test_a_jump_is_left_out_only_where_asked(policy):
    seen, guard = judge([*STEADY, 9.0], spike=policy, spike_steps=6)
    assert (seen[-1], guard["skipped"]) == ((True, False), 0)


def test_nothing_is_a_jump_before_enough_steps():
    assert judge([*STEADY, 9.0], spike="skip", spike_steps=7)[0][-1] == (False, False)


@pytest.mark.parametrize("policy", ["stop", "skip"])
@pytest.mark.parametrize("what", ["losses", "norms"])
def test_what_is_not_finite_is_left_out_where_asked(policy, what):
    bad = [1.0, NAN, float("inf")]
    given = {"losses": bad} if what == "losses" else {"losses": [1.0] * 3, "norms": bad}
    seen, guard = judge(**given, nonfinite=policy, spike="skip")
    skipped = policy == "skip"
    assert seen == [(False, False), (False, skipped), (False, skipped)]
    assert (guard["skipped_in_a_row"], guard["mean"]) == (2 * skipped, 1.0)


def test_steps_without_weight_tell_nothing():
    assert judge([2.0, 0.0], weights=[1.0, 0.0])[1]["mean"] == 2.0
