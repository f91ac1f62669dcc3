"""Record one run of a program.

`trace_program` executes the program *in this process*: call it on programs you trust; `nd_jax.tracing.pool`
calls it in limited workers. Standard library only.

What is recorded: the events of the program's own file (its frames only: library code and the call's own
expression are other files), with the locals before the line runs, as text (`nd_jax.tracing.values`). A frame
is one activation; a generator keeps its frame from resume to resume. The interpreter's internal
``StopIteration`` at the end of ``yield from`` and ``await`` is no event.

A trace is whole or it is not kept: what a limit or the program itself cut short comes back as `Dropped`. The
tracer raises into the program only to end a run whose trace is already lost.
"""

import ast
import builtins
import gc
import platform
import sys
import types
from builtins import (  # noqa: UP029  # bound here: the program may replace them
    BaseException,
    MemoryError,
    TypeError,
    callable,
    compile,
    dict,
    eval,
    exec,
    isinstance,
    vars,
)  # fmt: skip
from collections.abc import Callable
from functools import lru_cache
from sys import gettrace, settrace
from typing import Any, Protocol

from nd_jax.tracing import values
from nd_jax.tracing.schema import RETURN, UNWIND, Event, Trace, to_events
from nd_jax.tracing.tracer import FILE, Dropped, Recorder, TraceLimits

CALL_FILE = "<call>"
_PYTHON = platform.python_version()
MODULE = "program"  # the program's ``__name__``


class Source(Protocol):
    """What is needed of a `nd_jax.programs.program.Program`."""

    @property
    def id(self) -> str: ...
    @property
    def source(self) -> str: ...
    @property
    def entry(self) -> str: ...
    @property
    def arguments(self) -> str: ...


@lru_cache(maxsize=1)  # a program is often run twice in a row, with and without the tracer
def _compile_module(source: str) -> types.CodeType:
    return compile(source, FILE, "exec", dont_inherit=True)


@lru_cache(maxsize=1)
def _compile_arguments(entry: str, arguments: str) -> types.CodeType | None:
    """Compile a call of ``_arguments`` with the entry call's arguments; None if they are more than that."""
    tree: Any = compile(
        f"{entry}(\n{arguments}\n)", CALL_FILE, "eval", flags=ast.PyCF_ONLY_AST, dont_inherit=True
    )
    call = tree.body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        return None
    call.func.id = "_arguments"
    return compile(tree, CALL_FILE, "eval", dont_inherit=True)


def _load(source: str) -> dict[str, Any] | Dropped:
    """Run the program's module code, untraced, in fresh globals."""
    try:
        code = _compile_module(source)
    except BaseException as error:
        return Dropped("does not compile", values.describe_exception(error))
    module = types.ModuleType(MODULE)
    sys.modules[MODULE] = module
    try:
        exec(code, module.__dict__)
    except MemoryError:
        return Dropped("memory", "MemoryError")
    except BaseException as error:
        return Dropped("module raises", values.render_exception(error))
    return module.__dict__


def _bind(entry: str, arguments: str, namespace: dict[str, Any]) -> Callable[[], Any] | Dropped:
    """Evaluate the call's arguments in the program's namespace and give the call, ready to run."""
    try:
        code = _compile_arguments(entry, arguments)
    except BaseException as error:
        return Dropped("arguments", values.describe_exception(error))
    if code is None:
        return Dropped("arguments", "not the arguments of one call")
    if not callable(namespace.get(entry)):
        return Dropped("no entry", f"{entry} is not a function of the program")
    try:
        args, kwargs = eval(code, namespace, {"_arguments": lambda *args, **kwargs: (args, kwargs)})
    except MemoryError:
        return Dropped("memory", "MemoryError")
    except BaseException as error:
        return Dropped("arguments", values.render_exception(error))
    function = namespace[entry]
    return lambda: function(*args, **kwargs)


