"""A program: source code and one call of its entry function."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Program:
    r"""Source code plus an entry call with inputs.

    Attributes:
      id: unique within its file or generator, e.g. ``"sample_12"`` or ``"synthetic/7/12"``.
      source: the module's text, line ends normalised to ``"\n"``, no byte order mark.
      entry: name of the function to call; bound at module level when ``source`` has run.
      arguments: the text between the call's parentheses, evaluated in the program's own namespace.
      output: text of the expected result where the origin states one (never shown to a tracer).
    """

    id: str
    source: str
    entry: str
    arguments: str
    output: str | None = None
