"""What the command line shows people: tables, progress with an estimate of the time left, figures as JSON."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from rich import box
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

T = TypeVar("T")
console = Console(highlight=False, markup=False)  # what is shown may come from programs, and hold brackets


def track(items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """Yield the items, showing count, elapsed time and time left where the output is a terminal."""
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(),
        TextColumn("left"), TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=console, refresh_per_second=4) as progress:  # drawing takes milliseconds
        yield from progress.track(items, total=total, description=description, update_period=0.25)


def table(title: str, columns: list[str], rows: Iterable[Iterable[Any]]) -> None:
    """Print a table; numbers are right-aligned, fractions have three decimals, None is a dash."""
    shown = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for name in columns:
        shown.add_column(name, justify="left" if name == columns[0] else "right")
    for row in rows:
        shown.add_row(*map(_cell, row))
    console.print(shown)


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def write_json(path: Path | None, figures: dict[str, Any]) -> None:
    """Write a verb's figures for programs to read; does nothing without a path."""
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(figures, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
