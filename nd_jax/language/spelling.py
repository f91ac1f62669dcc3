"""Where a state's lines are cut before they are encoded, so that values are spelled letter by letter."""

import re

_PART = re.compile(r"^[^\W\d]\w*=|[^\W_]|\n|(?:[^\w\n]|_)+", re.MULTILINE)


def spell(text: str) -> list[str]:
    """Cut lines of a state into the names they bind, every letter and digit, and what is between them.

    Returns:
      The parts, which joined give the text; none crosses a line's end.
    """
    return _PART.findall(text)
