"""Arrays in a file of their own, read only when needed, and linked while unchanged.

What is large and seldom needed costs then neither reading nor writing. The file is an npz (``write_arrays``), read-only
as it may have many names, like git's objects; a reference to it has its fingerprint, which detects another file
or a damaged one.
"""

from __future__ import annotations

import hashlib
import shutil
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self, cast

import numpy as np
from numpy.typing import NDArray

from coremargin.data.checksum import crc32c
from coremargin.data.folder import write_arrays
from coremargin.errors import DataError
from coremargin.formats.location import is_remote
from coremargin.formats.npz import read_arrays
from coremargin.formats.storage import object_size

if TYPE_CHECKING:
    from coremargin.data.storage import Storage

_SIZE_BYTES = 8


def fingerprint(arrays: Mapping[str, NDArray[Any]], before: bytes = b"") -> bytes:
    """Of what is before, and of names, types, shapes and checksums of the contents: 32 bytes."""
    state = hashlib.sha256(before)
    for name in sorted(arrays):
        values = np.asarray(arrays[name], order="C")
        values = values.astype(values.dtype.newbyteorder("<"), copy=False)
        checksum = crc32c(values.reshape(-1).view(np.uint8).data) if values.size else 0
        state.update(f"{name} {values.dtype.str} {values.shape} {checksum} ".encode())
    return state.digest()


class LazyArrays:
    """Arrays by name: in memory, or in an open file, which stays what it is when another takes its name; or lost."""

    def __init__(
        self, arrays: Mapping[str, NDArray[Any]] | None, file: BinaryIO | None, place: Path, mark: bytes
    ) -> None:
        self._arrays, self._file, self._place, self._mark = arrays, file, place, mark
        if file is not None:
            weakref.finalize(self, file.close)

    @classmethod
    def of(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """These arrays, which lie in no file yet."""
        return cls(arrays, None, Path(), b"")

    @classmethod
    def lost(cls) -> Self:
        """Such as were in a file that is damaged, whose place is forgotten."""
        return cls(None, None, Path("its file"), b"")

    @property
    def is_lost(self) -> bool:
        """Whether nothing is left of them."""
        return self._arrays is None and self._file is None

    @classmethod
    def at(cls, file: BinaryIO, place: Path, mark: bytes) -> Self:
        """Those in a file that is open for reading, and stays so; place: its name; mark: what it was written with.

        Raises DataError where its size tells that it is another one.
        """
        found = cls(None, file, place, mark)
        if object_size(file) != int.from_bytes(mark[-_SIZE_BYTES:], "little"):
            raise found.another()
        return found

    @property
    def nbytes(self) -> int:
        """Bytes of the file, or of the arrays where there is none yet."""
        if self._file is not None:
            return object_size(self._file)
        return 0 if self._arrays is None else sum(array.nbytes for array in self._arrays.values())

    def another(self) -> DataError:
        """What to raise where the file is not the one that is meant."""
        return DataError(
            f"{self._place}: expected the rows that were written with this very model, found something else; remove "
            "the file, which costs reading the store once"
        )

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """All of them. Raises DataError for a file that is damaged, or is another one."""
        if self._arrays is None:
            if self._file is None:
                raise self.another()
            self._file.seek(0)
            arrays = read_arrays(self._file, str(self._place))
            if fingerprint(arrays) != self._mark[:-_SIZE_BYTES]:
                raise self.another()
            self._arrays = arrays
        return self._arrays

    def put(self, storage: Storage, key: str) -> bytes:
        """Make an object, which is not there yet: another name of the file, or a new one; its mark.

        Raises DataError where they are lost.
        """
        in_folder = self._file is not None and not is_remote(self._place)
        if in_folder and storage.link(key, cast("BinaryIO", self._file), self._place):
            return self._mark
        with storage.create(key) as new:
            if self._file is None:
                write_arrays(new, self.arrays())
            else:
                self._file.seek(0)
                shutil.copyfileobj(self._file, new, 1 << 20)
            size = new.tell()
        storage.protect(key)
        return (
            self._mark if self._file is not None else fingerprint(self.arrays()) + size.to_bytes(_SIZE_BYTES, "little")
        )
