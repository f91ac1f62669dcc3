"""Traces made by hypothesis: frames nested at random, without a program that would run so."""

from hypothesis import strategies as st

from nd_jax.tracing.schema import CALL, EXCEPTION, LINE, RETURN, UNWIND, Event, Trace

LINES = 6

# A frame's body: an own state is a line number (negative: an exception there), a call is a body.
bodies = st.recursive(
    st.lists(st.integers(-LINES, LINES).filter(bool), max_size=4),
    lambda inner: st.lists(st.integers(-LINES, LINES).filter(bool) | inner, max_size=5),
    max_leaves=12,
)


def trace_of(body: list) -> Trace:
    """A trace of one root frame with this body."""
    events: list[Event] = []
    functions: list[str] = []

    def run(inner: list, depth: int) -> None:
        frame = len(functions)
        functions.append(f"f{frame}")
        events.append(Event(CALL, 1, frame, depth, {}, None))
        for item in inner:
            if isinstance(item, list):
                run(item, depth + 1)
            elif item > 0:
                events.append(Event(LINE, item, frame, depth, {"n": str(len(events))}, None))
            else:
                events.append(Event(EXCEPTION, -item, frame, depth, {}, "ValueError()"))
        last = inner[-1] if inner else 1
        unwinds = isinstance(last, int) and last < 0
        kind = UNWIND if unwinds else RETURN
        events.append(Event(kind, LINES, frame, depth, {}, None if unwinds else str(len(events))))

    run(body, 0)
    return Trace("made", "x = 1\n" * LINES, "f0", "", "3.11", functions, events)


made_traces = bodies.map(trace_of)
