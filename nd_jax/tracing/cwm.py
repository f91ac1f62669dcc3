r"""CWM's published trace format (arXiv 2510.02387), written and read.

A trace is the source, its entry marked, then one step an event::

    <|trace_context_start|>SOURCE<|frame_sep|>
    <|call_sep|>{"x": "1"}<|action_sep|>def f(x):\n<|frame_sep|>
    <|line_sep|>{"x": ".."}<|action_sep|>    return x + 1\n<|frame_sep|>
    <|return_sep|><|action_sep|>    return x + 1\n<|arg_sep|>"2"<|frame_sep|>
    <|exception_sep|><|action_sep|>    ...\n<|arg_sep|>"KeyError('k')"<|frame_sep|>

(without the line breaks between the steps). Locals are JSON, values as text; ``".."`` stands for the text
that the name had in the frame's last step. The entry's first line ends in ``# << START_OF_TRACE``.

The format has no line numbers, no frame numbers, and one step for return, yield and unwind: reading recovers
them from the source, and refuses what the source does not decide.
"""

import ast
import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from nd_jax.tracing.schema import CALL, CLOSING, EXCEPTION, LINE, RESUME, RETURN, UNWIND, YIELD, Event, Trace

CONTEXT, STEP_END, ACTION, ARG = "<|trace_context_start|>", "<|frame_sep|>", "<|action_sep|>", "<|arg_sep|>"
MARKER = "  # << START_OF_TRACE"
_KIND_OF = {CALL: "call", RESUME: "call", LINE: "line", RETURN: "return", YIELD: "return", UNWIND: "return",
            EXCEPTION: "exception"}  # fmt: skip
_STEP = re.compile(
    r"<\|(call|line|return|exception)_sep\|>(.*?)<\|action_sep\|>(.*?)(?:<\|arg_sep\|>(.*))?", re.DOTALL
)
_MARK = re.compile(r" {0,2}# << START_OF_TRACE[ \t]*$")


def to_cwm(trace: Trace) -> str:
    """Write a trace in CWM's format; an unwind has the value ``null``."""
    lines = trace.source.split("\n")
    lines[trace.events[0].line - 1] += MARKER
    parts = [CONTEXT, "\n".join(lines), STEP_END]
    sources = trace.source.split("\n")
    last_shown: dict[int, dict[str, str]] = {}
    for event in trace.events:
        kind = _KIND_OF[event.kind]
        parts.append(f"<|{kind}_sep|>")
        if kind in ("call", "line"):
            before = last_shown.get(event.frame, {})
            diff = {name: ".." if before.get(name) == text else text for name, text in event.locals.items()}
            parts.append(json.dumps(diff))
            last_shown[event.frame] = event.locals
        parts += (ACTION, sources[event.line - 1], "\n")
        if kind in ("return", "exception"):
            parts += (ARG, json.dumps(event.value))
        parts.append(STEP_END)
    return "".join(parts)


class _Unreadable(Exception):
    """Why a text gives no trace."""


class _Step(NamedTuple):
    kind: str
    shown: dict[str, str] | None
    echo: str
    value: str | None


def from_cwm(text: str, trace_id: str) -> Trace | str:
    """Read a trace, or say why it cannot be read. The result is not yet checked for sound nesting.

    Python's version is not in the format (``python`` is ``"unknown"``); the arguments are written from the
    entry's locals.
    """
    try:
        source, entry_line, steps = _split(text)
        return _Reader(source, entry_line).read(steps, trace_id)
    except _Unreadable as error:
        return str(error)


def _split(text: str) -> tuple[str, int, list[_Step]]:
    text = text.strip().removeprefix("<|begin_of_text|>").removesuffix("<|end_of_text|>")
    if not text.startswith(CONTEXT):
        raise _Unreadable("it does not start with the source context")
    context, *raw, rest = text[len(CONTEXT) :].split(STEP_END)
    if rest.strip() or not raw:
        raise _Unreadable("it does not end after a step")
    lines = context.split("\n")
    marked = [number for number, line in enumerate(lines, 1) if _MARK.search(line)]
    if len(marked) != 1:
        raise _Unreadable(f"{len(marked)} lines are marked as the start")
    lines[marked[0] - 1] = _MARK.sub("", lines[marked[0] - 1])
    return "\n".join(lines), marked[0], [_step(number, step) for number, step in enumerate(raw)]


