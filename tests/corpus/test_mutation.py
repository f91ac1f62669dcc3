"""Varied inputs: typed, new, reproducible, and no harm to what is no literal."""

import ast
import dataclasses
import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nd_jax.corpus.mutation import MutationConfig, literal, mutate, vary
from nd_jax.errors import UserError
from nd_jax.programs.idioms.values import Dice
from nd_jax.programs.program import Program

CONFIG = MutationConfig(each=8)


def program(arguments: str, id: str = "p") -> Program:
    return Program(id, "def f(*args, **more): ...", "f", arguments, "1")


def varied(arguments: str, **settings) -> list[str]:
    config = dataclasses.replace(CONFIG, **settings)
    return [variation.arguments for variation in mutate([program(arguments)], config)]


def types(value: object) -> object:
    """A value's type, with those of a tuple's parts."""
    return tuple(map(types, value)) if isinstance(value, tuple) else type(value)


LITERALS = st.recursive(
    st.integers() | st.booleans() | st.text(max_size=9) | st.none() | st.binary(max_size=9)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.tuples(inner, inner)
    | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3)
    | st.sets(st.integers() | st.text(max_size=3), max_size=4),
    max_leaves=8,
)  # fmt: skip


@given(LITERALS, st.integers(0, 99))
def test_a_variation_has_the_type_and_is_a_literal(value: object, seed: int):
    other = vary(Dice(str(seed)), value)
    assert types(other) == types(value)
    assert ast.literal_eval(literal(other).replace("set()", "None")) is not ...
    assert vary(Dice(str(seed)), value) == other


def test_variations_are_new_and_named_after_their_program():
    made = list(mutate([program("[3, 1], 'abc', k=2")], CONFIG))
    assert [variation.id for variation in made] == [f"p~{n}" for n in range(1, 9)]
    assert len({variation.arguments for variation in made} | {"[3, 1], 'abc', k=2"}) == 9
    for variation in made:
        call = ast.parse(f"f({variation.arguments})", mode="eval").body
        assert isinstance(call, ast.Call)
        assert [type(ast.literal_eval(a)) for a in call.args] == [list, str]
        assert [k.arg for k in call.keywords] == ["k"]
        assert (variation.source, variation.entry, variation.output) == (program("").source, "f", None)


def test_a_programs_variations_depend_on_it_alone():
    alone = varied("[1, 2], {'a': 1}, {3, 4}")
    others = [program("1", "q"), program("[1, 2], {'a': 1}, {3, 4}"), program("2", "r")]
    assert [v.arguments for v in mutate(others, CONFIG) if v.id.startswith("p~")] == alone
    assert varied("[1, 2], {'a': 1}, {3, 4}", seed=1) != alone


def test_variations_are_the_same_on_every_machine():
    text = "\n".join(varied("[1, 2], {'a': 1}, {3, 'x'}, (1.5, b'z'), None, True", each=50, changes=4))
    assert hashlib.blake2b(text.encode(), digest_size=8).hexdigest() == "ac41c192b20d1e99"


@pytest.mark.parametrize(
    ("arguments", "count"), [("", 0), ("None", 0), ("make(1), *rest", 0), ("True", 1), ("{}", 0), ("1)(2", 0)]
)
def test_few_or_no_variations(arguments: str, count: int):
    assert len(varied(arguments)) == count


def test_what_is_no_literal_stays():
    for text in varied("Point(1, 2), 5, *more, key=open, **{'a': n}"):
        first, second, *rest = text.split(", ", 3)
        assert (first, second, rest[1]) == ("Point(1", "2)", "*more, key=open, **{'a': n}")
        assert rest[0] != "5"


def test_variations_stay_short():
    assert all(len(text) <= 40 for text in varied("'abcdefghijklmnopqrst'", longest=40, each=50, changes=9))


def test_settings_below_one_are_refused():
    with pytest.raises(UserError, match="each=0"):
        list(mutate([], MutationConfig(each=0)))
