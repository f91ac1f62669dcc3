import builtins
import gc
import sys

import pytest
from constructs import CONSTRUCTS, expected
from hypothesis import given, settings
from hypothesis import strategies as st
from traced_programs import compact, hard_programs, program, traced

from nd_jax.tracing.invariants import check
from nd_jax.tracing.recorder import evaluate, run_program, trace_program
from nd_jax.tracing.schema import Trace
from nd_jax.tracing.tracer import FILE, Dropped, TraceLimits
from nd_jax.tracing.values import render

LIMITS = TraceLimits()


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the expected events are Python 3.11's")
@pytest.mark.parametrize(("made", "expected"), hard_programs(), ids=lambda item: getattr(item, "id", None))
def test_hard_programs_run_as_written(made, expected):
    trace = trace_program(made, LIMITS)
    assert isinstance(trace, Trace)
    events = expected.split(" | ")[0].partition("events: ")[2]
    events = events.partition(" -> ")[0].partition(" raises ")[0]
    assert compact(trace) == events.replace("<prog.It object>", "It()")  # where repr shows an address
    assert check(trace) is None


@pytest.mark.parametrize("name", CONSTRUCTS)
def test_constructs(name):
    source, arguments, _ = CONSTRUCTS[name]
    trace = traced(source, arguments)
    assert compact(trace) == expected(name)
    assert check(trace) is None


def test_events_hold_locals_before_the_line_runs():
    trace = traced(
        "def f(n):\n    t = 0\n    for i in range(n):\n        t += i\n    del t\n    return i", "2"
    )
    assert [(event.line, event.locals) for event in trace.events if event.kind == "line"] == [
        (2, {"n": "2"}),
        (3, {"n": "2", "t": "0"}),
        (4, {"n": "2", "t": "0", "i": "0"}),
        (3, {"n": "2", "t": "0", "i": "0"}),
        (4, {"n": "2", "t": "0", "i": "1"}),
        (3, {"n": "2", "t": "1", "i": "1"}),
        (5, {"n": "2", "t": "1", "i": "1"}),
        (6, {"n": "2", "i": "1"}),
    ]
    assert trace.result == "1"


def test_locals_come_in_slot_order_with_cells_and_without_iterators():
    source = (
        "def f(b, *c, k=1, **a):\n    n = [x for x in c]\n    def g():\n        return n\n"
        "    del b\n    b = 4\n    return g()"
    )
    last = traced(source, "3, 5, z=2").events[-1]
    assert list(last.locals) == ["b", "k", "c", "a", "g", "n"]
    assert all(name.isidentifier() for event in traced(source, "3, 5").events for name in event.locals)


STATEMENTS = st.sampled_from([
    "a = 1", "a = True", "a = 1.0", "a = [1, 2]", "a = [1, True]", "a = ()", "a = (1, [2])", "a = {1: 2}",
    "a = [[1], 2]", "b = a", "c = [a]", "d = {'k': a}", "b = 'x' * 60", "b = b * 2", "c = 10**45",
    "a.append(3)", "a[0] = 1.0", "a[0] = 1", "a[1].append(4)", "a.clear()", "a[1] = 2", "a[1] = 2.0",
    "a.pop(1)", "a.update({2: 3})", "d['k'] = 1", "d['k'] = True", "a.reverse()", "a, b = b, a",
    "del a", "del b", "del c", "locals()['z'] = 1",
])  # fmt: skip


@settings(deadline=None)
@given(st.lists(STATEMENTS, max_size=25))
def test_locals_are_shown_as_if_each_were_looked_at_anew(statements):
    lines = [f"    try: {statement}\n    except Exception: pass" for statement in statements]
    source = "\n".join(["def f(d, a):", *lines, "    c, b = 1, 2"])
    namespace = {}
    exec(compile(source, FILE, "exec"), namespace)
    expected = []

    def naive(frame, event, arg):
        if frame.f_code.co_filename != FILE:
            return None
        found = frame.f_locals
        expected.append([(name, render(found[name])) for name in frame.f_code.co_varnames if name in found])
        return naive

    before = sys.gettrace()
    sys.settrace(naive)
    try:
        namespace["f"](0, [])
    finally:
        sys.settrace(before)
    assert [list(event.locals.items()) for event in traced(source, "0, []").events] == expected