def _step(number: int, text: str) -> _Step:
    match = _STEP.fullmatch(text)
    if match is None:
        raise _Unreadable(f"step {number} is malformed")
    kind, shown_text, echo, arg = match.groups()
    try:
        shown = json.loads(shown_text) if kind in ("call", "line") else None
        value = json.loads(arg) if arg is not None else None
    except ValueError:
        raise _Unreadable(f"step {number} holds malformed JSON") from None
    if shown is not None and not (
        isinstance(shown, dict) and all(isinstance(v, str) for v in shown.values())
    ):
        raise _Unreadable(f"step {number}: locals are not a mapping of texts")
    if not (value is None or isinstance(value, str)) or (kind == "exception" and value is None):
        raise _Unreadable(f"step {number}: the value is not text")
    return _Step(kind, shown, _MARK.sub("", echo.rstrip("\n")), value)


_Node = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda | ast.GeneratorExp
_Scope = _Node | ast.ListComp | ast.SetComp | ast.DictComp
_DEFINITION = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_NAMES = {ast.Lambda: "<lambda>", ast.GeneratorExp: "<genexpr>", ast.ListComp: "<listcomp>",
          ast.SetComp: "<setcomp>", ast.DictComp: "<dictcomp>"}  # fmt: skip


def _first_line(scope: _Scope) -> int:
    decorators = scope.decorator_list if isinstance(scope, _DEFINITION) else []
    return min([scope.lineno, *(decorator.lineno for decorator in decorators)])


class _Frame:
    """An activation while it is read: its scope, its last line, its last locals."""

    def __init__(self, number: int, scope: _Scope) -> None:
        self.number, self.scope = number, scope
        self.line = _first_line(scope)
        self.shown: dict[str, str] = {}
        self.raised = False


