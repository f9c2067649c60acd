"""Work in a thread of its own, beside a server that answers at once."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod


class Aside(ABC):
    """A thread that works until it is told to end, and sleeps until somebody wakes it."""

    def __init__(self, name: str) -> None:
        self._wake, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to work."""
        self._thread.start()

    def stop(self, wait_s: float) -> bool:
        """End, and whether that was done in time: a scan need not be, and loses nothing but what it has read."""
        self._ended.set()
        self._wake.set()
        self._thread.join(wait_s)
        return not self._thread.is_alive()

    @abstractmethod
    def _turn(self) -> float:
        """Do what there is to do; seconds to sleep, unless somebody wakes it before."""

    def _run(self) -> None:
        while not self._ended.is_set():
            self._wake.clear()
            self._wake.wait(self._turn())
