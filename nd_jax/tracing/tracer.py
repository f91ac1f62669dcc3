"""The ``sys.settrace`` callback that records one run. Standard library only."""

import sys
import types
from builtins import (  # noqa: UP029  # bound here: the program may replace them
    BaseException,
    MemoryError,
    all,
    dict,
    enumerate,
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
from dataclasses import dataclass
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_OPTIMIZED
from opcode import opmap
from operator import is_
from typing import Any, NamedTuple

from nd_jax.tracing.schema import CALL, EXCEPTION, LINE, RESUME, RETURN, UNWIND, YIELD
from nd_jax.tracing.values import ATOMS, BIG, FAST, flat_sequence, is_cut, render, render_exception

FILE = "".join(("<program", ">"))  # an object of its own: the program's frames are told by its identity
_RETURNS = frozenset(opmap[name] for name in ("RETURN_VALUE", "RETURN_CONST") if name in opmap)
_YIELDS = frozenset(opmap[name] for name in ("YIELD_VALUE", "SEND", "RESUME"))
_LOCALS_ARE_VIEWS = sys.version_info >= (3, 13)  # PEP 667: each look-up searches; a copy is faster
_SUSPENDS = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
_LEAST = -BIG
_NO_PARTS: tuple[Any, ...] | None = None
_NOTHING: Any = object()
_CLASS_NAMES = frozenset(  # what the interpreter itself binds in a class body
    ("__module__", "__qualname__", "__firstlineno__", "__static_attributes__", "__classdict__", "__class__",
     "__conditional_annotations__")
)  # fmt: skip


@dataclass(frozen=True)
class TraceLimits:
    """How large a trace may grow; a larger one is dropped, never cut."""

    events: int = 2_000
    """Most events of one trace."""
    depth: int = 60
    """Most frames of the program open at once."""


class Dropped(NamedTuple):
    """Why a program has no trace: a short reason to count by, and the detail to read."""

    reason: str
    detail: str = ""


class _Stop(BaseException):
    """Raised into a program whose trace is lost, to end it."""


class _Code:
    """What the tracer needs of a code object, made once per code."""

    __slots__ = ("code", "is_class", "name", "names", "ops", "suspends")

    def __init__(self, code: types.CodeType) -> None:
        self.code = code  # keeps it alive: the tracer tells codes by id
        self.name = code.co_name
        self.ops = code.co_code
        self.suspends = bool(code.co_flags & _SUSPENDS)
        self.is_class = not code.co_flags & CO_OPTIMIZED
        names = dict.fromkeys((*code.co_varnames, *code.co_cellvars, *code.co_freevars))
        self.names = tuple(enumerate(name for name in names if name.isidentifier()))


class Recorder:
    """The tracer of one run; `start` is what ``sys.settrace`` gets.

    Attributes:
      events: plain tuples in the order of `nd_jax.tracing.schema.Event`'s fields.
      functions: the function names of the frames, by frame.
      stack: the frames that are open, outermost first.
      problem: why the trace is lost, if it is.
    """

    __slots__ = ("codes", "events", "functions", "limits", "problem", "stack")

    def __init__(self, limits: TraceLimits) -> None:
        self.limits = limits
        self.events: list[tuple[Any, ...]] = []
        self.functions: list[str] = []
        self.stack: list[int] = []
        self.problem: Dropped | None = None
        self.codes: dict[int, _Code] = {}

    def fail(self, reason: str, detail: str = "") -> None:
        """Give the trace up; the first reason counts."""
        if self.problem is None:
            self.problem = Dropped(reason, detail)

    def start(self, frame: types.FrameType, event: str, arg: Any) -> Any:
        """Trace a frame that is entered, if it is the program's."""
        code = frame.f_code
        known = self.codes.get(id(code))
        if known is None:
            if code.co_filename is not FILE:
                return None
            known = self.codes[id(code)] = _Code(code)
        if (
            self.events and not self.stack
        ):  # the root has returned: what runs now (finalisers) is no part of it
            return None
        trace = frame.f_trace if known.suspends else None
        if trace is not None:
            return trace(frame, RESUME, None)
        functions = self.functions
        followed = _Frame(self, len(functions), known)
        functions.append(known.name)
        return followed.trace(frame, CALL, None)


class _Frame:
    """The tracer of one frame.

    ``texts`` is what each local last looked like: the same atom (``same``), or a list of the same atoms
    (``before``), looks the same again. Nothing else is remembered: it could have changed, and to hold it
    would delay its finaliser.
    """

    __slots__ = ("before", "code", "depth", "fid", "raised_at", "run", "same", "texts")

    def __init__(self, run: Recorder, fid: int, code: _Code) -> None:
        self.run, self.fid, self.code = run, fid, code
        self.depth, self.raised_at = 0, -1
        size = len(code.names)
        self.same, self.before, self.texts = [_NOTHING] * size, [_NO_PARTS] * size, [""] * size

    def trace(self, frame: types.FrameType, kind: str, arg: Any) -> Any:
        """Record one event of the frame."""
        run = self.run
        events = run.events
        value = None
        try:
            if kind == LINE:
                if not run.stack:
                    return None
                self.raised_at = -1
            else:
                kind, value = self.other(frame, kind, arg)
                if kind is None:
                    return self.trace
            if self.code.is_class:
                shown = _class_locals(frame.f_locals)
            else:
                shown = self.show(frame.f_locals)
                if not events:
                    self.check_arguments(frame.f_locals, shown)
            events.append((kind, frame.f_lineno, self.fid, self.depth, shown, value))
            if len(events) > run.limits.events:
                run.fail("too many events", f"more than {run.limits.events}")
        except BaseException as error:
            run.fail("tracer failed", type(error).__name__)
        if run.problem is not None:
            raise _Stop
        return self.trace

    def other(self, frame: types.FrameType, kind: str, arg: Any) -> tuple[Any, str | None]:
        """Take an event that is no line: its kind in our terms (None: not recorded) and its value."""
        run, stack = self.run, self.run.stack
        if kind == CALL:
            self.enter()
            return kind, None
        if not stack:
            return None, None
        if kind == RETURN:
            kind = self.leaves_by(frame, arg)
            value = None if kind == UNWIND else render(arg)
            self.raised_at = -1
            if stack.pop() != self.fid:
                run.fail("frames do not nest")
            if not frame.f_trace_lines:
                run.fail("tracer replaced", "f_trace_lines")
            if value is not None and not stack and "<" in value and is_cut(arg):
                run.fail("result cut", value)
            return kind, value
        if kind == EXCEPTION:
            if arg[2] is None:  # the interpreter's own StopIteration
                return None, None
            self.raised_at = frame.f_lasti
            if arg[0] is MemoryError:
                run.fail("memory", "MemoryError")
            return kind, render_exception(arg[1])
        if kind == RESUME:
            self.enter()
            return kind, None
        return None, None  # "opcode", which only a program could have asked for

    def check_arguments(self, found: Any, shown: dict[str, str]) -> None:
        """Refuse a call whose arguments are not shown in full: its inverse could not be learnt."""
        for name, text in shown.items():
            if "<" in text and is_cut(found[name]):
                self.run.fail("argument cut", f"{name}={text}")

    def enter(self) -> None:
        """Open the frame."""
        run = self.run
        self.depth = len(run.stack)
        if self.depth >= run.limits.depth:
            run.fail("too deep", f"more than {run.limits.depth} frames")
        run.stack.append(self.fid)

    def leaves_by(self, frame: types.FrameType, arg: Any) -> str:
        """Tell how a frame is left: where none of these instructions leaves it, an exception does."""
        instruction = self.code.ops[frame.f_lasti]
        if instruction in _RETURNS:
            return RETURN
        if instruction in _YIELDS and not (arg is None and frame.f_lasti == self.raised_at):
            return YIELD
        return UNWIND

    def show(self, found: Any) -> dict[str, str]:
        """Show the locals of a function, in slot order."""
        same, before, texts = self.same, self.before, self.texts
        shown: dict[str, str] = {}
        if _LOCALS_ARE_VIEWS:
            found = dict(found)
        for index, name in self.code.names:
            if name not in found:
                continue
            item = found[name]
            if item is same[index]:
                shown[name] = texts[index]
                continue
            kind = type(item)
            if kind is str:
                text = repr(item) if len(item) < 50 else render(item)  # an escape has at most ten characters
                same[index], before[index] = item, None
            elif kind is int:
                text = repr(item) if _LEAST < item < BIG else render(item)
                same[index], before[index] = item, None
            elif kind is list:
                parts = before[index]
                if parts is not None and len(parts) == len(item) and all(map(is_, parts, item)):
                    shown[name] = texts[index]
                    continue
                text = flat_sequence(item)
                same[index], before[index] = _NOTHING, None if text is None else tuple(item)
                if text is None:
                    text = render(item)
            else:
                show = FAST.get(id(kind))
                text = render(item) if show is None else show(item)
                same[index], before[index] = item if id(kind) in ATOMS else _NOTHING, None
            shown[name] = texts[index] = text
        return shown


def _class_locals(found: Any) -> dict[str, str]:
    """Show a class body's names in order of binding; none where a metaclass keeps them in its own mapping."""
    if type(found) is not dict:
        return {}
    return {
        name: render(item)
        for name, item in found.items()
        if type(name) is str and name.isidentifier() and name not in _CLASS_NAMES
    }
