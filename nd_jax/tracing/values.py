"""Text of a value, as a debugger shows it: canonical, bounded, and made without running the program's code.

``repr`` will not do: it runs a class's own ``__repr__`` (which may raise, print or change the program's state),
shows addresses, has no bound, and raises on integers of more than 4,300 digits. The rules:

- Exact built-in atoms and containers look as ``repr`` shows them, so most texts are literals.
- An instance of a class is ``C(x=1)``, from its attributes; a function, iterator, module or other opaque object
  is ``<function f>``, ``<list_iterator>``: no address, no path, never iterated.
- At most `TEXT` characters a value, `ITEMS` items a container, `DEPTH` nested containers; what is left out is
  counted in a marker ``<+N>``. Integers of more than 40 digits are ``<int N bits>``.
- A set keeps its iteration order if it holds numbers only, which hash alike in every process; otherwise its items
  are sorted by their text.
- No text holds a line break, and every text is valid UTF-8: ``repr`` escapes both.

Types are told apart by identity, since even ``==`` or a hash of a class can be the program's own code (its
metaclass's). Standard library only: this runs inside the recording process, next to the program. Built-ins are bound at import,
so a program that replaces them changes nothing here.
"""

import array
import builtins
import collections
import datetime
import decimal
import enum
import fractions
import re
import types
from collections.abc import Iterable, Iterator
from itertools import islice as _islice
from typing import Any

TEXT, ITEMS, DEPTH = 512, 64, 8
BIG = 10**40
_repr, _type, _len, _set, _map, _max, _min, _sum, _id = (
    builtins.repr, builtins.type, builtins.len, builtins.set, builtins.map, builtins.max, builtins.min,
    builtins.sum, builtins.id,
)  # fmt: skip
_sorted, _enumerate, _list, _dict, _str, _int, _tuple = (
    builtins.sorted, builtins.enumerate, builtins.list, builtins.dict,
    builtins.str, builtins.int, builtins.tuple,
)  # fmt: skip
_float, _bytes, _frozenset, _bytearray = (
    builtins.float,
    builtins.bytes,
    builtins.frozenset,
    builtins.bytearray,
)
_NONE = type(None)
_INT, _STR, _TUPLE, _CLASS, _ERROR, _ENUM = map(id, (int, str, tuple, type, BaseException, enum.Enum))
_ATOMS = frozenset(map(id, (int, str, float, bool, _NONE)))
_NUMBERS = frozenset(map(id, (int, float, bool)))
_mro_of = type.__dict__["__mro__"].__get__
_name_of = type.__dict__["__name__"].__get__
_namespace_of = type.__dict__["__dict__"].__get__
_flags_of = type.__dict__["__flags__"].__get__
_args_of = BaseException.__dict__["args"].__get__


def render(value: object) -> str:
    """Show any value as one line of at most `TEXT` characters; see the module's rules."""
    fast = FAST.get(_id(_type(value)))
    return _bounded(value)[0] if fast is None else fast(value)


def is_cut(value: object) -> bool:
    """Tell whether `render` leaves a part of this value out (``<+N>`` or ``<int N bits>``)."""
    return _bounded(value)[1]


def render_exception(error: BaseException) -> str:
    """Show an exception as its type and arguments, ``KeyError('k')``."""
    return _bounded(error)[0]