class _Reader:
    """Finds each step's line, frame and kind."""

    def __init__(self, source: str, entry_line: int) -> None:
        self.source, self.lines = source, source.split("\n")
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise _Unreadable("the source does not parse") from None
        self.scopes: list[_Scope] = [node for node in ast.walk(tree) if isinstance(node, _Scope)]
        self.entry = next(
            (s for s in self.scopes if _first_line(s) == entry_line and isinstance(s, _DEFINITION)), None
        )
        if self.entry is None or isinstance(self.entry, ast.ClassDef):
            raise _Unreadable("no function starts at the marked line")
        self.open: list[_Frame] = []
        self.suspended: list[_Frame] = []
        self.functions: list[str] = []
        self.events: list[Event] = []

    def read(self, steps: list[_Step], trace_id: str) -> Trace:
        for number, step in enumerate(steps):
            following = steps[number + 1].kind if number + 1 < len(steps) else None
            if step.kind == "call":
                self._call(number, step)
            elif not self.open:
                raise _Unreadable(f"step {number} is in no frame")
            else:
                self._own(number, step, following)
        assert isinstance(self.entry, (ast.FunctionDef, ast.AsyncFunctionDef))
        arguments = _arguments(self.entry.args, self.events[0].locals) if self.events else ""
        return Trace(
            trace_id, self.source, self.entry.name, arguments, "unknown", self.functions, self.events
        )  # fmt: skip

    def _call(self, number: int, step: _Step) -> None:
        lines = self._echoes(step.echo)
        resumed = next((frame for frame in reversed(self.suspended) if frame.line in lines), None)
        if resumed is not None:
            self.suspended.remove(resumed)
            frame, kind = resumed, RESUME
        else:
            frame, kind = _Frame(len(self.functions), self._called(number, lines)), CALL
            scope = frame.scope
            self.functions.append(scope.name if isinstance(scope, _DEFINITION) else _NAMES[type(scope)])
        self.open.append(frame)
        self._show(number, frame, step)
        self._add(kind, frame, None)

    def _called(self, number: int, lines: list[int]) -> _Scope:
        if not self.events and self.entry is not None:
            if _first_line(self.entry) not in lines:
                raise _Unreadable("the first call is not the marked function's")
            return self.entry
        found = [scope for scope in self.scopes if _first_line(scope) in lines]
        definitions = [scope for scope in found if isinstance(scope, _DEFINITION)]
        if len(definitions or found) != 1:
            raise _Unreadable(f"step {number}: {len(definitions or found)} functions start with this line")
        return (definitions or found)[0]

    def _own(self, number: int, step: _Step, following: str | None) -> None:
        frame = self.open[-1]
        lines = [line for line in self._echoes(step.echo) if line in self._lines_of(frame.scope)]
        if step.kind != "line" and frame.line in lines:
            lines = [frame.line]
        if len(lines) != 1:
            raise _Unreadable(f"step {number}: {len(lines)} lines of the function have this text")
        frame.line = lines[0]
        if step.kind == "line":
            self._show(number, frame, step)
            kind = LINE
        elif step.kind == "exception":
            kind = EXCEPTION
        else:
            kind = self._leaving(frame, step.value, following)
        frame.raised = kind == EXCEPTION
        self._add(kind, frame, None if kind == UNWIND else step.value)
        if kind in CLOSING:
            self.open.pop()
            if kind == YIELD:
                self.suspended.append(frame)

    def _leaving(self, frame: _Frame, value: str | None, following: str | None) -> str:
        """Tell return, yield (the line holds one) and unwind (null, or None between exceptions) apart."""
        if value is None or (value == "None" and frame.raised and following == "exception"):
            return UNWIND
        if isinstance(frame.scope, ast.GeneratorExp):
            return RETURN if value == "None" else YIELD
        suspends = isinstance(frame.scope, (ast.FunctionDef, ast.AsyncFunctionDef)) and any(
            isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await, ast.AsyncFor, ast.AsyncWith))
            and node.lineno <= frame.line <= (node.end_lineno or node.lineno)
            for node in _own_nodes(frame.scope)
        )
        return YIELD if suspends else RETURN

    def _show(self, number: int, frame: _Frame, step: _Step) -> None:
        shown = {}
        for name, text in (step.shown or {}).items():
            if text == ".." and name not in frame.shown:
                raise _Unreadable(f"step {number}: .. for {name}, which has no earlier value")
            shown[name] = frame.shown[name] if text == ".." else text
        frame.shown = shown

    def _add(self, kind: str, frame: _Frame, value: str | None) -> None:
        depth = len(self.open) - 1
        self.events.append(Event(kind, frame.line, frame.number, depth, dict(frame.shown), value))

    def _echoes(self, echo: str) -> list[int]:
        return [number for number, line in enumerate(self.lines, 1) if line.rstrip() == echo.rstrip()]

    def _lines_of(self, scope: _Scope) -> set[int]:
        """Lines that a frame of this scope can be at: none of the bodies of definitions in it."""
        lines = set(range(_first_line(scope), (scope.end_lineno or scope.lineno) + 1))
        for node in _own_nodes(scope):
            if isinstance(node, _DEFINITION):
                body = node.body[0].lineno
                if body > node.lineno:
                    lines.difference_update(range(body, (node.end_lineno or body) + 1))
        return lines


def _own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Walk a scope without entering the definitions and lambdas in it (which are given themselves)."""
    pending = list(ast.iter_child_nodes(scope))
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, (*_DEFINITION, ast.Lambda)):
            pending.extend(ast.iter_child_nodes(node))


def _arguments(signature: ast.arguments, shown: dict[str, str]) -> str:
    parts = [shown[arg.arg] for arg in (*signature.posonlyargs, *signature.args) if arg.arg in shown]
    if signature.vararg is not None and signature.vararg.arg in shown:
        parts.append(f"*{shown[signature.vararg.arg]}")
    parts += [f"{arg.arg}={shown[arg.arg]}" for arg in signature.kwonlyargs if arg.arg in shown]
    if signature.kwarg is not None and signature.kwarg.arg in shown:
        parts.append(f"**{shown[signature.kwarg.arg]}")
    return ", ".join(parts)
