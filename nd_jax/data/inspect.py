"""Show a row as a person reads it: what it says, and what of it is learned."""

from typing import Any

from rich.text import Text

from nd_jax.data.config import DataConfig
from nd_jax.data.layout import lay_out
from nd_jax.data.pipeline import RowStream
from nd_jax.language.symbols import STATE_END

STYLES = {"marker": "magenta", "pointer": "blue", "source": "", "name": "cyan", "value": "green"}
"""Colour of each kind of segment."""


def read_row(stream: RowStream, config: DataConfig, number: int) -> dict[str, Any]:
    """Read a row back from the arrays that a model is trained on.

    Returns:
      ``row``, ``tokens``, ``padding`` (places without a token), ``place_weight`` (the factor on the weight of
      a learned state's event, line and frame) and ``sessions``, each a list of parts: what is given (program
      and start state), then each action and each state in turn. A part has ``tokens``, ``weight`` (its
      tokens' loss weight as targets, without that factor) and ``segments`` (each its kind and text).
    """
    row = stream.rows[number]
    laid = lay_out(row, config, stream.tokenizer)
    tokens = laid["tokens"][0].tolist()
    weights = [0.0, *laid["weights"][0].tolist()]  # of each token, as the target of the one before
    runs = iter(row.runs.tolist())
    begin = 0
    sessions = []
    for count in row.sessions[:-1].tolist():  # the last one is the padding
        parts = []
        for _ in range(count):
            end = begin + next(runs)
            segments = stream.tokenizer.segments(tokens[begin:end])
            # The last weight: a session's first token is nobody's target.
            parts.append({
                "tokens": end - begin, "weight": weights[end - 1],
                "segments": [[segment.kind, segment.text] for segment in segments],
            })  # fmt: skip
            begin = end
        sessions.append(parts)
    return {
        "row": number, "tokens": begin, "padding": len(tokens) - begin, "place_weight": config.place_weight,
        "sessions": sessions,
    }  # fmt: skip


def show_row(row: dict[str, Any]) -> Text:
    """Show what `read_row` gave: each line of a program, state and action behind its loss weight."""
    length = row["tokens"] + row["padding"]
    shown = Text(
        f"row {row['row']}: {row['tokens']} of {length} places filled, {row['padding']} are padding\n"
    )
    shown.append("loss weight at the left, 0 is masked; ")
    if row["place_weight"] != 1:
        shown.append(f"event, line and frame of a state weigh {row['place_weight']:g} times that; ")
    for kind, style in STYLES.items():
        shown.append(f"{kind} ", style=style)
    for number, parts in enumerate(row["sessions"], 1):
        tokens = sum(part["tokens"] for part in parts)
        learned = sum(part["tokens"] for part in parts if part["weight"])
        shown.append(f"\n\nsession {number}: {tokens} tokens, {learned} with a loss weight\n", style="bold")
        shown.append_text(Text("\n").join(line for part in parts for line in _lines(part)))
    return shown


def _lines(part: dict[str, Any]) -> list[Text]:
    margin = Text(f"{part['weight']:5g} ", style="dim" if part["weight"] == 0 else "bold yellow")
    line, lines = margin.copy(), []
    for kind, text in part["segments"]:
        symbol = kind in ("marker", "pointer")
        line.append(text.removeprefix("<|").removesuffix("|>") if symbol else text.removesuffix("\n"),
                    style=STYLES.get(kind, "red"))  # fmt: skip
        line.append("" if kind == "name" and text.endswith("=") else "  ")
        if kind == "source" or text == STATE_END:
            lines.append(line)
            line = margin.copy()
    return [*lines, line] if len(line) > len(margin) else lines
