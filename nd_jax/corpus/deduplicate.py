"""Which traces say what an earlier one said."""

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from nd_jax.corpus.filtering import Removal
from nd_jax.errors import UserError
from nd_jax.programs.splits import normalised_source
from nd_jax.tracing.schema import Trace


@dataclass(frozen=True)
class DeduplicationConfig:
    """What counts as said before."""

    by: Literal["exact", "source"] = "source"
    """exact: the same source, entry and arguments. source: also the same normalised source (names and
    literals abstracted, docstrings, comments and layout gone), with whatever arguments."""

    most: int = 1
    """Most traces of one normalised source; more than 1 keeps several inputs of a function."""


class Duplicates:
    """A rule for `nd_jax.corpus.filtering.filter_traces`: the first ones pass."""

    def __init__(self, config: DeduplicationConfig) -> None:
        """Begin with nothing seen.

        Raises:
          UserError: ``most`` is below 1.
        """
        if config.most < 1:
            raise UserError(f"most={config.most}: of each source at least 1 trace is kept")
        self._config = config
        self._programs: dict[int, str] = {}
        self._sources: dict[int, str] = {}
        self._kept: Counter[int] = Counter()

    def __call__(self, trace: Trace) -> Removal | None:
        """Tell what a trace repeats."""
        program = hash((trace.source, trace.entry, trace.arguments))
        if program in self._programs:
            return Removal("duplicate program", f"the same as {self._programs[program]}")
        if self._config.by == "source":
            source = hash(normalised_source(trace.source))
            if self._kept[source] >= self._config.most:
                return Removal("duplicate source", f"the same, normalised, as {self._sources[source]}")
            self._kept[source] += 1
            self._sources.setdefault(source, trace.id)
        self._programs[program] = trace.id
        return None
