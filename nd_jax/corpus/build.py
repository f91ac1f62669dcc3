"""Builds a package corpus: a recipe's packages, their own suites recorded, one trace dataset in the end.

In the corpus's folder::

    packages/NAME/       a trace dataset of each package whose suite ran, complete as soon as it is there
    packages/NAME.json   what came of the package (`Report`)
    traces/              all packages' distinct traces, with the data card
    work/                archives, environments, suites under way; may be removed

A killed build continues: packages that are done are kept, the one under way begins anew, and the last dataset
goes on from its journal. Every suite runs twice, under different hash seeds, and a call counts that both runs
recorded alike: so another build records it too.
"""

import dataclasses
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import nd_jax
from nd_jax.console import console, track
from nd_jax.corpus.archives import Failed, fetch, look_into, make_environment, unpack
from nd_jax.corpus.collected import content_of, read_calls, split_of_call
from nd_jax.corpus.recipe import Package, Recipe, SuiteLimits
from nd_jax.corpus.suite import Job, Outcome
from nd_jax.errors import UserError
from nd_jax.files import write_json
from nd_jax.tracing.dataset import TraceDataset, TraceWriter, finished, open_traces
from nd_jax.tracing.schema import Trace

Status = Literal["ok", "tests fail", "needs the network", "hangs", "dies", "no calls", "not installed"]
_HASH_SEEDS = ("0", "1")


@dataclass(frozen=True)
class Report:
    """What came of one package.

    Attributes:
      status: in a word; a package whose tests fail, hang or die gives the calls recorded until then.
      detail: what to know beside it.
      tests: number of tests by outcome, first run.
      network: how often the suite asked for the network, which it does not have.
      traces: calls that both runs recorded alike.
      dropped: calls without a trace, by reason.
    """

    name: str
    version: str
    licence: str
    status: Status
    detail: str = ""
    tests: dict[str, int] = field(default_factory=dict)
    network: int = 0
    traces: int = 0
    dropped: dict[str, int] = field(default_factory=dict)


def build(recipe: Recipe, out: Path, workers: int, verify: bool = True) -> tuple[TraceDataset, list[Report]]:
    """Build a corpus, or go on with one; a finished one is opened.

    Args:
      recipe: what it is made of.
      out: its folder.
      workers: suites that run at the same time.
      verify: run each suite twice, and keep what both runs recorded alike.

    Raises:
      UserError: `out` was begun with another recipe or holds something else, no package gave a trace, or the
        disk is full.
    """
    try:
        _claim(recipe, out, verify)
        reports = _packages(recipe, out, workers, verify)
        return _merge(recipe, out, reports), reports
    except OSError as error:
        raise UserError(f"{out}: {error.strerror or error}; mend it, and the same command goes on") from error


def _claim(recipe: Recipe, out: Path, verify: bool) -> None:
    """Make the folder this recipe's, or see that it is."""
    path = out / "recipe.json"
    settings = json.loads(json.dumps({**asdict(recipe), "verify": verify}))
    if path.exists():
        if json.loads(path.read_text(encoding="utf-8")) != settings:
            raise UserError(
                f"{out} was begun with another recipe or other settings; give another folder, or remove it"
            )
        return
    if out.exists() and any(entry.name != "recipe.json.partial" for entry in out.iterdir()):
        raise UserError(f"{out} is not empty and holds no corpus; give a new folder")
    out.mkdir(parents=True, exist_ok=True)
    write_json(path, settings)


def _packages(recipe: Recipe, out: Path, workers: int, verify: bool) -> list[Report]:
    """Record every package that is not recorded yet; one that could not be installed is tried again."""
    reports: dict[str, Report] = {}
    for package in recipe.packages:
        path = out / "packages" / f"{package.name}.json"
        if path.exists():
            report = Report(**json.loads(path.read_text(encoding="utf-8")))
            if report.status != "not installed":
                reports[package.name] = report
    left = [package for package in recipe.packages if package.name not in reports]
    if reports and left:
        console.print(f"{out}: going on after {len(reports)} packages")
    (out / "packages").mkdir(exist_ok=True)
    with ThreadPoolExecutor(workers) as pool:
        running = [pool.submit(_record, package, recipe, out, verify) for package in left]
        try:
            for done in track(as_completed(running), "recording packages", len(running)):
                report = done.result()
                reports[report.name] = report
                detail = f": {report.detail}" if report.detail else ""
                console.print(
                    f"{report.name} {report.version}: {report.status}, {report.traces} traces{detail}"
                )
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [reports[package.name] for package in recipe.packages]


def _record(package: Package, recipe: Recipe, out: Path, verify: bool) -> Report:
    work, folder = out / "work" / package.name, out / "packages" / package.name
    plain = Report(package.name, package.version, package.licence, "not installed")
    try:
        archive = fetch(package, work / "archive")
        tests = look_into(archive, package).tests
        if not tests:
            raise Failed(f"its source archive has no tests in {', '.join(package.tests)}")
        tree = unpack(archive, work / "tree")
        python = make_environment(work / "environment", archive, (*recipe.requires, *package.requires))
    except Failed as failure:
        report = dataclasses.replace(plain, detail=str(failure))
        write_json(out / "packages" / f"{package.name}.json", asdict(report))
        return report
    seeds = _HASH_SEEDS if verify else _HASH_SEEDS[:1]
    outcomes = [
        _run_suite(package, recipe.limits, python, tree, work / f"run-{seed}", seed) for seed in seeds
    ]
    report = _judge(plain, outcomes[0], work / f"run-{seeds[0]}")
    shutil.rmtree(folder, ignore_errors=True)
    part = work / "dataset"
    shutil.rmtree(part, ignore_errors=True)
    with TraceWriter(part, {"package": asdict(package), "limits": asdict(recipe.limits)}) as writer:
        _fill(writer, [work / f"run-{seed}" for seed in seeds])
    part.rename(folder)
    count = sum(writer.recorded.values())
    report = dataclasses.replace(report, traces=count, dropped=dict(writer.dropped.most_common()))
    if report.status == "ok" and not count:
        report = dataclasses.replace(report, status="no calls", detail="none of its functions was recorded")
    write_json(out / "packages" / f"{package.name}.json", asdict(report))
    return report


