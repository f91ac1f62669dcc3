"""Programs run in limited processes: each costs itself only, whatever it does."""

import itertools
import json
import os
import resource
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from constructs import CONSTRUCTS, expected
from traced_programs import compact, program

from nd_jax.errors import UserError
from nd_jax.tracing import pool, sandbox, worker
from nd_jax.tracing.pool import Evaluation, WorkerLimits, evaluate, record
from nd_jax.tracing.schema import Trace, to_json
from nd_jax.tracing.zygote import Zygote

LIMITS = WorkerLimits(cpu_s=1, wall_s=1.0, memory_mb=300)

NEIGHBOURS = [
    program(f"def f(a, b):\n    c = a + b + {i}\n    return sorted([c, a, b])", "1, 2", id=f"n{i}")
    for i in range(60)
]


def processes() -> set[str]:
    """Processes that run our worker, and their children."""
    listed = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    return {line for line in listed.splitlines() if "nd_jax.tracing.worker" in line}


def test_the_processor_limit_holds():
    (outcome,) = record(
        [program("def f():\n    return sum(range(10**12))")], WorkerLimits(cpu_s=1, wall_s=60), 1, False
    )
    assert outcome.reason == "cpu"


def test_a_program_that_ends_as_it_is_killed_costs_itself_only(monkeypatch):
    """The two limits can be reached at once: then the process may be reaped before it is killed."""
    kill = os.kill

    def kill_too_late(pid: int, number: int) -> None:
        kill(pid, number)
        raise ProcessLookupError

    monkeypatch.setattr(os, "kill", kill_too_late)
    endless = program("def f():\n    return sum(range(10**12))")
    outcomes = list(record([NEIGHBOURS[0], endless], WorkerLimits(cpu_s=60, wall_s=0.5), 1, False))
    assert [outcome.reason for outcome in outcomes] == [None, "timeout"]


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


@pytest.mark.parametrize("shares", list(itertools.product((True, False), repeat=5)))
def test_no_program_follows_one_that_could_reach_it(shares):
    secluded = pool._groups(shares, secluded=True)
    assert sorted(itertools.chain(*secluded)) == list(range(5))
    assert all(len(group) == 1 or all(shares[index] for index in group) for group in secluded)
    groups = pool._groups(shares, secluded=False)
    assert sorted(itertools.chain(*groups)) == list(range(5))
    assert all(shares[index] for group in groups for index in group[:-1])
    assert len(groups) == max(1, shares.count(False))


def test_what_fails_behind_others_costs_itself_only():
    """Whatever a program does that ends a process others began, it is told apart from them."""
    writes = "import os\ndef f():\n    os.write(3, b'x' * 100)\n    return 1"
    spins = "import os\ndef f():\n    while True: pass"
    hoards = "import os\ndef f():\n    return len([0] * 10**9)"
    bad = {"forged result": writes, "cpu": spins, "exit": "import os\ndef f(): os._exit(0)", "memory": hoards}
    made = [*NEIGHBOURS[:8], *(program(source, id=name) for name, source in bad.items())]
    limits = WorkerLimits(cpu_s=1, wall_s=60, memory_mb=300)
    outcomes = list(record(made, limits, 1, verify=False))
    assert all(outcome.trace for outcome in outcomes[:8])
    assert [(outcome.program_id, outcome.reason) for outcome in outcomes[8:]] == [
        (name, name) for name in bad
    ]


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


def test_a_collector_killed_while_it_starts_leaves_nothing(tmp_path):
    """Its process of its own is told nothing, or nobody listens to it."""
    for sent in (b"", b"whole"):
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-c", "from nd_jax.tracing.worker import main; main()"]
        with theirs, subprocess.Popen(command, stdin=theirs, stderr=subprocess.PIPE) as process:
            if sent:
                config = {"folder": str(tmp_path / "worker"), "root": "", "bytes": 1, "trace": {}}
                config["process"] = sandbox.Limits(1, 300, 1, 32, 64)._asdict()
                worker.write_message(ours, json.dumps(config).encode())
            ours.close()
            theirs.close()
            errors = process.communicate()[1]
        assert process.returncode == 0, errors
        assert errors == b""
        assert list(tmp_path.iterdir()) == []


def test_says_what_is_enforced():
    zygote = Zygote(LIMITS, 0)
    zygote.close()
    assert "rlimits" in zygote.enforced
    if sys.platform == "linux":
        assert "seccomp" in zygote.enforced


def test_the_text_that_is_kept_is_the_trace():
    (outcome,) = record([program("def f(x):\n    return x", "'é\\n'")], LIMITS, workers=1, verify=False)
    assert outcome.trace is not None
    assert outcome.json == to_json(outcome.trace)


RUN = '{"python":"3","functions":["f"],"events":[["call",1,0,0,{},null],["return",1,0,0,{},"1"]]}'


@pytest.mark.parametrize(
    "forged",
    [
        RUN.replace(",", ",\n").encode(),
        f" {RUN}".encode(),
        RUN.replace("{", '{"id":"other",', 1).encode(),
        RUN.replace('"python":"3",', "").encode(),
        RUN.replace('"1"]', '"1",2]').encode(),
        RUN.encode("utf-16"),
        RUN.encode().replace(b'"1"', b'"\xed\xa0\x80"'),
        b'["python","functions","events"]',
    ],
)
def test_a_text_that_is_not_one_line_of_these_fields_is_forged(forged: bytes):
    made = program("def f():\n    return 1", id="a")
    kept = pool._trace(made, b"R" + RUN.encode())
    assert isinstance(kept, Trace)
    assert pool._trace(made, b"R" + forged) == pool._FORGED


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


def test_a_result_after_which_another_comes_is_not_believed():
    """A program that knows how results are sent is told apart by the real one behind its own."""
    code = (
        "import os, struct, sys\ndef f():\n    frame = sys._getframe()\n"
        "    while 'secret' not in frame.f_locals: frame = frame.f_back\n    at = frame.f_locals\n"
        "    os.write(at['writer'], struct.pack('<16sIQ', at['secret'], at['index'], 2) + b'V7')"
    )
    (outcome,) = evaluate([Evaluation("a", code, ("f()",))], LIMITS, workers=1)
    assert outcome.values == [None]
    assert (outcome.errors[0] or "").startswith("forged result")


def other_interpreters() -> list[str]:
    found = sorted(Path.home().glob(".pyenv/versions/3.1[23].*/bin/python"))
    return [str(path) for path in found]


@pytest.mark.parametrize(
    "python", other_interpreters() or [""], ids=lambda path: Path(path).parts[-3:-2] or "none"
)
def test_other_interpreters_record_what_they_should(python):
    if not python:
        pytest.skip("no Python 3.12 or 3.13 beside this one")
    made = [program(source, arguments, id=name) for name, (source, arguments, _) in CONSTRUCTS.items()]
    for outcome in record(made, WorkerLimits(python=python), 1, verify=True):
        assert outcome.trace is not None, outcome
        version = tuple(map(int, outcome.trace.python.split(".")))
        assert version[:2] in ((3, 12), (3, 13))
        assert compact(outcome.trace) == expected(outcome.program_id, version)
