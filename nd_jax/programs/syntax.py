"""Source text to syntax tree, for text that nobody promises is Python."""

import ast
import warnings
from threading import Lock

_filtering = Lock()  # warnings' filters belong to the process, and recording parses in several threads


def parse(source: str) -> ast.Module | None:
    """Parse a module without running it; None for text that this interpreter does not parse."""
    with _filtering, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in programs we only read
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: nested too deeply
            return None


def normalise_line_ends(text: str) -> str:
    """Drop a byte order mark and end every line with a newline, as the compiler reads it."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
