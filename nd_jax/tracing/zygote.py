"""The parent's end of a zygote: start it, give it jobs, keep the wall clock, say why a job has no result."""

import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from nd_jax.errors import UserError
from nd_jax.tracing import sandbox, worker
from nd_jax.tracing.tracer import Dropped, TraceLimits

_LIBRARY_PATHS = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")  # an interpreter may need them to start
_GATHER_S = 0.005  # results come faster than this: to wake for each of them would cost more than to read it
_ROOT = str(Path(__file__).parents[2])
_START = "import sys; sys.path.insert(0, sys.argv[1]); from nd_jax.tracing.worker import main; main()"


@dataclass(frozen=True)
class WorkerLimits:
    """What a program may use while it is recorded or evaluated; one that uses more is dropped."""

    trace: TraceLimits = field(default_factory=TraceLimits)
    """Events and frames of one trace."""
    trace_bytes: int = 4_000_000
    """Most bytes of JSON of one trace."""
    cpu_s: int = 2
    """Most seconds of processor time."""
    wall_s: float = 10.0
    """Most seconds on the clock, for what waits instead of computing."""
    memory_mb: int = 1_024
    """Most MiB of address space."""
    file_mb: int = 1
    """Most MiB of one file that it writes in its own folder."""
    open_files: int = 32
    """Most files open at once."""
    processes: int = 64
    """Most threads at once (and processes, where the kernel lets it start any)."""
    batch: int = 200
    """Programs that one forked process runs, as long as each leaves the interpreter as it found it."""
    python: str = ""
    """Interpreter that runs the programs; empty for the one that runs this."""


class Interrupted(Exception):
    """The zygote has gone: it was closed, or it was killed from outside."""


