"""The zygote: a small process that forks a limited child for each batch of jobs. Standard library only.

`nd_jax.tracing.pool` starts it (``python -S -P -c ...``), and they talk over the socket at descriptor 0, in
messages with a length before them:

1. parent: JSON of `Sandbox.Limits` and `TraceLimits`; zygote: JSON ``{"python", "enforced"}``.
2. parent: JSON list of jobs; zygote: child's pid and a secret, with the reading end of the child's own pipe.
3. the child writes one frame a job to its pipe, in order: secret, index, length, payload.
4. zygote, when the child is dead, its group killed and its folder gone: wait status and CPU seconds.

A child exits with `TAINTED` where the program it has just run changed what the next one would see.
Jobs: ``["record", source, entry, arguments]`` for a trace and its program's split (it takes as long as the
trace: here all cores share the work), ``["trace", ...]`` for the trace alone, ``["run", ...]`` for the
result without a tracer, and ``["evaluate", source, expression]``.
"""

import builtins
import errno
import gc
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
from collections.abc import Mapping
from contextlib import suppress
from operator import is_
from typing import Any, NamedTuple

from nd_jax.programs.splits import Split, split_of
from nd_jax.tracing import recorder, sandbox
from nd_jax.tracing.schema import run_to_json
from nd_jax.tracing.tracer import Dropped, TraceLimits

START, FRAME, END = struct.Struct("<i16s"), struct.Struct("<16sIQ"), struct.Struct("<id")
TAINTED = 93
TRACE, DROPPED, TEXT, ERROR = b"T", b"D", b"V", b"E"
RECORDED: dict[Split, bytes] = {"train": b"R", "heldout": b"H"}  # a trace, by its program's split
# Modules that programs often import and that keep no state a later program could see, once checked for
# changes.
CHECKED_MODULES = ("abc", "bisect", "cmath", "collections", "collections.abc", "copy", "dataclasses", "enum",
                   "fractions", "functools", "heapq", "itertools", "math", "numbers", "operator", "re",
                   "string", "typing")  # fmt: skip


class _Program(NamedTuple):
    source: str
    entry: str
    arguments: str
    id: str = ""


def read_message(connection: socket.socket) -> bytes | None:
    """Read one message; None where the other side has gone."""
    header = _read_exactly(connection, 8)
    return None if header is None else _read_exactly(connection, int.from_bytes(header, "little"))


