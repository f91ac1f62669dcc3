"""Where text is cut before its parts are encoded, so that values are spelled letter by letter."""

import re

_NAME = r"[A-Za-z_][A-Za-z0-9_]*="
PATTERN = (
    rf"^(?!{_NAME}|['\"\[({{0-9-])[^\n]+"  # a line that is none of a value: whole
    rf"|^{_NAME}"  # the name that a line binds
    r"|[A-Za-z0-9]|\n|[^A-Za-z0-9\n]+"  # a letter or digit, and what is between them
)
"""What a part is, as Python's and Oniguruma's regular expressions read it alike (hence ASCII letters only).

It looks at the text alone, so that exported tokenizers can do the same. A line is one of a value if it binds
a name (``name=``, which source laid out as usual does not) or starts as a number, a string or a display.
"""

_PART = re.compile(PATTERN, re.MULTILINE)


def spell(text: str) -> list[str]:
    """Cut lines into parts, which joined give the text; none crosses a line's end."""
    return _PART.findall(text)
