"""The data card of a trace dataset: what is in it, where it comes from, what was left out.

`write_card` puts ``card.json``, ``card.md`` and ``card.png`` into the dataset's folder.
"""

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from nd_jax.language.measure import evaluate
from nd_jax.language.tokenizer import Tokenizer
from nd_jax.tracing.dataset import TraceDataset
from nd_jax.tracing.schema import EVENT_KINDS, Trace

_KINDS = (
    ("None", re.compile(r"None\Z")),
    ("bool", re.compile(r"(True|False)\Z")),
    ("int", re.compile(r"-?\d+\Z|<int ")),
    ("float", re.compile(r"-?(\d[\d.]*(e[+-]?\d+)?|inf|nan)\Z")),
    ("str", re.compile(r"['\"]")),
    ("bytes", re.compile(r"b['\"]")),
    ("list", re.compile(r"\[")),
    ("tuple", re.compile(r"\(")),
    ("set", re.compile(r"(frozen)?set\(")),
    ("dict", re.compile(r"\{")),
    ("opaque", re.compile(r"<")),
)
_SHARES = (50, 90, 99)


def type_of(text: str) -> str:
    """Tell the kind of value that a rendered text shows; ``object`` is an instance, ``C(x=1)``."""
    if text.startswith("{") and text != "{}":
        return "dict" if _has_pairs(text) else "set"
    return next((name for name, pattern in _KINDS if pattern.match(text)), "object")


def _has_pairs(text: str) -> bool:
    """Tell a dict's text from a set's: by a colon outside of all quotes and inner brackets."""
    depth, quote, position = 0, "", 0
    while position < len(text):
        character = text[position]
        if quote:
            position += character == "\\"
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        elif character == ":" and depth == 1:
            return True
        position += 1
    return False


def make_card(dataset: TraceDataset, tokenizer: Tokenizer, sample: int) -> dict[str, Any]:
    """Count what a dataset holds; tokens on an even sample of at most ``sample`` traces."""
    info = dataset.info
    events, frames, depths, lengths = Counter[int](), Counter[int](), Counter[int](), Counter[int]()
    kinds, types = Counter[str](), Counter[str]()
    sources, results = set[int](), Counter[str]()
    for trace in dataset:
        sources.add(hash(trace.source))
        events[len(trace.events)] += 1
        frames[len(trace.functions)] += 1
        depths[1 + max(event.depth for event in trace.events)] += 1
        kinds.update(event.kind for event in trace.events)
        results[type_of(trace.result) if trace.result is not None else "exception"] += 1
        for text in _shown(trace):
            types[type_of(text)] += 1
            lengths[len(text)] += 1
    step = max(1, math.ceil(len(dataset) / sample))
    tokens = evaluate(tokenizer, (dataset[i] for i in range(0, len(dataset), step)))
    settings = info["settings"]
    packages = settings.get("packages") or {}
    if one := settings.get("package"):
        packages = {one["name"]: {"version": one["version"], "licence": one["licence"]}}
    return {
        "dataset": dataset.directory.name,
        "fingerprint": dataset.fingerprint,
        "traces": info["traces"],
        "programs": len(sources),
        "events": _summary(events),
        "frames": _summary(frames),
        "depth": _summary(depths),
        "event_kinds": {kind: kinds[kind] for kind in EVENT_KINDS if kinds[kind]},
        "results": dict(results.most_common()),
        "value_types": dict(types.most_common()),
        "value_length": _summary(lengths),
        "tokens": {
            "tokenizer": tokenizer.fingerprint,
            "sampled": tokens.traces,
            "mean": round(tokens.tokens_mean, 1),
            "p95": tokens.tokens_p95,
            "refused": tokens.refused,
        },
        "licences": dict(Counter(source["licence"] for source in packages.values()).most_common()),
        "packages": packages,
        "python": info["python"],
        "dropped": info["dropped"],
        "settings": {name: value for name, value in settings.items() if not name.startswith("package")},
    }


def _shown(trace: Trace) -> Iterable[str]:
    """Give the values that a debugger shows: a local when it is new or has changed, each result."""
    last: dict[int, dict[str, str]] = {}
    for event in trace.events:
        before = last.get(event.frame, {})
        if event.locals is not before:
            yield from (text for name, text in event.locals.items() if before.get(name) != text)
            last[event.frame] = event.locals
        if event.value is not None:
            yield event.value


