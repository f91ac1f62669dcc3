import pytest
from traced_programs import hard_programs, traced

from nd_jax.tracing.invariants import check
from nd_jax.tracing.recorder import trace_program
from nd_jax.tracing.schema import Trace, from_json, to_json
from nd_jax.tracing.tracer import TraceLimits

GOOD = traced(
    "def g(n):\n    yield n\n    yield 2\ndef f(n):\n    x = g(n)\n    return next(x) + next(x)", "1"
)


def test_recorded_traces_are_sound_and_survive_json():
    for made, _ in hard_programs():
        trace = trace_program(made, TraceLimits())
        assert isinstance(trace, Trace)
        assert check(trace) is None
        assert from_json(to_json(trace)) == trace


def edited(index=None, **changes):
    """GOOD, with fields of the trace or of one of its events replaced."""
    if index is None:
        return GOOD._replace(**changes)
    events = list(GOOD.events)
    events[index] = events[index]._replace(**changes)
    return GOOD._replace(events=events)


RESUME = next(index for index, event in enumerate(GOOD.events) if event.kind == "resume")
YIELD = next(index for index, event in enumerate(GOOD.events) if event.kind == "yield")


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (edited(events=[]), "no events"),
        (edited(events=GOOD.events[:-1]), "left open"),
        (edited(events=GOOD.events[1:]), "not the innermost"),
        (edited(events=[*GOOD.events, GOOD.events[1]]), "root frame is closed"),
        (edited(events=[*GOOD.events, *GOOD.events]), "root frame is closed"),
        (edited(events=[tuple(event) for event in GOOD.events]), "not an event"),
        (edited(0, kind="resume"), "did not yield"),
        (edited(0, frame=1), "the next is 0"),
        (edited(1, depth=1), "depth 1"),
        (edited(1, depth=True), "wrong type"),
        (edited(1, line=7), "line 7 of 6"),
        (edited(1, line=0), "line 0 of 6"),
        (edited(1, kind="jump"), "unknown kind"),
        (edited(1, kind=["line"]), "wrong type"),
        (edited(1, value="1"), "with value"),
        (edited(-1, value=None), "with value"),
        (edited(-1, kind="yield"), "ends in a yield"),
        (edited(RESUME, kind="call"), "the next is 2"),
        (edited(YIELD, kind="return"), "did not yield"),
        (edited(RESUME, frame=0), "did not yield"),
        (edited(1, locals=[]), "not a mapping"),
        (edited(1, locals={".0": "1"}), "not the name of a local"),
        (edited(1, locals={"n": "a\nb"}), "line break"),
        (edited(1, locals={"n": "a\rb"}), "line break"),
        (edited(1, locals={"n": ""}), "empty"),
        (edited(1, locals={"n": 1}), "empty or not text"),
        (edited(-1, value="\ud800"), "UTF-8"),
        (edited(source="\ud800\n\n\n\n\n\n"), "UTF-8"),
        (edited(id=3), "id is not text"),
        (edited(functions=["f"]), "1 functions for 2 frames"),
        (edited(functions="fg"), "not a list"),
        (edited(functions=["f", "a\nb"]), "line break"),
    ],
)
def test_names_what_is_broken(broken, reason):
    found = check(broken)
    assert found is not None
    assert reason in found


def test_lines_are_counted_as_the_compiler_does():
    trace = traced("def f():\n    x = '\\x0c'\n    \x0c\n    return x\n")
    assert check(trace) is None
    late = [trace.events[0]._replace(line=5), *trace.events[1:]]
    assert check(trace._replace(events=late)) == "event 0: line 5 of 4"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"schema": 2}',
        '{"schema": 1, "id": "a"}',
        to_json(GOOD).replace('"call"', '"call", 3', 1),
    ],
)
def test_what_is_no_trace_is_refused(text):
    with pytest.raises(ValueError, match=r"."):
        from_json(text)
