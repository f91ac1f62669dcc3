"""One page about a run, as Markdown and as self-contained HTML.

A page is a list of parts: tables, texts, figures. `settings_table`, `loss_curve`, `states_table` and
`cruxeval_table` make them from the plain dicts that the verbs of `nd` also write as JSON; `write_report`
writes the page.
"""

import base64
import html
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nd_jax.errors import UserError

STATE_FIELDS = ("state", "event_line", "bindings", "value")
VERDICTS = ("official", "strict", "exact")

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1c2733; max-width: 60rem; margin: 2rem auto; }
h1 { font-size: 1.7rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; border-bottom: 1px solid #d5dde5; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .8rem; text-align: right; border-bottom: 1px solid #e6ebf0; }
th:first-child, td:first-child { text-align: left; } th { color: #52606d; font-weight: 600; }
pre { background: #f4f6f8; padding: .8rem 1rem; overflow-x: auto; font-size: .85rem; line-height: 1.35; }
img { max-width: 100%; } p.note { color: #52606d; max-width: 48rem; }
"""


@dataclass(frozen=True)
class Table:
    """A table; floats are shown with three decimals, None as a dash."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""


@dataclass(frozen=True)
class Text:
    """Preformatted text, such as a debugger session."""

    title: str
    text: str
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """A picture, given as the bytes of a PNG file."""

    title: str
    png: bytes
    note: str = ""


Part = Table | Text | Figure


def write_report(directory: Path, title: str, parts: Sequence[Part]) -> Path:
    """Write ``report.html`` (one file, pictures inside) and ``report.md`` (pictures beside it).

    Returns:
      The path of the HTML page.
    """
    directory.mkdir(parents=True, exist_ok=True)
    sections = "\n".join(_html(part) for part in parts)
    page = directory / "report.html"
    page.write_text(
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>\n'
        f"<style>{_STYLE}</style></head>\n<body>\n<h1>{html.escape(title)}</h1>\n{sections}\n</body></html>\n",
        encoding="utf-8",
    )
    lines = [f"# {title}"]
    for part in parts:
        picture = f"{_slug(part.title)}.png"
        if isinstance(part, Figure):
            (directory / picture).write_bytes(part.png)
        lines.append(markdown(part, picture))
    (directory / "report.md").write_text("\n\n".join(lines) + "\n", encoding="utf-8")
    return page


def markdown(part: Part, picture: str = "") -> str:
    """One part as Markdown; `picture` is where a figure's file is."""
    match part:
        case Table():
            head = [list(part.columns), ["---", *["---:"] * (len(part.columns) - 1)]]
            body = [[_cell(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in part.rows]
            text = "\n".join(f"| {' | '.join(row)} |" for row in head + body)
        case Text():
            fence = "```"
            while fence in part.text:
                fence += "`"
            text = f"{fence}\n{part.text.rstrip()}\n{fence}"
        case Figure():
            text = f"![{part.title}]({picture})"
    return "\n\n".join(filter(None, (f"## {part.title}", text, part.note)))


def settings_table(title: str, settings: Mapping[str, Any], note: str = "") -> Table:
    """Names and values, nested mappings as dotted names: a configuration, or facts about the data."""
    return Table(title, ("name", "value"), list(_flat(settings)), note)


def states_table(figures: Mapping[str, Any], title: str = "Next states, held-out programs") -> Table:
    """Next-state accuracy by action, each action's baseline below it (`nd_jax.evaluation.states`)."""
    rows: list[list[Any]] = []
    for action, scores in figures["by_action"].items():
        interval = scores.get("state_95")
        between = f"{interval[0]:.2f}–{interval[1]:.2f}" if interval else None
        rows.append([action, scores["n"], *(scores[field] for field in STATE_FIELDS), between])
        if baseline := figures["baselines"].get(action):
            rows.append(["  baseline", baseline["n"], *(baseline[field] for field in STATE_FIELDS), None])
    note = (
        "Teacher-forced: the true session before the state is given. state: the whole state is right, so "
        "greedy decoding from the same history would give it; the other columns count each part of a state, "
        "the true parts before it given. The baseline says: next line, nothing changed."
    )
    return Table(title, ("action", "n", *STATE_FIELDS, "95 %"), rows, note)


def cruxeval_table(results: Iterable[Mapping[str, Any]], title: str = "CRUXEval") -> Table:
    """Scores of one or both tasks, the trivial baselines below each (`nd_jax.evaluation.cruxeval`)."""
    rows: list[list[Any]] = []
    for result in results:
        rows.append([f"{result['task']}: model", result["n"], *(result[verdict] for verdict in VERDICTS)])
        for name, scores in result["baselines"].items():
            rows.append(
                [f"  {name.replace('_', ' ')}", result["n"], *(scores[verdict] for verdict in VERDICTS)]
            )
    note = (
        "official: equal as the official harness compares, but nothing is executed that is no literal; "
        "strict: the types agree too; exact: the same text."
    )
    return Table(title, ("answers", "n", *VERDICTS), rows, note)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read a run's ``metrics.jsonl``. A last line that was cut off while being written is left out.

    Raises:
      UserError: there is no such file, or another line is not JSON.
    """
    if not path.is_file():
        raise UserError(f"{path}: no metrics there; name the directory that `nd train` wrote to")
    lines = path.read_text(encoding="utf-8").splitlines()
    rows: list[dict[str, Any]] = []
    for number, line in enumerate(lines, 1):
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError as error:
            if number < len(lines):
                raise UserError(f"{path}:{number}: not JSON ({error.msg})") from error
    return rows


def loss_curve(metrics: Sequence[Mapping[str, Any]], x: str = "step", y: Sequence[str] = ("loss",)) -> Figure:
    """Plot losses over steps (or tokens): every record that has both `x` and the loss is a point."""
    from matplotlib.figure import Figure as Plot  # slow to import, and only needed here

    plot = Plot(figsize=(8, 4), dpi=120, layout="constrained")
    axes = plot.subplots()
    for name in y:
        points = [
            (record[x], record[name]) for record in metrics if x in record and record.get(name) is not None
        ]
        if points:
            axes.plot(*zip(*points, strict=True), label=name, linewidth=1.4)
    axes.set_xlabel(x)
    axes.set_ylabel("loss (nats per token)")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.lines:
        axes.legend(frameon=False)
    stream = io.BytesIO()
    plot.savefig(stream, format="png")
    return Figure("Loss", stream.getvalue())


def _html(part: Part) -> str:
    match part:
        case Table():
            head = "".join(f"<th>{html.escape(column)}</th>" for column in part.columns)
            body = "\n".join(
                "<tr>" + "".join(f"<td>{_cell_html(cell)}</td>" for cell in row) + "</tr>"
                for row in part.rows
            )
            inner = f"<table>\n<tr>{head}</tr>\n{body}\n</table>"
        case Text():
            inner = f"<pre>{html.escape(part.text)}</pre>"
        case Figure():
            data = base64.b64encode(part.png).decode("ascii")
            inner = f'<img alt="{html.escape(part.title)}" src="data:image/png;base64,{data}">'
    note = f'\n<p class="note">{html.escape(part.note)}</p>' if part.note else ""
    return f"<h2>{html.escape(part.title)}</h2>\n{inner}{note}"


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def _cell_html(value: Any) -> str:
    text = html.escape(_cell(value))
    indent = len(text) - len(text.lstrip(" "))
    return "&emsp;" * (indent // 2) + text.lstrip(" ")


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + str(name), value


def _slug(title: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in title.lower()).split())
