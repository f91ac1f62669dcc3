"""A small package with tests of its own, made on disk for the tests of what records it."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import nd_jax

ROOT = Path(nd_jax.__file__).parent.parent

AREAS = '''\
import functools


class Square:
    """A square."""

    sides = 4

    def __init__(self, side):
        """Make one.

        Of any side.
        """
        self.side = side

    @property
    def area(self):
        return _times(self.side, self.side)


def _times(a, b):
    return a * b


if True:

    def total(shapes, *more, start=0, **rest):
        """Sum areas."""
        key = lambda shape: shape.area
        for shape in (*shapes, *more):
            start += key(shape)
        return start


def countdown(n):
    while n:
        yield n
        n -= 1


def rest(n):
    return list(countdown(n))


def following(generator):
    return next(generator)


@functools.lru_cache
def fibonacci(n):
    if n < 0:
        raise ValueError(n)
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


def deep(n):
    return n and deep(n - 1)


def long(n):
    for i in range(n):
        i += 1
    return n


def big(items):
    return len(items)


def adder(n):
    def add(m):
        return n + m

    return add
'''

TESTS = """\
import sys
import unittest

import pytest

from shapes.areas import Square, adder, big, countdown, deep, fibonacci, following, long, rest, total


@pytest.mark.parametrize("side", range(6))
def test_total(side):
    assert total([Square(side)], Square(2), start=1) == side * side + 5


def test_rest():
    assert rest(3) == [3, 2, 1]


def test_begun_before():
    generator = countdown(3)
    assert next(generator) == 3
    assert following(generator) == 2


def test_raises():
    assert fibonacci(5) == 5
    with pytest.raises(ValueError):
        fibonacci(-1)


def test_limits():
    assert deep(200) == 0
    assert long(2000) == 2000
    assert big(list(range(500))) == 500


def test_recursion_ends():
    with pytest.raises(RecursionError):
        deep(10**6)


def test_closure():
    assert adder(1)(2) == 3


def test_no_tracer():
    assert sys.gettrace() is None


class TestCase(unittest.TestCase):
    def test_square(self):
        self.assertEqual(Square(3).area, 9)
"""

FAILS = "from shapes.areas import rest\n\ndef test_fails():\n    assert rest(2) == [1]\n"
HANGS = "from shapes.areas import rest\n\ndef test_hangs():\n    rest(4)\n    while True:\n        pass\n"
NETWORK = """\
import socket

def test_asks():
    socket.create_connection(("localhost", 80))
"""
DRAWS = """\
import random
from shapes.areas import deep

def test_draws():
    for _ in range(5):
        deep(random.randrange(200))
"""
READS = "def test_reads():\n    open({path!r}).read()\n"


def make_package(folder: Path, **more: str) -> Path:
    """Write the package and its tests, and further test files; gives its folder."""
    (folder / "shapes").mkdir(parents=True)
    (folder / "tests").mkdir()
    (folder / "shapes" / "__init__.py").write_text("")
    (folder / "shapes" / "areas.py").write_text(AREAS)
    for name, text in {"test_shapes": TESTS, **more}.items():
        (folder / "tests" / f"{name}.py").write_text(text)
    return folder


def make_archive(path: Path, **more: str) -> Path:
    """Write the package as a source archive."""
    folder = make_package(path.parent / f"{path.name}-tree", **more)
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, "shapes-1.0")
    return path


def run_pytest(folder: Path, *arguments: str, site: str = "") -> "subprocess.CompletedProcess[str]":
    """Run the package's tests with the plugin, in a process of their own."""
    plugin = ["-p", "no:nd_trace", "-p", "nd_jax.corpus.pytest_plugin"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, *arguments]
    path = os.pathsep.join(filter(None, (".", str(ROOT), os.environ.get("PYTHONPATH", ""), site)))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


def make_environment(folder: Path) -> Path:
    """Make what `nd_jax.corpus.archives.make_environment` makes, of the pytest at hand instead of pip's."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    packages = next((folder / "lib").glob("python3*/site-packages"))
    for name in ("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments"):
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        path = Path(spec.origin)
        if path.name == "__init__.py":
            shutil.copytree(path.parent, packages / name)
        else:
            shutil.copy(path, packages)
    (packages / "nd_jax").symlink_to(Path(nd_jax.__file__).parent)
    return folder / "bin" / "python"
