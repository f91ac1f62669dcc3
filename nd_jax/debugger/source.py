"""Lines of a program's source, counted as the compiler counts them."""

from collections.abc import Iterable


def source_lines(source: str) -> list[str]:
    r"""Split source into lines without their ends; line k of an event is item k - 1.

    The compiler ends lines at ``\n``, ``\r\n`` and ``\r`` only. `str.splitlines` also breaks at form feeds,
    U+2028 and others, which may stand inside a line of Python.
    """
    lines = source.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines


def code_lines(lines: Iterable[str]) -> list[int]:
    """Numbers (from 1) of the lines that hold more than blanks and a comment: where people put breakpoints.

    Read from the text alone, so that it does not change with the interpreter's version as the compiler's own
    table of lines does. Some of them (``else:``, a docstring) can never be hit.
    """
    stripped = (line.lstrip() for line in lines)
    return [number for number, text in enumerate(stripped, 1) if text and text[0] != "#"]
