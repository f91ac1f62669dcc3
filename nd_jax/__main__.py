"""Where the process `nd` (or ``python -m nd_jax``) starts: with an allocator that keeps memory."""

import os
import sys

ALLOCATOR = {
    "hugetlb": 1,  # ask the kernel for huge pages
    "mmap_max": 0,  # map no block by itself: it would be given back when freed
    "trim_threshold": 2**62,  # give nothing back
    "arena_max": 1,  # threads' own arenas are too small for large blocks
}
"""Settings of glibc's allocator, ``glibc.malloc.*``."""


def restart_with_allocator() -> None:
    """Start this process anew with `ALLOCATOR`, if it does not run with it yet.

    On CPU, XLA allocates a program's buffers whenever it runs. By default glibc maps each large one as fresh
    pages of 4 KiB, which the kernel faults in and zeroes: 17,000 faults, a third of the time, in a training
    step of the nano model (BUILD.md). glibc reads its settings before Python runs, hence anew. Nothing is
    done elsewhere than on Linux, or where the user made settings of the allocator.
    """
    before = os.environ.get("GLIBC_TUNABLES", "")
    if sys.platform != "linux" or not sys.executable or "glibc.malloc" in before:
        return
    ours = [f"glibc.malloc.{name}={value}" for name, value in ALLOCATOR.items()]
    os.environ["GLIBC_TUNABLES"] = ":".join([before, *ours] if before else ours)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def main() -> None:
    """Run the verb that the command line names."""
    restart_with_allocator()
    from nd_jax import cli

    cli.main()


if __name__ == "__main__":
    main()
