"""Types told apart by identity: ``==`` or a hash of a class can be code of the program (of its metaclass)."""

import types
from builtins import (  # noqa: UP029  # bound here: the program may replace them
    bool,
    dict,
    float,
    frozenset,
    id,
    int,
    map,
    repr,
    set,
    str,
    type,
)  # fmt: skip
from typing import Any

mro_of = type.__dict__["__mro__"].__get__
_STR = id(str)
NUMBERS = frozenset(map(id, (int, float, bool)))


def by_identity(table: dict[type, Any]) -> dict[int, Any]:
    """Index a table by the identity of its types."""
    return {id(kind): entry for kind, entry in table.items()}


# What is shown by its name only: the word before it, and how to read it.
NAMED = by_identity(
    {
        types.FunctionType: ("function", types.FunctionType.__dict__["__name__"].__get__),
        types.BuiltinFunctionType: (
            "built-in function",
            types.BuiltinFunctionType.__dict__["__name__"].__get__,
        ),
        types.GeneratorType: ("generator", types.GeneratorType.__dict__["__name__"].__get__),
        types.CoroutineType: ("coroutine", types.CoroutineType.__dict__["__name__"].__get__),
        types.AsyncGeneratorType: ("async_generator", types.AsyncGeneratorType.__dict__["__name__"].__get__),
        types.CodeType: ("code", types.CodeType.__dict__["co_name"].__get__),
    }
)


def bases(kind: type) -> set[int]:
    """Give the identities of a class and all that it inherits from."""
    return set(map(id, mro_of(kind)))


def word(name: Any) -> str:
    """Show a name that the program may have set to anything."""
    if _STR not in bases(type(name)):
        return "?"
    name = str.__str__(name)[:64]
    return name if str.isidentifier(name) else repr(name)[1:-1]
