import json

import pytest
from traced_programs import compact, hard_programs, traced

from nd_jax.errors import UserError
from nd_jax.programs.jsonl import Rejected
from nd_jax.tracing.cwm import from_cwm, to_cwm
from nd_jax.tracing.importer import import_traces
from nd_jax.tracing.pretty import show_trace
from nd_jax.tracing.schema import LINE, OPENING, Trace, from_json, to_json

TRACES = [traced(made.source, made.arguments, made.entry, made.id) for made, _ in hard_programs()]
SIMPLE = traced("def g(x):\n    return x + 1\n\ndef f(x):\n    y = g(x)\n    return y", "1")


def test_cwm_format_is_the_published_one():
    assert to_cwm(SIMPLE) == (
        "<|trace_context_start|>def g(x):\n    return x + 1\n\ndef f(x):  # << START_OF_TRACE\n"
        "    y = g(x)\n    return y"
        '<|frame_sep|><|call_sep|>{"x": "1"}<|action_sep|>def f(x):\n'
        '<|frame_sep|><|line_sep|>{"x": ".."}<|action_sep|>    y = g(x)\n'
        '<|frame_sep|><|call_sep|>{"x": "1"}<|action_sep|>def g(x):\n'
        '<|frame_sep|><|line_sep|>{"x": ".."}<|action_sep|>    return x + 1\n'
        '<|frame_sep|><|return_sep|><|action_sep|>    return x + 1\n<|arg_sep|>"2"'
        '<|frame_sep|><|line_sep|>{"x": "..", "y": "2"}<|action_sep|>    return y\n'
        '<|frame_sep|><|return_sep|><|action_sep|>    return y\n<|arg_sep|>"2"<|frame_sep|>'
    )


def shown(trace: Trace) -> list[dict[str, str]]:
    return [event.locals for event in trace.events if event.kind == LINE or event.kind in OPENING]


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace.id)
def test_cwm_traces_read_back(trace):
    again = from_cwm(to_cwm(trace), trace.id)
    if isinstance(again, str):  # the format has no line numbers: lines that look alike cannot be told apart
        assert "lines of the function have this text" in again
        assert len(set(trace.source.split("\n"))) < len(trace.source.split("\n"))
    else:
        assert compact(again) == compact(trace)
        assert shown(again) == shown(trace)
        assert [e.frame for e in again.events] == [e.frame for e in trace.events]
        assert (again.source, again.entry, again.functions) == (trace.source, trace.entry, trace.functions)


def test_cwm_other_writers_are_understood():
    """One space before the mark, token marks at both ends, None where a frame died."""
    text = (
        "<|begin_of_text|><|trace_context_start|>def g():\n    return {}[1]\n"
        "def main(): # << START_OF_TRACE\n    return g()\n"
        "<|frame_sep|><|call_sep|>{}<|action_sep|>def main(): # << START_OF_TRACE\n"
        "<|frame_sep|><|line_sep|>{}<|action_sep|>    return g()\n"
        "<|frame_sep|><|call_sep|>{}<|action_sep|>def g():\n"
        "<|frame_sep|><|line_sep|>{}<|action_sep|>    return {}[1]\n"
        '<|frame_sep|><|exception_sep|><|action_sep|>    return {}[1]\n<|arg_sep|>"KeyError(1)"'
        '<|frame_sep|><|return_sep|><|action_sep|>    return {}[1]\n<|arg_sep|>"None"'
        '<|frame_sep|><|exception_sep|><|action_sep|>    return g()\n<|arg_sep|>"KeyError(1)"'
        "<|frame_sep|><|return_sep|><|action_sep|>    return g()\n<|arg_sep|>null<|frame_sep|><|end_of_text|>"
    )
    trace = from_cwm(text, "a")
    assert isinstance(trace, Trace)
    assert compact(trace) == "C3 L4 >C1 >L2 >X2:KeyError >R2~unwind X4:KeyError R4~unwind"


