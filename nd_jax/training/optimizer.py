"""The update rule and the learning rate's schedule.

The optimizer computes updates for a learning rate of 1; the step scales them by the learning rate of its moment. So
the optimizer's state knows nothing of the schedule, which may follow the clock and may change on resumption.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax

from nd_jax.training.config import OptimizerConfig, ScheduleConfig

STACKED = "blocks"
"""The key of the layers' parameters, each stacked over the layers along its first axis."""

MUON_AXES = {
    # One orthogonalisation for each query of a group, for keys and for values, over all heads together.
    "qkv_DxKxGxDh": optax.contrib.MuonDimensionNumbers(reduction_axis=(1,), output_axis=(2, 4)),
    "out_HxDhxD": optax.contrib.MuonDimensionNumbers(reduction_axis=(1, 2), output_axis=(3,)),
    "gate_up_Dx2xF": optax.contrib.MuonDimensionNumbers(reduction_axis=(1,), output_axis=(3,)),
    "down_FxD": optax.contrib.MuonDimensionNumbers(reduction_axis=(1,), output_axis=(2,)),
}
"""Which axes of the stacked matrices are inputs and outputs; over the others (layers first) Muon works one by one."""


def schedule(progress: jax.typing.ArrayLike, step: jax.typing.ArrayLike, config: ScheduleConfig) -> jax.Array:
    """Give the factor in [0, 1] on the learning rate.

    Args:
      progress: share of the run that is over, in [0, 1]; by steps or by wall time, whichever the run ends by.
      step: steps done before this one, for a warm-up counted in steps.
      config: the schedule's shape.
    """
    progress = jnp.clip(jnp.asarray(progress, jnp.float32), 0.0, 1.0)
    if config.shape == "cosine":
        factor = 0.5 * (1.0 + jnp.cos(jnp.pi * progress))
    elif config.shape == "wsd" and config.decay_share > 0:
        decayed = jnp.clip((progress - (1.0 - config.decay_share)) / config.decay_share, 0.0, 1.0)
        factor = 1.0 - (jnp.sqrt(decayed) if config.decay_shape == "sqrt" else decayed)
    else:
        factor = jnp.ones_like(progress)
    factor = config.floor + (1.0 - config.floor) * factor
    if config.warmup_steps:
        factor *= jnp.minimum(1.0, (jnp.asarray(step, jnp.float32) + 1.0) / config.warmup_steps)
    if config.warmup_share:
        factor *= jnp.minimum(1.0, progress / config.warmup_share)
    return factor


def make_optimizer(config: OptimizerConfig) -> optax.GradientTransformation:
    """Make the optimizer, whose updates are to be multiplied by the learning rate and added to the parameters.

    It clips gradients by their global norm and decays matrices only. Muon follows "Muon is scalable for LLM training"
    (arXiv 2502.16982): updates are scaled to the root mean square that AdamW's have (0.2).
    """
    if config.name == "muon":
        rule = optax.contrib.muon(
            1.0, beta=config.muon_beta, ns_steps=config.muon_iterations, eps=config.eps,
            weight_decay=config.weight_decay, adam_b1=config.b1, adam_b2=config.b2,
            muon_weight_dimension_numbers=_muon_axes, consistent_rms=0.2,
        )  # fmt: skip
        # What Muon leaves to Adam (embeddings, norms) decays as under AdamW: muon's own knob cannot tell norms apart.
        rest = optax.add_decayed_weights(-config.weight_decay, mask=lambda p: _map(_decays_beside_muon, p))
        rule = optax.chain(rule, rest)
    else:
        rule = optax.adamw(
            1.0, b1=config.b1, b2=config.b2, eps=config.eps, weight_decay=config.weight_decay,
            mask=lambda params: _map(is_matrix, params),
        )  # fmt: skip
    return optax.chain(optax.clip_by_global_norm(config.clip_norm), rule)


def is_matrix(path: tuple[str, ...], param: Any) -> bool:
    """Tell matrices from vectors (norm scales), by the place in the parameters and the rank."""
    return param.ndim - (path[0] == STACKED) >= 2


def _decays_beside_muon(path: tuple[str, ...], param: Any) -> bool:
    return is_matrix(path, param) and path[0] != STACKED


def _muon_axes(params: Any) -> Any:
    """Mark what Muon updates: the layers' matrices."""
    return _map(
        lambda path, param: MUON_AXES[path[-1]] if path[0] == STACKED and is_matrix(path, param) else None, params
    )


def _map(tell: Callable[[tuple[str, ...], Any], Any], params: Any) -> Any:
    """Apply `tell` to the path and the value of every leaf."""

    def at(path: tuple[Any, ...], param: Any) -> Any:
        return tell(tuple(str(key.key) for key in path), param)

    return jax.tree_util.tree_map_with_path(at, params)
