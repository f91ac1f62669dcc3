"""Record one run of a program with ``sys.settrace``.

`trace_program` executes the program *in this process*: call it on programs you trust; `nd_jax.tracing.pool` calls
it in limited workers. Standard library only.

What is recorded: the events of the program's own file (its frames only: library code and the call's own
expression are other files), with the locals before the line runs, as text (`nd_jax.tracing.values`). A frame is
one activation; a generator keeps its frame from resume to resume. The interpreter's internal ``StopIteration`` at
the end of ``yield from`` and ``await`` is no event.

A trace is whole or it is not kept: what a limit or the program itself cut short comes back as `Dropped`. The
tracer raises into the program only to end a run whose trace is already lost.
"""

import ast
import gc
import platform
import sys
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_OPTIMIZED
from opcode import opmap
from typing import Any, NamedTuple, Protocol

from nd_jax.tracing import values
from nd_jax.tracing.schema import CALL, EXCEPTION, LINE, RESUME, RETURN, UNWIND, YIELD, Event, Trace

FILE = "".join(
    ("<program", ">")
)  # an object of its own: frames of the program's file are told by its identity
CALL_FILE = "<call>"
MODULE = "program"  # the program's ``__name__``

_RETURNS = frozenset(opmap[name] for name in ("RETURN_VALUE", "RETURN_CONST") if name in opmap)
_YIELDS = frozenset(opmap[name] for name in ("YIELD_VALUE", "SEND", "RESUME"))
_LOCALS_ARE_VIEWS = sys.version_info >= (3, 13)  # PEP 667: each look-up searches; a copy is faster
_SUSPENDS = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR
_CLASS_NAMES = frozenset(  # what the interpreter itself binds in a class body
    ("__module__", "__qualname__", "__firstlineno__", "__static_attributes__", "__classdict__", "__class__",
     "__conditional_annotations__")
)  # fmt: skip


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
        self.names = tuple(name for name in names if name.isidentifier())


class Recorder:
    """The tracer of one run; `start` is what ``sys.settrace`` gets.

    ``events`` holds plain tuples in the order of `Event`'s fields; ``problem`` is why the trace is lost, if it is.
    """

    def __init__(self, limits: TraceLimits) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.functions: list[str] = []
        self.stack: list[int] = []  # the frames that are open, outermost first
        self.problems: list[Dropped] = []
        self.start = self._tracer(limits)

    @property
    def problem(self) -> Dropped | None:
        return self.problems[0] if self.problems else None

    def _tracer(self, limits: TraceLimits) -> Callable[[types.FrameType, str, Any], Any]:
        # Closures over local names, for speed and because the program may replace built-ins.
        events, functions, stack, problems = self.events, self.functions, self.stack, self.problems
        codes: dict[int, _Code] = {}
        fast, render, is_cut, render_exception = (
            values.FAST,
            values.render,
            values.is_cut,
            values.render_exception,
        )
        append, max_events, max_depth = events.append, limits.events, limits.depth
        _id, _type, _len, _dict, _int, _repr = id, type, len, dict, int, repr
        big, least = values.BIG, -values.BIG

        def fail(reason: str, detail: str = "") -> None:
            problems.append(Dropped(reason, detail))

        def start(frame: types.FrameType, event: str, arg: Any) -> Any:
            if (
                events and not stack
            ):  # the root has returned: what runs now (finalisers) is no part of the call
                return None
            code = frame.f_code
            known = codes.get(_id(code))
            if known is None:
                if code.co_filename is not FILE:
                    return None
                known = codes[_id(code)] = _Code(code)
            local = frame.f_trace if known.suspends else None
            if local is not None:
                return local(frame, RESUME, None)
            fid = _len(functions)
            functions.append(known.name)
            return follow(fid, known.names, known.ops, known.is_class)(frame, CALL, None)

        def follow(fid: int, names: tuple[str, ...], ops: bytes, in_class: bool) -> Any:
            """Make the tracer of one frame."""
            depth, raised_at = 0, -1

            def local(frame: types.FrameType, kind: str, arg: Any) -> Any:
                nonlocal depth, raised_at
                value = None
                try:
                    if kind == LINE:
                        if not stack:
                            return local
                        if raised_at != -1:
                            raised_at = -1
                    elif kind == CALL or kind == RESUME:
                        if kind == RESUME and not stack:
                            return local
                        depth = _len(stack)
                        if depth >= max_depth:
                            fail("too deep", f"more than {max_depth} frames")
                        stack.append(fid)
                    elif not stack:
                        return local
                    elif kind == RETURN:
                        op = ops[frame.f_lasti]
                        if op in _RETURNS:
                            value = render(arg)
                        elif op in _YIELDS and not (arg is None and frame.f_lasti == raised_at):
                            kind, value = YIELD, render(arg)
                        else:  # where no instruction leaves the frame, an exception does
                            kind = UNWIND
                        raised_at = -1
                        if stack.pop() != fid:
                            fail("frames do not nest")
                        if not frame.f_trace_lines:
                            fail("tracer replaced", "f_trace_lines")
                        if not depth and kind != UNWIND and is_cut(arg):
                            fail("result cut", value or "")
                    elif kind == EXCEPTION:
                        if arg[2] is None:  # the interpreter's own StopIteration
                            return local
                        raised_at = frame.f_lasti
                        value = render_exception(arg[1])
                        if arg[0] is MemoryError:
                            fail("memory", "MemoryError")
                    else:
                        return local  # "opcode", which only a program could have asked for

                    found = frame.f_locals
                    shown = {}
                    if in_class:
                        if _type(found) is _dict:
                            shown = _class_locals(found)
                    else:
                        if _LOCALS_ARE_VIEWS:
                            found = _dict(found)
                        for name in names:
                            if name in found:
                                item = found[name]
                                if _type(item) is _int:
                                    shown[name] = _repr(item) if least < item < big else render(item)
                                else:
                                    show = fast.get(_id(_type(item)))
                                    shown[name] = render(item) if show is None else show(item)
                    if not events and any(
                        "<" in text and is_cut(found[name]) for name, text in shown.items()
                    ):
                        fail("argument cut", str(shown))
                    append((kind, frame.f_lineno, fid, depth, shown, value))
                    if _len(events) > max_events:
                        fail("too many events", f"more than {max_events}")
                except BaseException as error:
                    fail("tracer failed", _type(error).__name__)
                if problems:
                    raise _Stop
                return local

            return local

        return start


