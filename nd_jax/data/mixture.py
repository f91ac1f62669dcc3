"""Rows of several sources in fixed shares, each row still a function of its number."""

from collections.abc import Sequence
from typing import Protocol

from nd_jax.data.layout import Rows
from nd_jax.errors import UserError

PERIOD = 1000
"""Rows after which the order of the sources comes again. Shares are whole rows of it, at least one."""


class RowsByNumber(Protocol):
    """Rows that can be asked for in any order."""

    def __getitem__(self, number: int, /) -> Rows:
        """Give one row."""
        ...


class Mixture:
    """Rows of several sources, those of each in its order and spread evenly."""

    def __init__(self, sources: Sequence[RowsByNumber], weights: Sequence[float]):
        """Fix the order of the sources in a period.

        Raises:
          UserError: there is not one positive weight for each source.
        """
        if len(weights) != len(sources):
            raise UserError(
                f"{len(weights)} --data.weights for {len(sources)} --data.traces: give one for each"
            )
        if min(weights) <= 0:
            raise UserError(f"--data.weights {min(weights):g}: leave the dataset out, or give it a share")
        self._sources = sources
        self._shares = _shares(weights)
        # The k-th of a source's n rows stands at (k + 1/2) / n of the period.
        places = [((2 * k + 1) / n, source, k) for source, n in enumerate(self._shares) for k in range(n)]
        self._order = [(source, k) for _, source, k in sorted(places)]

    def __getitem__(self, number: int) -> Rows:
        """Give one row."""
        period, place = divmod(number, PERIOD)
        source, k = self._order[place]
        return self._sources[source][period * self._shares[source] + k]


def _shares(weights: Sequence[float]) -> list[int]:
    """Share out a period's rows: one each, the others where most of a row is owed."""
    owed = [PERIOD * weight / sum(weights) for weight in weights]
    shares = [max(1, int(rows)) for rows in owed]
    while sum(shares) != PERIOD:
        step = 1 if sum(shares) < PERIOD else -1
        k = max(range(len(owed)), key=lambda k: (step > 0 or shares[k] > 1, step * (owed[k] - shares[k])))
        shares[k] += step
    return shares
