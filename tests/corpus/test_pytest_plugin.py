import importlib.util
import json
from collections import Counter

import pytest
from shapes import FAILS, make_package, run_pytest

from nd_jax.corpus import collected
from nd_jax.corpus.collected import read_calls, split_of_call
from nd_jax.debugger.tree import StateTree
from nd_jax.errors import UserError
from nd_jax.programs.jsonl import Rejected
from nd_jax.tracing.invariants import check
from nd_jax.tracing.schema import Trace

OPTIONS = ("--nd-trace", "out", "--nd-trace-package", "shapes")


def traces_of(folder):
    return [found for found in read_calls(folder) if isinstance(found, Trace)]


def test_no_test_fails_that_passes_without(recorded):
    ran, _ = recorded
    assert "14 passed" in ran.stdout  # one of them sees the tracer, fails, and is run again without it
    assert ran.returncode == 0


def test_a_call_is_a_program(recorded):
    _, out = recorded
    traces = traces_of(out)
    assert [check(trace) for trace in traces] == [None] * len(traces)
    assert all(StateTree(trace).trace is trace for trace in traces)
    total = next(trace for trace in traces if trace.entry == "total" and "side=3" in trace.arguments)
    assert total.source == (
        "class Square:\n    @property\n    def area(self):\n        return _times(self.side, self.side)\n"
        "\ndef _times(a, b):\n    return a * b\n"
        "\ndef total(shapes, *more, start=0, **rest):\n    key = lambda shape: shape.area\n"
        "    for shape in (*shapes, *more):\n        start += key(shape)\n    return start\n"
    )
    assert total.arguments == "[Square(side=3)], *(Square(side=2),), start=1"
    assert total.id.startswith("shapes/areas.total/")
    assert total.functions == ["total", "<lambda>", "area", "_times", "<lambda>", "area", "_times"]
    assert [event.line for event in total.events[:7]] == [9, 10, 11, 12, 10, 10, 2]
    assert total.result == "14"


def test_what_is_recorded(recorded):
    _, out = recorded
    counts = Counter(trace.entry for trace in traces_of(out))
    assert counts["total"] == 6
    assert counts["Square.__init__"] == 6
    assert counts["Square.area"] == 1  # from unittest's test; elsewhere it is a part of `total`
    assert counts["rest"] == 1
    assert counts["fibonacci"] == 2
    known = {"total", "Square.__init__", "Square.area", "rest", "fibonacci", "deep"}
    assert set(counts) == {*known, "adder"}  # the function it gives is named by no one
    raised = next(trace for trace in traces_of(out) if trace.arguments == "-1")
    assert raised.events[-1].kind == "unwind"


def test_why_calls_are_dropped(recorded):
    _, out = recorded
    drops = {(item.place, item.reason) for item in read_calls(out) if isinstance(item, Rejected)}
    assert drops >= {
        ("shapes/areas.following", "resumes what was begun before"),
        ("shapes/areas.deep", "too deep"),
        ("shapes/areas.long", "too many events"),
        ("shapes/areas.big", "argument cut"),
    }


def test_ids_tell_calls_apart(recorded):
    _, out = recorded
    ids = [trace.id for trace in traces_of(out)]
    assert len(set(ids)) == len(ids)
    lines = (out / "calls-main.jsonl").read_text().splitlines()
    assert [json.loads(line)["id"] for line in lines] == ids  # each distinct call is written once


def test_all_calls_of_a_function_are_on_one_side(recorded, monkeypatch):
    _, out = recorded
    monkeypatch.setattr(collected, "split_of", lambda source: source)
    area = next(trace for trace in traces_of(out) if trace.entry == "Square.area")
    wider = area._replace(source="def extra(a):\n    return a\n\n" + area.source)
    assert (
        split_of_call(area)
        == split_of_call(wider)
        == ("@property\ndef area(self):\n    return _times(self.side, self.side)")
    )


def test_bounds(tmp_path):
    folder = make_package(tmp_path / "bounds")
    ran = run_pytest(folder, *OPTIONS, "--nd-trace-calls", "2", "--nd-trace-events", "20")
    assert "14 passed" in ran.stdout
    traces = traces_of(folder / "out")
    assert max(Counter(trace.entry for trace in traces).values()) == 2
    assert max(len(trace.events) for trace in traces) <= 20


def test_no_time_left_records_nothing(tmp_path):
    folder = make_package(tmp_path / "idle")
    ran = run_pytest(folder, *OPTIONS, "--nd-trace-share", "-1")
    assert "14 passed" in ran.stdout
    assert list((folder / "out").iterdir()) == []


def test_a_failing_test_fails_and_the_others_are_recorded(tmp_path):
    folder = make_package(tmp_path / "fails", test_fails=FAILS)
    ran = run_pytest(folder, *OPTIONS, "tests/test_fails.py", "tests/test_shapes.py")
    assert ran.returncode == 1
    assert "1 failed, 14 passed" in ran.stdout
    assert {trace.entry for trace in traces_of(folder / "out")} >= {"total", "rest"}


@pytest.mark.skipif(importlib.util.find_spec("xdist") is None, reason="pytest-xdist is not installed")
def test_xdist_records_the_same_calls(recorded, tmp_path):
    folder = make_package(tmp_path / "parallel")
    ran = run_pytest(folder, *OPTIONS, "--nd-trace-share", "1", "-n", "2")
    assert "14 passed" in ran.stdout
    files = {path.name for path in (folder / "out").glob("calls-*")}
    assert files == {"calls-gw0.jsonl", "calls-gw1.jsonl"}
    assert {trace.id for trace in traces_of(folder / "out")} == {trace.id for trace in traces_of(recorded[1])}


def test_steps_aside_for_another_tracer(tmp_path):
    folder = make_package(tmp_path / "traced")
    (folder / "conftest.py").write_text(
        "import sys, pytest\n\n@pytest.fixture(autouse=True)\ndef other():\n"
        "    sys.settrace(lambda *_: None)\n    yield\n    assert sys.gettrace() is not None\n"
        "    sys.settrace(None)\n"
    )
    ran = run_pytest(folder, *OPTIONS, "-k", "total")
    assert "6 passed" in ran.stdout
    assert list((folder / "out").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--nd-trace", "out"), "needs --nd-trace-package"),
        (("--nd-trace", "shapes", "--nd-trace-package", "shapes"), "holds other files"),
    ],
)
def test_says_what_to_mend(tmp_path, arguments, message):
    folder = make_package(tmp_path / "mistakes")
    ran = run_pytest(folder, *arguments)
    assert ran.returncode == 4
    assert message in ran.stderr
    assert (folder / "shapes" / "areas.py").exists()


def test_nothing_recorded_is_named(tmp_path):
    with pytest.raises(UserError, match="holds no recorded calls"):
        list(read_calls(tmp_path))
