"""Where text is cut before its parts are encoded, so that values are spelled letter by letter."""

import re

PATTERN = (
    r"^(?![^\W\d]\w*=|['\"\[({\-\d])[^\n]+"  # a line that is none of a value: whole
    r"|^[^\W\d]\w*="  # the name that a line binds
    r"|[^\W_]|\n|(?:[^\w\n]|_)+"  # a letter or digit, and what is between them
)
"""What a part is, of lines; as Python's and Oniguruma's regular expressions read it alike.

It looks at the text alone, so that exported tokenizers can do the same. A line is one of a value if it binds
a name (``name=``, which source laid out as usual does not) or starts as a number, a string or a display.
"""

_PART = re.compile(PATTERN, re.MULTILINE)


def spell(text: str) -> list[str]:
    """Cut lines into parts, which joined give the text; none crosses a line's end."""
    return _PART.findall(text)
