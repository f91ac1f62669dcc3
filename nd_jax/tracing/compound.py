"""Text of a value that is no plain atom: the bounded, structural part of `nd_jax.tracing.values`.

Types are told apart by identity, since even ``==`` or a hash of a class can be the program's own code (its
metaclass's); attributes are read from the instance, never looked up through its class.
"""

import datetime
import decimal
import enum
import types
from builtins import (  # noqa: UP029  # bound here: the program may replace them
    BaseException,
    bool,
    bytes,
    dict,
    enumerate,
    float,
    frozenset,
    id,
    int,
    len,
    list,
    map,
    max,
    repr,
    set,
    slice,
    sorted,
    str,
    tuple,
    type,
    zip,
)  # fmt: skip
from collections.abc import Iterable, Iterator
from gc import get_referents
from itertools import islice
from typing import Any

from nd_jax.tracing.identity import NAMED, NUMBERS, bases, by_identity, mro_of, word
from nd_jax.tracing.stdlib_types import LIBRARY

TEXT, ITEMS, DEPTH = 512, 64, 8
BIG = 10**40
_TUPLE, _CLASS, _ERROR, _ENUM = map(id, (tuple, type, BaseException, enum.Enum))
_name_of = type.__dict__["__name__"].__get__
_namespace_of: Any = vars(type)["__dict__"].__get__
_flags_of: Any = type.__dict__["__flags__"].__get__
args_of = BaseException.__dict__["args"].__get__
_AS_REPR = frozenset(  # types whose repr is C code that shows no address and calls nobody else
    map(id, (float, bool, type(None), complex, decimal.Decimal, datetime.date, datetime.timedelta,
             type(NotImplemented), type(Ellipsis)))
)  # fmt: skip
_RECURSIVE = by_identity({list: "[...]", dict: "{...}", tuple: "(...)"})
_VIEWS = by_identity(
    {type({}.keys()): "dict_keys", type({}.values()): "dict_values", type({}.items()): "dict_items"}
)


