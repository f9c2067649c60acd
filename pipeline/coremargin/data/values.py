"""Runs of values of one long array, across its files: what the rows of a sparse store are made of.

As in reader.py: uncompressed files are mapped and stay mapped within the process's budget, else the bytes wanted are
read into a buffer per thread; compressed files are decoded whole, and the last one is kept per thread. Whoever reads
holds the values against a checksum, and is told in what state the files were.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.maps import FileState, Maps
from coremargin.data.reader import read_into
from coremargin.data.reused import Reused
from coremargin.errors import raise_if_limit
from coremargin.formats.plain_file import plain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coremargin.data.layout import ArrayLayout, FilePart

States = tuple[FileState, ...]


class FileProblem(Exception):
    """A file that does not hold what it should."""

    def __init__(self, key: str, what: str) -> None:
        super().__init__(f"file {key}: {what}")


class ValueReader:
    """Reads values [start, stop) of an array of one dimension. Safe in many threads."""

    def __init__(self, layout: ArrayLayout, map_bytes: int) -> None:
        """map_bytes: the process's budget of maps; 0: never map."""
        self.layout = layout
        self._maps = Maps(layout.chunk_bytes, map_bytes)
        self._local = threading.local()
        self._buffers = Reused()

    def read(self, start: int, stop: int) -> tuple[np.ndarray, States]:
        """The values, and the states of the files. Raises FileProblem."""
        parts = list(self._parts(start, stop))
        if len(parts) == 1:
            values, state = self._part(*parts[0], out=None)
            return values, (state,)
        out, done, states = self._buffers.take("joined", stop - start, self.layout.dtype), 0, []
        for file, low, high in parts:
            values, state = self._part(file, low, high, out=out[done : done + high - low])
            if not np.shares_memory(values, out):
                out[done : done + high - low] = values
            done += high - low
            states.append(state)
        return out, tuple(states)

    def files(self, start: int, stop: int) -> list[FilePart]:
        """What ``read`` reads."""
        layout, parts = self.layout, self._parts(start, stop)
        if not layout.encoding.raw:
            return [layout.whole(file) for file, _, _ in parts]
        size = layout.dtype.itemsize
        return [layout.whole(file)._replace(start=low * size, nbytes=(high - low) * size) for file, low, high in parts]

    def check_file(self, file: int) -> np.ndarray:
        """All values of a file, padding included, held against the checksum in the file. Raises FileProblem."""
        with self._opened(file) as opened:
            return self._decode(file, opened)[0]

    def _parts(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """(file, first, last) within each file."""
        step = self.layout.chunk_rows
        for file in range(start // step, -(-stop // step)):
            yield file, max(0, start - file * step), min(step, stop - file * step)

    def _part(self, file: int, low: int, high: int, out: np.ndarray | None) -> tuple[np.ndarray, FileState]:
        if not self.layout.encoding.raw:
            values, state = self._decoded(file)
            return values[low:high], state
        try:
            return self._run(file, low, high, out)
        except OSError as error:
            raise self._unreadable(file, error) from error

    def _run(self, file: int, low: int, high: int, out: np.ndarray | None) -> tuple[np.ndarray, FileState]:
        """Values of an uncompressed file: of its map where there is room for one, else read."""
        state = self._state(file, os.stat(self.layout.file(file)))
        data = self._maps.get(file, state)
        if data is None:
            with self._opened(file) as opened:
                state = self._state(file, os.fstat(opened.fileno()))
                data = self._maps.new(opened.fileno())
                if data is None:
                    out = self._buffers.take("run", high - low, self.layout.dtype) if out is None else out
                    opened.seek(low * self.layout.dtype.itemsize)
                    read_into(opened, out.view(np.uint8))
                    return out, state
            data = self._maps.keep(file, state, data)
        return data.view(self.layout.dtype)[low:high], state

    def _decoded(self, file: int) -> tuple[np.ndarray, FileState]:
        """All values of a file that has to be decoded; this thread's last one is kept."""
        kept: tuple[int, FileState, np.ndarray] | None = getattr(self._local, "decoded", None)
        with self._opened(file) as opened:
            state = FileState.of(os.fstat(opened.fileno()))
            if kept is not None and kept[:2] == (file, state):
                return kept[2], state
            values, state = self._decode(file, opened)
        self._local.decoded = file, state, values
        return values, state

    def _decode(self, file: int, opened: Any) -> tuple[np.ndarray, FileState]:
        state = FileState.of(os.fstat(opened.fileno()))
        limit = self.layout.chunk_bytes + self.layout.chunk_bytes // 8 + 65536
        if state.size > limit:
            raise self._problem(file, f"expected at most {limit:,} bytes, got {state.size:,}")
        values = np.empty(self.layout.chunk_rows, dtype=self.layout.dtype)
        try:
            self.layout.encoding.decode(memoryview(opened.read()), values.view(np.uint8))
        except (ValueError, OSError) as error:
            raise self._problem(file, str(error)) from error
        return values, state

    def _opened(self, file: int) -> Any:
        try:
            return open(self.layout.file(file), "rb", buffering=0, opener=plain)
        except OSError as error:
            raise self._unreadable(file, error) from error

    def _state(self, file: int, status: os.stat_result) -> FileState:
        expected = self.layout.file_bytes
        if status.st_size != expected:
            what = "cut short" if status.st_size < (expected or 0) else "too long"
            raise self._problem(file, f"the file is {what}: expected {expected:,} bytes, got {status.st_size:,}")
        return FileState.of(status)

    def _problem(self, file: int, what: str) -> FileProblem:
        return FileProblem(self.layout.key(file), what)

    def _unreadable(self, file: int, error: OSError) -> FileProblem:
        raise_if_limit(error, self.layout.file(file))
        if isinstance(error, FileNotFoundError):
            return self._problem(file, "the file is missing")
        return self._problem(file, f"the file cannot be read: {error.strerror or error}")
