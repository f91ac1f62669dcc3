import array
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nd_jax.tracing.compound import bounded
from nd_jax.tracing.values import describe_exception, is_cut, render

ROOT = Path(__file__).parents[2]


class Loud:
    """Whatever of it runs when it is shown is a fault."""

    def __init__(self):
        self.x = 1

    def __getattribute__(self, name):
        raise AssertionError("user code ran")

    __repr__ = __str__ = __eq__ = __len__ = __iter__ = __bool__ = __hash__ = __format__ = __getattribute__


class LoudMeta(type):
    def __repr__(cls):
        raise AssertionError("user code ran")

    def __eq__(cls, other):
        raise AssertionError("user code ran")

    __hash__ = type.__hash__

    @property
    def __name__(cls):
        raise AssertionError("user code ran")


class OfLoudMeta(metaclass=LoudMeta):
    pass


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self):
        self.a = 1


class Liar:
    @property
    def __dict__(self):
        raise AssertionError("user code ran")


class MyList(list):
    def __iter__(self):
        raise AssertionError("user code ran")


class MyFloat(float):
    pass


class Colour(enum.Enum):
    RED = 1


class Number(enum.IntEnum):
    ONE = 1


@dataclasses.dataclass
class Point:
    x: int = 1
    y: str = "a"


Pair = collections.namedtuple("Pair", "left right")
cyclic = [1]
cyclic.append(cyclic)
itself = Point()
itself.x = itself


def generator():
    yield


SHOWN = [
    (Loud(), "Loud(x=1)"),
    ([Loud(), (Loud(),)], "[Loud(x=1), (Loud(x=1),)]"),
    ({1: Loud()}, "{1: Loud(x=1)}"),
    (OfLoudMeta, "<class 'OfLoudMeta'>"),
    (OfLoudMeta(), "OfLoudMeta()"),
    ([OfLoudMeta()], "[OfLoudMeta()]"),
    (Slotted(), "Slotted(a=1)"),
    (Liar(), "Liar()"),
    (MyList([1, 2]), "MyList([1, 2])"),
    (MyFloat(-0.0), "MyFloat(-0.0)"),
    (Colour.RED, "<Colour.RED: 1>"),
    (Number.ONE, "<Number.ONE: 1>"),
    (Point(), "Point(x=1, y='a')"),
    (itself, "Point(x=<...>, y='a')"),
    (Pair(1, 2), "Pair(left=1, right=2)"),
    (cyclic, "[1, [...]]"),
    (generator(), "<generator generator>"),
    (generator, "<function generator>"),
    (lambda: 0, "<function <lambda>>"),
    (print, "<built-in function print>"),
    (Point().__eq__, "<method __eq__>"),
    (iter([1]), "<list_iterator>"),
    (map(str, []), "<map>"),
    (object(), "<object>"),
    (re, "<module re>"),
    (int, "<class 'int'>"),
    (memoryview(b"a"), "<memory>"),
    ({}.keys(), "dict_keys([])"),
    ({1: 2}.items(), "dict_items([(1, 2)])"),
    (KeyError("k"), "KeyError('k')"),
    (UnicodeError(), "UnicodeError()"),
    (collections.Counter("abca"), "Counter({'a': 2, 'b': 1, 'c': 1})"),
    (collections.defaultdict(list, {1: [2]}), "defaultdict(<class 'list'>, {1: [2]})"),
    (collections.OrderedDict(a=1), "OrderedDict({'a': 1})"),
    (collections.deque([1], 3), "deque([1], maxlen=3)"),
    (array.array("i", [1, 2]), "array('i', [1, 2])"),
    (decimal.Decimal("1.50"), "Decimal('1.50')"),
    (fractions.Fraction(2, 6), "Fraction(1, 3)"),
    (datetime.date(2020, 1, 2), "datetime.date(2020, 1, 2)"),
    (
        datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),
        "datetime.datetime(2020, 1, 1, 0, 0, tzinfo=datetime.timezone.utc)",
    ),
    (range(3), "range(0, 3)"),
    (slice(1, 2), "slice(1, 2, None)"),
    (bytearray(b"ab"), "bytearray(b'ab')"),
    ({"b", "a"}, "{'a', 'b'}"),
    ({(1, "b"), (1, "a")}, "{(1, 'a'), (1, 'b')}"),
    (set(), "set()"),
    (frozenset({1}), "frozenset({1})"),
    (10**40, "<int 133 bits>"),
    ([10**5000], "[<int 16610 bits>]"),
    (-(10**40) + 1, "-" + "9" * 40),
    ("\ud800\n\r\u2028", "'\\ud800\\n\\r\\u2028'"),
    (float("nan"), "nan"),
    (-0.0, "-0.0"),
    ((), "()"),
    ((1,), "(1,)"),
    (..., "Ellipsis"),
]


