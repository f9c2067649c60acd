"""Runs of values of one long array, across its objects: what the rows of a sparse store are made of.

Whoever reads holds the values against a checksum, and gets the tags of the objects. Compressed objects are decoded
whole, and the last one is kept per thread.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import numpy as np

from coremargin.data.reused import Reused
from coremargin.data.storage import WrongSize
from coremargin.errors import raise_if_limit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from coremargin.data.layout import ArrayLayout, ObjectPart
    from coremargin.data.storage import Tag

    Tags = tuple[Tag, ...]


class ObjectProblem(Exception):
    """An object that does not hold what it should."""

    def __init__(self, key: str, what: str) -> None:
        super().__init__(f"file {key}: {what}")


class ValueReader:
    """Reads values [start, stop) of an array of one dimension. Safe in many threads."""

    def __init__(self, layout: ArrayLayout, map_bytes: int) -> None:
        """map_bytes: the process's budget of maps; 0: never map."""
        self.layout = layout
        self._chunks = layout.storage.chunks(layout.file_bytes, layout.chunk_bytes, map_bytes)
        self._local = threading.local()
        self._buffers = Reused()

    def read(self, start: int, stop: int) -> tuple[np.ndarray, Tags]:
        """The values, and the tags of the objects. Raises ObjectProblem."""
        parts = list(self._parts(start, stop))
        if len(parts) == 1:
            values, tag = self._part(*parts[0], out=None)
            return values, (tag,)
        out, done, tags = self._buffers.take("joined", stop - start, self.layout.dtype), 0, []
        for number, low, high in parts:
            values, tag = self._part(number, low, high, out=out[done : done + high - low])
            if not np.shares_memory(values, out):
                out[done : done + high - low] = values
            done += high - low
            tags.append(tag)
        return out, tuple(tags)

    def objects(self, start: int, stop: int) -> list[ObjectPart]:
        """What ``read`` reads."""
        layout, parts = self.layout, self._parts(start, stop)
        if not layout.encoding.raw:
            return [layout.whole(number) for number, _, _ in parts]
        size = layout.dtype.itemsize
        return [
            layout.whole(number)._replace(start=low * size, nbytes=(high - low) * size) for number, low, high in parts
        ]

    def check_object(self, number: int) -> np.ndarray:
        """All values of an object, padding included, held against the checksum in it. Raises ObjectProblem."""
        return self._decode(number)[0]

    def _parts(self, start: int, stop: int) -> Iterator[tuple[int, int, int]]:
        """(object, first, last) within each object."""
        step = self.layout.chunk_rows
        for number in range(start // step, -(-stop // step)):
            yield number, max(0, start - number * step), min(step, stop - number * step)

    def _part(self, number: int, low: int, high: int, out: np.ndarray | None) -> tuple[np.ndarray, Tag]:
        if not self.layout.encoding.raw:
            values, tag = self._decoded(number)
            return values[low:high], tag
        size, raw = self.layout.dtype.itemsize, None if out is None else out.view(np.uint8)
        try:
            data, tag = self._chunks.read(self.layout.key(number), low * size, high * size, raw)
        except (OSError, WrongSize) as error:
            raise self._problem(number, error) from error
        return data.view(self.layout.dtype), tag

    def _decoded(self, number: int) -> tuple[np.ndarray, Tag]:
        """All values of an object that has to be decoded; this thread's last one is kept."""
        kept: tuple[int, Tag, np.ndarray] | None = getattr(self._local, "decoded", None)
        if kept is not None and kept[0] == number:
            try:
                if kept[1] == self.layout.storage.tag(self.layout.key(number)):
                    return kept[2], kept[1]
            except OSError as error:
                raise self._problem(number, error) from error
        values, tag = self._decode(number)
        self._local.decoded = number, tag, values
        return values, tag

    def _decode(self, number: int) -> tuple[np.ndarray, Tag]:
        values = np.empty(self.layout.chunk_rows, dtype=self.layout.dtype)
        try:
            packed, tag = self._chunks.read_all(self.layout.key(number), self.layout.most_encoded_bytes)
            self.layout.encoding.decode(packed.data, values.view(np.uint8))
        except (OSError, ValueError, WrongSize) as error:
            raise self._problem(number, error) from error
        return values, tag

    def _problem(self, number: int, error: OSError | ValueError | WrongSize) -> ObjectProblem:
        key = self.layout.key(number)
        if not isinstance(error, OSError):
            return ObjectProblem(key, str(error))
        raise_if_limit(error, f"{self.layout.storage.name}/{key}")
        if isinstance(error, FileNotFoundError):
            return ObjectProblem(key, "the file is missing")
        return ObjectProblem(key, f"the file cannot be read: {error.strerror or error}")
