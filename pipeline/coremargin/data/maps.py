"""Files that stay mapped: few enough for this process's limits, however many files a store has.

A mapped chunk scans at the speed of memory, but its pages count as resident, its bytes as address space, and Python
keeps the descriptor of a mapped file open. So all readers of a process share one budget of bytes and of maps. What was
mapped first stays, since a cyclic scan evicts everything from an LRU.
"""

from __future__ import annotations

import mmap
import resource
import threading
import weakref
from collections import deque
from collections.abc import Hashable

import numpy as np

from coremargin.errors import machine_limit

MAP_BYTES = 512 << 20  #: default budget of kept-open maps per process
_MOST_MAPS = 256
_OTHER_FILES = 64  # descriptors for all but maps: a cluster's sockets and pipes, libraries, the files being read
_ADDRESS_SHARE = 4  # of a limited address space the maps take one part in so many


class _Budget:
    """Bytes and number of the maps that live in this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bytes = self._maps = 0
        self.most_bytes = 1 << 62  #: of all readers together, whatever budget they have
        self._returned: deque[int] = deque()

    @property
    def used_bytes(self) -> int:
        """Bytes that are mapped now."""
        with self._lock:
            self._settle()
            return self._bytes

    @property
    def maps(self) -> int:
        """Maps that live now."""
        with self._lock:
            self._settle()
            return self._maps

    def take(self, size: int, most_bytes: int) -> bool:
        """Room for one more map, or no."""
        with self._lock:
            self._settle()
            if self._bytes + size > min(most_bytes, self.most_bytes, _room()) or self._maps >= most_maps():
                return False
            self._bytes += size
            self._maps += 1
            return True

    def give_back(self, size: int) -> None:
        """A map is gone. Called by the garbage collector at any moment, so it takes no lock."""
        self._returned.append(size)

    def _settle(self) -> None:
        while self._returned:
            self._bytes -= self._returned.popleft()
            self._maps -= 1


budget = _Budget()


def most_maps() -> int:
    """How many maps this process may keep: at most half of the files that it may have open beyond ``_OTHER_FILES``."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_MAPS if soft == resource.RLIM_INFINITY else max(0, min(_MOST_MAPS, (soft - _OTHER_FILES) // 2))


def _room() -> int:
    """How many bytes may be mapped as far as the address space is limited."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return soft // _ADDRESS_SHARE if soft != resource.RLIM_INFINITY else 1 << 62


class Maps:
    """The maps that one reader keeps, of files of one size, by key. Safe in many threads."""

    def __init__(self, file_bytes: int, most_bytes: int) -> None:
        """most_bytes: the budget of this process; 0: never map."""
        self._size, self._most_bytes = file_bytes, most_bytes
        self._kept: dict[str, tuple[Hashable, np.ndarray]] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._kept

    def get(self, key: str, tag: Hashable) -> np.ndarray | None:
        """The bytes of a file that is mapped and still has this tag; a map of another one is given up."""
        kept = self._kept.get(key)
        if kept is None or kept[0] == tag:
            return None if kept is None else kept[1]
        self._kept.pop(key, None)  # replaced or changed under us
        return None

    def new(self, descriptor: int) -> np.ndarray | None:
        """The bytes of an open file, mapped while anybody uses them or until they are kept; None: there is no room."""
        size = self._size
        if not budget.take(size, self._most_bytes):
            return None
        try:
            mapped = mmap.mmap(descriptor, size, access=mmap.ACCESS_READ)
        except OSError as error:
            budget.give_back(size)
            if machine_limit(error) is None:
                raise
            return None  # what cannot be mapped for a limit's sake may still be read
        except BaseException:
            budget.give_back(size)
            raise
        weakref.finalize(mapped, budget.give_back, size).atexit = False
        return np.frombuffer(mapped, dtype=np.uint8)

    def keep(self, key: str, tag: Hashable, data: np.ndarray) -> np.ndarray:
        """Keep a map. Returns the one to use: another thread may have been faster."""
        kept = self._kept.setdefault(key, (tag, data))
        return kept[1] if kept[0] == tag else data
