"""What the runs of a study differ in: lists of variations, and ways to combine them.

from nd_jax.sweep import combine

combine.product(
    combine.values("model.d_model", 64, 128),
    combine.zip(combine.values("optimizer.name", "adamw", "muon"),
                combine.values("optimizer.learning_rate", 3e-3, 1e-2)),
)  # four runs
"""

import builtins
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nd_jax.errors import UserError


class Variation(NamedTuple):
    """One way to vary an experiment.

    Attributes:
      name: of the run, and of its folder.
      overrides: values by dotted names of an Experiment's settings; ``config``, without a dot, is another
        config file.
    """

    name: str
    overrides: Mapping[str, Any]


Variations = Sequence[Variation]


def one(name: str, overrides: Mapping[str, Any]) -> list[Variation]:
    """Give one variation with a name of its own."""
    return [Variation(name, overrides)]


def values(setting: str, *choices: Any) -> list[Variation]:
    """Vary one setting, named by its dotted name: ``values("model.d_model", 64, 128)``."""
    short = setting.rpartition(".")[2]
    return [Variation(f"{short}={_text(choice)}", {setting: choice}) for choice in choices]


def product(*lists: Variations) -> list[Variation]:
    """Combine each variation of a list with each of the others."""
    return [_merged(parts) for parts in itertools.product(*lists)]


def zip(*lists: Variations) -> list[Variation]:
    """Combine the first variations of all lists, then the second ones, and so on.

    Raises:
      UserError: the lists differ in length.
    """
    if len(set(map(len, lists))) > 1:
        raise UserError(
            f"zip combines lists of one length, these have {', '.join(str(len(one)) for one in lists)}: "
            "give as many variations in each, or use product"
        )
    return [_merged(parts) for parts in builtins.zip(*lists, strict=True)]


def chain(*lists: Variations) -> list[Variation]:
    """Give the variations of one list after those of the other."""
    return list(itertools.chain(*lists))


def _merged(parts: Sequence[Variation]) -> Variation:
    overrides: dict[str, Any] = {}
    for part in parts:
        if twice := sorted(overrides.keys() & part.overrides.keys()):
            raise UserError(f"{twice[0]} is varied twice, by {part.name} too: vary it in one list")
        overrides |= part.overrides
    return Variation(",".join(part.name for part in parts), overrides)


def _text(choice: Any) -> str:
    """A value as part of a folder's name."""
    if isinstance(choice, (tuple, list)):
        return "+".join(map(_text, choice))
    return str(choice).replace("/", "-").removesuffix(".py")
