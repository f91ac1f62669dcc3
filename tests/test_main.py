"""How the process `nd` starts."""

import os
import platform
import subprocess
import sys

import pytest

from nd_jax.__main__ import restart_with_allocator


@pytest.fixture
def started(monkeypatch) -> list:
    """What would have been executed in this process's place."""
    calls = []
    monkeypatch.setattr(os, "execv", lambda *call: calls.append(call))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "environ", {})
    return calls


def test_starts_anew_once_with_the_same_words(started, monkeypatch):
    """Starts anew with the same command line and the allocator's settings, and not a second time."""
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "nd_jax", "train", "a b"])
    restart_with_allocator()
    restart_with_allocator()
    assert started == [(sys.executable, [sys.executable, "-m", "nd_jax", "train", "a b"])]
    assert "glibc.malloc.hugetlb=1" in os.environ["GLIBC_TUNABLES"].split(":")


def test_keeps_the_users_settings(started):
    """Other settings stay, and where the user made some of the allocator's, so do those."""
    os.environ["GLIBC_TUNABLES"] = "glibc.rtld.nns=4"
    restart_with_allocator()
    assert os.environ["GLIBC_TUNABLES"].startswith("glibc.rtld.nns=4:glibc.malloc.")
    assert started
    started.clear()
    os.environ["GLIBC_TUNABLES"] = "glibc.malloc.arena_max=2"
    restart_with_allocator()
    assert not started


def test_a_reader_that_has_enough_is_no_error():
    """``nd --help | head`` ends without a traceback, also when nothing is read."""
    command = [sys.executable, "-m", "nd_jax", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the settings are glibc's")
def test_glibc_takes_the_settings():
    """The allocator's settings have effect: a large block that is freed comes back without page faults."""
    program = (
        "import resource, sys; sys.argv = ['nd']; from nd_jax import __main__ as start;"
        "start.restart_with_allocator();"
        "faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt;"
        "bytearray(2**26); before = faults(); bytearray(2**26); print(faults() - before)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100  # of 16,384 pages
