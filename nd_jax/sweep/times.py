"""How long the runs of a study take: by their FLOPs, and better once some are done."""

import time
from collections.abc import Iterable

import numpy as np

from nd_jax.errors import UserError
from nd_jax.sweep import job as jobs
from nd_jax.sweep.study import Job, Plan
from nd_jax.training.chips import CHIPS


class Times:
    """Tells times of jobs. A preparation, of which nothing is known, counts as none."""

    def __init__(self, plan: Plan, flops_per_second: float):
        """Take a speed for runs, until some of the study's are done and tell their own."""
        self._given = flops_per_second
        self._seconds: dict[str, float] = {}
        self._flops: dict[str, float] = {}
        for job in plan.jobs:
            if (seconds := jobs.state(job).seconds) is not None:
                self.measured(job, seconds)

    def measured(self, job: Job, seconds: float) -> None:
        """Learn from a job that is done."""
        if job.flops:
            self._seconds[job.name], self._flops[job.name] = seconds, job.flops

    @property
    def flops_per_second(self) -> float:
        """Speed of the runs that are done, or the one that was given."""
        return sum(self._flops.values()) / sum(self._seconds.values()) if self._seconds else self._given

    def left(self, todo: Iterable[Job], progress: float = 0.0) -> float | None:
        """Seconds that jobs will still take, this share of them being over; None where nothing is known."""
        flops = sum(job.flops for job in todo if job.name not in self._seconds)
        return (1 - progress) * flops / self.flops_per_second if flops else None


def speed(chip: str | None, chips: int, utilisation: float) -> float:
    """FLOP/s of a number of chips at this utilisation; without a chip's name, of this machine's CPU.

    Raises:
      UserError: no such chip.
    """
    if chip is None:
        return utilisation * _measured_matmul()
    if chip not in CHIPS:
        raise UserError(f"no chip {chip!r}; use one of {', '.join(CHIPS)}")
    return utilisation * chips * CHIPS[chip].peak_flops


def _measured_matmul(n: int = 1024, tries: int = 3) -> float:
    """Float32 FLOP/s of the CPU; by numpy, as this process need not import jax."""
    x, seconds = np.ones((n, n), np.float32), []
    for _ in range(tries):
        start = time.perf_counter()
        _ = x @ x
        seconds.append(time.perf_counter() - start)
    return 2.0 * n**3 / min(seconds)
