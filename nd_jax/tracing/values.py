"""Text of a value, as a debugger shows it: canonical, bounded, and made without running the program's code.

``repr`` will not do: it runs a class's own ``__repr__`` (which may raise, print or change the program's
state), shows addresses, has no bound, and raises on integers of more than 4,300 digits. The rules:

- Exact built-in atoms and containers look as ``repr`` shows them, so most texts are literals.
- An instance of a class is ``C(x=1)``, from its attributes; a function, iterator, module or other opaque
  object is ``<function f>``, ``<list_iterator>``: no address, no path, never iterated.
- At most `TEXT` characters a value, `ITEMS` items a container, `DEPTH` nested containers; what is left out is
  counted in a marker ``<+N>``. Integers of more than 40 digits are ``<int N bits>``.
- A set keeps its iteration order if it holds numbers only, which hash alike in every process; otherwise its
  items are sorted by their text.
- No text holds a line break, and every text is valid UTF-8: ``repr`` escapes both.

Standard library only: this runs inside the recording process, next to the program. Here are the common
values, at the speed of C; `nd_jax.tracing.compound` has the rest.
"""

from builtins import (  # noqa: UP029  # bound here: the program may replace them
    bool,
    bytes,
    dict,
    float,
    frozenset,
    id,
    int,
    len,
    list,
    map,
    repr,
    str,
    tuple,
    type,
)  # fmt: skip
from typing import Any

from nd_jax.tracing.compound import BIG, DEPTH, ITEMS, TEXT, args_of, bounded
from nd_jax.tracing.identity import by_identity

_NONE, _LEAST, _LONG = type(None), -BIG, 2 * TEXT


def render(value: object) -> str:
    """Show any value as one line of at most `TEXT` characters; see the module's rules."""
    if type(value) is int and _LEAST < value < BIG:
        return repr(value)
    fast = FAST.get(id(type(value)))
    return bounded(value)[0] if fast is None else fast(value)


def is_cut(value: object) -> bool:
    """Tell whether `render` leaves a part of this value out (``<+N>`` or ``<int N bits>``)."""
    return bounded(value)[1]


def render_exception(error: BaseException) -> str:
    """Show an exception as its type and arguments, ``KeyError('k')``."""
    return bounded(error)[0]


def describe_exception(error: BaseException) -> str:
    """Describe an exception in one line for people: ``TypeName: message``."""
    args = args_of(error)
    if type(error) is SyntaxError and error.lineno is not None:
        args = (f"{error.msg} (line {error.lineno})",)
    text = render(args[0])[1:-1] if args and type(args[0]) is str else ", ".join(map(render, args))
    return f"{render_exception(error).partition('(')[0]}: {text}"


def _show_int(value: int) -> str:
    return repr(value) if _LEAST < value < BIG else f"<int {value.bit_length()} bits>"


def _show_str(value: str) -> str:
    if len(value) < TEXT:
        text = repr(value)
        if len(text) <= TEXT:
            return text
    return bounded(value)[0]


def _are_short_atoms(items: Any) -> bool:
    """Tell whether all items are atoms that look as ``repr`` shows them, and not long ones."""
    length = 0
    for item in items:
        kind = type(item)
        if kind is int:
            if not _LEAST < item < BIG:
                return False
        elif kind is str or kind is bytes:
            length += len(item)
        elif kind is not float and kind is not bool and item is not None:
            return False
    return length < TEXT


def flat(value: Any) -> str | None:
    """Show a short list, tuple or dict of short atoms; None for any other."""
    if len(value) > ITEMS or not _are_short_atoms(value):
        return None
    if type(value) is dict and not _are_short_atoms(value.values()):
        return None
    text = repr(value)
    return text if len(text) <= TEXT else None


def _least_length(items: Any, depth: int) -> int:
    """Count characters that the items of a container need at least; many where ``repr`` may not show one."""
    length = 2 * len(items)  # what separates them
    for item in items:
        kind = type(item)
        if kind is int:
            if not _LEAST < item < BIG:
                return _LONG
        elif kind is str or kind is bytes:
            length += len(item)
        elif kind is list or kind is tuple or kind is dict:
            length += _least_length_of(item, depth + 1)
            if length > TEXT:
                return length
        elif kind is not float and kind is not bool and item is not None:
            return _LONG
    return length


def _least_length_of(value: Any, depth: int) -> int:
    if len(value) > ITEMS or depth == DEPTH:
        return _LONG
    length = _least_length(value, depth)
    return length + _least_length(value.values(), depth) if type(value) is dict else length


def show_container(value: list[Any] | tuple[Any, ...] | dict[Any, Any]) -> str:
    """Show a list, tuple or dict."""
    if _least_length_of(value, 0) <= TEXT:
        text = repr(value)
        if len(text) <= TEXT:
            return text
    return bounded(value)[0]


# `render` of the common types, by identity of the type.
FAST: dict[int, Any] = by_identity(
    {int: _show_int, str: _show_str, float: repr, bool: repr, _NONE: repr, list: show_container,
     tuple: show_container, dict: show_container}
)  # fmt: skip
# Types that are immutable and whose text depends on nothing else.
ATOMS = frozenset(map(id, (int, str, float, bool, _NONE)))
