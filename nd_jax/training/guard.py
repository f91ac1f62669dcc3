"""What a step does about a loss that jumps or is not finite, within the compiled step: nothing waits for the
host.

A step is left out whole: parameters and the optimizer's moments stay as they were, and its rows are not seen
again.
"""

import jax
import jax.numpy as jnp

from nd_jax.training.config import GuardConfig

Guard = dict[str, jax.Array]
"""Of the training state: ``mean`` and ``square``, the running means of the loss and of its square, over
``steps`` steps so far; ``skipped``: how many were left out, and ``skipped_in_a_row``: up to now. Scalars."""


def new_guard() -> Guard:
    """Give the guard of step 0."""
    whole = {name: jnp.zeros((), jnp.int32) for name in ("steps", "skipped", "skipped_in_a_row")}
    return whole | {name: jnp.zeros((), jnp.float32) for name in ("mean", "square")}


def watch(
    guard: Guard, loss: jax.Array, grad_norm: jax.Array, weight: jax.Array, config: GuardConfig
) -> tuple[Guard, jax.Array, jax.Array]:
    """Judge a step.

    Args:
      guard: as the step before left it.
      loss: the step's mean loss.
      grad_norm: of its gradient.
      weight: the sum of its rows' weights; a step without any tells nothing.
      config: what is a spike, and what to do.

    Returns:
      The guard after the step; whether the loss jumped; whether to leave the step out.
    """
    finite = jnp.isfinite(loss) & jnp.isfinite(grad_norm)
    deviation = jnp.sqrt(jnp.maximum(guard["square"] - guard["mean"] ** 2, 0.0))
    known = guard["steps"] >= config.spike_steps
    spike = finite & known & (loss > guard["mean"] + config.spike_deviations * deviation)
    skip = jnp.zeros((), bool)
    if config.nonfinite == "skip":
        skip |= ~finite
    if config.spike == "skip":
        skip |= spike
    # A mean over all steps at first, later over about the last `spike_steps`. Spikes do not move it.
    share = 1.0 / jnp.minimum(guard["steps"] + 1, config.spike_steps)
    tells = finite & ~spike & (weight > 0)

    def moved(mean: jax.Array, value: jax.Array) -> jax.Array:
        return jnp.where(tells, mean + share * (value - mean), mean)

    after = {
        "mean": moved(guard["mean"], loss),
        "square": moved(guard["square"], loss**2),
        "steps": guard["steps"] + tells,
        "skipped": guard["skipped"] + skip,
        "skipped_in_a_row": jnp.where(skip, guard["skipped_in_a_row"] + 1, 0),
    }
    return after, spike, skip
