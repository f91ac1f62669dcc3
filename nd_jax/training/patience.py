"""Waiting for rows: who is late is named, and a signal is heard even where they never come."""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Iterator

import jax

from nd_jax.console import console
from nd_jax.training.config import Experiment
from nd_jax.training.stopping import StopSignal


class InputWatch:
    """Looks at how long the loop has been waiting for rows. Used as a context."""

    def __init__(self, experiment: Experiment, first: int, stop: StopSignal):
        """Watch over a run from step `first` on; `stop` is told when to interrupt a wait."""
        self._seconds, self._workers = experiment.guard.input_seconds, experiment.data.workers
        self._first, self._stop = first, stop
        self._alone = jax.process_count() == 1  # other processes of the run would wait for this one's step
        self._since: float | None = None
        self._step = first
        self._over = threading.Event()

    def __enter__(self) -> "InputWatch":
        threading.Thread(target=self._watch, daemon=True).start()
        if self._alone:
            self._stop.impatient = self.late
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._stop.impatient = None

    @contextlib.contextmanager
    def wait(self, step: int) -> Iterator[None]:
        """Say that the loop waits for the rows of a step while this context lasts."""
        self._step, self._since = step, time.monotonic()
        try:
            yield
        finally:
            self._since = None

    def late(self) -> bool:
        """Tell whether the rows awaited are late."""
        return self._waited() >= self._seconds

    def _waited(self) -> float:
        since = self._since
        return 0.0 if since is None else time.monotonic() - since

    def _watch(self) -> None:
        named = 0.0
        while not self._over.wait(min(1.0, self._seconds / 4)):
            waited = self._waited()
            if waited < self._seconds:
                named = 0.0
            elif waited >= named + self._seconds:
                named = waited
                console.print(
                    f"Step {self._step + 1} has waited {waited:.0f} s for rows from {self._who()}.",
                    style="bold red", soft_wrap=True,
                )  # fmt: skip
            if self._alone and self._stop.received and self.late():
                os.kill(os.getpid(), signal.SIGTERM)  # once more: this time it interrupts the wait

    def _who(self) -> str:
        if not self._workers:
            return f"this process's threads ({'; '.join(_threads_in_data()) or 'none of them makes rows'})"
        # Grain deals batches out in turn, and its processes start in order.
        alive = sorted(
            (child.pid or 0, child.name)
            for child in multiprocessing.active_children()
            if child.name.startswith("grain-process-prefetch")
        )
        number = (self._step - self._first) % self._workers
        if len(alive) < self._workers:
            return f"input workers, of which {len(alive)} of {self._workers} live"
        return f"input worker {number} of {self._workers}, process {alive[number][0]}"


def _threads_in_data() -> list[str]:
    """Where in the code that makes rows each thread is."""
    places = []
    for frame in sys._current_frames().values():
        stack = traceback.extract_stack(frame)
        lines = [line for line in stack if os.path.join("nd_jax", "data") in line.filename]
        if lines:
            places.append(f"at {lines[-1].filename}:{lines[-1].lineno}")
    return places