def _bounded(value: object) -> tuple[str, bool]:
    for room in (TEXT, TEXT * 3 // 4):  # an item may overshoot its room a little: then once more, in less
        writer = _Writer()
        text = writer.show(value, room, 0)
        if _len(text) <= TEXT:
            return text, writer.cut
    keep = TEXT - 16
    return f"{text[:keep]}<+{_len(text) - keep}>", True


# The common values, at the speed of C: atoms, and containers of atoms whose text is short.


def _show_int(value: int) -> str:
    return _repr(value) if -BIG < value < BIG else f"<int {value.bit_length()} bits>"


def _show_str(value: str) -> str:
    if _len(value) < TEXT:
        text = _repr(value)
        if _len(text) <= TEXT:
            return text
    return _bounded(value)[0]


def _flat(items: Any) -> bool:
    """Tell whether all items are atoms whose ``repr`` is wanted and will not be long."""
    kinds = _set(_map(_id, _map(_type, items)))
    if not kinds <= _ATOMS:
        return False
    if _INT in kinds:
        numbers = items if _len(kinds) == 1 else [item for item in items if _type(item) is _int]
        if _max(numbers) >= BIG or _min(numbers) <= -BIG:
            return False
    return _STR not in kinds or _sum([_len(item) for item in items if _type(item) is _str]) < TEXT


def _show_sequence(value: list[Any] | tuple[Any, ...]) -> str:
    if _len(value) <= ITEMS and _flat(value):
        text = _repr(value)
        if _len(text) <= TEXT:
            return text
    return _bounded(value)[0]


def _show_dict(value: dict[Any, Any]) -> str:
    if _len(value) <= ITEMS and _flat(value) and _flat(value.values()):
        text = _repr(value)
        if _len(text) <= TEXT:
            return text
    return _bounded(value)[0]


def _by_identity(table: dict[type, Any]) -> dict[int, Any]:
    return {id(kind): entry for kind, entry in table.items()}


FAST: dict[int, Any] = _by_identity(  # `render` of the common types, by identity of the type
    {
        int: _show_int,
        str: _show_str,
        float: repr,
        bool: repr,
        _NONE: repr,
        list: _show_sequence,
        tuple: _show_sequence,
        dict: _show_dict,
    }
)
_AS_REPR = frozenset(  # types whose repr is C code that shows no address and calls nobody else
    map(id, (float, bool, _NONE, complex, decimal.Decimal, datetime.date, datetime.timedelta,
             type(NotImplemented), type(Ellipsis)))
)  # fmt: skip
_RECURSIVE = _by_identity({list: "[...]", dict: "{...}", tuple: "(...)"})
_VIEWS = _by_identity(
    {type({}.keys()): "dict_keys", type({}.values()): "dict_values", type({}.items()): "dict_items"}
)
_NAMED = _by_identity(
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
_module_dict = types.ModuleType.__dict__["__dict__"].__get__
_numerator = fractions.Fraction.__dict__["_numerator"].__get__
_denominator = fractions.Fraction.__dict__["_denominator"].__get__


def _bases(kind: type) -> set[int]:
    return _set(_map(_id, _mro_of(kind)))


def _word(name: object) -> str:
    """Show a name that the program may have set to anything."""
    if _STR not in _bases(_type(name)):
        return "?"
    name = _str.__str__(name)[:64]
    return name if _str.isidentifier(name) else _repr(name)[1:-1]


def _attributes(value: object) -> Iterator[tuple[object, object]]:
    """Give an instance's attributes from its slots and its ``__dict__``, running no code of its class."""
    for kind in _mro_of(_type(value)):
        for name, descriptor in _namespace_of(kind).items():
            if _type(descriptor) is types.MemberDescriptorType:
                try:
                    yield name, descriptor.__get__(value)
                except AttributeError:
                    continue
            elif (
                _type(name) is _str and name == "__dict__" and _type(descriptor) is types.GetSetDescriptorType
            ):
                yield from _dict.items(descriptor.__get__(value))


def _is_heap_class(kind: type) -> bool:
    """Tell a class made at run time, as by a ``class`` statement, from most of those written in C."""
    return bool(_flags_of(kind) & (1 << 9))  # Py_TPFLAGS_HEAPTYPE


class _Writer:
    """Shows one value; ``cut`` tells whether something was left out, ``active`` which containers are open."""

    __slots__ = ("active", "cut")

    def __init__(self) -> None:
        self.cut = False
        self.active: set[int] = _set()

    def show(self, value: Any, room: int, depth: int) -> str:
        """Show a value in about ``room`` characters."""
        kind = _type(value)
        if kind is _int:
            return self.integer(value)
        if kind is _str or kind is _bytes:
            return self.string(value, room)
        if _id(kind) in _AS_REPR:
            return self.clamp(_repr(value), room)
        key = _id(value)
        if key in self.active:
            return _RECURSIVE.get(_id(kind), "<...>")
        self.active.add(key)
        try:
            return self.compound(value, kind, room, depth)
        finally:
            self.active.discard(key)

    def integer(self, value: int) -> str:
        if -BIG < value < BIG:
            return _int.__repr__(value)
        self.cut = True
        return f"<int {_int.bit_length(value)} bits>"

    def string(self, value: str | bytes, room: int) -> str:
        size = _len(value)
        keep = size if size < room else _max(room - 8, 8)
        text = _repr(value[:keep])
        while _len(text) > room and keep > 8:  # escapes made it longer
            keep = _max(8, keep * _max(room - 8, 8) // _len(text))
            text = _repr(value[:keep])
        return text if keep >= size else f"{text}{self.left(size - keep)}"

    def clamp(self, text: str, room: int) -> str:
        return text if _len(text) <= room or _len(text) < 48 else f"{text[:40]}{self.left(_len(text) - 40)}"

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
        used = _len(opening) + _len(closing)
        for index, item in _enumerate(items):
            if index == ITEMS or used >= room:
                parts.append(self.left(size - index))
                break
            if pairs:
                text = f"{self.show(item[0], room - used, depth + 1)}: "
                text += self.show(item[1], _max(room - used - _len(text), 16), depth + 1)
            else:
                text = self.show(item, room - used, depth + 1)
            used += _len(text) + 2
            parts.append(text)
        return f"{opening}{', '.join(parts)}{closing}"

    def unordered(self, items: Any, size: int, room: int, depth: int) -> str:
        """Show the items of a non-empty set between braces, in an order that no hash seed changes."""
        if depth >= DEPTH or size > 16 * ITEMS:
            return "{" + self.left(size) + "}"
        if _set(_map(_id, _map(_type, items))) <= _NUMBERS:
            return self.series("{", items, size, "}", room, depth)
        parts: list[str] = []
        used = 2
        texts = _sorted([self.show(item, room, depth + 1) for item in items])
        for index, text in _enumerate(texts):
            if index == ITEMS or used + _len(text) > room:
                parts.append(self.left(size - index))
                break
            used += _len(text) + 2
            parts.append(text)
        return "{" + ", ".join(parts) + "}"

    def fields(self, name: str, fields: Iterable[tuple[object, object]], room: int, depth: int) -> str:
        """Show ``Name(field=value, ...)``."""
        items = _list(_islice(fields, ITEMS + 1))
        if items and depth >= DEPTH:
            return f"{name}({self.left(_len(items))})"
        parts: list[str] = []
        used = _len(name) + 2
        for index, (field, item) in _enumerate(items):
            if index == ITEMS or used >= room:
                parts.append(self.left(_len(items) - index))
                break
            text = f"{_word(field)}={self.show(item, room - used, depth + 1)}"
            used += _len(text) + 2
            parts.append(text)
        return f"{name}({', '.join(parts)})"

    def compound(self, value: Any, kind: type, room: int, depth: int) -> str:
        if kind is _list:
            return self.series("[", value, _len(value), "]", room, depth)
        if kind is _tuple:
            return self.series("(", value, _len(value), ",)" if _len(value) == 1 else ")", room, depth)
        if kind is _dict:
            return self.series("{", value.items(), _len(value), "}", room, depth, pairs=True)
        if kind is _set:
            return self.unordered(value, _len(value), room, depth) if value else "set()"
        if kind is _frozenset:
            inner = self.unordered(value, _len(value), room - 11, depth) if value else ""
            return f"frozenset({inner})"
        library = _LIBRARY.get(_id(kind))
        if library is not None:
            return library(self, value, room, depth)
        if _id(kind) in _VIEWS:
            return self.series(f"{_VIEWS[_id(kind)]}([", value, _len(value), "])", room, depth)
        if _id(kind) in _NAMED:
            word, name_of = _NAMED[_id(kind)]
            return f"<{word} {_word(name_of(value))}>"
        return self.instance(value, kind, room, depth)

    def instance(self, value: Any, kind: type, room: int, depth: int) -> str:
        """Show an instance of a class that is none of the known ones: by what it inherits, then by attributes."""
        name = _word(_name_of(kind))
        bases = _bases(kind)
        if _CLASS in bases:
            return f"<class '{_word(_name_of(value))}'>"
        if _ERROR in bases:
            args = _args_of(value)
            return self.series(f"{name}(", args, _len(args), ")", room, depth)
        heap = _is_heap_class(kind)
        if _ENUM in bases:
            fields = _dict(_attributes(value))
            member = self.show(fields.get("_value_"), room - _len(name), depth + 1)
            return f"<{name}.{_word(fields.get('_name_'))}: {member}>"
        names = _namespace_of(kind).get("_fields")
        if _TUPLE in bases and _type(names) is _tuple and _len(names) == _tuple.__len__(value):
            return self.fields(name, zip(names, _tuple.__iter__(value), strict=True), room, depth)
        if not heap:
            return f"<{name}>"
        for base, plain in _PLAIN.items():
            if _id(base) in bases:
                return f"{name}({self.show(plain(value), room - _len(name), depth + 1)})"
        return self.fields(name, _attributes(value), room, depth)


# Subclasses of built-in types, shown by the value they inherit: C([1, 2]).
_PLAIN: dict[type, Any] = {
    bool: int.__bool__,
    int: lambda value: _int.__add__(value, 0),
    float: lambda value: -_float.__neg__(value),
    str: lambda value: _str.__getitem__(value, slice(None)),
    bytes: lambda value: _bytes.__getitem__(value, slice(None)),
    list: lambda value: _list.__getitem__(value, slice(None)),
    tuple: lambda value: _tuple.__getitem__(value, slice(None)),
    dict: lambda value: _dict(_dict.items(value)),
    set: lambda value: _set(_set.__iter__(value)),
    frozenset: lambda value: _frozenset(_frozenset.__iter__(value)),
}


def _counter(self: _Writer, value: Any, room: int, depth: int) -> str:
    if not _dict.__len__(value):
        return "Counter()"
    items = _list(_dict.items(value))
    if _set(_map(_id, _map(_type, _dict.values(value)))) <= _NUMBERS:
        items.sort(key=lambda item: item[1], reverse=True)
    return self.series("Counter({", items, _len(items), "})", room, depth, pairs=True)


def _defaultdict(self: _Writer, value: Any, room: int, depth: int) -> str:
    opening = f"defaultdict({self.show(value.default_factory, room, depth + 1)}, {{"
    return self.series(opening, _dict.items(value), _dict.__len__(value), "})", room, depth, pairs=True)


def _ordered(self: _Writer, value: Any, room: int, depth: int) -> str:
    if not value:
        return "OrderedDict()"
    return self.series("OrderedDict({", value.items(), _len(value), "})", room, depth, pairs=True)


def _deque(self: _Writer, value: Any, room: int, depth: int) -> str:
    closing = "])" if value.maxlen is None else f"], maxlen={value.maxlen})"
    return self.series("deque([", value, _len(value), closing, room, depth)


def _array(self: _Writer, value: Any, room: int, depth: int) -> str:
    if not value:
        return f"array('{value.typecode}')"
    return self.series(f"array('{value.typecode}', [", value, _len(value), "])", room, depth)


def _when(self: _Writer, value: Any, room: int, depth: int) -> str:
    zone = value.tzinfo
    text = _repr(value.replace(tzinfo=None))
    return text if zone is None else f"{text[:-1]}, tzinfo={self.show(zone, room, depth + 1)})"


def _zone(self: _Writer, value: Any, room: int, depth: int) -> str:
    if value is datetime.timezone.utc:
        return "datetime.timezone.utc"
    return f"datetime.timezone({self.show(value.utcoffset(None), room, depth + 1)})"


def _method(self: _Writer, value: Any, room: int, depth: int) -> str:
    function = value.__func__
    named = _NAMED.get(_id(_type(function)))
    return "<method>" if named is None else f"<method {_word(named[1](function))}>"


def _module(self: _Writer, value: Any, room: int, depth: int) -> str:
    return f"<module {_word(_module_dict(value).get('__name__'))}>"


def _bytearray_text(self: _Writer, value: Any, room: int, depth: int) -> str:
    text = self.string(_bytes(value[:room]), room)
    return f"bytearray({text}{self.left(_len(value) - room) if _len(value) > room else ''})"


def _range(self: _Writer, value: range, room: int, depth: int) -> str:
    ends = [value.start, value.stop] if value.step == 1 else [value.start, value.stop, value.step]
    return self.series("range(", ends, _len(ends), ")", room, depth)


_LIBRARY: dict[int, Any] = _by_identity(
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