def test_class_bodies_show_their_own_names_only():
    trace = traced("def f():\n    class A:\n        x = 1\n        y = x + 1\n    return A.y")
    body = [event.locals for event in trace.events if event.frame == 1 and event.line == 4]
    assert body[0] == {"x": "1"}
    assert trace.functions == ["f", "A"]


# What each line does to the next: a list that changes in place, an equal value of another type, a new object.
@pytest.mark.parametrize(
    ("body", "texts"),
    [
        ("x = [1]\n    x.append(2)\n    x[0] = True\n    x = (1,)", ["[1]", "[1, 2]", "[True, 2]", "(1,)"]),
        ("x = 1\n    x = True\n    x = 1.0\n    x = [1]\n    x = 1", ["1", "True", "1.0", "[1]", "1"]),
        ("x = [[]]\n    x[0].append(1)\n    x = []", ["[[]]", "[[1]]", "[]"]),
        ("x = ['a']\n    x[0] = 'b'\n    x *= 2", ["['a']", "['b']", "['b', 'b']"]),
        ("x = {1: 2}\n    x[1] = 3\n    x = 0.0\n    x = -0.0", ["{1: 2}", "{1: 3}", "0.0", "-0.0"]),
    ],
)
def test_changes_in_place_are_seen(body, texts):
    trace = traced(f"def f():\n    {body}\n    return 0")
    assert [event.locals["x"] for event in trace.events if "x" in event.locals][: len(texts)] == texts


GENERATORS = {
    "throw": (
        "def g():\n    yield 1\ndef f():\n    x = g()\n    next(x)\n    try:\n"
        "        x.throw(ValueError)\n    except ValueError:\n        return 3",
        "C3 L4 L5 >C1 >L2 >R2^1 L6 L7 >C2 >X2:ValueError >R2~unwind X7:ValueError L8 L9 R9=3",
    ),
    "yield_none_after_throw": (
        "def g():\n    while True:\n        try: yield\n        except ValueError: pass\n"
        "def f():\n    x = g()\n    next(x)\n    x.throw(ValueError)\n    return 3",
        "C5 L6 L7 >C1 >L2 >L3 >R3^None L8 >C3 >X3:ValueError >L4 >L2 >L3 >R3^None L9 R9=3",
    ),
    "yield_from": (
        "def h():\n    r = yield 1\n    return r\ndef g():\n    v = yield from h()\n    yield v\n"
        "def f():\n    x = g()\n    a = next(x)\n    return a, x.send(5)",
        "C7 L8 L9 >C4 >L5 >>C1 >>L2 >>R2^1 >R5^1 L10 >C5 >>C2 >>L3 >>R3=5 >L6 >R6^5 R10=(1, 5)",
    ),
    "coroutine": (
        "class A:\n    def __await__(self):\n        return (yield 5)\nasync def g():\n"
        "    return await A()\ndef f():\n    c = g()\n    c.send(None)\n    try:\n"
        "        c.send(7)\n    except StopIteration as e:\n        return e.value",
        "C6 L7 L8 >C4 >L5 >>C2 >>L3 >>R3^5 >R5^5 L9 L10 >C5 >>C3 >>R3=7 >R5=7 "
        "X10:StopIteration L11 L12 R12=7",
    ),
}


@pytest.mark.parametrize("name", GENERATORS)
def test_generators(name):
    source, events = GENERATORS[name]
    trace = traced(source)
    assert compact(trace) == events
    assert check(trace) is None


def test_a_generator_keeps_its_frame():
    trace = traced("def g():\n    yield 1\n    yield 2\ndef f():\n    a, b = g(), g()\n    return [*a, *b]")
    opened = [(event.kind, event.frame) for event in trace.events if event.depth]
    assert [item for item in opened if item[0] in ("call", "resume")] == [
        ("call", 1), ("resume", 1), ("resume", 1), ("call", 2), ("resume", 2), ("resume", 2)
    ]  # fmt: skip


