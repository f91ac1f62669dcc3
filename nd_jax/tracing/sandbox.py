"""What a recorded program may not do: the walls around a worker process.

Portable (any Unix): resource limits on CPU time, memory, file size, open files and processes; an own session;
no terminal and no output; an empty environment; an own empty folder.

Linux adds, each where the kernel offers it and without needing privileges:

- **seccomp** (x86-64, arm64): no network, no new process, no other program, no signal to others, no change of
  modes, owners, priorities or other processes' limits. Threads are allowed.
- **landlock**: files are readable in the standard library and the system's shared libraries, writable in the
  own folder, and nowhere else.
- **uid**: a worker started by root runs as an unprivileged user of its own, if that user can read the
  standard library (or nothing else would limit files); else as root without any capability.

`Sandbox.enforced` says which of them hold. This keeps honest mistakes and ordinary malice in; it is no proof
against an exploit of the kernel.
"""

import ctypes
import os
import platform
import resource
import signal
import struct
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

_PR_SET_PDEATHSIG, _PR_SET_SECCOMP, _PR_SET_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 1, 22, 36, 38
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None

# System calls that fail with "operation not permitted": (x86-64, arm64), None where there is no such call.
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_DENIED: dict[str, tuple[int | None, int | None]] = {
    # the network, and the ring that can open sockets past this filter
    "socket": (41, 198), "io_uring_setup": (425, 425),
    # other processes: making, becoming, signalling, inspecting, slowing, leaving the session
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281), "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "setsid": (112, 157), "setpgid": (109, 154), "setpriority": (141, 140),
    "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119), "sched_setparam": (142, 118),
    "sched_setattr": (314, 274), "ioprio_set": (251, 30),
    # what landlock does not cover: modes, owners, times, attributes
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "utimensat": (280, 88),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "removexattrat": (466, 466),
    # what outlives a process, and the kernel's wider surface
    "shmget": (29, 194), "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180), "mount": (165, 40),
    "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97),
    "setns": (308, 268), "bpf": (321, 280), "perf_event_open": (298, 241), "keyctl": (250, 219),
    "add_key": (248, 217), "request_key": (249, 218), "userfaultfd": (323, 282),
}  # fmt: skip
_KILL, _TGKILL, _PRLIMIT, _CLONE, _CLONE3 = (62, 129), (234, 131), (302, 261), (56, 220), 435
_CLONE_THREAD = 0x10000
# Ways to have the kernel signal the owner of a file, who may be any process: fcntl's F_SETOWN, F_SETSIG and
# F_SETOWN_EX, ioctl's FIOSETOWN and SIOCSPGRP.
_FCNTL, _FCNTL_OWNER, _IOCTL, _IOCTL_OWNER = (72, 25), (8, 10, 15), (16, 29), (0x8901, 0x8902)
_OWN = 0x7FFFFFF1  # stands for the pid of the process that enters; no pid is so large
_ALLOW, _EPERM, _ENOSYS, _KILL_PROCESS = 0x7FFF0000, 0x00050001, 0x00050026, 0x80000000


class Limits(NamedTuple):
    """What one worker process may use."""

    cpu_s: int
    memory_mb: int
    file_mb: int
    open_files: int
    processes: int


