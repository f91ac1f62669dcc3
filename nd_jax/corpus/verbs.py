"""The verbs `nd corpus ...`: collect the calls of packages' test suites, and describe datasets."""

from collections.abc import Callable
from pathlib import Path

import tyro


def build(
    recipe: tyro.conf.Positional[Path],
    out: Path,
    workers: int = 2,
    verify: bool = True,
    tokenizer: Path = Path("tokenizer"),
    json: Path | None = None,
) -> None:
    """Build a corpus of packages: install a recipe's packages, record their own tests, write one dataset.

    Each package gets an environment of its own; its suite runs limited and without the network. A package
    that cannot be installed, or whose tests fail or hang, is reported, and the others go on. After a kill the
    same command goes on.

    Examples:
      nd corpus build configs/corpora/small.toml --out corpora/small
      nd trace show corpora/small/traces --index 7

    Args:
      recipe: a recipe file.
      out: folder of the corpus; its traces are in OUT/traces, each package's in OUT/packages.
      workers: suites that run at the same time.
      verify: run each suite twice, under other hash seeds, and keep the calls that both recorded alike.
      tokenizer: directory of the tokenizer that the data card counts with.
      json: also write {recorded, dropped, packages: [{name, status, tests, traces, ...}]} to this file.
    """
    from dataclasses import asdict

    from nd_jax.console import table, write_json
    from nd_jax.corpus.build import build
    from nd_jax.corpus.card import write_card
    from nd_jax.corpus.recipe import read_recipe
    from nd_jax.language.tokenizer import Tokenizer
    from nd_jax.tracing.collect import show_counts

    counting = Tokenizer.load(tokenizer)
    dataset, reports = build(read_recipe(recipe), out, workers, verify)
    columns = ["package", "status", "tests", "traces", "detail"]
    rows = [
        [f"{r.name} {r.version}", r.status, sum(r.tests.values()), r.traces, r.detail[:60]] for r in reports
    ]
    table("packages", columns, rows)
    counts = show_counts(dataset)
    write_card(dataset, counting, SAMPLE)
    write_json(json, {**counts, "packages": list(map(asdict, reports))})


def check(recipe: tyro.conf.Positional[Path], json: Path | None = None) -> None:
    """Say which packages of a recipe have source archives with tests, and are pure Python.

    Archives are downloaded by pip into a temporary folder; nothing is installed.

    Examples:
      nd corpus check configs/corpora/small.toml

    Args:
      recipe: a recipe file.
      json: also write {NAME: {tests, elsewhere, compiled, licence}} to this file.
    """
    import tempfile

    from nd_jax.console import console, table, track, write_json
    from nd_jax.corpus.archives import Failed, fetch, look_into
    from nd_jax.corpus.recipe import read_recipe

    figures, rows = {}, []
    with tempfile.TemporaryDirectory() as folder:
        packages = read_recipe(recipe).packages
        for package in track(packages, "downloading", len(packages)):
            try:
                found = look_into(fetch(package, Path(folder, package.name)), package)
            except Failed as failure:
                figures[package.name] = {"failed": str(failure)}
                rows.append([f"{package.name} {package.version}", None, None, "", str(failure)[:80]])
                continue
            figures[package.name] = found._asdict()
            notes = [f"{len(found.compiled)} compiled files"] if found.compiled else []
            if not found.tests:
                at = f", but {found.elsewhere[0]}" if found.elsewhere else ""
                notes.append(f"no tests in {', '.join(package.tests)}{at}")
            licence = f"{package.licence} ({found.licence})" if found.licence else package.licence
            name = f"{package.name} {package.version}"
            rows.append([name, len(found.tests), len(found.elsewhere), licence, "; ".join(notes)])
    table(str(recipe), ["package", "test files", "elsewhere", "licence (archive's)", "note"], rows)
    fit = sum(bool(item.get("tests")) and not item["compiled"] for item in figures.values())
    console.print(f"{fit} of {len(figures)} have tests and are pure Python")
    write_json(json, figures)


def card(
    dataset: tyro.conf.Positional[Path],
    tokenizer: Path = Path("tokenizer"),
    sample: int = 2000,
    json: Path | None = None,
) -> None:
    """Write the data card of a trace dataset: card.md, card.json and card.png in its folder.

    Examples:
      nd corpus card traces/synthetic
      nd corpus card corpora/small/traces --sample 500

    Args:
      dataset: directory of a trace dataset.
      tokenizer: directory of the tokenizer that tokens are counted with; by default the shipped one.
      sample: on how many traces to count tokens.
      json: also write the card's content to this file.
    """
    from nd_jax.console import console, write_json
    from nd_jax.corpus.card import write_card
    from nd_jax.errors import UserError
    from nd_jax.language.tokenizer import Tokenizer
    from nd_jax.tracing.dataset import open_traces

    if sample < 1:
        raise UserError("--sample must be at least 1")
    figures = write_card(open_traces(dataset, "all"), Tokenizer.load(tokenizer), sample)
    console.print(f"wrote {dataset / 'card.md'}, card.json and card.png")
    write_json(json, figures)


def import_(calls: tyro.conf.Positional[Path], out: Path, json: Path | None = None) -> None:
    """Make a trace dataset of what `pytest --nd-trace` wrote.

    Each distinct call is kept once; all calls of a function fall on one side of the split.

    Examples:
      pytest --nd-trace calls --nd-trace-package mypackage
      nd corpus import calls --out traces/mypackage

    Args:
      calls: the folder that --nd-trace named.
      out: directory of the new dataset.
      json: also write {recorded, dropped: {reason: n}} to this file.
    """
    from nd_jax.console import write_json
    from nd_jax.corpus.collected import read_calls, split_of_call
    from nd_jax.tracing.collect import bring_in, show_counts

    write_json(json, show_counts(bring_in(read_calls(calls), out, split=split_of_call)))


SAMPLE = 2000
"""On how many traces `nd corpus build` counts tokens for its card."""

VERBS: dict[str, Callable[..., None]] = {
    "corpus build": build,
    "corpus check": check,
    "corpus import": import_,
    "corpus card": card,
}
