"""How the standard library's common types are shown: as their ``repr``, but bounded and without addresses."""

import array
import collections
import datetime
import fractions
import re
import types
from builtins import (  # noqa: UP029  # bound here: the program may replace them
    bytearray,
    bytes,
    dict,
    id,
    len,
    list,
    map,
    range,
    set,
    slice,
    type,
)  # fmt: skip
from typing import TYPE_CHECKING, Any

from nd_jax.tracing.identity import NAMED, NUMBERS, by_identity, word

if TYPE_CHECKING:
    from nd_jax.tracing.compound import Writer

_module_dict: Any = vars(types.ModuleType)["__dict__"].__get__
_numerator = fractions.Fraction.__dict__["_numerator"].__get__
_denominator = fractions.Fraction.__dict__["_denominator"].__get__


def _counter(self: "Writer", value: Any, room: int, depth: int) -> str:
    if not dict.__len__(value):
        return "Counter()"
    items = list(dict.items(value))
    if set(map(id, map(type, dict.values(value)))) <= NUMBERS:
        items.sort(key=lambda item: item[1], reverse=True)
    return self.series("Counter({", items, len(items), "})", room, depth, pairs=True)


def _defaultdict(self: "Writer", value: Any, room: int, depth: int) -> str:
    opening = f"defaultdict({self.show(value.default_factory, room, depth + 1)}, {{"
    return self.series(opening, dict.items(value), dict.__len__(value), "})", room, depth, pairs=True)


def _ordered(self: "Writer", value: Any, room: int, depth: int) -> str:
    if not value:
        return "OrderedDict()"
    return self.series("OrderedDict({", value.items(), len(value), "})", room, depth, pairs=True)


def _deque(self: "Writer", value: Any, room: int, depth: int) -> str:
    closing = "])" if value.maxlen is None else f"], maxlen={value.maxlen})"
    return self.series("deque([", value, len(value), closing, room, depth)


def _array(self: "Writer", value: Any, room: int, depth: int) -> str:
    if not value:
        return f"array('{value.typecode}')"
    return self.series(f"array('{value.typecode}', [", value, len(value), "])", room, depth)


def _when(self: "Writer", value: Any, room: int, depth: int) -> str:
    zone = value.tzinfo
    text = repr(value.replace(tzinfo=None))
    return text if zone is None else f"{text[:-1]}, tzinfo={self.show(zone, room, depth + 1)})"


def _zone(self: "Writer", value: Any, room: int, depth: int) -> str:
    if value is datetime.UTC:
        return "datetime.timezone.utc"
    return f"datetime.timezone({self.show(value.utcoffset(None), room, depth + 1)})"


def _method(self: "Writer", value: Any, room: int, depth: int) -> str:
    function = value.__func__
    named = NAMED.get(id(type(function)))
    return "<method>" if named is None else f"<method {word(named[1](function))}>"


def _module(self: "Writer", value: Any, room: int, depth: int) -> str:
    return f"<module {word(_module_dict(value).get('__name__'))}>"


def _bytearray_text(self: "Writer", value: Any, room: int, depth: int) -> str:
    text = self.string(bytes(value[:room]), room)
    return f"bytearray({text}{self.left(len(value) - room) if len(value) > room else ''})"


def _range(self: "Writer", value: range, room: int, depth: int) -> str:
    ends = [value.start, value.stop] if value.step == 1 else [value.start, value.stop, value.step]
    return self.series("range(", ends, len(ends), ")", room, depth)


LIBRARY: dict[int, Any] = by_identity(
    {
        collections.Counter: _counter,
        collections.defaultdict: _defaultdict,
        collections.OrderedDict: _ordered,
        collections.deque: _deque,
        array.array: _array,
        bytearray: _bytearray_text,
        datetime.datetime: _when,
        datetime.time: _when,
        datetime.timezone: _zone,
        range: _range,
        slice: lambda self, value, room, depth: self.series(
            "slice(", (value.start, value.stop, value.step), 3, ")", room, depth
        ),
        fractions.Fraction: lambda self, value, room, depth: self.series(
            "Fraction(", (_numerator(value), _denominator(value)), 2, ")", room, depth
        ),
        memoryview: lambda self, value, room, depth: "<memory>",
        re.Pattern: lambda self, value, room, depth: (
            f"re.compile({self.show(value.pattern, room, depth + 1)})"
        ),
        re.Match: lambda self, value, room, depth: (
            f"<re.Match span={value.span()}, match={self.show(value.group(), room, depth + 1)}>"
        ),
        types.MethodType: _method,
        types.ModuleType: _module,
    }
)
