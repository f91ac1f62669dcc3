"""One page about a run, as Markdown and as self-contained HTML.

A page is a list of parts: tables, texts, pairs of texts, figures. The functions here make them from the plain
dicts that the verbs of `nd` also write as JSON; `write_report` writes the page.
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
body { font: 16px/1.5 system-ui, sans-serif; color: #1c2733; max-width: 60rem; margin: 2rem auto;
       padding: 0 1rem; }
h1 { font-size: 1.7rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; border-bottom: 1px solid #d5dde5; }
div.table { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .25rem .8rem; text-align: right; border-bottom: 1px solid #e6ebf0; }
th:first-child, td:first-child { text-align: left; } th { color: #52606d; font-weight: 600; }
pre { background: #f4f6f8; padding: .8rem 1rem; overflow-x: auto; font-size: .85rem; line-height: 1.35; }
img { max-width: 100%; } p.note { color: #52606d; max-width: 48rem; }
div.pair { display: grid; grid-template-columns: minmax(0, 2fr) minmax(0, 3fr); gap: .8rem; }
@media (max-width: 45rem) { div.pair { grid-template-columns: minmax(0, 1fr); } }
"""


@dataclass(frozen=True)
class Table:
    """A table; shares are shown with three decimals, large numbers with commas, None as a dash."""

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


@dataclass(frozen=True)
class Pair:
    """Two preformatted texts side by side, such as an answer and what really happens."""

    title: str
    left: str
    right: str
    note: str = ""


Part = Table | Text | Pair | Figure


def write_report(directory: Path, title: str, parts: Sequence[Part]) -> Path:
    """Write ``report.html`` (one file, pictures inside) and ``report.md`` (pictures beside it).

    Returns:
      The path of the HTML page.
    """
    directory.mkdir(parents=True, exist_ok=True)
    sections = "\n".join(_html(part) for part in parts)
    page = directory / "report.html"
    page.write_text(
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width"><title>{html.escape(title)}</title>\n'
        f"<style>{_STYLE}</style></head>\n<body>\n<h1>{html.escape(title)}</h1>\n{sections}\n</body></html>\n",
        encoding="utf-8",
        errors="backslashreplace",  # an answer may hold what UTF-8 cannot
    )
    lines = [f"# {title}"]
    for part in parts:
        picture = f"{_slug(part.title)}.png"
        if isinstance(part, Figure):
            (directory / picture).write_bytes(part.png)
        lines.append(markdown(part, picture))
    text = "\n\n".join(lines) + "\n"
    (directory / "report.md").write_text(text, encoding="utf-8", errors="backslashreplace")
    return page


def markdown(part: Part, picture: str = "") -> str:
    """One part as Markdown; `picture` is where a figure's file is."""
    match part:
        case Table():
            head = [list(part.columns), ["---", *["---:"] * (len(part.columns) - 1)]]
            body = [[_cell(cell).replace("|", "\\|").replace("\n", " ") for cell in row] for row in part.rows]
            text = "\n".join(f"| {' | '.join(row)} |" for row in head + body)
        case Text():
            text = _fenced(part.text)
        case Pair():
            text = f"{_fenced(part.left)}\n\n{_fenced(part.right)}"
        case Figure():
            text = f"![{part.title}]({picture})"
    return "\n\n".join(filter(None, (f"## {part.title}", text, part.note)))


def _fenced(text: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}\n{text.rstrip()}\n{fence}"


def settings_table(title: str, settings: Mapping[str, Any], note: str = "") -> Table:
    """Names and values, nested mappings as dotted names: a configuration, or facts about the data."""
    return Table(title, ("name", "value"), list(_flat(settings)), note)