def prepare(program: Source) -> Callable[[], Any] | Dropped:
    """Run a program's module code, untraced, and give its entry call, ready to run once."""
    namespace = _load(program.source)
    return namespace if isinstance(namespace, Dropped) else _bind(program.entry, program.arguments, namespace)


class _Isolation:
    """Undoes what a program in this process changes most easily: built-ins, and the module it is itself.

    ``tracers`` is what the program gives to ``sys.settrace``: until it puts ours back, events are lost.

    Garbage is not collected meanwhile: a collection at a moment of its own choosing could run finalisers
    between two lines of the program.
    """

    def __enter__(self) -> "_Isolation":
        self.tracers: list[Any] = []
        self._settrace = sys.settrace
        sys.settrace = self._note_tracer
        self._module = sys.modules.get(MODULE)
        self._builtins = dict(vars(builtins))
        self._collects = gc.isenabled()
        gc.disable()
        return self

    def _note_tracer(self, function: Any) -> None:
        self.tracers.append(function)
        settrace(function)

    def __exit__(self, *_: object) -> None:
        sys.settrace = self._settrace
        known = builtins.__dict__
        if known != self._builtins:
            known.clear()
            known.update(self._builtins)
        if self._module is None:
            sys.modules.pop(MODULE, None)
        else:
            sys.modules[MODULE] = self._module
        if self._collects:
            gc.enable()


def trace_program(program: Source, limits: TraceLimits) -> Trace | Dropped:
    """Run a program's entry call under the tracer, in this process.

    Returns:
      The trace, or why there is none. An entry call that dies by an exception has a trace, ending in
      ``unwind``.
    """
    with _Isolation() as isolation:
        call = prepare(program)
        if isinstance(call, Dropped):
            return call
        found = _trace(program, call, limits)
        return Dropped("tracer replaced") if isolation.tracers and isinstance(found, Trace) else found


def _trace(program: Source, call: Callable[[], Any], limits: TraceLimits) -> Trace | Dropped:
    recorder = Recorder(limits)
    events = recorder.events
    previous = gettrace()
    result, error = None, None
    start = recorder.start
    settrace(start)
    try:
        result = call()
    except BaseException as raised:
        error = raised
    finally:
        installed = gettrace()
        settrace(previous)
    if recorder.problem is not None:
        return recorder.problem
    if installed is not start:
        return Dropped("tracer replaced")
    if not events:
        if isinstance(error, TypeError):
            return Dropped("does not bind", values.render_exception(error))
        return Dropped("no event", "the call runs no line of the program")
    last = Event(*events[-1])
    if recorder.stack or last.depth or last.kind not in (RETURN, UNWIND):
        return Dropped("incomplete", "the root call was left open")
    if (last.kind == UNWIND) != (error is not None) or (
        error is None and values.render(result) != last.value
    ):
        return Dropped("result differs", "the root frame's result is not the call's")
    return Trace(
        program.id,
        program.source,
        program.entry,
        program.arguments,
        _PYTHON,
        recorder.functions,
        to_events(events),
    )


def run_program(program: Source) -> str | Dropped:
    """Run a program's entry call without a tracer, in this process, and show its result or its exception."""
    with _Isolation():
        call = prepare(program)
        if isinstance(call, Dropped):
            return call
        try:
            return values.render(call())
        except BaseException as error:
            return values.render_exception(error)


def evaluate(source: str, expression: str) -> tuple[str | None, str | None]:
    """Evaluate an expression in the namespace of a freshly run program, in this process.

    Returns:
      (text of the value, None), or (None, what went wrong: ``TypeName: ...``, or the reason the program
      fails).
    """
    with _Isolation():
        namespace = _load(source)
        if isinstance(namespace, Dropped):
            return None, f"{namespace.reason}: {namespace.detail}"
        try:
            code = compile(expression.strip(), CALL_FILE, "eval", dont_inherit=True)
            return values.render(eval(code, namespace)), None
        except BaseException as error:
            return None, values.describe_exception(error)
