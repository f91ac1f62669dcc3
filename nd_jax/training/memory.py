"""Keep freed memory for the next step, on CPU."""

import ctypes

# glibc's mallopt parameters (malloc.h).
_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8


def keep_freed_memory() -> None:
    """Tell glibc's allocator to keep large blocks; does nothing with another C library.

    XLA allocates a step's temporaries anew in every step. By default each large one is mapped and unmapped,
    and its pages are faulted in and zeroed again, which costs a fifth of a CPU step's time (BUILD.md). Call
    it before jax is imported: threads started earlier keep their own arenas.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_ARENA_MAX, 1)
        mallopt(_MMAP_MAX, 0)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
