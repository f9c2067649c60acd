"""A background thread for servers that answer immediately."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod


class BackgroundThread(ABC):
    """Works until it is stopped, and sleeps between turns until it is woken."""

    def __init__(self, name: str) -> None:
        self._wake, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, wait_s: float) -> bool:
        """Stop; whether it has ended in time: a scan may not, and loses only what it has read."""
        self._ended.set()
        self._wake.set()
        self._thread.join(wait_s)
        return not self._thread.is_alive()

    @abstractmethod
    def _turn(self) -> float:
        """Do what is due; returns the seconds to sleep, unless it is woken before."""

    def _run(self) -> None:
        while not self._ended.is_set():
            self._wake.clear()
            self._wake.wait(self._turn())
