"""What every trace must satisfy, wherever it was recorded: the debugger and the renderer rely on it.

Frames nest: each call or resume opens one, each return, yield or unwind closes the innermost one, and the
first event opens the root frame, which the last one closes for good. Frames are numbered by first call; only
a frame that yielded is resumed. Lines lie in the source. Names are identifiers; texts are not empty, hold no
line break and are valid UTF-8.
"""

import re

from nd_jax.tracing.schema import CALL, CLOSING, EXCEPTION, LINE, OPENING, RETURN, YIELD, Event, Trace

_WITH_VALUE = frozenset((RETURN, YIELD, EXCEPTION))
_LINE_BREAK = re.compile("[\n\r]")


def check(trace: Trace) -> str | None:
    """Say what is wrong with a trace, or None if it is sound. Never raises, whatever the fields hold."""
    return _check_fields(trace) or _check_nesting(trace) or _check_texts(trace)


def _check_fields(trace: Trace) -> str | None:
    for name in ("id", "source", "entry", "arguments", "python"):
        if type(getattr(trace, name)) is not str:
            return f"{name} is not text"
    if type(trace.functions) is not list or not all(type(name) is str for name in trace.functions):
        return "functions is not a list of names"
    if type(trace.events) is not list or not trace.events:
        return "no events"
    last_line = _count_lines(trace.source)
    for index, event in enumerate(trace.events):
        if type(event) is not Event:
            return f"event {index} is not an event"
        kind, line, frame, depth, shown, value = event
        if type(kind) is not str or type(frame) is not int or type(depth) is not int or type(line) is not int:
            return f"event {index}: kind, line, frame or depth has the wrong type"
        if not 1 <= line <= last_line:
            return f"event {index}: line {line} of {last_line}"
        if type(shown) is not dict:
            return f"event {index}: locals is not a mapping"
        if type(value) is not (str if kind in _WITH_VALUE else type(None)):
            return f"event {index}: {kind} with value {value!r:.40}"
    return None


def _count_lines(source: str) -> int:
    """Count lines as the compiler does (not as ``str.splitlines``, which splits at form feeds too)."""
    text = source.replace("\r\n", "\n").replace("\r", "\n")
    return text.count("\n") + (not text.endswith("\n"))


def _check_nesting(trace: Trace) -> str | None:
    open_frames: list[int] = []
    suspended: set[int] = set()
    seen = 0
    for index, (kind, _, frame, depth, _, _) in enumerate(trace.events):
        if index and not open_frames:
            return f"event {index}: the root frame is closed"
        if kind in OPENING:
            if kind == CALL:
                if frame != seen:
                    return f"event {index}: call of frame {frame}, the next is {seen}"
                seen += 1
            elif frame not in suspended:
                return f"event {index}: resume of frame {frame}, which did not yield"
            suspended.discard(frame)
            open_frames.append(frame)
        elif not open_frames or frame != open_frames[-1]:
            return f"event {index}: frame {frame} is not the innermost"
        if depth != len(open_frames) - 1:
            return f"event {index}: depth {depth}, {len(open_frames) - 1} frames enclose it"
        if kind in CLOSING:
            open_frames.pop()
            if kind == YIELD:
                suspended.add(frame)
        elif kind not in OPENING and kind != LINE and kind != EXCEPTION:
            return f"event {index}: unknown kind {kind!r:.40}"
    if open_frames:
        return "the root frame is left open"
    if trace.events[-1].kind == YIELD:
        return "the root frame ends in a yield"
    if seen != len(trace.functions):
        return f"{len(trace.functions)} functions for {seen} frames"
    return None


def _check_texts(trace: Trace) -> str | None:
    texts: list[str] = list(trace.functions)
    names: set[str] = set()
    for event in trace.events:
        names.update(event.locals)
        texts += event.locals.values()
        if event.value is not None:
            texts.append(event.value)
    for name in names:
        if type(name) is not str or not name.isidentifier():
            return f"{name!r:.40} is not the name of a local"
    if not {str}.issuperset(map(type, texts)) or not all(texts):
        return "a value is empty or not text"
    joined = "".join(texts)
    if _LINE_BREAK.search(joined):
        return "a value holds a line break"
    try:
        "".join((joined, *names, trace.id, trace.source, trace.entry, trace.arguments)).encode()
    except UnicodeEncodeError:
        return "a text is not valid UTF-8"
    return None