def _read_exactly(connection: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            return None
        data += chunk
    return bytes(data)


def write_message(connection: socket.socket, message: bytes) -> None:
    """Write one message."""
    connection.sendall(len(message).to_bytes(8, "little") + message)


class _State:
    """What a program must leave as it found it, if another is to run after it in the same process."""

    def __init__(self) -> None:
        for name in CHECKED_MODULES:
            __import__(name)
        modules = [sys.modules[name] for name in CHECKED_MODULES]
        kinds = {
            value for module in modules for value in vars(module).values()
            if isinstance(value, type) and value.__flags__ & (1 << 9) and not value.__flags__ & (1 << 8)
        }  # fmt: skip  # heap types that are not immutable
        self._builtins = (vars(builtins), dict(vars(builtins)))
        self._modules = [(vars(module), dict(vars(module))) for module in modules]
        self._classes = [(vars(kind), dict(vars(kind))) for kind in kinds]
        self._recursion = sys.getrecursionlimit()

    def unchanged(self, imports: bool) -> bool:
        """Compare by identity; ``imports`` tells whether the program could reach a module at all."""
        try:
            pairs = [self._builtins, *self._modules, *self._classes] if imports else [self._builtins]
            return (
                all(_is_same(now, before) for now, before in pairs)
                and sys.getrecursionlimit() == self._recursion
                and sys.gettrace() is None
                and sys.getprofile() is None
            )
        except BaseException:
            return False


def _is_same(now: Mapping[str, Any], before: dict[str, Any]) -> bool:
    """Compare by identity, in C: ``==`` could be the program's own."""
    return len(now) == len(before) and all(map(is_, now.values(), before.values()))


def _perform(job: list[Any], limits: TraceLimits, max_bytes: int) -> bytes:
    """Do one job in this process; the payload of its frame."""
    kind = job[0]
    if kind == "evaluate":
        text, error = recorder.evaluate(job[1], job[2])
        return TEXT + text.encode() if text is not None else ERROR + (error or "").encode()
    program = _Program(*job[1:])
    if kind == "run":
        result = recorder.run_program(program)
        return TEXT + result.encode() if isinstance(result, str) else DROPPED + json.dumps(result).encode()
    status = RECORDED[split_of(program.source)] if kind == "record" else TRACE
    trace = recorder.trace_program(program, limits)
    if not isinstance(trace, Dropped):
        try:
            run = run_to_json(trace.python, trace.functions, trace.events).encode()
        except UnicodeEncodeError:
            trace = Dropped("not UTF-8", "a name holds a lone surrogate")
        else:
            if len(run) <= max_bytes:
                return status + run
            trace = Dropped("too large", f"{len(run)} bytes of JSON")
    return DROPPED + json.dumps(trace).encode()


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _child(jobs: list[Any], writer: int, secret: bytes, state: _State, config: dict[str, Any]) -> None:
    limits, max_bytes, cpu_s = TraceLimits(**config["trace"]), config["bytes"], config["process"]["cpu_s"]
    ceiling = resource.getrlimit(resource.RLIMIT_CPU)[1]
    ceiling = sys.maxsize if ceiling == resource.RLIM_INFINITY else ceiling
    for index, job in enumerate(jobs):
        used = resource.getrusage(resource.RUSAGE_SELF)
        soft = int(used.ru_utime + used.ru_stime) + 1 + cpu_s
        hard = soft + 1 if index + 1 == len(jobs) else cpu_s * len(jobs) + 2
        resource.setrlimit(resource.RLIMIT_CPU, (min(soft, hard, ceiling), min(hard, ceiling)))
        payload = _perform(job, limits, max_bytes)
        _write(writer, FRAME.pack(secret, index, len(payload)) + payload)
        if index + 1 < len(jobs) and not state.unchanged(any("import" in text for text in job[1:])):
            os._exit(TAINTED)


def _kill_leftovers() -> None:
    """Kill and reap every process that the dead child left behind; they are now our children."""
    while True:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:
                    left = [int(pid) for pid in file.read().split()]
                for pid in left:
                    os.kill(pid, signal.SIGKILL)
        except OSError as error:
            if error.errno in (errno.ECHILD, errno.ENOENT):
                return


class _Zygote:
    def __init__(self, control: socket.socket, config: dict[str, Any]) -> None:
        self.control, self.config = control, config
        os.environ.clear()
        sandbox.adopt_orphans()
        self.walls = sandbox.Sandbox(self.config["folder"], sandbox.Limits(**self.config["process"]))
        self.state = _State()
        self.null = os.open(os.devnull, os.O_RDWR)
        self.wake, wake_writer = os.pipe()
        for descriptor in (self.wake, wake_writer):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_writer, warn_on_full_buffer=False)
        sys.path[:] = [path for path in sys.path if path != self.config["root"]]
        gc.collect()
        gc.freeze()
        gc.disable()
        version = ".".join(map(str, sys.version_info[:3]))
        write_message(self.control, json.dumps({"python": version, "enforced": self.walls.enforced}).encode())

    def serve(self) -> None:
        """Run batches until the parent goes."""
        count = 0
        while (request := read_message(self.control)) is not None:
            count += 1
            folder = self.walls.new_folder(str(count))
            try:
                if not self._run(json.loads(request), folder):
                    return
            finally:
                sandbox.remove_folder(folder)

    def _run(self, jobs: list[Any], folder: str) -> bool:
        reader, writer = os.pipe()
        secret = os.urandom(16)
        pid = os.fork()
        if pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                for standard in (0, 1, 2):
                    os.dup2(self.null, standard)
                self.walls.enter(folder)
                os.dup2(writer, 3)
                os.closerange(4, 256)
                _child(jobs, 3, secret, self.state, self.config)
                os._exit(0)
            finally:
                os._exit(70)
        os.close(writer)
        with suppress(OSError):  # the parent has gone, as `_wait` will see
            socket.send_fds(self.control, [START.pack(pid, secret)], [reader])
        os.close(reader)
        ended = self._wait(pid)
        if ended is not None:
            write_message(self.control, END.pack(*ended))
        return ended is not None

    def _wait(self, pid: int) -> tuple[int, float] | None:
        """Wait for the child's end; None where the parent has gone first, and the child was killed."""
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        poll.register(self.control, select.POLLIN)
        orphaned = False
        while True:
            ended, status, usage = os.wait4(pid, os.WNOHANG)
            if ended:
                break
            for descriptor, _ in poll.poll():
                if descriptor == self.wake:
                    os.read(self.wake, 512)
                elif not orphaned:
                    orphaned = True
                    poll.unregister(self.control)
                    os.kill(pid, signal.SIGKILL)
        with suppress(OSError):  # nobody is left in its group, as it should be
            os.killpg(pid, signal.SIGKILL)
        _kill_leftovers()
        return None if orphaned else (status, usage.ru_utime + usage.ru_stime)


def main() -> None:
    """Serve the parent at descriptor 0."""
    control = socket.socket(fileno=0)
    message = read_message(control)
    if message is None:
        return
    config = json.loads(message)
    os.mkdir(config["folder"], 0o700)  # here, not by the parent, who may be killed before this process starts
    try:
        with suppress(BrokenPipeError, ConnectionResetError):  # the parent has gone
            _Zygote(control, config).serve()
    finally:
        sandbox.remove_folder(config["folder"])