@pytest.mark.parametrize("index", range(len(SHOWN)), ids=[text[:20] for _, text in SHOWN])
def test_shows(index):  # by index: pytest itself would look into the values
    value, text = SHOWN[index]
    assert render(value) == text


def test_number_sets_keep_their_order():
    numbers = {8, 1, 16, 0}
    assert render(numbers) == repr(numbers)


@pytest.mark.parametrize(
    ("value", "start", "end"),
    [
        ("a" * 600, "'aaa", "'<+96>"),
        (list(range(1000)), "[0, 1,", "63, <+936>]"),
        (dict.fromkeys(range(50), "x" * 30), "{0: 'xxx", ">}"),
        ([["a" * 100] * 10] * 10, "[['aaa", "]"),
        (b"\x00" * 600, "b'\\x00", ">"),
        ({str(i) for i in range(5000)}, "{<+5000>", "}"),
    ],
)
def test_cuts_say_how_much_is_missing(value, start, end):
    text = render(value)
    assert is_cut(value)
    assert "<+" in text
    assert text.startswith(start)
    assert text.endswith(end)
    assert len(text) <= 512


def test_depth_is_capped():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    assert render(deep) == "[[[[[[[[[<+1>]]]]]]]]]"


def test_text_that_looks_cut_is_not():
    assert not is_cut("<+3>")
    assert not is_cut([1, 2])


LITERALS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text() | st.integers(), inner)
        | st.sets(st.integers(-5, 5), max_size=3)
    ),
    max_leaves=40,
)


@given(LITERALS)
def test_literals_look_as_repr_shows_them(value):
    text = render(value)
    assert len(text) <= 512
    assert not {"\n", "\r"} & set(text)
    text.encode()
    if not is_cut(value) and "{" not in text:
        assert text == repr(value)


# Nested containers about as long, deep and full as the bounds allow.
NEAR_BOUNDS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=200) | st.sampled_from([10**40, -(10**40)]),
    lambda inner: (
        st.lists(inner, max_size=70)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=20) | st.tuples(st.integers()), inner)
        | inner.map(lambda item: [[[item]]])
    ),
    max_leaves=100,
)


@settings(deadline=None)
@given(LITERALS | NEAR_BOUNDS)
def test_the_fast_way_and_the_general_one_agree(value):
    assert render(value) == bounded(value)[0]


def test_shared_containers_do_not_multiply_the_work():
    value = [1]
    for _ in range(7):
        value = [value] * 64
    assert render(value) == bounded(value)[0]


def test_describes_exceptions_in_one_line():
    assert describe_exception(ValueError("a\nb")) == "ValueError: a\\nb"
    assert describe_exception(KeyError(1, 2)) == "KeyError: 1, 2"


def test_patched_builtins_do_not_matter():
    program = (
        "import builtins, sys; sys.path.insert(0, sys.argv[1])\n"
        "from nd_jax.tracing.values import render\n"
        "value = [1, 'a', {2: (3,)}, {'b'}]\n"
        "for name in ('repr', 'len', 'type', 'map', 'set', 'id', 'str', 'sorted', 'enumerate', 'max'):\n"
        "    setattr(builtins, name, None)\n"
        "sys.stdout.write(render(value) + render('x' * 600))\n"
    )
    done = subprocess.run([sys.executable, "-S", "-c", program, ROOT], capture_output=True, text=True)
    assert done.stdout.startswith("[1, 'a', {2: (3,)}, {'b'}]'xxx"), done.stderr
