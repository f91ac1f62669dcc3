"""Programs run in limited processes: each costs itself only, whatever it does."""

import os
import resource
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from traced_programs import program

from nd_jax.errors import UserError
from nd_jax.tracing.pool import Evaluation, Outcome, WorkerLimits, evaluate, record
from nd_jax.tracing.schema import Trace
from nd_jax.tracing.zygote import Zygote

LIMITS = WorkerLimits(cpu_s=1, wall_s=1.0, memory_mb=300)
TOO_LONG = {"cpu", "timeout"}
DENIED = "PermissionError(1, 'Operation not permitted')"
linux = pytest.mark.skipif(sys.platform != "linux", reason="seccomp and landlock are Linux's")

# What each does, and what becomes of it: drop reasons, or the result (or exception) of its trace.
HOSTILE: dict[str, tuple[str, set[str]]] = {
    "loop": ("def f():\n    while True:\n        pass", {"too many events"}),
    "loop in C": ("def f():\n    return sum(range(10**12))", TOO_LONG),
    "swallows everything": (
        "def f():\n    while True:\n        try:\n            while True: pass\n"
        "        except BaseException: pass",
        TOO_LONG,
    ),
    "loop while loading": ("while True: pass\ndef f(): return 1", TOO_LONG),
    "sleep": ("import time\ndef f(): time.sleep(1000)", {"timeout"}),
    "ignores the CPU signal": (
        "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\ndef f(): return sum(range(10**12))",
        TOO_LONG,
    ),
    "memory": ("def f():\n    x = [0] * 10**10\n    return 1", {"memory"}),
    "memory, piecewise": (
        "def f():\n    x = 'a' * 10**7\n    y = [x + str(i) for i in range(100)]\n    return 1",
        {"memory"},
    ),
    "huge int": ("def f():\n    x = 10**100000\n    return 1", {"1"}),
    "huge result": ("def f():\n    return 10**100000", {"result cut"}),
    "deep recursion": ("import sys\nsys.setrecursionlimit(10**7)\ndef f(n=0): return f(n + 1)", {"too deep"}),
    "exit": ("import os\ndef f():\n    os._exit(0)", {"exit"}),
    "sys.exit": ("import sys\ndef f():\n    sys.exit(3)", {"SystemExit(3)"}),
    "kills itself": ("import os\ndef f():\n    os.kill(os.getpid(), 9)", {"killed"}),
    "crash": ("import ctypes\ndef f():\n    return ctypes.string_at(0)", {"crashed"}),
    "stdout flood": ("def f():\n    for i in range(100):\n        print('x' * 10**6)\n    return 1", {"1"}),
    "writes to every descriptor": (
        "import os\ndef f():\n    for i in range(3, 64):\n        try: os.write(i, b'x' * 99999)\n"
        "        except OSError: pass\n    return 1",
        {"forged result"},
    ),
    "settrace": ("import sys\ndef f():\n    sys.settrace(None)\n    return 1", {"tracer replaced"}),
    "raising repr": (
        "class A:\n    def __repr__(self): raise ValueError\ndef f():\n    a = A()\n    return 1",
        {"1"},
    ),
    "changing repr": (
        "class A:\n    n = 0\n    def __repr__(self):\n        A.n += 1\n        return 'A'\n"
        "def f():\n    a = A()\n    b = 1\n    return A.n",
        {"0"},
    ),
    "thread left running": (
        "import threading\ndef spin():\n    while True: pass\ndef f():\n"
        "    threading.Thread(target=spin).start()",
        {"None"},
    ),
    "patched builtins": (
        "import builtins\nfor name in ('len', 'repr', 'type', 'id', 'isinstance', 'dict', 'Exception'):\n"
        "    setattr(builtins, name, lambda *a: 7)\ndef f(): return len([])",
        {"7"},
    ),
    "patched library": (
        "from collections import Counter\nCounter.most_common, x = (lambda self: 'evil'), 3\n"
        "def f(): return 1",
        {"1"},
    ),
    "modules of modules": ("import typing\ntyping.sys.setrecursionlimit(77)\ndef f(): return 1", {"1"}),
    "no modules": ("import sys\nsys.modules.clear()\ndef f(): return 1", {"1"}),
    "frame walking": (
        "import sys\ndef f():\n    frame = sys._getframe()\n    while frame.f_back: frame = frame.f_back\n"
        "    frame.f_globals['__builtins__'] = {}\n    return 1",
        {"1"},
    ),
    "atexit": ("import atexit, os\ndef f():\n    atexit.register(os._exit, 5)\n    return 1", {"1"}),
    "gc callbacks": (
        "import gc\ndef f():\n    gc.callbacks.append(lambda *a: 1 / 0)\n    gc.collect()\n    return 1",
        {"1"},
    ),
    "random": ("import random\ndef f(): return random.random()", {"nondeterministic"}),
    "random inside": ("import random\ndef f():\n    x = random.random()\n    return 1", {"nondeterministic"}),
    "identity": ("def f(): return id(object())", {"nondeterministic"}),
    "hash order": ("def f(): return list({'a', 'b', 'c', 'd', 'e', 'f'})", {"nondeterministic"}),
    "sees the tracer": (
        "import sys\ndef f(): return sys.gettrace() is None",
        {"nondeterministic"},
    ),
    "NUL": ("def f():\n    return '\0'", {"does not compile"}),
    "lone surrogate": ("def f():\n    return '\ud800'", {"does not compile"}),
    "deep brackets": ("def f():\n    return " + "(" * 1000 + "1" + ")" * 1000, {"does not compile"}),
    "own file": (
        "def f():\n    with open('a.txt', 'w') as file:\n        file.write('hello')\n"
        "    with open('a.txt') as file:\n        return file.read()",
        {"'hello'"},
    ),
    "big file": (
        "def f():\n    with open('a.txt', 'w') as file:\n        file.write('h' * 10**8)",
        {"OSError(27, 'File too large')"},
    ),
}
WALLED = {  # only where the kernel helps
    "fork": ("import os\ndef f():\n    os.fork()", {DENIED}),
    "fork bomb": (
        "import os\ndef f():\n    while True:\n        try: os.fork()\n        except OSError: pass",
        {"too many events"},
    ),
    "posix_spawn": ("import os\ndef f():\n    os.posix_spawn('/bin/true', ['true'], {})", {DENIED}),
    "exec": ("import os\ndef f():\n    os.execv('/bin/true', ['true'])", {DENIED}),
    "kills its parent": ("import os\ndef f():\n    os.kill(os.getppid(), 9)", {DENIED}),
    "kills all": ("import os\ndef f():\n    os.kill(-1, 9)", {DENIED}),
    "session": ("import os\ndef f():\n    os.setpgid(0, 0)", {DENIED}),
    "socket": ("import socket\ndef f():\n    socket.socket()", {DENIED}),
    "chmod": ("import os\ndef f():\n    os.chmod('/tmp', 0o700)", {DENIED}),
    "reads files": ("def f():\n    open('/etc/passwd')", {"PermissionError(13, 'Permission denied')"}),
    "writes files": ("def f():\n    open('/tmp/nd_evil', 'w')", {"PermissionError(13, 'Permission denied')"}),
    "raises its limits": (
        "import resource\ndef f():\n    resource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
        {"ValueError('not allowed to raise maximum limit')"},
    ),
}  # fmt: skip
NEIGHBOURS = [
    program(f"def f(a, b):\n    c = a + b + {i}\n    return sorted([c, a, b])", "1, 2", id=f"n{i}")
    for i in range(60)
]