class Zygote:
    """One zygote process. Not for several threads at once.

    Attributes:
      python: version of its interpreter.
      enforced: the walls that hold around its children, see `nd_jax.tracing.sandbox`.
    """

    def __init__(self, limits: WorkerLimits, hash_seed: int) -> None:
        self._limits = limits
        self._folder = os.path.join(tempfile.gettempdir(), f"nd-worker-{secrets.token_hex(8)}")
        self._control, theirs = socket.socketpair()
        python = limits.python or sys.executable
        libraries = {name: os.environ[name] for name in _LIBRARY_PATHS if name in os.environ}
        try:
            with theirs:
                self._process = subprocess.Popen(
                    [python, "-S", "-s", "-P", "-B", "-X", "utf8", "-W", "ignore", "-c", _START, _ROOT],
                    stdin=theirs.fileno(), stdout=subprocess.DEVNULL, cwd="/", start_new_session=True,
                    env={"PYTHONHASHSEED": str(hash_seed), "LC_ALL": "C.UTF-8", **libraries},
                )  # fmt: skip
        except OSError as error:
            raise UserError(f"cannot start the interpreter {python}: {error.strerror}") from None
        process = {
            name: getattr(limits, name)
            for name in ("cpu_s", "memory_mb", "file_mb", "open_files", "processes")
        }
        config = {"folder": self._folder, "root": _ROOT, "bytes": limits.trace_bytes, "process": process,
                  "trace": asdict(limits.trace)}  # fmt: skip
        with suppress(OSError):  # it may have gone already
            worker.write_message(self._control, json.dumps(config).encode())
        hello = worker.read_message(self._control)
        if hello is None:
            status = self._process.wait()
            self.close()
            raise UserError(f"the recording process of {python} ended at its start (status {status})")
        self.python: str = json.loads(hello)["python"]
        self.enforced: list[str] = json.loads(hello)["enforced"]

    def kill(self) -> None:
        """Have the process end its child and itself; a thread in `run` gets `Interrupted`."""
        with suppress(OSError):  # closed or gone already
            self._control.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the process and remove its folder; not while another thread is in `run`."""
        self.kill()
        self._process.wait()
        self._control.close()
        # The process has removed its folder unless it was killed; then a child of it may yet be dying.
        with suppress(OSError):
            sandbox.remove_folder(self._folder)

    def run(self, jobs: Sequence[list[Any]]) -> list[bytes | Dropped]:
        """Run jobs; for each its payload, or the reason why its process gave none.

        A process that dies costs the job it was at, and no other: that one is run again alone, to learn its
        own reason; those after it go to a new process.
        """
        results: list[bytes | Dropped] = []
        while len(results) < len(jobs):
            rest = jobs[len(results) :]
            payloads, ending = self._run_process(rest)
            results += payloads
            if ending is None or len(payloads) == len(rest):
                continue
            results += [ending] if len(rest) == 1 else self.run([rest[len(payloads)]])
        return results

    def _run_process(self, jobs: Sequence[list[Any]]) -> tuple[list[bytes], Dropped | None]:
        """Run jobs in one child: its payloads, and why there are no more (None: it asked for a new one)."""
        try:
            worker.write_message(self._control, json.dumps(jobs).encode())
            header, descriptors, _, _ = socket.recv_fds(self._control, worker.START.size, 1)
            if not descriptors:
                raise Interrupted
            pid, secret = worker.START.unpack(header)
            try:
                frames = _Frames(descriptors[0], secret, len(jobs), self._limits.trace_bytes + 65_536)
                ending = self._follow(pid, frames)
            finally:
                os.close(descriptors[0])
        except OSError:
            raise Interrupted from None
        return frames.payloads, ending

    def _follow(self, pid: int, frames: "_Frames") -> Dropped | None:
        poll = select.poll()
        poll.register(frames.descriptor, select.POLLIN)
        poll.register(self._control, select.POLLIN)
        killed_for: Dropped | None = None
        deadline = time.monotonic() + self._limits.wall_s
        while True:
            left = None if killed_for else max(0.0, deadline - time.monotonic()) * 1000
            ready = [descriptor for descriptor, _ in poll.poll(left)]
            if frames.descriptor in ready:
                done = len(frames.payloads)
                if not frames.read():
                    poll.unregister(frames.descriptor)
                if len(frames.payloads) > done:
                    deadline = time.monotonic() + self._limits.wall_s
                    if frames.wanted:
                        time.sleep(_GATHER_S)
            if self._control.fileno() in ready:
                ended = worker.read_message(self._control)
                if ended is None:
                    raise Interrupted
                while frames.read():
                    pass
                status, cpu_s = worker.END.unpack(ended)
                return killed_for or self._reason(status, cpu_s, frames)
            if not killed_for and (frames.forged or not ready):
                killed_for = (
                    Dropped("forged result", "it wrote to the recorder's pipe")
                    if frames.forged
                    else Dropped("timeout", f"more than {self._limits.wall_s:g} s")
                )
                # It may have ended at this very moment, as by its CPU limit, and have been reaped: its end is
                # on its way here.
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    def _reason(self, status: int, cpu_s: float, frames: "_Frames") -> Dropped | None:
        if frames.forged:
            return Dropped("forged result", "it wrote to the recorder's pipe")
        if os.WIFEXITED(status):
            code = os.WEXITSTATUS(status)
            if code == worker.TAINTED and frames.payloads:
                return None
            return Dropped("exit", f"it ended its process with status {code}")
        number = os.WTERMSIG(status)
        name = signal.Signals(number).name if number in signal.valid_signals() else str(number)
        if number == signal.SIGXCPU or (number == signal.SIGKILL and cpu_s > self._limits.cpu_s):
            return Dropped("cpu", f"more than {self._limits.cpu_s} s")
        if number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGABRT, signal.SIGFPE, signal.SIGILL):
            return Dropped("crashed", name)
        return Dropped("killed", name)


class _Frames:
    """Reads what a child writes: in order, with its secret, within the size, or it is forged."""

    def __init__(self, descriptor: int, secret: bytes, count: int, max_bytes: int) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.payloads: list[bytes] = []
        self.forged = False
        self._secret, self._count, self._max_bytes = secret, count, max_bytes
        self._buffer = bytearray()

    @property
    def wanted(self) -> int:
        """How many payloads are still to come."""
        return self._count - len(self.payloads)

    def read(self) -> bool:
        """Take what is there; False when no more will come (now or at all)."""
        try:
            data = os.read(self.descriptor, 1 << 18)
        except BlockingIOError:
            return False
        if self.forged:
            return bool(data)
        self._buffer += data
        header = worker.FRAME
        while len(self._buffer) >= header.size:
            secret, index, size = header.unpack_from(self._buffer)
            if (
                secret != self._secret or index != len(self.payloads) or index >= self._count
                or size > self._max_bytes
            ):  # fmt: skip
                self.forged = True
                del self.payloads[-1:]  # of two results for one job, either may be the program's own work
                break
            if len(self._buffer) < header.size + size:
                break
            self.payloads.append(bytes(self._buffer[header.size : header.size + size]))
            del self._buffer[: header.size + size]
        return bool(data)