def states_table(figures: Mapping[str, Any], title: str = "Next states, held-out programs") -> Table:
    """Next-state accuracy by action, each action's baseline below it (`nd_jax.evaluation.states`)."""
    rows: list[list[Any]] = []
    for action, scores in figures["by_action"].items():
        interval = scores.get("state_95")
        rows.append([action, scores["n"], *(scores[field] for field in STATE_FIELDS), _between(interval)])
        if baseline := figures["baselines"].get(action):
            rows.append(["  baseline", baseline["n"], *(baseline[field] for field in STATE_FIELDS), None])
    note = (
        "Teacher-forced: the true session before the state is given. state: the whole state is right, so "
        "greedy decoding from the same history would give it; the other columns count each part of a state, "
        "the true parts before it given. The baseline says: next line, nothing changed."
    )
    return Table(title, ("action", "n", *STATE_FIELDS, "95 %"), rows, note)


def states_details(figures: Mapping[str, Any], where: str) -> list[Table]:
    """Next-state accuracy by event, skip and depth; how far free-running goes; inverse calls by execution."""
    kinds = {"event": "by_event", "skip": "by_skip", "depth": "by_depth"}
    rows = [
        [
            f"{kind}: {name}",
            scores["n"],
            *(scores[part] for part in STATE_FIELDS),
            _between(scores["state_95"]),
        ]
        for kind, group in kinds.items()
        for name, scores in figures[group].items()
    ]
    note = "skip: states of the trace that the action passed over; depth: calls that the state is deep in."
    tables = [Table(f"Next states by kind: {where}", ("states", "n", *STATE_FIELDS, "95 %"), rows, note)]
    steps = sorted({int(k) for run in figures["free_running"].values() for k in run["after"]})
    rows = [
        [name, run["n"], run["whole"], run["steps"], *(run["after"].get(str(k)) for k in steps)]
        for name, run in figures["free_running"].items()
    ]
    columns = ("sessions", "n", "whole", "steps", *(f"after {k}" for k in steps))
    note = (
        "The model writes every state itself. whole: sessions right to their end; steps: mean number of "
        "states before the first wrong one; after k: still right, of the sessions that have k steps."
    )
    tables.append(Table(f"Free-running: {where}", columns, rows, note))
    if executed := figures.get("inverse_by_execution"):
        row = ["entry call from the return", executed["n"], executed["returns_it"], executed["same_call"]]
        note = "returns it: the call that the model names gives it when run; same call: it is the real one."
        title = f"Inverse predictions, executed: {where}"
        tables.append(Table(title, ("question", "n", "returns it", "same call"), [row], note))
    return tables


def states_map(figures: Mapping[str, Any], where: str) -> Figure:
    """Next-state accuracy, action by field, as a heat map."""
    values = [[scores[part] for part in STATE_FIELDS] for scores in figures["by_action"].values()]
    return heat_map(
        f"Accuracy by action and field: {where}", list(figures["by_action"]), STATE_FIELDS, values
    )


def cruxeval_table(results: Iterable[Mapping[str, Any]], title: str = "CRUXEval") -> Table:
    """Scores of one or both tasks, the trivial baselines below each (`nd_jax.evaluation.cruxeval`)."""
    rows: list[list[Any]] = []

    def add(name: str, n: int, scores: Mapping[str, Any], interval: Sequence[float] | None = None) -> None:
        rows.append([name, n, *(scores[verdict] for verdict in VERDICTS), _between(interval)])

    def add_passes(name: str, result: Mapping[str, Any]) -> None:
        for k, scores in result.get("pass_at", {}).items():
            if k != "1":
                add(f"  {name}pass@{k} of {result['samples']}", result["n"], scores)

    for result in results:
        n = result["n"]
        add(f"{result['task']}: model", n, result, result.get("official_95"))
        add_passes("", result)
        for temperature, sampled in result.get("sampled", {}).items():
            name = f"T={temperature} "
            add(f"  {name}pass@1 of {sampled['samples']}", n, sampled, sampled["official_95"])
            add_passes(name, sampled)
        if within := result.get("constrained"):
            add("  within the grammar", n, within, within["official_95"])
        for name, scores in result["baselines"].items():
            add(f"  {name.replace('_', ' ')}", n, scores)
        if harness := result.get("harness"):
            printed = f"harness: pass@1 {harness['pass_at_1']:.1f}, pass@5 {harness['pass_at_5']:.1f}"
            rows.append([f"  {printed}", n, harness["pass_at_1"] / 100, None, None, None])
    note = (
        "official: equal as the official harness compares, but nothing is executed that is no literal; "
        "strict: the types agree too; exact: the same text; 95 %: of official, bootstrap over programs. "
        "Answers within the grammar are of another kind than the model's own, and count apart from them."
    )
    return Table(title, ("answers", "n", *VERDICTS, "95 %"), rows, note)