def _run_suite(
    package: Package, limits: SuiteLimits, python: Path, tree: Path, out: Path, seed: str
) -> Outcome:
    """Run a suite in a process of its environment, which ends with this one."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    arguments = [
        "-q", "--color=no", "--tb=line", "--continue-on-collection-errors", "-o", "addopts=",
        "-p", "no:cacheprovider", "-p", "no:nd_trace", "-p", "nd_jax.corpus.pytest_plugin",
        "--nd-trace-package", package.module or package.name,
        "--nd-trace-share", "1", "--nd-trace-calls", str(limits.calls),
        "--nd-trace-events", str(limits.events), "-o", f"timeout={limits.test_seconds}",
        "-o", "timeout_func_only=true", "-o", "timeout_method=signal", *package.arguments, *package.tests,
    ]  # fmt: skip
    readable = [str(python.parent.parent.resolve()), str(Path(nd_jax.__file__).resolve().parent)]
    job = Job(str(tree), readable, str(out), arguments, limits.suite_seconds, limits.memory_mb)
    process = subprocess.Popen(
        [str(python), "-m", "nd_jax.corpus.suite"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={"PATH": os.defpath, "PYTHONHASHSEED": seed, "LANG": "C.UTF-8", "TZ": "UTC",
             "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with process, process.stdin:
        process.stdin.write(json.dumps(job._asdict()).encode() + b"\n")
        process.stdin.flush()
        answer, problem = process.stdout.read(), process.stderr.read()
    try:
        return Outcome(**json.loads(answer))
    except (ValueError, TypeError):
        return Outcome(process.returncode or -1, {}, 0, problem.decode("utf-8", "replace")[-300:], [])


def _judge(report: Report, outcome: Outcome, run: Path) -> Report:
    """Say in a word how a suite went."""
    failed = outcome.tests.get("failed", 0) + outcome.tests.get("error", 0)
    log = run / "log.txt"
    said = log.read_bytes()[-2000:].decode("utf-8", "replace").splitlines() if log.exists() else []
    last = next((line.strip() for line in reversed(said) if line.strip()), "")[:200]
    if outcome.exit is None:
        status, detail = "hangs", f"in {outcome.running}" if outcome.running else "before its first test"
    elif outcome.exit not in (0, 1):
        status, detail = "dies", f"status {outcome.exit} {outcome.running or last}".strip()
    elif failed and outcome.network:
        status, detail = "needs the network", f"{failed} tests fail"
    elif failed:
        status, detail = "tests fail", f"{failed} of {sum(outcome.tests.values())}"
    else:
        status, detail = "ok", ""
    return dataclasses.replace(
        report, status=status, detail=detail, tests=outcome.tests, network=outcome.network
    )


def _fill(writer: TraceWriter, runs: list[Path]) -> None:
    """Write the calls that all runs recorded alike; what the first dropped, or recorded alone, is counted."""
    shared: set[str] | None = None
    for run in runs[1:]:
        ids = {found.id for found in _calls(run) if isinstance(found, Trace)}
        shared = ids if shared is None else shared & ids
    for found in _calls(runs[0]):
        if not isinstance(found, Trace):
            writer.drop(found.place, found.reason, found.detail)
        elif shared is not None and found.id not in shared:
            writer.drop(found.id, "differs between runs")
        else:
            writer.add(found, split_of_call(found))


def _calls(run: Path) -> Iterator[Any]:
    return read_calls(run) if any(run.glob("calls-*.jsonl")) else iter(())


def _merge(recipe: Recipe, out: Path, reports: list[Report]) -> TraceDataset:
    """Put the packages' datasets into one, each distinct trace once."""
    folder = out / "traces"
    if finished(folder):
        return open_traces(folder, "all")
    parts = [out / "packages" / package.name for package in recipe.packages]
    datasets = [open_traces(part, "all") for part in parts if part.is_dir()]
    if not any(map(len, datasets)):
        problems = "; ".join(f"{report.name}: {report.status} {report.detail}" for report in reports)
        raise UserError(f"no package gave a trace ({problems})")
    sources = {
        report.name: {"version": report.version, "licence": report.licence}
        for report in reports
        if report.traces
    }
    with TraceWriter(folder, {"packages": sources, "limits": asdict(recipe.limits)}) as writer:
        contents: set[int] = set()
        traces = (trace for dataset in datasets for trace in dataset)
        for trace in track(traces, "writing", sum(map(len, datasets))):
            content = hash(content_of(trace))
            repeated = content in contents
            contents.add(content)
            if writer.has(trace.id):
                continue
            if repeated:
                writer.drop(trace.id, "same trace in another package")
            else:
                writer.add(trace, split_of_call(trace))
        for drop in (drop for dataset in datasets for drop in dataset.dropped()):
            if not writer.has(drop["id"]):
                writer.drop(drop["id"], drop["reason"], drop["detail"])
    return open_traces(folder, "all")
