"""A recipe: which packages a corpus is collected from, read from a TOML file (``configs/corpora/``)."""

import re
import tomllib
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from nd_jax.errors import UserError

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_PLAIN: dict[Any, str] = {str: "a text", int: "a whole number"}


@dataclass(frozen=True)
class Package:
    """One package of a recipe.

    Attributes:
      name: as the registry has it.
      version: the exact one.
      licence: its SPDX identifier, for the data card.
      module: what is imported, and recorded; by default the name.
      tests: paths in the source archive to give to pytest.
      requires: what the tests need beside the recipe's own requirements, as pip reads it.
      arguments: further arguments for pytest.
      archive: a source archive on this disk to take instead of the registry's.
    """

    name: str
    version: str
    licence: str
    module: str = ""
    tests: tuple[str, ...] = ("tests",)
    requires: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    archive: str = ""


@dataclass(frozen=True)
class SuiteLimits:
    """What one package's test suite may use, and how much of it is recorded."""

    suite_seconds: int = 600
    """Wall-clock time of a whole suite, from its first test on."""
    test_seconds: int = 30
    """Time of one test; a longer one fails."""
    memory_mb: int = 4096
    """Memory of the process."""
    calls: int = 200
    """Most calls of one function that are followed."""
    events: int = 500
    """Most events of one call."""


@dataclass(frozen=True)
class Recipe:
    """Packages, and what all their suites get.

    Attributes:
      packages: in the order of the dataset.
      requires: what every environment gets: pytest and its plugins, with versions, as pip reads it.
    """

    packages: tuple[Package, ...]
    requires: tuple[str, ...] = ("pytest", "pytest-timeout")
    limits: SuiteLimits = field(default_factory=SuiteLimits)


def read_recipe(path: Path) -> Recipe:
    """Read a recipe.

    Raises:
      UserError: the file is missing, is no TOML, or holds what a recipe does not.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; recipes are in configs/corpora/") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is no TOML: {error}") from None
    packages = table.pop("package", [])
    limits = table.pop("limits", {})
    if not isinstance(packages, list) or not packages:
        raise UserError(f"{path} names no packages; it needs a [[package]] with name, version and licence")
    made = tuple(_make(Package, item, f"{path}, package {n}") for n, item in enumerate(packages, 1))
    for package in made:
        if not _NAME.fullmatch(package.name) or not package.version:
            raise UserError(
                f"{path}: {package.name!r} {package.version!r} is no name and version of a package"
            )
    names = [package.name for package in made]
    if len(set(names)) < len(names):
        raise UserError(f"{path} names a package twice: {max(names, key=names.count)}")
    return _make(
        Recipe,
        {**table, "packages": made, "limits": _make(SuiteLimits, limits, f"{path}, limits")},
        str(path),
    )


def _make(kind: Any, table: Any, where: str) -> Any:
    """Make a dataclass of a TOML table, whose keys and types must be its."""
    if not isinstance(table, dict):
        raise UserError(f"{where} is no table")
    known = {item.name: item for item in fields(kind)}
    if unknown := sorted(set(table) - set(known)):
        raise UserError(f"{where}: there is no {unknown[0]!r}; there are {', '.join(known)}")
    values: dict[str, Any] = {}
    for name, value in table.items():
        wanted = known[name].type
        if wanted == tuple[str, ...]:
            fits = isinstance(value, list) and all(isinstance(item, str) for item in value)
            value = tuple(value) if fits else value
        else:  # what is no plain value has been made of its own table before
            fits = type(value) is wanted or wanted not in _PLAIN
        if not fits:
            raise UserError(
                f"{where}: {name} should be {_PLAIN.get(wanted, 'a list of texts')}, not {value!r}"
            )
        values[name] = value
    missing = [name for name in ("name", "version", "licence") if name in known and name not in values]
    if missing:
        raise UserError(f"{where} lacks {', '.join(missing)}")
    return kind(**values)
