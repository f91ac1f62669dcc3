"""Source archives and environments of packages, through pip."""

import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import nd_jax
from nd_jax.corpus.recipe import Package

_COMPILED = (".c", ".cc", ".cpp", ".pyx", ".pxd", ".rs", ".f90", ".so", ".pyd")


class Failed(Exception):
    """A package that cannot be had, and why; the others go on."""


class Contents(NamedTuple):
    """What a source archive holds.

    Attributes:
      tests: test files below the recipe's paths.
      elsewhere: test files beside them.
      compiled: files that need a compiler, or are compiled.
      licence: as the archive's own metadata states it.
    """

    tests: list[str]
    elsewhere: list[str]
    compiled: list[str]
    licence: str


def fetch(package: Package, folder: Path) -> Path:
    """Download a package's source archive from the registry into a folder, unless it is there.

    Raises:
      Failed: the registry has none, or does not answer.
    """
    if package.archive:
        path = Path(package.archive)
        if not path.is_file():
            raise Failed(f"{path} is no file")
        return path
    folder.mkdir(parents=True, exist_ok=True)
    if not (found := _archives(folder)):
        wanted = f"{package.name}=={package.version}"
        _pip("download", "--no-deps", "--no-binary", package.name, "--dest", str(folder), wanted)
        found = _archives(folder)
    if not found:
        raise Failed("the registry has no source archive")
    return found[0]


def _archives(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if path.name.endswith((".tar.gz", ".zip", ".tar.bz2"))]


def look_into(archive: Path, package: Package) -> Contents:
    """List the tests of a source archive, and what tells whether it fits a corpus."""
    members = _names(archive)
    names = [PurePosixPath(*PurePosixPath(name).parts[1:]) for name in members]
    tests = [path for path in names if _is_test(path)]
    roots = [PurePosixPath(path) for path in package.tests]
    below = [path for path in tests if any(path.is_relative_to(root) for root in roots)]
    below += [path for path in names if path in roots and path.suffix == ".py" and path not in below]
    return Contents(
        [str(path) for path in below],
        [str(path) for path in tests if path not in below],
        [str(path) for path in names if path.suffix in _COMPILED],
        _licence(archive, members),
    )


def _is_test(path: PurePosixPath) -> bool:
    return path.suffix == ".py" and (path.stem.startswith("test_") or path.stem.endswith("_test"))


def _names(archive: Path) -> list[str]:
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as file:
            return file.namelist()
    with tarfile.open(archive) as file:
        return [member.name for member in file if member.isfile()]


def _licence(archive: Path, members: Sequence[str]) -> str:
    name = next((name for name in members if PurePosixPath(name).match("*/PKG-INFO")), None)
    if name is None:
        return ""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as file:
            text = file.read(name)
    else:
        with tarfile.open(archive) as file:
            member = file.extractfile(name)
            text = b"" if member is None else member.read()
    head = text.decode("utf-8", "replace").partition("\n\n")[0]
    stated = re.findall(
        r"^(?:License(?:-Expression)?: (?!UNKNOWN)|Classifier: License :: .*:: )(.+)$", head, re.M
    )
    return stated[0][:40] if stated else ""


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack a source archive; gives the folder inside, which holds the package."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as file:
            file.extractall(folder)
    else:
        with tarfile.open(archive) as file:
            file.extractall(folder, filter="data")
    inside = [path for path in folder.iterdir() if path.is_dir()]
    return inside[0] if len(inside) == 1 else folder


def make_environment(folder: Path, archive: Path, requires: Sequence[str]) -> Path:
    """Make a virtual environment with a package and what its tests require; gives its interpreter.

    One that is complete is taken as it is. This package is linked into it, without what it requires: the
    plugin needs the standard library and pytest only.

    Raises:
      Failed: something cannot be installed.
    """
    python = folder / "bin" / "python"
    done = folder / "complete"
    if done.exists():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    _pip("--python", str(python), "install", "--no-compile", str(archive), *requires)
    packages = next((folder / "lib").glob("python3*/site-packages"))
    (packages / "nd_jax").symlink_to(Path(nd_jax.__file__).resolve().parent)
    done.touch()
    return python


def _pip(*arguments: str) -> None:
    """Run pip, the one of the environment that nd_jax is in."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "--quiet",
        "--disable-pip-version-check",
        "--no-input",
        *arguments,
    ]
    try:
        ran = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=900)
    except subprocess.TimeoutExpired:
        raise Failed("pip did not answer in 15 minutes") from None
    if ran.returncode:
        lines = [line.strip() for line in ran.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.lower().startswith("error")]
        raise Failed("; ".join(errors[:2] or lines[-1:])[:300] or "pip failed")
