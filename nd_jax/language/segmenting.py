"""Tell what a piece of text is from the symbols before it, to turn ids back into segments."""

from nd_jax.language.symbols import (
    ACTION_OF,
    ARG,
    BOS,
    DEL,
    END,
    EVENT_OF,
    Role,
    Segment,
    TokenizerSpec,
    number_of,
)


class SegmentReader:
    """Takes symbols and texts in turn; collects the segments they are.

    Attributes:
      segments: what was read so far. Text that stands where none belongs is of kind ``value``.
    """

    def __init__(self, spec: TokenizerSpec):
        """Args:
        spec: of the tokenizer: in which form states are written.
        """
        self._spec = spec
        self.segments: list[Segment] = []
        self._role = Role.CONTEXT
        self._after = ""  # the latest symbol

    def invalid(self, what: str) -> None:
        """Take something that no document holds."""
        self._add("invalid", what)

    def symbol(self, symbol: str) -> None:
        """Take a control symbol."""
        if symbol == BOS:
            self._role = Role.CONTEXT
        elif symbol in ACTION_OF:
            self._role = Role.ACTION
        elif symbol in EVENT_OF or symbol == END:
            self._role = Role.STATE
        self._add("marker" if number_of(symbol, "line") is None else "pointer", symbol)
        self._after = symbol

    def text(self, text: str) -> None:
        """Take the whole text between two symbols."""
        if self._role is Role.CONTEXT:
            self._add("source", text)
        elif self._role is Role.ACTION or self._after == ARG:
            self._add("value", text)
        else:
            lines = text.split("\n")
            lines = [line + "\n" for line in lines[:-1]] + [line for line in lines[-1:] if line]
            if self._after == DEL:
                self._add("name", lines.pop(0))
            elif self._spec.echo_line and number_of(self._after, "line") is not None:
                self._add("source", lines.pop(0))
            for line in lines:
                self._binding(line)

    def _binding(self, line: str) -> None:
        name, equals, value = line.partition("=")
        if equals:
            self._add("name", name + "=")
            self._add("value", value)
        else:
            self._add("name" if self._spec.all_names else "value", line)

    def _add(self, kind: str, text: str) -> None:
        self.segments.append(Segment(kind, text, self._role))