def breakdown_table(result: Mapping[str, Any]) -> Table:
    """Official score of one task by kinds of programs (`nd_jax.evaluation.breakdown`)."""
    rows = [
        [f"{kind}: {group}", scores["n"], scores["official"], _between(scores["official_95"])]
        for kind, groups in result["breakdown"].items()
        for group, scores in groups.items()
    ]
    note = (
        "type and length: of the output; steps: between the states that the debugger shows; exceptions: "
        "whether any was raised on the way."
    )
    title = f"CRUXEval, {result['task']}, by what programs are like"
    return Table(title, ("programs", "n", "official", "95 %"), rows, note)


def wrong_pairs(wrong: Iterable[Mapping[str, str]]) -> list[Part]:
    """Wrong answers with what really happens beside them (`nd_jax.evaluation.cruxeval`)."""
    return [Pair(item["title"], item["answer"], item["trace"]) for item in wrong]


def heat_map(
    title: str, rows: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[float | None]]
) -> Figure:
    """Shares from 0 to 1 as coloured cells, each with its number; None stays empty."""
    import numpy as np
    from matplotlib.figure import Figure as Plot

    plot = Plot(figsize=(2.5 + 1.3 * len(columns), 1.2 + 0.42 * len(rows)), dpi=120, layout="constrained")
    axes = plot.subplots()
    shares = np.array([[np.nan if value is None else value for value in row] for row in values], float)
    image = axes.imshow(shares, cmap="viridis", vmin=0, vmax=1, aspect="auto")
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    for y, row in enumerate(values):
        for x, value in enumerate(row):
            if value is not None:
                colour = "white" if value < 0.6 else "black"
                axes.text(x, y, f"{value:.2f}", ha="center", va="center", color=colour)
    plot.colorbar(image, ax=axes, label="share right")
    return Figure(title, _png(plot))


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
    return Figure("Loss", _png(plot))


def _png(plot: Any) -> bytes:
    stream = io.BytesIO()
    plot.savefig(stream, format="png")
    return stream.getvalue()


def _between(interval: Sequence[float] | None) -> str | None:
    return f"{interval[0]:.2f}–{interval[1]:.2f}" if interval else None


def _html(part: Part) -> str:
    match part:
        case Table():
            head = "".join(f"<th>{html.escape(column)}</th>" for column in part.columns)
            body = "\n".join(
                "<tr>" + "".join(f"<td>{_cell_html(cell)}</td>" for cell in row) + "</tr>"
                for row in part.rows
            )
            inner = f'<div class="table"><table>\n<tr>{head}</tr>\n{body}\n</table></div>'
        case Text():
            inner = f"<pre>{html.escape(part.text)}</pre>"
        case Pair():
            both = "".join(f"<pre>{html.escape(text)}</pre>" for text in (part.left, part.right))
            inner = f'<div class="pair">{both}</div>'
        case Figure():
            data = base64.b64encode(part.png).decode("ascii")
            inner = f'<img alt="{html.escape(part.title)}" src="data:image/png;base64,{data}">'
    note = f'\n<p class="note">{html.escape(part.note)}</p>' if part.note else ""
    return f"<h2>{html.escape(part.title)}</h2>\n{inner}{note}"


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    match value:
        case bool() | str():
            return str(value)
        case float() if abs(value) < 1000:
            return f"{value:.3f}"
        case int() | float():
            return f"{value:,.0f}"
    return str(value)


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
