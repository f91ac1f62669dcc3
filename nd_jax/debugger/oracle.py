"""bdb as an independent oracle: where the interpreter's own debugger stops.

bdb decides by its own rules (stop frame, return frame, breakpoints) and knows no tree. The program is stepped
to its k-th stop, gets one command, and the next stop is noted. The call goes through a frame of its own,
since bdb never stops at the call of its first frame.
"""

import bdb
import linecache
import sys
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR
from types import FrameType
from typing import Any, NamedTuple

from nd_jax.tracing import values
from nd_jax.tracing.schema import Trace

FILE, CALL_FILE = "<oracle>", "<oracle call>"
SUSPENDS = CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR


class Stop(NamedTuple):
    """A place bdb stopped at."""

    event: str
    line: int
    names: tuple[str, ...]
    locals: tuple[str, ...]
    value: str | None


class Place(NamedTuple):
    """Where a stop is, as far as bdb's rules depend on it."""

    suspends: bool  # its frame is a generator's or coroutine's
    caller_suspends: bool
    from_traced: bool  # its frame was entered from the program's own code


class Oracle(bdb.Bdb):
    """Steps to stop k, gives one command, notes the next stop; END is None."""

    def __init__(self, k: int, command: str, breakpoints: tuple[int, ...] = ()):
        bdb.Breakpoint.clearBreakpoints()
        super().__init__()
        self.k, self.command, self.breakpoints = k, command, breakpoints
        self.count, self.given, self.answered = -1, False, False
        self.answer: Stop | None = None
        self.stops: list[Stop] = []
        self.places: list[Place] = []

    def trace_dispatch(self, frame: FrameType, event: str, arg: Any) -> Any:
        inside = frame.f_code.co_filename in (FILE, CALL_FILE)
        return super().trace_dispatch(frame, event, arg) if inside else None

    def user_call(self, frame: FrameType, argument_list: None) -> None:
        if self.stop_here(frame):
            self._at("call", frame, None)

    def user_line(self, frame: FrameType) -> None:
        self._at("line", frame, None)

    def user_return(self, frame: FrameType, return_value: Any) -> None:
        self._at("return", frame, values.render(return_value))

    def user_exception(self, frame: FrameType, exc_info: Any) -> None:
        self._at("exception", frame, exc_info[0].__name__)

    def _at(self, event: str, frame: FrameType, value: str | None) -> None:
        if self.answered:
            return
        if frame.f_code.co_filename != FILE:
            if self.given:
                self.answered = True
                self.set_continue()
            else:
                self.set_step()
            return
        self.count += 1
        if self.given:
            self.answer, self.answered = _stop(event, frame, value), True
            self.set_continue()
        elif self.count < self.k:
            self.stops.append(_stop(event, frame, value))
            self.places.append(_place(frame))
            self.set_step()
        else:
            self.given = True
            for line in self.breakpoints:
                assert not self.set_break(FILE, line)
            self._give(frame)

    def _give(self, frame: FrameType) -> None:
        if self.command == "step":
            self.set_step()
        elif self.command == "next":
            self.set_next(frame)
        elif self.command == "return":
            self.set_return(frame)
        else:
            self.set_continue()


def run(trace: Trace, k: int, command: str, breakpoints: tuple[int, ...] = ()) -> Oracle:
    """Run a trace's program under bdb, its arguments evaluated before."""
    source = trace.source
    lines = [line + "\n" for line in source.split("\n")]
    linecache.cache[FILE] = (len(source), None, lines, FILE)  # else set_break finds no such line
    namespace: dict[str, Any] = {"__name__": "program"}
    exec(compile(source, FILE, "exec"), namespace)
    keep = "(lambda *args, **kwargs: (args, kwargs))"
    given = {"_given": eval(f"{keep}({trace.arguments})", namespace)}
    call = compile(f"{trace.entry}(*_given[0], **_given[1])", CALL_FILE, "eval")
    oracle = Oracle(k, command, breakpoints)
    oracle.reset()
    previous = sys.gettrace()
    sys.settrace(oracle.trace_dispatch)
    try:
        eval(call, namespace, given)
    except Exception:  # the program's own
        pass
    finally:
        sys.settrace(previous)
    return oracle


def _stop(event: str, frame: FrameType, value: str | None) -> Stop:
    shown = {
        name: values.render(item) for name, item in sorted(frame.f_locals.items()) if name.isidentifier()
    }
    return Stop(event, frame.f_lineno, tuple(shown), tuple(shown.values()), value)


def _place(frame: FrameType) -> Place:
    caller = frame.f_back
    assert caller is not None
    return Place(
        bool(frame.f_code.co_flags & SUSPENDS),
        bool(caller.f_code.co_flags & SUSPENDS),
        caller.f_code.co_filename in (FILE, CALL_FILE),
    )
