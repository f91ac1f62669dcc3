"""Where the process `nd` (or ``python -m nd_jax``) starts: with huge pages, then the verbs."""

import os
import sys

HUGE_PAGES = "glibc.malloc.hugetlb=1"


def restart_with_huge_pages() -> None:
    """Start this process anew with a memory allocator that uses huge pages, if it does not do so yet.

    On CPU, XLA allocates a program's buffers whenever it runs, and glibc gets them from the kernel as fresh
    pages of 4 KiB: a training step of the nano model faulted 17,000 times, a fourth of its time. glibc reads
    the setting before Python runs, hence anew. Elsewhere than on Linux, or with the setting named by the
    user, nothing is done.
    """
    before = os.environ.get("GLIBC_TUNABLES", "")
    if sys.platform != "linux" or not sys.executable or "glibc.malloc.hugetlb" in before:
        return
    os.environ["GLIBC_TUNABLES"] = f"{before}:{HUGE_PAGES}" if before else HUGE_PAGES
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def main() -> None:
    """Run the verb that the command line names."""
    restart_with_huge_pages()
    from nd_jax import cli

    cli.main()


if __name__ == "__main__":
    main()