def _summary(counts: Counter[int]) -> dict[str, Any]:
    """Describe a distribution: total, mean, percentiles, and its histogram in powers of two."""
    n = counts.total()
    total = sum(value * count for value, count in counts.items())
    figures: dict[str, Any] = {"total": total, "mean": round(total / n, 2) if n else 0.0}
    ordered, seen = sorted(counts), 0
    wanted = list(_SHARES)
    for value in ordered:
        seen += counts[value]
        while wanted and seen * 100 >= wanted[0] * n:
            figures[f"p{wanted.pop(0)}"] = value
    figures["max"] = ordered[-1] if ordered else 0
    bins: Counter[int] = Counter()
    for value, count in counts.items():
        bins[1 << max(0, value.bit_length() - 1)] += count
    names = {low: f"{low} to {2 * low - 1}" if low > 1 else "up to 1" for low in sorted(bins)}
    return figures | {"histogram": {name: bins[low] for low, name in names.items()}}


def write_card(dataset: TraceDataset, tokenizer: Tokenizer, sample: int) -> dict[str, Any]:
    """Write a dataset's card into its folder, as JSON, Markdown and pictures; gives the JSON's content."""
    card = make_card(dataset, tokenizer, sample)
    folder = dataset.directory
    (folder / "card.json").write_text(json.dumps(card, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    _draw(folder / "card.png", card)
    (folder / "card.md").write_text(_markdown(card), encoding="utf-8")
    return card


def _markdown(card: Mapping[str, Any]) -> str:
    traces = card["traces"]
    figures = ("total", "mean", "p50", "p90", "p99", "max")
    sizes = {
        "events per trace": "events",
        "frames per trace": "frames",
        "greatest depth": "depth",
        "characters per value": "value_length",
    }
    rows = [(name, *(card[key].get(figure, "") for figure in figures)) for name, key in sizes.items()]
    tokens = card["tokens"]
    refused = "".join(f" Refused: {reason} {count}." for reason, count in tokens["refused"].items())
    sources = [(name, item["version"], item["licence"]) for name, item in card["packages"].items()]
    parts = [
        f"# {card['dataset']}\n\n{sum(traces.values()):,} recorded runs of {card['programs']:,} programs "
        f"({', '.join(f'{name} {count:,}' for name, count in traces.items())}), "
        f"Python {', '.join(card['python']) or '–'}. Fingerprint `{card['fingerprint']}`.",
        "![what it holds](card.png)",
        _table("Sizes", ("", *figures), rows),
        f"Tokens of {tokens['sampled']:,} traces, every step shown (tokenizer `{tokens['tokenizer']}`): mean "
        f"{tokens['mean']}, 95 % at most {tokens['p95']:.0f}.{refused}",
        _counts("Events", "kind", card["event_kinds"]),
        _counts("Values", "type", card["value_types"]),
        _counts("What the calls gave", "type", card["results"]),
        _table("Sources", ("package", "version", "licence"), sources)
        if sources
        else "## Sources\n\nNot stated by the dataset.",
        _counts("Interpreters", "Python", card["python"]),
        _counts("Left out", "reason", card["dropped"]),
        f"## Settings\n\n```\n{json.dumps(card['settings'], indent=2)}\n```",
    ]
    return "\n\n".join(parts) + "\n"


def _counts(title: str, name: str, counts: Mapping[str, int]) -> str:
    total = sum(counts.values())
    return _table(title, (name, "number", "share"),
                  [(key, f"{n:,}", f"{n / total:.1%}") for key, n in counts.items()])  # fmt: skip


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    if not rows:
        return f"## {title}\n\nNone."
    lines = [columns, ["---"] * len(columns), *rows]
    texts = (" | ".join(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row) for row in lines)
    return f"## {title}\n\n" + "\n".join(f"| {text} |" for text in texts)


def _draw(path: Path, card: Mapping[str, Any]) -> None:
    from matplotlib.figure import Figure

    panels = (
        ("events per trace", card["events"]["histogram"]),
        ("frames per trace", card["frames"]["histogram"]),
        ("greatest depth", card["depth"]["histogram"]),
        ("values by type", card["value_types"]),
        ("characters per value", card["value_length"]["histogram"]),
        ("left out, by reason", card["dropped"]),
    )
    plot = Figure(figsize=(13, 7), dpi=110, layout="constrained")
    plot.suptitle(f"{card['dataset']}: {sum(card['traces'].values()):,} traces")
    for axes, (title, counts) in zip(plot.subplots(2, 3).flat, panels, strict=True):
        names = list(counts)[:12]
        axes.barh(names, [counts[name] for name in names], color="#4c78a8")
        axes.invert_yaxis()
        axes.set_title(title, fontsize=10, loc="left")
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    plot.savefig(path)