def bounded(value: object) -> tuple[str, bool]:
    """Show any value in at most `TEXT` characters, and tell whether something was left out."""
    for room in (TEXT, TEXT * 3 // 4):  # an item may overshoot its room a little: then once more, in less
        writer = Writer()
        text = writer.show(value, room, 0)
        if len(text) <= TEXT:
            return text, writer.cut
    keep = TEXT - 16
    return f"{text[:keep]}<+{len(text) - keep}>", True


def _attributes(value: object) -> Iterator[tuple[object, object]]:
    """Give an instance's attributes from its slots and its ``__dict__``, running no code of its class."""
    for kind in mro_of(type(value)):
        for name, descriptor in _namespace_of(kind).items():
            if type(descriptor) is types.MemberDescriptorType:
                try:
                    yield name, descriptor.__get__(value)
                except AttributeError:
                    continue
            elif type(name) is str and name == "__dict__" and type(descriptor) is types.GetSetDescriptorType:
                yield from dict.items(descriptor.__get__(value))


def _is_heap_class(kind: type) -> bool:
    """Tell a class made at run time, as by a ``class`` statement, from most of those written in C."""
    return bool(_flags_of(kind) & (1 << 9))  # Py_TPFLAGS_HEAPTYPE


class Writer:
    """Shows one value; ``cut`` tells whether something was left out, ``active`` which containers are open."""

    __slots__ = ("active", "cut")

    def __init__(self) -> None:
        self.cut = False
        self.active: set[int] = set()

    def show(self, value: Any, room: int, depth: int) -> str:
        """Show a value in about ``room`` characters."""
        kind = type(value)
        if kind is int:
            return self.integer(value)
        if kind is str or kind is bytes:
            return self.string(value, room)
        if id(kind) in _AS_REPR:
            return self.clamp(repr(value), room)
        key = id(value)
        if key in self.active:
            return _RECURSIVE.get(id(kind), "<...>")
        self.active.add(key)
        try:
            return self.compound(value, kind, room, depth)
        finally:
            self.active.discard(key)

    def integer(self, value: int) -> str:
        if -BIG < value < BIG:
            return int.__repr__(value)
        self.cut = True
        return f"<int {int.bit_length(value)} bits>"

    def string(self, value: str | bytes, room: int) -> str:
        size = len(value)
        keep = size if size < room else max(room - 8, 8)
        text = repr(value[:keep])
        while len(text) > room and keep > 8:  # escapes made it longer
            keep = max(8, keep * max(room - 8, 8) // len(text))
            text = repr(value[:keep])
        return text if keep >= size else f"{text}{self.left(size - keep)}"

    def clamp(self, text: str, room: int) -> str:
        return text if len(text) <= room or len(text) < 48 else f"{text[:40]}{self.left(len(text) - 40)}"

    def left(self, count: int) -> str:
        self.cut = True
        return f"<+{count}>"

    def series(
        self,
        opening: str,
        items: Iterable[Any],
        size: int,
        closing: str,
        room: int,
        depth: int,
        pairs: bool = False,
    ) -> str:
        """Show the items of a container between its brackets, as many as fit."""
        if size and depth >= DEPTH:
            return f"{opening}{self.left(size)}{closing}"
        parts: list[str] = []
        used = len(opening) + len(closing)
        for index, item in enumerate(items):
            if index == ITEMS or used >= room:
                parts.append(self.left(size - index))
                break
            if pairs:
                text = f"{self.show(item[0], room - used, depth + 1)}: "
                text += self.show(item[1], max(room - used - len(text), 16), depth + 1)
            else:
                text = self.show(item, room - used, depth + 1)
            used += len(text) + 2
            parts.append(text)
        return f"{opening}{', '.join(parts)}{closing}"

    def unordered(self, items: Any, size: int, room: int, depth: int) -> str:
        """Show the items of a non-empty set between braces, in an order that no hash seed changes."""
        if depth >= DEPTH or size > 16 * ITEMS:
            return "{" + self.left(size) + "}"
        if set(map(id, map(type, items))) <= NUMBERS:
            return self.series("{", items, size, "}", room, depth)
        parts: list[str] = []
        used = 2
        texts = sorted([self.show(item, room, depth + 1) for item in items])
        for index, text in enumerate(texts):
            if index == ITEMS or used + len(text) > room:
                parts.append(self.left(size - index))
                break
            used += len(text) + 2
            parts.append(text)
        return "{" + ", ".join(parts) + "}"

    def fields(self, name: str, fields: Iterable[tuple[object, object]], room: int, depth: int) -> str:
        """Show ``Name(field=value, ...)``."""
        items = list(islice(fields, ITEMS + 1))
        if items and depth >= DEPTH:
            return f"{name}({self.left(len(items))})"
        parts: list[str] = []
        used = len(name) + 2
        for index, (field, item) in enumerate(items):
            if index == ITEMS or used >= room:
                parts.append(self.left(len(items) - index))
                break
            text = f"{word(field)}={self.show(item, room - used, depth + 1)}"
            used += len(text) + 2
            parts.append(text)
        return f"{name}({', '.join(parts)})"

    def compound(self, value: Any, kind: type, room: int, depth: int) -> str:
        if kind is list:
            return self.series("[", value, len(value), "]", room, depth)
        if kind is tuple:
            return self.series("(", value, len(value), ",)" if len(value) == 1 else ")", room, depth)
        if kind is dict:
            return self.series("{", value.items(), len(value), "}", room, depth, pairs=True)
        if kind is set:
            return self.unordered(value, len(value), room, depth) if value else "set()"
        if kind is frozenset:
            inner = self.unordered(value, len(value), room - 11, depth) if value else ""
            return f"frozenset({inner})"
        library = LIBRARY.get(id(kind))
        if library is not None:
            return library(self, value, room, depth)
        if id(kind) in _VIEWS:
            return self.series(f"{_VIEWS[id(kind)]}([", value, len(value), "])", room, depth)
        if id(kind) in NAMED:
            label, name_of = NAMED[id(kind)]
            return f"<{label} {word(name_of(value))}>"
        return self.instance(value, kind, room, depth)

    def instance(self, value: Any, kind: type, room: int, depth: int) -> str:
        """Show an instance of any other class: by what it inherits, then by attributes."""
        name = word(_name_of(kind))
        inherited = bases(kind)
        if _CLASS in inherited:
            return f"<class '{word(_name_of(value))}'>"
        if _ERROR in inherited:
            args = args_of(value)
            return self.series(f"{name}(", args, len(args), ")", room, depth)
        heap = _is_heap_class(kind)
        if _ENUM in inherited:
            fields = dict(_attributes(value))
            member = self.show(fields.get("_value_"), room - len(name), depth + 1)
            return f"<{name}.{word(fields.get('_name_'))}: {member}>"
        names = _namespace_of(kind).get("_fields")
        if _TUPLE in inherited and type(names) is tuple and len(names) == tuple.__len__(value):
            return self.fields(name, zip(names, tuple.__iter__(value), strict=True), room, depth)
        if not heap:
            if name == "async_generator_wrapped_value":  # what a tracer sees of an asynchronous yield
                return self.show(get_referents(value)[0], room, depth)
            return f"<{name}>"
        for base, plain in _PLAIN.items():
            if id(base) in inherited:
                return f"{name}({self.show(plain(value), room - len(name), depth + 1)})"
        return self.fields(name, _attributes(value), room, depth)


# Subclasses of built-in types, shown by the value they inherit: C([1, 2]).
_PLAIN: dict[type, Any] = {
    bool: int.__bool__,
    int: lambda value: int.__add__(value, 0),
    float: lambda value: -float.__neg__(value),
    str: lambda value: str.__getitem__(value, slice(None)),
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
    list: lambda value: list.__getitem__(value, slice(None)),
    tuple: lambda value: tuple.__getitem__(value, slice(None)),
    dict: lambda value: dict(dict.items(value)),
    set: lambda value: set(set.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
}
