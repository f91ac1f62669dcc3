"""A polite end on SIGTERM and Ctrl-C: the signal is noted, and the loop stops after the step it is in."""

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Interrupted(Exception):
    """The run is to stop: what was begun between two steps is left."""


class StopSignal:
    """Note the first SIGTERM or SIGINT while this context lasts; a second SIGINT aborts as usual.

    Attributes:
      received: name of the signal that came, or None.
      impatient: tells whether a signal raises `Interrupted`, since what is waited for may never come.
    """

    def __init__(self) -> None:
        self.received: str | None = None
        self.impatient: Callable[[], bool] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopSignal":
        # Python lets only the main thread handle signals; elsewhere whoever owns that thread decides.
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._note) for number in SIGNALS}
        return self

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler or signal.SIG_DFL)  # None: not one of Python's

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.received and number == signal.SIGINT:
            raise KeyboardInterrupt
        if self.impatient is not None and self.impatient():
            self.impatient = None
            self.received = signal.Signals(number).name
            raise Interrupted
        self.received = signal.Signals(number).name
        # Not through Python's streams: the signal may have come in the middle of a print.
        os.write(2, f"\n{self.received}: saving after the step under way; Ctrl-C again aborts.\n".encode())