def result(outcome: Outcome) -> str | None:
    """The drop reason, or the result of the trace, or the exception it died of."""
    if outcome.trace is None:
        return outcome.reason
    values = [event.value for event in outcome.trace.events if event.value is not None and not event.depth]
    return values[-1]


def processes() -> set[str]:
    """Processes that run our worker, and their children."""
    listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return {line for line in listed.splitlines() if "nd_jax.tracing.worker" in line}


@pytest.fixture(scope="module")
def mixed() -> dict[str, Outcome]:
    """Hostile programs with innocent ones between them, recorded with the gate."""
    hostile = HOSTILE | (WALLED if sys.platform == "linux" else {})
    programs = []
    for (name, (source, _)), neighbour in zip(hostile.items(), NEIGHBOURS, strict=False):
        programs += [neighbour, program(source, id=name)]
    before, files = processes(), set(os.listdir(tempfile.gettempdir()))
    outcomes = list(record(programs, LIMITS, workers=2, verify=True))
    assert [outcome.program_id for outcome in outcomes] == [made.id for made in programs]
    assert processes() <= before
    new = set(os.listdir(tempfile.gettempdir())) - files
    assert not {name for name in new if name.startswith("nd")}
    return {outcome.program_id: outcome for outcome in outcomes}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_program_costs_itself_only(mixed, name):
    assert result(mixed[name]) in HOSTILE[name][1], mixed[name]


@linux
@pytest.mark.parametrize("name", WALLED)
def test_the_kernel_keeps_it_in(mixed, name):
    assert result(mixed[name]) in WALLED[name][1], mixed[name]


def test_neighbours_are_as_without_it(mixed):
    alone = {outcome.program_id: outcome for outcome in record(NEIGHBOURS, LIMITS, workers=1, verify=False)}
    seen = [name for name in mixed if name in alone]
    assert len(seen) > 30
    for name in seen:
        assert mixed[name] == alone[name]
        assert mixed[name].trace is not None


def test_the_processor_limit_holds():
    (outcome,) = record([program(HOSTILE["loop in C"][0])], WorkerLimits(cpu_s=1, wall_s=60), 1, False)
    assert outcome.reason == "cpu"


