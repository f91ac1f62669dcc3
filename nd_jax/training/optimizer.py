"""The update rule and the learning rate's schedule.

The optimizer computes updates for a learning rate of 1; the step scales them by the learning rate of its
moment. So the optimizer's state knows nothing of the schedule, which may follow the clock and may change on
resumption.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from nd_jax.model import transformer
from nd_jax.model.config import ModelConfig
from nd_jax.training.config import OptimizerConfig, ScheduleConfig

Path = tuple[str, ...]
"""Keys from the root of the parameters to one of them."""


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


def make_optimizer(config: OptimizerConfig, model: ModelConfig) -> optax.GradientTransformation:
    """Make the optimizer: its updates, times the learning rate, are to be added to the parameters.

    It clips gradients by their global norm and decays matrices only. Muon follows "Muon is scalable for LLM
    training" (arXiv 2502.16982): its updates are scaled to the root mean square that AdamW's have (0.2).
    """
    clip = optax.clip_by_global_norm(config.clip_norm)
    matrices = {path for path, (axes, _) in logical_axes(model).items() if len(axes) > 1}
    mup = model.mup.d_model > 0
    # muP scales the rule's updates by their matrix's widths; decay, which comes after, is not scaled: the
    # product of learning rate and decay stays what it was (independent decay, arXiv 2309.14322).
    decay_in_rule = 0.0 if mup else config.weight_decay
    scaled = [_by_width(config, model), _decay(config, matrices)] if mup else []
    if config.name == "adamw":
        rule = optax.adamw(
            1.0, b1=config.b1, b2=config.b2, eps=config.eps, weight_decay=decay_in_rule,
            mask=lambda params: _map(matrices.__contains__, params),
        )  # fmt: skip
        return optax.chain(clip, rule, *scaled)
    turned = _muon_axes(model)
    rule = optax.contrib.muon(
        1.0, beta=config.muon_beta, ns_steps=config.muon_iterations, eps=config.eps,
        weight_decay=decay_in_rule, adam_b1=config.b1, adam_b2=config.b2,
        muon_weight_dimension_numbers=lambda params: _map(turned.get, params), consistent_rms=0.2,
    )  # fmt: skip
    # Of what Muon leaves to Adam, optax would decay all or nothing: we decay the matrices (embeddings).
    return optax.chain(clip, rule, *(scaled or [_decay(config, matrices - turned.keys())]))


def _decay(config: OptimizerConfig, paths: set[Path]) -> optax.GradientTransformation:
    """Decay of these parameters, added to finished updates."""
    return optax.add_decayed_weights(
        -config.weight_decay, mask=lambda params: _map(paths.__contains__, params)
    )


def _by_width(config: OptimizerConfig, model: ModelConfig) -> optax.GradientTransformation:
    """Scale the updates of the layers' matrices as muP asks, by how much wider than the base they are.

    AdamW: by 1 / fan-in ("Tensor Programs V", arXiv 2203.03466, table 8). Muon: so that an update's spectral
    norm grows as sqrt(fan-out / fan-in) ("A Spectral Condition for Feature Learning", arXiv 2310.17813; for
    Muon: arXiv 2505.02222, 2602.20937); its rule gives sqrt(max(fan-in, fan-out)). Embeddings, head and norms
    keep Adam's update; the head's logits are shrunk instead (`Transformer.normalise`).
    """
    queries, keys = model.n_heads * model.head_dim, model.n_kv_heads * model.head_dim
    widths = {"embed": model.d_model, "heads": queries, "kv_heads": keys, "mlp": model.d_ff}
    factors = {}
    for path, (axes, stacked) in logical_axes(model).items():
        if not stacked or len(axes) < 2:
            continue
        ends = [axis for axis in axes if axis in widths]
        wider = [model.width(axis) for axis in ends]  # fan-in and fan-out, against the base's
        if config.name == "adamw":
            factors[path] = 1 / wider[0]
        else:
            sizes = [widths[axis] for axis in ends]
            base = [size / times for size, times in zip(sizes, wider, strict=True)]
            factors[path] = (wider[1] / wider[0]) ** 0.5 / (max(sizes) / max(base)) ** 0.5
    return optax.stateless(
        lambda updates, _: jax.tree.map(
            jnp.multiply, updates, _map(lambda path: factors.get(path, 1.0), updates)
        )
    )


def logical_axes(model: ModelConfig) -> dict[Path, tuple[tuple[str, ...], bool]]:
    """Give each parameter's logical axes, and whether all layers are stacked in front of them."""
    told = {}
    for path, variable in nnx.to_flat_state(transformer.abstract(model)[1]):
        axes = variable.get_metadata("axes")
        told[tuple(map(str, path))] = axes, len(variable.get_value().shape) > len(axes)
    return told


def _muon_axes(model: ModelConfig) -> dict[Path, optax.contrib.MuonDimensionNumbers]:
    """Say which axes of the layers' matrices are inputs and which outputs (each layer is handled by itself).

    A matrix reads from the residual stream or writes to it: its `embed` axis comes first or last.
    """
    turned = {}
    for path, (axes, stacked) in logical_axes(model).items():
        if stacked and len(axes) > 1:
            places = tuple(range(1, len(axes) + 1))
            split = 1 if axes[0] == "embed" else len(axes) - 1
            turned[path] = optax.contrib.MuonDimensionNumbers(places[:split], places[split:])
    return turned


def _map(tell: Callable[[Path], Any], params: Any) -> Any:
    """Make a tree like the parameters of what `tell` says of each path."""
    return jax.tree_util.tree_map_with_path(lambda path, _: tell(tuple(str(key.key) for key in path)), params)
