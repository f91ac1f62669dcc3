"""Only what is known to leave nothing behind shares a process: it would be the next program's."""

import pytest

from nd_jax.tracing.sharing import may_share

SHARES = [
    "def f(x):\n    return x",
    "class A:\n    def __init__(self, x): self.x = x\n    def __eq__(self, other): return True",
    "if __name__ == '__main__':\n    pass",
    "import math\ndef f(x):\n    return math.sqrt(x) + math.pi",
    "import re as regex\ndef f(x):\n    return regex.sub('a', 'b', x)",
    "import re, math\nx = re.match('a', 'a')",
    "from collections import Counter, defaultdict as dd\nx = Counter(dd(int))",
    "from enum import Enum\nclass Colour(Enum):\n    RED = 1",
    "import enum\nclass Colour(enum.Enum):\n    RED = enum.auto()",
    "from typing import List, Optional\ndef f(x: List[int]) -> Optional[int]: ...",
    "def f():\n    from heapq import heappush\n    heappush([], 1)",
    "import re\nx = re.compile('é')",
    "def f(input, é='의'):\n    return input.help",
]
ALONE = [
    "import os",
    "import numpy as np",
    "from re import *",
    "from . import re",
    "from .re import match",
    "import collections.abc",
    "x = '__import__'",
    "x = ().__class__",
    "exec('1')",
    "ｅｖａｌ('1')",
    "compile('1', '', 'eval')",
    "store.compile('1', '', 'eval')",
    "import re as r\nr.compile('1')",
    "x = (i for i in ())\nx.gi_frame",
    "import re\nre._cache.clear()",
    "import re\nre.compile = None",
    "import re\nmodule = re",
    "import re\n(lambda m: m.enum)(re)",
    "import copy\ncopy._deepcopy_dispatch.clear()",
    "import typing\ntyping.sys",
    "import typing\ntyping.get_type_hints",
    "from functools import singledispatch",
    "from operator import attrgetter",
    "import operator\noperator.methodcaller",
    "from string import Formatter",
    "from collections.abc import Sequence\nSequence.register(set)",
    "from collections import Counter\nCounter.__name__ = 'Evil'",
    "from collections import Counter\ndel Counter.__name__",
    "import re\nclass A(int):\n    def __hash__(self): return 0",
    "import re\nA = type('A', (int,), {})",
    "import re\nclass M(type): pass",
    "from enum import Enum as E\nE('A', {})",
    "import enum\nenum.IntEnum('A', {})",
    "import re\ndef f(: pass",
]


@pytest.mark.parametrize("source", SHARES)
def test_harmless_programs_share(source: str):
    assert may_share([source, "f", "1, k=2"])


@pytest.mark.parametrize("source", ALONE)
def test_what_could_reach_out_runs_alone(source: str):
    assert not may_share([source, "f", "1"])


@pytest.mark.parametrize(
    "arguments", ["re._cache", "re", "eval('1')", "1), re._cache, (2", "1)\nre._cache\n(2"]
)
def test_what_reaches_out_may_stand_in_the_arguments(arguments: str):
    assert not may_share(["import re", "f", arguments])