def test_lazy_in_order_and_bounded():
    taken = []

    def endless():
        for number in range(10**6):
            taken.append(number)
            yield program(f"def f():\n    return {number}", id=str(number))

    outcomes = record(endless(), WorkerLimits(batch=5), workers=2, verify=False)
    assert [next(outcomes).program_id for _ in range(12)] == [str(number) for number in range(12)]
    assert len(taken) <= 12 + 5 * 6
    before = processes()
    outcomes.close()
    assert not processes() & before


def test_nothing_runs_in_the_caller():
    code = (
        "import os, threading\nDONE = (os.getpid(), threading.get_ident())\ndef f():\n    return os.getpid()"
    )
    (outcome,) = record([program(code)], LIMITS, workers=1, verify=False)
    assert outcome.trace is not None
    assert outcome.trace.result != str(os.getpid())
    assert threading.active_count() < 20


def test_a_killed_zygote_is_replaced():
    outcomes = record(NEIGHBOURS, WorkerLimits(batch=1), workers=1, verify=False)
    first = next(outcomes)
    for line in processes():
        if "nd_jax.tracing.worker" in line and _parent(int(line.split()[0])) == os.getpid():
            os.kill(int(line.split()[0]), 9)
    rest = list(outcomes)
    assert len([first, *rest]) == len(NEIGHBOURS)
    assert all(outcome.trace for outcome in rest)


def _parent(pid: int) -> int:
    listed = subprocess.run(["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, text=True)
    return int(listed.stdout or 0)


def test_a_killed_collector_leaves_nothing():
    code = (
        "import sys, os, signal\nfrom nd_jax.tracing.zygote import *\nz = Zygote(WorkerLimits(), 0)\n"
        "print(z._folder, flush=True)\n"
        "z.run([['trace', 'import time\\ndef f(): time.sleep(100)', 'f', '']])"
    )
    collector = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert collector.stdout is not None
    folder = collector.stdout.readline().strip()
    collector.kill()
    collector.wait()
    collector.stdout.close()
    for _ in range(10**6):  # until the zygote has noticed; no clock
        if not Path(folder).exists():
            break
        subprocess.run(["true"])
    assert not Path(folder).exists()


def test_says_what_is_enforced():
    zygote = Zygote(LIMITS, 0)
    zygote.close()
    assert "rlimits" in zygote.enforced
    if sys.platform == "linux":
        assert "seccomp" in zygote.enforced


def test_a_missing_interpreter_is_a_users_mistake():
    with pytest.raises(UserError, match="cannot start"):
        list(record(NEIGHBOURS[:1], WorkerLimits(python="/nowhere/python"), 1, False))


def test_memory_does_not_grow_with_the_programs():
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in record(NEIGHBOURS * 10, LIMITS, workers=1, verify=False):
        pass
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used < 50_000


def test_evaluates_each_expression_on_its_own():
    jobs = [
        Evaluation(
            "a", "x = [1]\ndef f(y):\n    x.append(y)\n    return x", ("f(2)", "f(3)", "g(1)", "f(", "x")
        ),
        Evaluation("b", "def f(y):\n    return y", ()),
        Evaluation("c", "import os\ndef f(y):\n    return y", ("f('é')", "os._exit(0)", "f(f)", "f(2)")),
        Evaluation("d", "1 / 0", ("1",)),
    ]
    first, second, third, fourth = evaluate(jobs, LIMITS, workers=2)
    assert first.values == ["[1, 2]", "[1, 3]", None, None, "[1]"]
    assert first.errors[2] == "NameError: name 'g' is not defined"
    assert (first.errors[3] or "").startswith("SyntaxError: ")
    assert [error is None for error in first.errors] == [True, True, False, False, True]
    assert second.values == []
    assert third.values == ["'é'", None, "<function f>", "2"]
    assert (third.errors[1] or "").startswith("exit: ")
    assert fourth.errors == ["module raises: ZeroDivisionError('division by zero')"]


def other_interpreters() -> list[str]:
    found = sorted(Path.home().glob(".pyenv/versions/3.1[23].*/bin/python"))
    return [str(path) for path in found]


@pytest.mark.parametrize(
    "python", other_interpreters() or [""], ids=lambda path: Path(path).parts[-3:-2] or "none"
)
def test_other_interpreters_record_the_same(python):
    if not python:
        pytest.skip("no Python 3.12 or 3.13 beside this one")
    made = program(
        "def g(n):\n    yield n\ndef f(n, *, k):\n    t = {'a': [k]}\n    try:\n        t['b']\n"
        "    except KeyError as e:\n        n += 1\n    for x in g(n):\n        t[x] = (x, 'x')\n"
        "    return t",
        "3, k=1.5",
    )
    here, there = (
        next(record([made], WorkerLimits(python=path), 1, verify=True)).trace for path in ("", python)
    )
    assert isinstance(here, Trace)
    assert isinstance(there, Trace)
    assert there.python.startswith(("3.12", "3.13"))
    assert there.events == here.events