GOOD = to_cwm(SIMPLE)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "does not start with the source"),
        (GOOD[:-13], "does not end after a step"),
        (GOOD.replace("  # << START_OF_TRACE", ""), "0 lines are marked"),
        (GOOD.replace('{"x": "1"}', '{"x": 1}'), "not a mapping of texts"),
        (GOOD.replace('{"x": "1"}', '{"x": '), "malformed JSON"),
        (GOOD.replace('"y": "2"', '"y": ".."'), "no earlier value"),
        (GOOD.replace("<|line_sep|>", "<|jump_sep|>"), "step 1 is malformed"),
        (GOOD.replace("<|action_sep|>    return y", "<|action_sep|>    return z"), "0 lines of the function"),
        (GOOD.replace("<|action_sep|>def g(x)", "<|action_sep|>def h(x)"), "0 functions start"),
        (GOOD.replace("def g(x):\n    return x + 1", "def g(x:"), "does not parse"),
        (GOOD + "<|line_sep|>{}<|action_sep|>    return y\n<|frame_sep|>", "in no frame"),
    ],
)
def test_cwm_says_what_cannot_be_read(text, reason):
    found = from_cwm(text, "a")
    assert isinstance(found, str)
    assert reason in found


def test_imports_and_names_what_is_broken(tmp_path):
    left_open = SIMPLE._replace(events=SIMPLE.events[:-1])
    file = tmp_path / "mine.jsonl"
    lines = [to_json(SIMPLE), "{", "", to_json(left_open), '{"schema": 1}', to_json(TRACES[0]), "[" * 100_000]
    file.write_text("\n".join(lines) + "\n")
    first, *middle, good, deep = import_traces(file, "nd")
    assert first == SIMPLE
    assert good == TRACES[0]
    assert [(item.place, item.reason) for item in [*middle, deep] if isinstance(item, Rejected)] == [
        ("mine.jsonl:2", "malformed JSON"),
        ("mine.jsonl:4", "broken trace"),
        ("mine.jsonl:5", "not a trace"),
        ("mine.jsonl:7", "malformed JSON"),
    ]


def test_imports_cwm(tmp_path):
    file = tmp_path / "their.jsonl"
    records = [{"text": GOOD, "id": "a"}, {"text": GOOD}, {"txt": ""}, {"text": GOOD[:-13]}]
    file.write_text("".join(json.dumps(record) + "\n" for record in records))
    found = list(import_traces(file, "cwm"))
    assert [item.id for item in found if isinstance(item, Trace)] == ["a", "their_2"]
    assert [(item.place, item.reason) for item in found if isinstance(item, Rejected)] == [
        ("their.jsonl:3", "not a trace"),
        ("their.jsonl:4", "unreadable"),
    ]


def test_import_refuses_what_is_not_there(tmp_path):
    with pytest.raises(UserError, match="is no file"):
        import_traces(tmp_path / "a", "nd")
    with pytest.raises(UserError, match="no trace format"):
        import_traces(tmp_path, "xml")  # pyright: ignore[reportArgumentType]  # what a user might type


def test_shows_a_trace_to_people():
    head, python, _, *rows = show_trace(SIMPLE).split("\n")
    assert head == "p: f(1)"
    assert python == f"Python {SIMPLE.python}, 7 events, 2 frames"
    assert [row.split() for row in rows] == [
        ["0", "call", "4", "def", "f(x):", "x", "=", "1"],
        ["1", "line", "5", "y", "=", "g(x)"],
        ["2", "call", "1", "|", "def", "g(x):", "x", "=", "1"],
        ["3", "line", "2", "|", "return", "x", "+", "1"],
        ["4", "return", "2", "|", "return", "x", "+", "1", "returns", "2"],
        ["5", "line", "6", "return", "y", "y", "=", "2"],
        ["6", "return", "6", "return", "y", "returns", "2"],
    ]
    for trace in TRACES:
        assert len(show_trace(trace).split("\n")) == len(trace.events) + 3


def test_shows_other_formats():
    assert show_trace(SIMPLE, "cwm") == to_cwm(SIMPLE)
    assert from_json(show_trace(SIMPLE, "json")) == SIMPLE
    with pytest.raises(UserError, match="no format"):
        show_trace(SIMPLE, "xml")  # pyright: ignore[reportArgumentType]  # what a user might type
