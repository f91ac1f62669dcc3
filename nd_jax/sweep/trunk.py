"""Many token budgets for little more than the price of the largest: decays that branch off one trunk.

The learning rate of a WSD schedule is constant until the decay, so runs that differ in length alone share
their beginning: one trunk is trained at the constant rate, and for every budget only the decay is trained,
from the trunk's checkpoint ("Scaling Laws and Compute-Optimal Training Beyond Fixed Training Durations",
arXiv 2405.18392).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from nd_jax.errors import UserError
from nd_jax.sweep.combine import Variation, one


def trunk_with_decays(
    name: str, overrides: Mapping[str, Any], steps: Sequence[int], decay_share: float = 0.2
) -> list[Variation]:
    """Give a trunk and a decay for every budget; a decay ends as a whole WSD run of so many steps does.

    Args:
      name: of the size; the trunk is ``NAME-trunk``, a decay ``NAME-STEPS``.
      overrides: settings of all of them.
      steps: the budgets, in steps, the trunk's included.
      decay_share: share of a budget's steps that the decay takes.

    Raises:
      UserError: a budget is too short to have both a trunk and a decay.
    """
    starts = [round((1 - decay_share) * budget) for budget in steps]
    if not all(0 < start < budget for start, budget in zip(starts, steps, strict=True)):
        raise UserError(
            f"{name}: budgets of {list(steps)} steps leave none for trunk or decay: give longer ones"
        )
    trunk = {
        **overrides, "schedule.shape": "constant", "train.steps": max(starts),
        "checkpoint.keep_steps": sorted(starts),
    }  # fmt: skip
    found = one(f"{name}-trunk", trunk)
    for start, budget in zip(starts, steps, strict=True):
        decay = {
            **overrides, "schedule.shape": "wsd", "schedule.decay_share": 1 - start / budget,
            "train.steps": budget, "train.start_from": f"{{out}}/{name}-trunk/checkpoints/{start}",
        }  # fmt: skip
        found += one(f"{name}-{budget}", decay)
    return found
