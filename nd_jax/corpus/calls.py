"""Records calls of a package's functions while other code, its tests, calls them. Standard library only.

Unlike `nd_jax.tracing.recorder`, which runs a program, this must not be noticed: nothing is ever raised into
the code that runs, and what is recorded is bounded, per function, per call and per test. A call becomes a
trace only if it is whole and its arguments and result are shown in full.
"""

import hashlib
import os
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from opcode import opmap
from platform import python_version
from typing import Any, NamedTuple

from nd_jax.corpus.context import Sources
from nd_jax.tracing.schema import CALL, EXCEPTION, RESUME, Event, Trace, encode_json
from nd_jax.tracing.tracer import (
    ClassBodyTracer,
    Dropped,
    FrameTracer,
    Recorder,
    Stop,
    TracedCode,
    TraceLimits,
)

_POSITIONAL_REST, _NAMED_REST = 0x04, 0x08  # CO_VARARGS, CO_VARKEYWORDS
_RESUME = opmap["RESUME"]
_TESTS = ("test", "tests", "testing")


@dataclass(frozen=True)
class CallLimits:
    """How much is recorded: what keeps a suite fast, and a corpus from being one function's."""

    per_function: int = 200
    """Most calls of one function that are followed."""
    per_test: int = 30
    """Most calls of one function that are followed in one test."""
    events: int = 500
    """Most events of one call; a longer one is dropped."""
    depth: int = 60
    """Most frames of the package open at once in one call."""
    lines: int = 500
    """Most lines of source that a call may need."""
    outside: int = 20_000
    """Most calls of code that is not recorded which one test may make before recording ends for that test."""


class Function(TracedCode):
    """A code object of the package.

    Attributes:
      root: whether a trace may begin with a call of it: no lambda, generator, class body or inner function.
      followed: calls followed so far; one that gave no trace counts tenfold.
      in_test: how many of them in this test.
    """

    __slots__ = ("followed", "in_test", "qualname", "root")

    def __init__(self, code: types.CodeType) -> None:
        super().__init__(code)
        self.qualname = code.co_qualname
        self.root = "<" not in self.qualname and not self.suspends and self.follow is FrameTracer
        self.follow = _Frame if self.follow is FrameTracer else _ClassBody
        self.followed = self.in_test = 0


class _Quiet:
    """Lets no failure of the tracer reach the code that runs."""

    __slots__ = ()
    run: "_Call"

    def trace(self, frame: types.FrameType, kind: str, arg: Any) -> None:
        run = self.run
        if run.over:  # a generator that outlives the call it was made in
            return
        try:
            FrameTracer.trace(self, frame, kind, arg)  # pyright: ignore[reportArgumentType]
        except Stop:
            run.end()
        else:
            if not run.stack:
                run.end()


class _Frame(_Quiet, FrameTracer):
    __slots__ = ()


class _ClassBody(_Quiet, ClassBodyTracer):
    __slots__ = ()


class _Call(Recorder):
    """The recorder of one call; ``end`` is called when it returned, died, or was given up."""

    __slots__ = ("entered", "finish", "over")

    def __init__(self, limits: TraceLimits, finish: Callable[["_Call"], None]) -> None:
        super().__init__(limits)
        self.entered: list[Function] = []
        self.finish = finish
        self.over = False

    def end(self) -> None:
        self.over = True
        self.finish(self)

    def enter(self, frame: types.FrameType, function: Function) -> Any:
        """Trace a frame of the package that is entered."""
        try:
            if function.suspends:
                known = getattr(frame.f_trace, "__self__", None)
                if isinstance(known, _Quiet) and known.run is self:
                    known.trace(frame, RESUME, None)
                    return None if self.over else known.trace
                if _resumed(frame):
                    self.fail("resumes what was begun before")
            depth, fid = len(self.stack), len(self.functions)
            if depth >= self.deepest:
                self.fail("too deep", f"more than {self.deepest} frames")
            self.functions.append(function.name)
            self.entered.append(function)
            self.stack.append(fid)
        except Stop:
            self.end()
            return None
        trace = function.follow(self, fid, depth, function).trace
        trace(frame, CALL, None)
        return None if self.over else trace


def _resumed(frame: types.FrameType) -> bool:
    """Tell whether a generator or coroutine that is entered has run before."""
    code, last = frame.f_code.co_code, frame.f_lasti
    return last >= 0 and code[last] == _RESUME and bool(code[last + 1] & 3)


class Found(NamedTuple):
    """What became of a call that was followed: a trace, or why there is none."""

    id: str
    outcome: Trace | Dropped


