"""The loss on held-out rows, while training goes on."""

import functools
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from nd_jax.data.pipeline import RowStream, global_batches
from nd_jax.model.config import ModelConfig
from nd_jax.model.partition import batch_sharding, replicated
from nd_jax.training.config import Experiment
from nd_jax.training.distributed import own_rows, place
from nd_jax.training.loop import Check, Hook
from nd_jax.training.step import BY_KIND, FIELDS, loss_sums, losses_by_kind


def heldout_loss(experiment: Experiment, stream: RowStream) -> Hook:
    """Make the hook that gives ``heldout/loss``, ``heldout/accuracy`` and the losses by kind.

    Args:
      experiment: says how often, and on how many rows.
      stream: from `nd_jax.data.pipeline.open_heldout`; its first rows are taken each time.
    """
    data, config = experiment.data, experiment.heldout

    def call(step: int, params: dict[str, Any], check: Check) -> Mapping[str, float]:
        mesh = jax.tree.leaves(params)[0].sharding.mesh
        sharding = batch_sharding(mesh)
        own = own_rows(sharding, data.global_batch)
        rows = global_batches(stream, data, 0, own)
        total = np.zeros(2 + len(BY_KIND))
        weight = 0.0
        for _ in range(config.batches):
            check()
            arrays = next(rows)
            batch = place(
                {name: arrays[name] for name in (*FIELDS, "kinds")}, sharding, own, data.global_batch
            )
            sums = _evaluator(experiment.model, replicated(mesh))(params, batch)
            total += np.asarray(sums[:-1], np.float64)
            weight += float(sums[-1])
        weight = weight or 1.0
        figures = {"heldout/loss": total[0] / weight, "heldout/accuracy": total[1] / weight}
        by_kind = losses_by_kind(dict(zip(BY_KIND, total[2:], strict=True)))
        figures |= {f"heldout/loss/{kind}": loss for kind, loss in by_kind.items()}
        return {name: float(value) for name, value in figures.items()}

    return Hook(config.every_steps, call)


@functools.cache
def _evaluator(model: ModelConfig, whole: jax.sharding.NamedSharding) -> Any:
    def evaluate(params: Any, batch: Any) -> jax.Array:
        sums = loss_sums(model, params, batch)
        return jax.numpy.append(sums, jax.numpy.sum(batch["weights"]))

    return jax.jit(evaluate, out_shardings=whole)
