"""A ladder of model sizes: every setting of a rung follows from its number of parameters by a rule.

Depth and width grow together (`aspect`), heads keep their size, tokens follow parameters, the batch follows
tokens, the learning rate follows width: as muP asks for hidden matrices (1 / width) or as another exponent.
"""

import dataclasses
import math
from dataclasses import dataclass
from typing import NamedTuple

from nd_jax.errors import UserError
from nd_jax.model.config import ModelConfig
from nd_jax.training.config import Experiment


@dataclass(frozen=True)
class LadderConfig:
    """The rules. `reference_*` name one size at which batch and learning rate were tuned."""

    smallest: float = 1e5
    """Parameters to aim at with the first rung; the nearest shape that the rules allow is taken."""

    largest: float = 3e6
    """Parameters to aim at with the last rung; those between are evenly spaced in logarithm."""

    rungs: int = 5
    """How many sizes."""

    aspect: int = 32
    """Width of the model per layer."""

    head_dim: int = 16
    """Size of one head: widths are multiples of it, and width / head_dim is the number of heads."""

    feed_forward: float = 8 / 3
    """Width of the feed-forward layer per width of the model, rounded up to a multiple of `head_dim`."""

    tokens_per_parameter: float = 20.0
    """Tokens that a rung is trained on, per parameter."""

    reference_width: int = 128
    """Width at which `reference_learning_rate` is right."""

    reference_learning_rate: float = 1e-2
    """Peak learning rate at that width."""

    width_exponent: float = 1.0
    """The learning rate goes as width to minus this: 1 is muP's rule for hidden matrices."""

    reference_tokens: float = 1e7
    """Tokens of the run at which `reference_batch` is right."""

    reference_batch: int = 8
    """Rows of a global batch there."""

    batch_exponent: float = 0.5
    """The batch goes as the run's tokens to this power, rounded to a power of two."""


class Rung(NamedTuple):
    """One size of a ladder.

    Attributes:
      name: by its parameters: ``164k``, ``30m``.
      experiment: all settings.
    """

    name: str
    experiment: Experiment


def rungs(config: LadderConfig, base: Experiment) -> list[Rung]:
    """Compute the sizes, smallest first.

    Args:
      config: the rules.
      base: everything that is the same for all: data, vocabulary, optimizer, schedule.

    Raises:
      UserError: the rules give the same shape twice, or sizes that cannot be.
    """
    if config.rungs < 2 or not 0 < config.smallest < config.largest:
        raise UserError("a ladder needs at least 2 rungs, from a smallest to a larger size")
    growth = (config.largest / config.smallest) ** (1 / (config.rungs - 1))
    wanted = [config.smallest * growth**k for k in range(config.rungs)]
    shapes = _shapes(config, base.model, 2 * config.largest)
    models = [min(shapes, key=lambda shape: abs(math.log(shape.parameters() / size))) for size in wanted]
    for size, model, above in zip(wanted, models, models[1:], strict=False):
        if model == above:
            raise UserError(
                f"ladder: no two shapes near {size:,.0f} parameters with head_dim {config.head_dim} and "
                f"aspect {config.aspect}: give fewer rungs, smaller heads, or a wider range"
            )
    return [Rung(_name(model.parameters()), _experiment(config, base, model)) for model in models]


def tokens(experiment: Experiment) -> int:
    """Tokens that a run of these settings reads, padding included."""
    return (experiment.train.steps or 0) * experiment.data.global_batch * experiment.data.row_length


def flops(experiment: Experiment) -> float:
    """Floating-point operations of a run of these settings (`ModelConfig.flops_per_token`)."""
    return tokens(experiment) * experiment.model.flops_per_token(experiment.data.row_length)


def chip_hours(experiment: Experiment, peak_flops: float, utilisation: float) -> float:
    """Hours that one chip of this peak (FLOP/s) takes for a run at this model FLOPs utilisation."""
    return flops(experiment) / (peak_flops * utilisation * 3600)


def _shapes(config: LadderConfig, base: ModelConfig, most: float) -> list[ModelConfig]:
    """Every shape that the rules allow up to so many parameters, one a width."""
    shapes: list[ModelConfig] = []
    while not shapes or shapes[-1].parameters() < most:
        heads = len(shapes) + 1
        width = heads * config.head_dim
        hidden = math.ceil(width * config.feed_forward / config.head_dim) * config.head_dim
        shapes.append(
            dataclasses.replace(
                base, d_model=width, n_layers=max(1, round(width / config.aspect)), n_heads=heads,
                n_kv_heads=heads, head_dim=config.head_dim, d_ff=hidden,
            )
        )  # fmt: skip
    return shapes


def _experiment(config: LadderConfig, base: Experiment, model: ModelConfig) -> Experiment:
    wanted = config.tokens_per_parameter * model.parameters()
    rows = config.reference_batch * (wanted / config.reference_tokens) ** config.batch_exponent
    batch = 2 ** max(0, round(math.log2(rows)))
    steps = math.ceil(wanted / (batch * base.data.row_length))
    shrink = (config.reference_width / model.d_model) ** config.width_exponent
    return dataclasses.replace(
        base,
        model=model,
        data=dataclasses.replace(base.data, global_batch=batch),
        optimizer=dataclasses.replace(base.optimizer, learning_rate=config.reference_learning_rate * shrink),
        train=dataclasses.replace(base.train, steps=steps),
    )


def _name(parameters: int) -> str:
    return f"{parameters / 1e6:.0f}m" if parameters >= 1e7 else f"{parameters / 1e3:.0f}k"
