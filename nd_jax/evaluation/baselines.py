"""Trivial answers, which any model should beat, printed beside its scores."""

import ast
from collections import Counter
from collections.abc import Sequence

from nd_jax.programs.program import Program


def output_answers(programs: Sequence[Program]) -> dict[str, list[str]]:
    """Answers to "what does this call return?" by baseline name, one per program.

    ``first_argument``: the text of the call's first argument; ``most_frequent``: the file's most frequent
    output; ``empty``: the empty string.
    """
    return {
        "first_argument": [first_argument(program.arguments) for program in programs],
        "most_frequent": [_most_frequent([program.output or "" for program in programs])] * len(programs),
        "empty": ["''"] * len(programs),
    }


def input_answers(programs: Sequence[Program]) -> dict[str, list[str]]:
    """Answers to "which call returns this?" by baseline name, one per program.

    ``output``: the given output as the only argument; ``most_frequent``: the file's most frequent input;
    ``empty``: no argument.
    """
    frequent = _most_frequent([program.arguments for program in programs])
    return {
        "output": [f"{program.entry}({program.output})" for program in programs],
        "most_frequent": [f"{program.entry}({frequent})" for program in programs],
        "empty": [f"{program.entry}()" for program in programs],
    }


def first_argument(arguments: str) -> str:
    """Text of the first argument of a call, given the text between its parentheses; "" if there is none."""
    call = f"f({arguments})"
    match ast.parse(call, mode="eval").body:
        case ast.Call(args=[first, *_]):
            return ast.get_source_segment(call, first) or ""
        case _:
            return ""


def _most_frequent(texts: list[str]) -> str:
    """The most frequent text, the first in the file where several are; "" without any."""
    return Counter(texts).most_common(1)[0][0] if texts else ""
