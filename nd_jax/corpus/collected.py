"""What the pytest plugin wrote, read back: checked, and each distinct call once."""

import ast
import json
from collections.abc import Iterator
from pathlib import Path

from nd_jax.errors import UserError
from nd_jax.programs.jsonl import Rejected
from nd_jax.programs.splits import Split, split_of
from nd_jax.tracing.importer import import_traces
from nd_jax.tracing.schema import Trace, encode_json


def read_calls(folder: Path) -> Iterator[Trace | Rejected]:
    """Read the traces and the drops of a folder that ``pytest --nd-trace`` wrote, in a fixed order.

    A line that a killed process left unfinished is no loss: it is passed over.

    Raises:
      UserError: it is no such folder.
    """
    if not folder.is_dir() or not (files := sorted(folder.glob("calls-*.jsonl"))):
        raise UserError(f"{folder} holds no recorded calls; make them by pytest --nd-trace {folder}")
    seen: set[str] = set()
    for file in files:
        for found in import_traces(file, "nd"):
            if isinstance(found, Trace):
                if found.id not in seen:
                    seen.add(found.id)
                    yield found
            elif found.reason != "malformed JSON":
                yield found
    for file in sorted(folder.glob("dropped-*.jsonl")):
        yield from _drops(file)


def _drops(file: Path) -> Iterator[Rejected]:
    for line in file.read_bytes().splitlines():
        try:
            record = json.loads(line)
            yield Rejected(str(record["id"]), str(record["reason"]), str(record["detail"]))
        except (ValueError, KeyError, TypeError):
            continue


def content_of(trace: Trace) -> str:
    """Give what makes a call trace distinct: all of it but its id."""
    return encode_json([trace.source, trace.entry, trace.arguments, trace.functions, trace.events])


def split_of_call(trace: Trace) -> Split:
    """Say on which side a call falls: by the function called, whatever else ran with it.

    All calls of one function are on one side, though each has the source of other functions around it.
    """
    body: list[ast.stmt] = ast.parse(trace.source).body
    found: ast.stmt | None = None
    for name in trace.entry.split("."):
        found = next((node for node in body if getattr(node, "name", None) == name), None)
        body = getattr(found, "body", [])
    return split_of(trace.source if found is None else ast.unparse(found))
