"""Source text to syntax tree, for text that nobody promises is Python."""

import ast
import warnings


def parse(source: str) -> ast.Module | None:
    """Parse a module without running it; None for text that this interpreter does not parse."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # invalid escapes in programs we only read
        try:
            return ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):  # the last two: nested too deeply
            return None


def normalise_line_ends(text: str) -> str:
    """Drop a byte order mark and end every line with a newline, as the compiler reads it."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
