"""How the process `nd` starts."""

import os
import subprocess
import sys

import pytest

from nd_jax.__main__ import restart_with_huge_pages


@pytest.fixture
def started(monkeypatch) -> list:
    """What would have been executed in this process's place."""
    calls = []
    monkeypatch.setattr(os, "execv", lambda *call: calls.append(call))
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(os, "environ", {})
    return calls


def test_starts_anew_once_with_the_same_words(started, monkeypatch):
    """Starts anew with the same command line, with huge pages, and not a second time."""
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "nd_jax", "train", "a b"])
    restart_with_huge_pages()
    restart_with_huge_pages()
    assert started == [(sys.executable, [sys.executable, "-m", "nd_jax", "train", "a b"])]
    assert os.environ["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=1"


def test_keeps_the_users_settings(started):
    """Other settings stay, and one for huge pages is the user's to make."""
    os.environ["GLIBC_TUNABLES"] = "glibc.malloc.check=1"
    restart_with_huge_pages()
    assert os.environ["GLIBC_TUNABLES"] == "glibc.malloc.check=1:glibc.malloc.hugetlb=1"
    assert started
    started.clear()
    os.environ["GLIBC_TUNABLES"] = "glibc.malloc.hugetlb=0"
    restart_with_huge_pages()
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
