"""One training step: gradients of the token-weighted loss over microbatches, then the update, all in one
program.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from nd_jax.data.layout import KINDS
from nd_jax.model import transformer
from nd_jax.model.config import ModelConfig
from nd_jax.model.loss import next_token_losses
from nd_jax.training.config import Experiment
from nd_jax.training.guard import watch
from nd_jax.training.optimizer import schedule
from nd_jax.training.state import State

FIELDS = ("tokens", "targets", "weights", "segments", "positions")
"""The fields of a batch, as the loss takes them."""

Batch = dict[str, Any]
"""The rows of a step, each field ``[B, T]``: `FIELDS`, and ``kinds`` where the loss is told by kind too."""

BY_KIND = tuple(f"{what}_{kind}" for what in ("nll", "count") for kind in KINDS[1:])
"""Of the targets of each kind, the sum of the losses, unweighted; of each, their number."""

METRICS = (
    "loss",
    "accuracy",
    "weight",
    "tokens",
    "grad_norm",
    "param_norm",
    "learning_rate",
    "progress",
    "stop",
    "spike",
    "skipped",
    "skipped_in_a_row",
    *BY_KIND,
)
"""What a step reports, in this order in one float32 vector (one transfer): the mean loss in nats per weighted
token; the weighted share of tokens predicted right; the sum of weights; tokens that are no padding; the
global norm of the gradient before clipping; that of the parameters after the update; the learning rate;
what `signals` gave; whether the loss jumped, how many steps were left out so far, and how many up to now;
and `BY_KIND`."""


def signals(rows: int, progress: float, stop: bool) -> np.ndarray:
    """Say how far the run is (0 to 1) and whether this host was asked to stop, for each of its rows: ``[rows,
    2]``.

    The step takes the maximum over the global batch. So all hosts use the same learning rate although their
    clocks differ, and all stop after the same step when any one of them is asked to.
    """
    return np.tile(np.array([progress, stop], np.float32), (rows, 1))


def read_metrics(metrics: jax.Array) -> dict[str, float]:
    """Fetch a step's metrics, waiting for that step to be done."""
    return dict(zip(METRICS, np.asarray(metrics).tolist(), strict=True))


def losses_by_kind(sums: Mapping[str, float]) -> dict[str, float]:
    """Give the mean loss of each kind's targets, of kinds that have any, from sums named as in `BY_KIND`."""
    counted = ((kind, sums[f"count_{kind}"]) for kind in KINDS[1:])
    return {kind: sums[f"nll_{kind}"] / count for kind, count in counted if count}


def loss_sums(model: ModelConfig, params: Any, rows: Batch) -> jax.Array:
    """Run the model on rows; only the first number carries a gradient.

    Returns:
      The weighted sum of losses; the weighted number of targets predicted right; and `BY_KIND`.
    """
    losses = next_token_losses(transformer.bind(model, params), *(rows[name] for name in FIELDS))
    right_BxT = rows["weights"] * losses.correct_BxT
    kinds_BxT = rows.get("kinds", jnp.zeros_like(rows["tokens"]))
    hits = [(kinds_BxT == kind).astype(jnp.float32) for kind in range(1, len(KINDS))]
    nlls = [jax.lax.stop_gradient(losses.nll_BxT) * hit_BxT for hit_BxT in hits]
    # By row first: then devices add up one array, not each number by itself.
    sums_KxB = jnp.stack([jnp.sum(x_BxT, axis=1) for x_BxT in (right_BxT, *nlls, *hits)])
    return jnp.append(losses.loss_sum, jnp.sum(sums_KxB, axis=1))


def make_step(
    experiment: Experiment, optimizer: optax.GradientTransformation, shardings: State
) -> Callable[[State, Batch, jax.Array], tuple[State, jax.Array]]:
    """Make the jitted ``(state, batch, signals) -> (state, metrics)``; the state given to it is used up."""
    model, parts = experiment.model, experiment.train.accumulation

    def loss(params: Any, rows: Batch, total: jax.Array) -> tuple[jax.Array, jax.Array]:
        sums = loss_sums(model, params, rows)
        return sums[0] / total, sums

    def step(state: State, batch: Batch, signals_Bx2: jax.Array) -> tuple[State, jax.Array]:
        params = state["params"]
        # Known before the loss: so microbatches add up to the mean over the whole batch, however their
        # weights differ.
        weight = jnp.sum(batch["weights"])
        total = jnp.where(weight > 0, weight, 1.0)
        gradient = jax.grad(loss, has_aux=True)

        def add(carry: Any, rows: Batch) -> tuple[Any, None]:
            grads = jax.tree.map(jnp.add, carry, gradient(params, rows, total))
            return (jax.lax.with_sharding_constraint(grads[0], shardings["params"]), grads[1]), None

        if parts == 1:
            grads, sums = gradient(params, batch, total)
        else:
            rows = jax.tree.map(lambda x: _split(x, parts), batch)
            first = jax.eval_shape(gradient, params, jax.tree.map(lambda x: x[0], rows), total)
            zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), first)
            (grads, sums), _ = jax.lax.scan(add, zeros, rows)

        progress, stop = jnp.max(signals_Bx2, axis=0)
        rate = experiment.optimizer.learning_rate * schedule(progress, state["step"], experiment.schedule)
        grad_norm = optax.tree.norm(grads)
        guard, spike, skip = watch(state["guard"], sums[0] / total, grad_norm, weight, experiment.guard)
        updates, opt_state = optimizer.update(grads, state["opt_state"], params)
        if "skip" in (experiment.guard.nonfinite, experiment.guard.spike):
            updates = jax.tree.map(lambda update: jnp.where(skip, 0.0, update), updates)
            kept = functools.partial(jnp.where, skip)
            opt_state = jax.tree.map(kept, state["opt_state"], opt_state)
        new_params = jax.tree.map(lambda param, update: param + rate * update, params, updates)
        metrics = jnp.stack([
            *(sums[:2] / total), weight,
            jnp.sum(batch["segments"] > 0).astype(jnp.float32),
            grad_norm, optax.tree.norm(new_params), rate, progress, stop,
            spike, guard["skipped"], guard["skipped_in_a_row"], *sums[2:],
        ])  # fmt: skip
        after = {"step": state["step"] + 1, "params": new_params, "opt_state": opt_state, "guard": guard}
        return after, metrics

    whole = shardings["step"]
    return jax.jit(step, donate_argnums=0, out_shardings=(shardings, whole))


def _split(x_BxT: jax.Array, parts: int) -> jax.Array:
    """Deal the rows into microbatches ``[parts, B / parts, T]``, each device its own, so that none has to
    move.
    """
    return x_BxT.reshape(x_BxT.shape[0] // parts, parts, *x_BxT.shape[1:]).swapaxes(0, 1)
