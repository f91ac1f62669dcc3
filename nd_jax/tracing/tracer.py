"""The ``sys.settrace`` callback that records one run. Standard library only."""

import sys
import types
from builtins import (  # noqa: UP029  # bound here: the program may replace them
    BaseException,
    MemoryError,
    all,
    dict,
    enumerate,
    filter,
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
from typing import Any, NamedTuple, NoReturn

from nd_jax.tracing.schema import CALL, EXCEPTION, LINE, RESUME, RETURN, UNWIND, YIELD
from nd_jax.tracing.values import ATOMS, BIG, FAST, flat, is_cut, render, render_exception

FILE = "".join(("<program", ">"))  # an object of its own: the program's frames are told by its identity
_RETURNS = frozenset(opmap[name] for name in ("RETURN_VALUE", "RETURN_CONST") if name in opmap)
_YIELDS = frozenset(opmap[name] for name in ("YIELD_VALUE", "SEND", "RESUME"))
_LOCALS_ARE_VIEWS = sys.version_info >= (3, 13)  # PEP 667: each look-up searches; a copy is faster
_SUSPENDS = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
_LEAST = -BIG
_NOTHING: Any = object()
_NONE_SHOWN: dict[str, str] = {}
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


class Stop(BaseException):
    """Raised into a program whose trace is lost, to end it."""


class TracedCode:
    """What the tracer needs of a code object, made once per code."""

    __slots__ = ("code", "follow", "name", "names", "suspends")

    def __init__(self, code: types.CodeType) -> None:
        self.code = code  # keeps it alive: the tracer tells codes by id
        self.name = code.co_name
        self.suspends = bool(code.co_flags & _SUSPENDS)
        self.follow = FrameTracer if code.co_flags & CO_OPTIMIZED else ClassBodyTracer
        names = code.co_varnames
        if code.co_cellvars or code.co_freevars:  # an argument that is a cell is listed twice
            names = dict.fromkeys((*names, *code.co_cellvars, *code.co_freevars))
        self.names = tuple(enumerate(filter(str.isidentifier, names)))

    def left_by(self, instruction: int, arg: Any, raised: bool) -> str:
        """Tell how a frame is left: if by none of these instructions, by an exception."""
        operation = self.code.co_code[instruction]
        if operation in _RETURNS:
            return RETURN
        if operation in _YIELDS and not (arg is None and raised):
            return YIELD
        return UNWIND


class Recorder:
    """The tracer of one run; `start` is what ``sys.settrace`` gets.

    Attributes:
      events: plain tuples in the order of `nd_jax.tracing.schema.Event`'s fields.
      functions: the function names of the frames, by frame.
      stack: the frames that are open, outermost first.
      problem: why the trace is lost, if it is.
    """

    __slots__ = ("codes", "deepest", "events", "functions", "most", "problem", "stack")

    def __init__(self, limits: TraceLimits) -> None:
        self.most, self.deepest = limits.events, limits.depth
        self.events: list[tuple[Any, ...]] = []
        self.functions: list[str] = []
        self.stack: list[int] = []
        self.problem: Dropped | None = None
        self.codes: dict[int, TracedCode] = {}

    def fail(self, reason: str, detail: str = "") -> NoReturn:
        """Give the trace up and end the run; the first reason counts."""
        if self.problem is None:
            self.problem = Dropped(reason, detail)
        raise Stop

    def start(self, frame: types.FrameType, event: str, arg: Any) -> Any:
        """Trace a frame that is entered, if it is the program's."""
        code = frame.f_code
        known = self.codes.get(id(code))
        if known is None:
            if code.co_filename is not FILE:
                return None
            known = self.codes[id(code)] = TracedCode(code)
        stack = self.stack
        if self.events and not stack:  # the root has returned: what runs now (finalisers) is no part of it
            return None
        trace = frame.f_trace if known.suspends else None
        if trace is not None:
            trace(frame, RESUME, None)
            return trace
        depth, fid = len(stack), len(self.functions)
        if depth >= self.deepest:
            self.fail("too deep", f"more than {self.deepest} frames")
        self.functions.append(known.name)
        stack.append(fid)
        trace = known.follow(self, fid, depth, known).trace
        trace(frame, CALL, None)
        return trace


class FrameTracer:
    """The tracer of one frame.

    ``shown`` is how the locals last looked, and ``seen`` what makes a local look the same again: the same
    atom, the same tuple of atoms, or for a list or dict of atoms a copy of it, to hold against it item by
    item. Nothing else is remembered: it could have changed, and to hold it would delay its finaliser.
    """

    __slots__ = ("code", "depth", "fid", "last", "raised_at", "run", "seen", "shown")

    def __init__(self, run: Recorder, fid: int, depth: int, code: TracedCode) -> None:
        self.run, self.fid, self.depth, self.code = run, fid, depth, code
        self.raised_at = self.last = -1
        self.seen = [_NOTHING] * len(code.names)
        self.shown = _NONE_SHOWN

    def trace(self, frame: types.FrameType, kind: str, arg: Any) -> None:
        """Record one event of the frame.

        It gives None, and CPython (trace_trampoline in sysmodule.c) then leaves the frame's tracer as it is;
        to make the bound method anew at each event would take a twentieth of its time.
        """
        run = self.run
        value = None
        try:
            if kind == LINE:
                if not run.stack:
                    return
                self.raised_at = -1
            elif kind != CALL:
                kind, value = (self.leave if kind == RETURN else self.other)(frame, kind, arg)
                if kind is None:
                    return
            shown = self.show(frame.f_locals)
            events = run.events
            if not events:
                self.check_arguments(frame.f_locals, shown)
            events.append((kind, frame.f_lineno, self.fid, self.depth, shown, value))
            if len(events) > run.most:
                run.fail("too many events", f"more than {run.most}")
        except Stop:
            raise
        except BaseException as error:
            run.fail("tracer failed", type(error).__name__)

    def leave(self, frame: types.FrameType, kind: Any, arg: Any) -> tuple[Any, str | None]:
        """Close the frame: tell how it is left (None: not recorded) and its value."""
        run, stack, code = self.run, self.run.stack, self.code
        if not stack:
            return None, None
        if arg is None or code.suspends:
            kind = code.left_by(frame.f_lasti, arg, frame.f_lasti == self.raised_at)
        value = None if kind == UNWIND else render(arg)
        self.raised_at = -1
        if stack.pop() != self.fid:
            run.fail("frames do not nest")
        if not frame.f_trace_lines:
            run.fail("tracer replaced", "f_trace_lines")
        if not stack and value is not None and "<" in value and is_cut(arg):
            run.fail("result cut", value)
        return kind, value

    def other(self, frame: types.FrameType, kind: str, arg: Any) -> tuple[Any, str | None]:
        """Take an event that is no call, line or return: its kind (None: not recorded) and its value."""
        run, stack = self.run, self.run.stack
        if kind == RESUME:
            self.depth = len(stack)
            if self.depth >= run.deepest:
                run.fail("too deep", f"more than {run.deepest} frames")
            stack.append(self.fid)
            return kind, None
        if kind == EXCEPTION and stack and arg[2] is not None:  # else the interpreter's own StopIteration
            self.raised_at = frame.f_lasti
            if arg[0] is MemoryError:
                run.fail("memory", "MemoryError")
            return kind, render_exception(arg[1])
        return None, None  # or "opcode", which only a program could have asked for

    def check_arguments(self, found: Any, shown: dict[str, str]) -> None:
        """Refuse a call whose arguments are not shown in full: its inverse could not be learnt."""
        for name, text in shown.items():
            if "<" in text and is_cut(found[name]):
                self.run.fail("argument cut", f"{name}={text}")

    def show(self, found: Any) -> dict[str, str]:
        """Show the locals of a function, in slot order; events between which none changed share one dict."""
        seen, shown = self.seen, self.shown
        changed = unordered = False
        if _LOCALS_ARE_VIEWS:
            found = dict(found)
        for index, name in self.code.names:
            if name not in found:
                if name in shown:
                    unordered, seen[index] = True, _NOTHING
                continue
            item, before = found[name], seen[index]
            if item is before:
                continue
            kind = type(item)
            if kind is str:
                text = repr(item) if len(item) < 50 else render(item)  # an escape has at most ten characters
                seen[index] = item
            elif kind is int:
                text = repr(item) if _LEAST < item < BIG else render(item)
                seen[index] = item
            elif kind is list:
                if type(before) is list and len(before) == len(item) and all(map(is_, before, item)):
                    continue
                text = flat(item)
                seen[index] = _NOTHING if text is None else item[:]
            elif kind is dict:
                if type(before) is dict and len(before) == len(item) and _are_same(before, item):
                    continue
                text = flat(item)
                seen[index] = _NOTHING if text is None else {**item}
            elif kind is tuple:
                text = flat(item)
                seen[index] = _NOTHING if text is None else item
            else:
                show = FAST.get(id(kind))
                text = None if show is None else show(item)
                seen[index] = item if id(kind) in ATOMS else _NOTHING
            if not changed:
                shown, changed = shown.copy(), True
            if index > self.last:
                self.last = index
            elif name not in shown:
                unordered = True
            shown[name] = render(item) if text is None else text
        if unordered:
            shown = {name: shown[name] for _, name in self.code.names if name in found}
        self.shown = shown
        return shown


class ClassBodyTracer(FrameTracer):
    """The tracer of a class body, whose names have no slots."""

    __slots__ = ()

    def show(self, found: Any) -> dict[str, str]:
        """Show the names in order of binding; none where a metaclass keeps them in its own mapping."""
        if type(found) is not dict:
            return {}
        return {
            name: render(item)
            for name, item in found.items()
            if type(name) is str and name.isidentifier() and name not in _CLASS_NAMES
        }


def _are_same(before: dict[Any, Any], now: dict[Any, Any]) -> bool:
    """Tell whether two dicts of one length hold the same objects in the same order."""
    return all(map(is_, before, now)) and all(map(is_, before.values(), now.values()))