def _class_locals(found: dict[Any, Any]) -> dict[str, str]:
    return {
        name: values.render(item)
        for name, item in found.items()
        if type(name) is str and name.isidentifier() and name not in _CLASS_NAMES
    }


def _load(source: str) -> dict[str, Any] | Dropped:
    """Run the program's module code, untraced, in fresh globals."""
    try:
        code = compile(source, FILE, "exec", dont_inherit=True)
    except BaseException as error:
        line = f"line {error.lineno}: {error.msg}" if isinstance(error, SyntaxError) else str(error)
        return Dropped("does not compile", line.replace("\n", " "))
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
        tree = compile(
            f"{entry}(\n{arguments}\n)", CALL_FILE, "eval", flags=ast.PyCF_ONLY_AST, dont_inherit=True
        )
        call = tree.body if isinstance(tree, ast.Expression) else None
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            return Dropped("arguments", "not the arguments of one call")
        call.func.id = "_arguments"
        code = compile(tree, CALL_FILE, "eval", dont_inherit=True)
    except BaseException as error:
        return Dropped("arguments", str(error).replace("\n", " "))
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


def _prepare(program: Source) -> Callable[[], Any] | Dropped:
    namespace = _load(program.source)
    return namespace if isinstance(namespace, Dropped) else _bind(program.entry, program.arguments, namespace)


def trace_program(program: Source, limits: TraceLimits) -> Trace | Dropped:
    """Run a program's entry call under the tracer, in this process.

    Returns:
      The trace, or why there is none. An entry call that dies by an exception has a trace, ending in ``unwind``.
    """
    saved, collecting = sys.modules.get(MODULE), gc.isenabled()
    gc.disable()  # a collection at a moment of its own choosing could run finalisers between two lines
    try:
        call = _prepare(program)
        return call if isinstance(call, Dropped) else _trace(program, call, limits)
    finally:
        _restore(saved, collecting)


def _trace(program: Source, call: Callable[[], Any], limits: TraceLimits) -> Trace | Dropped:
    recorder = Recorder(limits)
    events = recorder.events
    previous, settrace, gettrace = sys.gettrace(), sys.settrace, sys.gettrace
    result, error = None, None
    settrace(recorder.start)
    try:
        result = call()
    except BaseException as raised:
        error = raised
    finally:
        installed = gettrace()
        settrace(previous)
    if recorder.problem is not None:
        return recorder.problem
    if installed is not recorder.start:
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
    version = platform.python_version()
    return Trace(
        program.id,
        program.source,
        program.entry,
        program.arguments,
        version,
        recorder.functions,
        [Event(*event) for event in events],
    )


def run_program(program: Source) -> str | Dropped:
    """Run a program's entry call without a tracer, in this process, and show its result or its exception."""
    saved, collecting = sys.modules.get(MODULE), gc.isenabled()
    gc.disable()
    try:
        call = _prepare(program)
        if isinstance(call, Dropped):
            return call
        try:
            return values.render(call())
        except BaseException as error:
            return values.render_exception(error)
    finally:
        _restore(saved, collecting)


def evaluate(source: str, expression: str) -> tuple[str | None, str | None]:
    """Evaluate an expression in the namespace of a freshly run program, in this process.

    Returns:
      (text of the value, None), or (None, what went wrong: ``TypeName('...')``, or the reason the program fails).
    """
    saved, collecting = sys.modules.get(MODULE), gc.isenabled()
    gc.disable()
    try:
        namespace = _load(source)
        if isinstance(namespace, Dropped):
            return None, f"{namespace.reason}: {namespace.detail}"
        try:
            code = compile(expression.strip(), CALL_FILE, "eval", dont_inherit=True)
            return values.render(eval(code, namespace)), None
        except BaseException as error:
            return None, values.render_exception(error)
    finally:
        _restore(saved, collecting)


def _restore(module: Mapping[str, Any] | types.ModuleType | None, collecting: bool) -> None:
    if module is None:
        sys.modules.pop(MODULE, None)
    else:
        sys.modules[MODULE] = module  # type: ignore[assignment]  # whatever was there before
    if collecting:
        gc.enable()
