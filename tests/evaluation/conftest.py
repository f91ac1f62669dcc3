"""A few traced programs, and a tokenizer trained on them."""

import pytest

from nd_jax.debugger.policy import PolicyConfig
from nd_jax.language.symbols import TokenizerSpec
from nd_jax.language.tokenizer import Tokenizer
from nd_jax.language.training import train, training_texts
from nd_jax.programs.program import Program
from nd_jax.tracing.recorder import TraceLimits, trace_program
from nd_jax.tracing.schema import Trace

LOOP = """def f(items, limit):
    total = 0
    for item in items:
        if item > limit:
            continue
        total += item
    return total
"""
CALLS = """def g(x):
    y = x * 2
    return y
def f(a, b):
    c = g(a)
    d = g(b)
    del c
    return [d, a]
"""
RAISES = """def f(d, key):
    try:
        return d[key]
    except KeyError:
        pass
    raise ValueError(key)
"""
GENERATES = """def g(n):
    for i in range(n):
        yield i
def f(n):
    return list(g(n))
"""

PROGRAMS = [
    Program("loop", LOOP, "f", "[1, 5, 2], 3"),
    Program("calls", CALLS, "f", "1, 'ab'"),
    Program("raises", RAISES, "f", "{'a': 1}, 'b'"),
    Program("generates", GENERATES, "f", "3"),
    Program("straight", "def f():\n    a = 1\n    pass\n    pass\n    return a\n", "f", ""),
]


@pytest.fixture(scope="session")
def traces() -> list[Trace]:
    recorded = [trace_program(program, TraceLimits()) for program in PROGRAMS]
    assert all(isinstance(trace, Trace) for trace in recorded)
    return [trace for trace in recorded if isinstance(trace, Trace)]


@pytest.fixture(scope="session")
def tokenizer(traces: list[Trace]) -> Tokenizer:
    spec = TokenizerSpec(vocab_size=380, lines=32, frames=4)
    texts = training_texts(traces * 4, spec, PolicyConfig(), seed=0, max_states=20)
    return train(texts, spec, {"for": "tests"})