def _filter(machine: str) -> bytes:
    """Write the seccomp program: code, jump if true, jump if false, operand each; `_OWN` for the own pid."""
    load, equal, at_least, any_bit, give = 0x20, 0x15, 0x35, 0x45, 0x06
    column = 0 if machine == "x86_64" else 1
    number, architecture, first_argument, second_argument = 0, 4, 16, 24
    steps = [(load, 0, 0, architecture), (equal, 1, 0, _AUDIT_ARCH[machine]), (give, 0, 0, _KILL_PROCESS),
             (load, 0, 0, number)]  # fmt: skip
    if machine == "x86_64":  # the x32 numbers, another door to the same calls
        steps += [(at_least, 0, 1, 0x40000000), (give, 0, 0, _EPERM)]
    for numbers in _DENIED.values():
        denied = numbers[column]
        if denied is not None:
            steps += [(equal, 0, 1, denied), (give, 0, 0, _EPERM)]
    steps += [
        (equal, 0, 1, _CLONE3),
        (give, 0, 0, _ENOSYS),
    ]  # its flags are out of sight; libc then uses clone
    for call, test, operand in (
        (_KILL[column], equal, _OWN), (_TGKILL[column], equal, _OWN), (_PRLIMIT[column], equal, 0),
        (_CLONE[column], any_bit, _CLONE_THREAD),
    ):  # fmt: skip
        steps += [(equal, 0, 4, call), (load, 0, 0, first_argument), (test, 0, 1, operand),
                  (give, 0, 0, _ALLOW), (give, 0, 0, _EPERM)]  # fmt: skip
    for call, commands in ((_FCNTL[column], _FCNTL_OWNER), (_IOCTL[column], _IOCTL_OWNER)):
        refusals = [step for command in commands for step in ((equal, 0, 1, command), (give, 0, 0, _EPERM))]
        steps += [(equal, 0, 2 + len(refusals), call), (load, 0, 0, second_argument), *refusals,
                  (give, 0, 0, _ALLOW)]  # fmt: skip
    steps.append((give, 0, 0, _ALLOW))
    return b"".join(struct.pack("HBBI", *step) for step in steps)


def _prctl(option: int, argument: int) -> bool:
    return _libc is not None and _libc.prctl(option, argument, 0, 0, 0) == 0


def adopt_orphans() -> None:
    """Make this process the parent of what its dead children leave running (Linux)."""
    _prctl(_PR_SET_SUBREAPER, 1)


class _Landlock:
    """Rules on files: what may be read is found once in the zygote; each child adds its own folder."""

    def __init__(self, readable: Sequence[str]) -> None:
        version = _libc.syscall(444, None, 0, 1) if _libc is not None else -1
        self.offered = version >= 1
        rights = {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)
        self._all = (1 << rights) - 1
        network, scope = (3 if version >= 4 else 0), (3 if version >= 6 else 0)
        self._attributes = struct.pack("QQQ", self._all, network, scope)[
            : 8 if version < 4 else 16 if version < 6 else 24
        ]
        self._readable: list[tuple[int, int]] = []
        if self.offered:
            self._readable += (
                (os.open(path, os.O_PATH | os.O_CLOEXEC), bits) for path, bits in _readable(readable)
            )

    def enter(self, folder: str) -> bool:
        """Limit this process; False where the kernel has no landlock."""
        if _libc is None or not self.offered:
            return False
        rules = _libc.syscall(444, self._attributes, len(self._attributes), 0)
        own = os.open(folder, os.O_PATH | os.O_CLOEXEC)
        for beneath, access in (*self._readable, (own, self._all & ~1)):  # in its own, all but execution
            if _libc.syscall(445, rules, 1, struct.pack("=Qi", access, beneath), 0) != 0:
                raise OSError(ctypes.get_errno(), "landlock refuses a rule")
        os.close(own)
        entered = _libc.syscall(446, rules, 0) == 0
        os.close(rules)
        return entered


