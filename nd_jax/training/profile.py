"""A trace of some steps, as `jax.profiler` writes it for TensorBoard and Perfetto."""

from pathlib import Path

import jax

from nd_jax.console import console
from nd_jax.errors import UserError

FOLDER = "profile"
"""Where traces are, under the run's directory."""


def read_steps(text: str) -> tuple[int, int]:
    """Read "10:15", the first and the last step; (0, -1) for no text.

    Raises:
      UserError: it is no such range.
    """
    if not text:
        return 0, -1
    first, _, last = text.partition(":")
    if not (first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last)):
        raise UserError(f"--profile {text}: give the first and the last step, counted from 1, as in 10:15")
    return int(first), int(last)


class Profile:
    """Traces steps of a run. Used as a context, so that a run that ends earlier leaves its trace."""

    def __init__(self, steps: str, out: Path):
        """Trace these steps (as `read_steps` takes them) into a folder of `out`."""
        (self._first, self._last), self._folder = read_steps(steps), out / FOLDER
        self._running = False

    def __enter__(self) -> "Profile":
        return self

    def __exit__(self, *error: object) -> None:
        if self._running:
            self._stop()

    def before(self, step: int) -> None:
        """Begin, if this step, which is about to be dispatched, is the first (or resumption is past it)."""
        if not self._running and self._first <= step <= self._last:
            jax.profiler.start_trace(str(self._folder))
            self._running = True

    def after(self, step: int, metrics: jax.Array) -> None:
        """End, if this step, which has been dispatched, is the last; only then it is waited for."""
        if self._running and step >= self._last:
            metrics.block_until_ready()
            self._stop()

    def _stop(self) -> None:
        jax.profiler.stop_trace()
        self._running = False
        console.print(f"Profile: {self._folder}")