def test_finalisers_after_the_root_are_no_part_of_it():
    trace = traced("class A:\n    def __del__(self):\n        pass\ndef f():\n    a = A()\n    return 1")
    assert trace.events[-1].kind == "return"
    assert trace.events[-1].depth == 0


def test_an_uncaught_exception_ends_in_unwind():
    trace = traced("def f(x):\n    return 1 // x", "0")
    assert [event.kind for event in trace.events] == ["call", "line", "exception", "unwind"]
    assert trace.events[-2].value == "ZeroDivisionError('integer division or modulo by zero')"
    assert trace.result is None


def test_arguments_are_evaluated_in_the_program_outside_the_trace():
    trace = traced("N = 3\ndef g(x):\n    return x\ndef f(x, y):\n    return x + y", "g(N), y=N + 1")
    assert compact(trace) == "C4 L5 R5=7"
    assert trace.events[0].locals == {"x": "3", "y": "4"}


DROPPED = {
    "does not compile": ("def f(:", ""),
    "module raises": ("1 / 0\ndef f(): pass", ""),
    "no entry": ("def g(): pass", ""),
    "does not bind": ("def f(x): pass", ""),
    "no event": ("f = len", "[]"),
    "too many events": ("def f():\n    while True:\n        pass", ""),
    "too deep": ("def f(n):\n    return f(n + 1)", "0"),
    "tracer replaced": ("import sys\ndef f():\n    sys.settrace(None)\n    return 1", ""),
    "incomplete": ("import sys\ndef f():\n    sys._getframe().f_trace = None\n    return 1", ""),
    "argument cut": ("def f(x):\n    return 1", "'a' * 600"),
    "result cut": ("def f(x):\n    return 'a' * x", "600"),
    "result differs": (
        "import contextlib\nclass C(contextlib.ContextDecorator):\n"
        "    def __enter__(self): return self\n    def __exit__(self, *e): pass\n"
        "@C()\ndef f():\n    return 1",
        "",
    ),
    "memory": ("def f():\n    raise MemoryError", ""),
}


@pytest.mark.parametrize("reason", DROPPED)
def test_drops_with_a_reason(reason):
    source, arguments = DROPPED[reason]
    found = trace_program(program(source, arguments), LIMITS)
    assert isinstance(found, Dropped)
    assert found.reason == reason


@pytest.mark.parametrize("arguments", ["1), f(2", "1)(2", "x", "1; 2", "1 if", "*", "yield", "1).real, (2"])
def test_what_is_no_argument_list_is_dropped(arguments):
    found = trace_program(program("def f(*x):\n    return 1", arguments), LIMITS)
    assert isinstance(found, Dropped)
    assert found.reason == "arguments"


def test_less_visible_tampering_is_dropped():
    for line in (
        "sys._getframe().f_trace_lines = False",
        "sys.settrace(lambda *a: None)",
        "t = sys.gettrace(); sys.settrace(None); sys.settrace(t)",
    ):
        found = trace_program(program(f"import sys\ndef f():\n    {line}\n    x = 1\n    return x"), LIMITS)
        assert isinstance(found, Dropped)
        assert found.reason == "tracer replaced"


def test_leaves_this_process_as_it_was():
    source = "import builtins\nbuiltins.len = lambda x: 7\ndef f(x):\n    return len(x)"
    trace = traced(source, "[]")
    assert trace.result == "7"
    assert len([]) == 0
    assert builtins.len is len
    assert sys.gettrace() is None or "program" not in sys.modules
    assert gc.isenabled()


def test_untraced_run_and_evaluation():
    assert run_program(program("def f(x):\n    return [x]", "1")) == "[1]"
    assert run_program(program("def f(x):\n    raise KeyError(x)", "1")) == "KeyError(1)"
    assert evaluate("def f(x):\n    return x * 2", " f('a') ") == ("'aa'", None)
    assert evaluate("n = 1", "n / 0") == (None, "ZeroDivisionError: division by zero")
    assert evaluate("n = (", "n")[0] is None
    assert evaluate("", "1; 2")[1].startswith("SyntaxError: ")
