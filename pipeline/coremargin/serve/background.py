"""A background thread, so that a server can answer at once."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod


class BackgroundThread(ABC):
    """Calls ``_turn`` repeatedly until ``stop``; sleeps in between until it is woken."""

    def __init__(self, name: str) -> None:
        self._wake, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, wait_s: float) -> bool:
        """Stop; returns whether the thread ended in time. A scan may take longer, and is then lost."""
        self._ended.set()
        self._wake.set()
        self._thread.join(wait_s)
        return not self._thread.is_alive()

    @abstractmethod
    def _turn(self) -> float:
        """Do the pending work; returns seconds to sleep, unless woken before."""

    def _run(self) -> None:
        while not self._ended.is_set():
            self._wake.clear()
            self._wake.wait(self._turn())
