"""A few recorded programs and a tokenizer trained on them."""

import pytest

from nd_jax.debugger.policy import PolicyConfig
from nd_jax.language.symbols import TokenizerSpec
from nd_jax.language.training import train, training_texts
from nd_jax.programs.program import Program
from nd_jax.tracing.recorder import TraceLimits, trace_program
from nd_jax.tracing.schema import Trace

SOURCES = {
    "total": ("def f(xs):\n    t = 0\n    for x in xs:\n        t += x\n    return t\n", "[{0}, {1}, 3]"),
    "helper": ("def g(a):\n    return a * 2\n\ndef f(n):\n    m = g(n)\n    return m + {0}\n", "{1}"),
    "words": (
        "def f(s):\n    out = ''\n    for c in s:\n        out = c + out\n    return out\n",
        "'a{0}b{1}'",
    ),
    "branch": ("def f(n):\n    if n > {0}:\n        return 'big'\n    return n\n", "{1}"),
}


@pytest.fixture(scope="session")
def traces() -> list[Trace]:
    """Sixty traces of four kinds of programs."""
    found = []
    for k in range(60):
        name, (source, arguments) = list(SOURCES.items())[k % 4]
        numbers = k % 7, k % 5
        program = Program(f"{name}/{k}", _fill(source, numbers), "f", _fill(arguments, numbers))
        trace = trace_program(program, TraceLimits())
        assert isinstance(trace, Trace), trace
        found.append(trace)
    return found


@pytest.fixture(scope="session")
def tokenizer(traces):
    """A tokenizer with few pieces."""
    spec = TokenizerSpec(vocab_size=400, lines=16, frames=8)
    return train(training_texts(traces, spec, PolicyConfig(), seed=0, max_states=64), spec, note={})


def _fill(text: str, numbers: tuple[int, int]) -> str:
    return text.replace("{0}", str(numbers[0])).replace("{1}", str(numbers[1]))
