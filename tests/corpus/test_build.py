import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from shapes import DRAWS, FAILS, HANGS, NETWORK, READS, ROOT, make_archive, make_environment

from nd_jax.corpus import build as building
from nd_jax.corpus.archives import look_into
from nd_jax.corpus.build import build
from nd_jax.corpus.recipe import Package, Recipe, SuiteLimits, read_recipe
from nd_jax.errors import UserError
from nd_jax.tracing.dataset import open_traces
from nd_jax.tracing.pretty import show_trace

LIMITS = SuiteLimits(suite_seconds=600, memory_mb=1024)


@pytest.fixture(scope="session")
def python(tmp_path_factory):
    return make_environment(tmp_path_factory.mktemp("environment") / "env")


@pytest.fixture
def here(monkeypatch, python):
    """Build without pip: every package gets the environment at hand."""
    monkeypatch.setattr(building, "make_environment", lambda *_: python)


def package(folder: Path, name: str, **more: str) -> Package:
    archive = make_archive(folder / f"{name}.tar.gz", **more)
    return Package(name, "1.0", "MIT", module="shapes", archive=str(archive))


def test_builds_what_can_be_built(here, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("x")
    untested = str(make_archive(tmp_path / "untested.tar.gz"))
    packages = (
        package(tmp_path, "good", test_reads=READS.format(path=str(secret))),
        package(tmp_path, "network", test_network=NETWORK),
        Package("absent", "1.0", "MIT", archive=str(tmp_path / "absent.tar.gz")),
        Package("untested", "1.0", "MIT", archive=untested, tests=("elsewhere",)),
    )
    dataset, reports = build(Recipe(packages, limits=LIMITS), tmp_path / "corpus", workers=2)
    by_name = {report.name: report for report in reports}
    assert [report.name for report in reports] == [item.name for item in packages]
    assert by_name["good"].status == "tests fail"  # it cannot read outside of its walls
    assert by_name["good"].tests == {"passed": 14, "failed": 1}
    assert by_name["network"].status == "needs the network"
    assert by_name["absent"].status == by_name["untested"].status == "not installed"
    assert "no tests in elsewhere" in by_name["untested"].detail
    assert by_name["good"].traces == by_name["network"].traces > 10
    assert "total(shapes" in show_trace(next(trace for trace in dataset if trace.entry == "total"))
    assert len(dataset) == by_name["good"].traces  # both are the same package: each distinct trace once
    assert dataset.info["dropped"]["same trace in another package"] == len(dataset)
    assert dataset.info["settings"]["packages"]["good"] == {"version": "1.0", "licence": "MIT"}
    assert len(open_traces(tmp_path / "corpus" / "packages" / "good", "all")) == by_name["good"].traces


def test_a_hanging_suite_is_ended_and_gives_what_it_had(here, tmp_path):
    limits = SuiteLimits(suite_seconds=15, memory_mb=1024)
    hanging = package(tmp_path, "hangs", test_a=FAILS, test_z=HANGS)
    recipe = Recipe((replace(hanging, tests=("tests/test_a.py", "tests/test_z.py")),), limits=limits)
    dataset, (report,) = build(recipe, tmp_path / "corpus", workers=1, verify=False)
    assert report.status == "hangs"
    assert report.detail == "in tests/test_z.py::test_hangs"
    assert [trace.arguments for trace in dataset] == ["2"]


def test_what_tests_draw_is_the_same_in_every_build(here, tmp_path):
    recipe = Recipe((package(tmp_path, "draws", test_draws=DRAWS),), limits=LIMITS)
    first, second = (build(recipe, tmp_path / name, workers=1, verify=False)[0] for name in "ab")
    assert first.fingerprint == second.fingerprint
    verified, _ = build(recipe, tmp_path / "c", workers=1)
    drawn, kept = (sum(trace.entry == "deep" for trace in dataset) for dataset in (first, verified))
    assert kept < drawn  # the second run draws others


def test_a_finished_corpus_is_opened_and_another_recipe_refused(here, tmp_path, monkeypatch):
    recipe = Recipe((package(tmp_path, "good"),), limits=LIMITS)
    first, _ = build(recipe, tmp_path / "corpus", workers=1, verify=False)
    monkeypatch.setattr(building, "_run_suite", None)  # nothing runs again
    again, _ = build(recipe, tmp_path / "corpus", workers=1, verify=False)
    assert again.fingerprint == first.fingerprint
    with pytest.raises(UserError, match="another recipe"):
        build(recipe, tmp_path / "corpus", workers=1, verify=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(UserError, match="holds no corpus"):
        build(recipe, tmp_path / "other", workers=1)


SCRIPT = """
import sys
from pathlib import Path
from nd_jax.corpus import build as building
from nd_jax.corpus.recipe import Package, Recipe, SuiteLimits
building.make_environment = lambda *_: Path(sys.argv[3])
packages = tuple(Package(n, "1.0", "MIT", module="shapes", archive=sys.argv[2]) for n in ("one", "two"))
building.build(Recipe(packages, limits=SuiteLimits(memory_mb=1024)), Path(sys.argv[1]), 1, verify=False)
"""


@pytest.mark.parametrize("moment", ["suite", "write", "merge"])
def test_killed_at_any_moment_it_gives_the_same_records(python, tmp_path, moment):
    archive = make_archive(tmp_path / "one.tar.gz")
    kills = {
        "suite": ("_judge", 1),  # the first package's suite has run, nothing of it is written
        "write": ("split_of_call", 5),  # within the first package's dataset
        "merge": ("content_of", 20),  # within the last dataset
    }
    name, count = kills[moment]
    killing = f"""
import os, signal
from nd_jax.corpus import build as building
real, left = building.{name}, [{count}]
def counted(*arguments):
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments)
building.{name} = counted
"""

    def run(out: Path, text: str) -> int:
        arguments = [str(out), str(archive), str(python)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run([sys.executable, "-c", text, *arguments], env=environment).returncode

    assert run(tmp_path / "whole", SCRIPT) == 0
    assert run(tmp_path / "killed", killing + SCRIPT) == -signal.SIGKILL
    assert run(tmp_path / "killed", SCRIPT) == 0
    whole, again = (open_traces(tmp_path / name / "traces", "all") for name in ("whole", "killed"))
    assert len(whole) > 10
    assert again.fingerprint == whole.fingerprint
    # How often recursion without end is given up depends on the stack; all else is dropped alike.
    for reason in ("argument cut", "too many events", "same trace in another package"):
        assert again.info["dropped"][reason] == whole.info["dropped"][reason] > 0


def test_a_full_disk_is_named_and_the_build_goes_on(here, tmp_path, monkeypatch):
    recipe = Recipe((package(tmp_path, "good"),), limits=LIMITS)
    whole, _ = build(recipe, tmp_path / "whole", workers=1, verify=False)
    add, left = building.TraceWriter.add, [5]

    def full(self, *arguments):
        left[0] -= 1
        if left[0] == 0:
            raise OSError(28, "No space left on device")
        add(self, *arguments)

    monkeypatch.setattr(building.TraceWriter, "add", full)
    with pytest.raises(UserError, match="No space left on device"):
        build(recipe, tmp_path / "corpus", workers=1, verify=False)
    again, _ = build(recipe, tmp_path / "corpus", workers=1, verify=False)
    assert again.fingerprint == whole.fingerprint


def test_archives_tell_their_tests(tmp_path):
    made = package(tmp_path, "good")
    found = look_into(Path(made.archive), made)
    assert found.tests == ["tests/test_shapes.py"]
    assert found.compiled == []
    elsewhere = look_into(Path(made.archive), Package("good", "1.0", "MIT", tests=("shapes/tests",)))
    assert (elsewhere.tests, elsewhere.elsewhere) == ([], ["tests/test_shapes.py"])


RECIPE = '[[package]]\nname = "a"\nversion = "1"\nlicence = "MIT"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no packages"),
        ("[[package", "is no TOML"),
        ('[[package]]\nname = "a"\nversion = "1"', "lacks licence"),
        (RECIPE + 'test = ["tests"]', "there is no 'test'"),
        (RECIPE + 'tests = "tests"', "should be a list of texts"),
        (RECIPE + "module = 1", "should be a text"),
        (RECIPE + "[limits]\nmemory_mb = 1.5", "should be a whole number"),
        (RECIPE + RECIPE, "twice: a"),
        (RECIPE.replace('"a"', '"--pre"'), "is no name"),
    ],
)
def test_recipes_say_what_is_wrong(tmp_path, text, message):
    path = tmp_path / "recipe.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        read_recipe(path)


def test_the_shipped_recipe():
    recipe = read_recipe(ROOT / "configs" / "corpora" / "small.toml")
    assert len(recipe.packages) >= 8
    assert all("==" in requirement for requirement in recipe.requires)


def test_cleans_up(here, tmp_path):
    recipe = Recipe((package(tmp_path, "good"),), limits=LIMITS)
    build(recipe, tmp_path / "corpus", workers=1, verify=False)
    shutil.rmtree(tmp_path / "corpus" / "work")
    build(recipe, tmp_path / "corpus", workers=1, verify=False)