class CallRecorder:
    """Records calls of the functions of one package, test by test.

    Args:
      package: the package's name, the first part of every id.
      path: its folder, or the file of a module; tests inside (folders and files named so) are not recorded.
    """

    def __init__(self, package: str, path: str, limits: CallLimits) -> None:
        self.package, self.limits = package, limits
        self.path = os.path.join(path, "") if os.path.isdir(path) else path
        self._trace_limits = TraceLimits(events=limits.events, depth=limits.depth)
        self._functions: dict[int, Function] = {}
        self._files: dict[str, bool] = {}
        self._used: list[Function] = []
        self._ended: list[_Call] = []
        self._call: _Call | None = None
        self._outside = 0
        self._sources = Sources()
        self._seen: set[str] = set()
        self._on = self._enter  # one object: what is installed is told by its identity

    def begin(self) -> bool:
        """Begin a test; False where another tracer (a debugger, coverage) works, and this one stays out."""
        if sys.gettrace() is not None:
            return False
        self._outside = self.limits.outside
        sys.settrace(self._on)
        return True

    def end(self) -> None:
        """End the test's recording."""
        if sys.gettrace() is self._on:
            sys.settrace(None)
        if self._call is not None:
            self._give_up("left open")
        for function in self._used:
            function.in_test = 0
        self._used.clear()

    def take(self) -> Iterator[Found]:
        """Give what the last test gave, each distinct trace of the session once."""
        ended, self._ended = self._ended, []
        for call in ended:
            found = self._found(call)
            if isinstance(found.outcome, Dropped):
                yield found
            elif found.id not in self._seen:
                self._seen.add(found.id)
                yield found

    def _enter(self, frame: types.FrameType, event: str, arg: Any) -> Any:
        """What ``sys.settrace`` gets: called for every call that any code makes, so most end early."""
        code = frame.f_code
        function = self._functions.get(id(code))
        if function is None:
            inside = self._files.get(code.co_filename)
            if inside is None:
                inside = self._files[code.co_filename] = self._is_inside(code.co_filename)
            if not inside:
                self._outside -= 1
                if self._outside < 0:
                    sys.settrace(None)
                    if self._call is not None:
                        self._give_up("too many calls outside the package")
                return None
            function = self._functions[id(code)] = Function(code)
        call = self._call
        if call is not None:
            # A class body or module that is imported meanwhile is no part of the call.
            own = function.follow is _Frame or "<locals>" in function.qualname
            return call.enter(frame, function) if own else None
        limits = self.limits
        if (
            not function.root
            or function.followed >= limits.per_function
            or function.in_test >= limits.per_test
        ):
            self._outside -= 1
            if self._outside < 0:
                sys.settrace(None)
            return None
        if not function.in_test:
            self._used.append(function)
        function.followed += 1
        function.in_test += 1
        self._call = call = _Call(self._trace_limits, self._finish)
        return call.enter(frame, function)

    def _finish(self, call: _Call) -> None:
        self._ended.append(call)
        self._call = None
        if call.problem is not None:
            call.entered[0].followed += 9

    def _give_up(self, reason: str) -> None:
        call = self._call
        if call is not None:
            call.problem = call.problem or Dropped(reason)
            call.end()

    def _is_inside(self, path: str) -> bool:
        if not path.startswith(self.path):
            return False
        *folders, name = path[len(self.path) :].split(os.sep)
        stem = name.removesuffix(".py")
        return not (
            stem in (*_TESTS, "conftest")
            or stem.startswith("test_")
            or stem.endswith("_test")
            or any(folder in _TESTS for folder in folders)
        )

    def _found(self, call: _Call) -> Found:
        root = call.entered[0]
        place = f"{self._module(root)}.{root.qualname}"
        if call.problem is not None:
            return Found(place, call.problem)
        definitions = [
            self._sources.definition(function.code.co_filename, function.code.co_firstlineno)
            for function in call.entered
        ]
        known = [definition for definition in definitions if definition is not None]
        context = self._sources.context(known) if len(known) == len(definitions) else None
        if context is None:
            return Found(place, Dropped("no source"))
        if context.text.count("\n") > self.limits.lines:
            return Found(place, Dropped("source too long", f"more than {self.limits.lines} lines"))
        paths = [function.code.co_filename for function in call.entered]
        events: list[Event] = []
        for kind, line, frame, depth, shown, value in call.events:
            number = context.lines.get((paths[frame], line))
            if number is None:
                return Found(place, Dropped("no source", f"{paths[frame]}:{line}"))
            if kind == EXCEPTION and (value or "").startswith("RecursionError("):
                return Found(place, Dropped("recursion limit", "how deep it got, its caller decides"))
            events.append(Event(kind, number, frame, depth, shown, value))
        arguments = _arguments(root.code, events[0].locals)
        if arguments is None:
            return Found(place, Dropped("argument missing"))
        content = encode_json([context.text, root.qualname, arguments, call.functions, events])
        digest = hashlib.blake2b(content.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        id = f"{place}/{digest}"
        trace = Trace(id, context.text, root.qualname, arguments, python_version(), call.functions, events)
        return Found(id, trace)

    def _module(self, function: Function) -> str:
        path = function.code.co_filename[len(self.path) :].removesuffix(".py").removesuffix("__init__")
        return "/".join(filter(None, (self.package, path.strip(os.sep).replace(os.sep, "."))))


def _arguments(code: types.CodeType, shown: dict[str, str]) -> str | None:
    """Write a call's arguments as they would stand between its parentheses; None where one is not shown."""
    count = code.co_argcount
    named = count + code.co_kwonlyargcount
    names = code.co_varnames
    texts: list[tuple[str, str]] = [("", name) for name in names[:count]]
    rest = named
    if code.co_flags & _POSITIONAL_REST:
        texts.append(("*", names[rest]))
        rest += 1
    texts += [(f"{name}=", name) for name in names[count:named]]
    if code.co_flags & _NAMED_REST:
        texts.append(("**", names[rest]))
    if any(name not in shown for _, name in texts):
        return None
    return ", ".join(
        f"{mark}{shown[name]}"
        for mark, name in texts
        if (mark, shown[name]) not in (("*", "()"), ("**", "{}"))
    )