def _readable(more: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Give the paths that every program may use, and ``more`` folders, with landlock's bits for how."""
    read_file, write_file, list_folder = 1 << 2, 1 << 1, 1 << 3
    folders = [
        os.path.dirname(os.__file__),
        "/lib",
        "/lib64",
        "/usr/lib",
        "/usr/lib64",
        "/usr/share/zoneinfo",
        *more,
    ]
    for module in ("_socket", "_struct", "math"):  # where compiled modules lie, if elsewhere
        file = getattr(sys.modules.get(module), "__file__", None)
        if file:
            folders.append(os.path.dirname(file))
    yield from ((path, read_file | list_folder) for path in folders if os.path.isdir(path))
    yield from ((path, read_file) for path in ("/dev/urandom",) if os.path.exists(path))
    yield "/dev/null", read_file | write_file


class Sandbox:
    """The walls around the children of one zygote.

    Args:
      readable: folders that the children may read beside the standard library.

    Attributes:
      folder: where the children's own folders are made; must exist.
      uid: the user that children run as, None to stay who the zygote is.
      enforced: names of the walls that hold, found out by a child that enters them.
    """

    def __init__(self, folder: str, limits: Limits, readable: Sequence[str] = ()) -> None:
        self.folder = folder
        self.limits = limits
        self._landlock = _Landlock(readable)
        machine = platform.machine()
        self._filter = _filter(machine) if _libc is not None and machine in _AUDIT_ARCH else b""
        self.uid: int | None = None
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            uid = 61184 + os.getpid() % 4336  # systemd's range for users that exist while a service runs
            needed = (os.__file__, *readable)
            if not self._landlock.offered or all(_can_read(uid, path) for path in needed):
                self.uid = uid
        if self.uid is not None:
            os.chmod(folder, 0o711)
        self.enforced = self._probe()

    def new_folder(self, name: str) -> str:
        """Make the empty folder that a child starts in."""
        path = os.path.join(self.folder, name)
        os.mkdir(path, 0o700)
        if self.uid is not None:
            os.chown(path, self.uid, self.uid)
        return path

    def enter(self, path: str) -> list[str]:
        """Put up the walls around this process for good; gives the names of those that stand."""
        limits, walls = self.limits, ["rlimits"]
        os.setsid()
        os.chdir(path)
        if _prctl(_PR_SET_NO_NEW_PRIVS, 1) and self._landlock.enter(path):
            walls.append("landlock")
        mib = 1 << 20
        for kind, value in (
            (resource.RLIMIT_AS, limits.memory_mb * mib), (resource.RLIMIT_FSIZE, limits.file_mb * mib),
            (resource.RLIMIT_NOFILE, limits.open_files), (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_NPROC, limits.processes),
        ):  # fmt: skip
            hard = resource.getrlimit(kind)[1]
            value = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.setrlimit(kind, (value, value))
        if self.uid is not None:
            os.setgroups([])
            os.setresgid(self.uid, self.uid, self.uid)
            os.setresuid(self.uid, self.uid, self.uid)
            walls.append("uid")
        elif _libc is not None and os.geteuid() == 0:
            header = struct.pack("Ii", 0x20080522, 0)
            if _libc.capset(header, bytes(24)) == 0:
                walls.append("no capabilities")
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # after the change of user, which clears it
        if _libc is not None and self._filter:
            program = self._filter.replace(
                _OWN.to_bytes(4, sys.byteorder), os.getpid().to_bytes(4, sys.byteorder)
            )
            buffer = ctypes.create_string_buffer(program, len(program))
            header = struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(buffer))
            if _libc.prctl(_PR_SET_SECCOMP, 2, ctypes.c_char_p(header), 0, 0) == 0:
                walls.append("seccomp")
        return walls

    def _probe(self) -> list[str]:
        path = self.new_folder("probe")
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.write(writer, " ".join(wall.replace(" ", "_") for wall in self.enter(path)).encode())
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        os.close(writer)
        os.waitpid(pid, 0)
        walls = os.read(reader, 4096).decode().split()
        os.close(reader)
        os.rmdir(path)
        if not walls:
            raise RuntimeError("a recording process cannot be limited on this system")
        return [wall.replace("_", " ") for wall in walls]


def _can_read(uid: int, path: str) -> bool:
    """Tell whether a user can read a file: try it, as that user, in a child."""
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            os.close(os.open(path, os.O_RDONLY))
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def remove_folder(path: str) -> None:
    """Remove a folder and what a program left in it, however deep or closed, following no link."""
    folders, moved = [path], 0
    while folders:
        folder = folders.pop()
        with suppress(FileNotFoundError):  # the program may have removed its own
            os.chmod(folder, 0o700)
            for entry in list(os.scandir(folder)):
                if entry.is_dir(follow_symlinks=False):
                    moved += 1
                    folders.append(f"{path}.{moved}")  # no path becomes long, no depth is a recursion
                    os.chmod(entry.path, 0o700)
                    os.rename(entry.path, folders[-1])
                else:
                    os.unlink(entry.path)
            os.rmdir(folder)
