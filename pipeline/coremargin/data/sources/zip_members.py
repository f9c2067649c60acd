"""Arrays in an archive (.npz), each read no further than its header promises, whatever the archive says of itself.

The archive is zipfile's to read; numpy.load is not used because it reads an array whole, where CSR is read in pieces.
Only what NumPy writes is taken: members that are stored or deflated, not encrypted, no name twice. bzip2 and LZMA are
refused because zipfile inflates ahead: for ten bytes of 300 MiB of zeros it takes 600 MiB and 64 MiB, of deflate none.
"""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Self
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

import numpy as np

from coremargin.data.sources.npy_header import AGAIN, NpyHeader, read_header, shown
from coremargin.data.sources.paths import file_bytes
from coremargin.errors import DataError

_MAGIC = b"PK\x03\x04"
_ENCRYPTED, _UNDERSTOOD = 0x1, 0x80E  # flags of a member: how hard it was deflated, sizes after the data, UTF-8 name
_METHODS = {9: "deflate64", 12: "bzip2", 14: "LZMA", 93: "Zstandard", 95: "XZ", 98: "PPMd"}
_LARGEST_READ = 4 << 20  # bytes at a time; the archive's table of contents is read at once


class MemberArray:
    """One array, read in order: header first, then as many values as are asked for."""

    def __init__(self, stream: IO[bytes], place: str) -> None:
        self._stream, self._place = stream, place
        self.header: NpyHeader = read_header(self._bytes, place)
        self.left = self.header.nbytes // max(1, self.header.dtype.itemsize)  #: values that have not been taken

    def take(self, count: int) -> np.ndarray:
        """The next ``count`` values (count,) in the order in which they lie; DataError when they are not there."""
        values = np.empty(count, self.header.dtype)
        view = values.view(np.uint8).data if values.nbytes else memoryview(b"")
        done = 0
        while done < len(view):
            part = self._bytes(min(len(view) - done, _LARGEST_READ))
            if not part:
                raise DataError(
                    f"{self._place}: ends after {done:,} of {len(view):,} more bytes: expected "
                    f"{self.header.described()}; {AGAIN}"
                )
            view[done : done + len(part)] = part
            done += len(part)
        self.left -= count
        if not self.left and self._bytes(1):  # reading to the end also checks the checksum
            raise DataError(f"{self._place}: goes on after {self.header.described()}, expected its end; {AGAIN}")
        return values

    def whole(self) -> np.ndarray:
        """All values in their shape; nobody has taken any before."""
        order = "F" if self.header.fortran else "C"
        return self.take(self.left).reshape(self.header.shape, order=order)  # type: ignore[call-overload, no-any-return]

    def _bytes(self, count: int) -> bytes:
        with _damage_named(self._place):
            return self._stream.read(count)


class Archive:
    """The arrays of a .npz file by name, without their ending; close it, or use it in a ``with``."""

    def __init__(self, path: Path) -> None:
        self.name = f"{path} ({file_bytes(path):,} bytes)"
        self._open = ExitStack()
        try:
            with _damage_named(self.name):
                file = self._open.enter_context(_ShortReads(path))
                if file.read(len(_MAGIC)) != _MAGIC:  # zipfile takes an archive behind anything else, too
                    raise BadZipFile("it does not begin as an archive does")
                self._zip = self._open.enter_context(ZipFile(file))
            self._members: dict[str, ZipInfo] = {}
            for member in self._zip.infolist():
                name = member.filename.removesuffix(".npy")
                if name in self._members:
                    raise DataError(f"{self.name}: member {shown(name)} is there twice, expected once; {AGAIN}")
                self._members[name] = member
        except BaseException:
            self._open.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def names(self) -> list[str]:
        """The names of all members."""
        return list(self._members)

    def array(self, name: str) -> MemberArray:
        """An array from its beginning; several may be read at the same time. DataError when there is none."""
        if name not in self._members:
            found = ", ".join(shown(member, 40) for member in self.names[:8]) or "none"
            raise DataError(f"{self.name}: found the members {found}, expected {name!r} among them; {AGAIN}")
        member, place = self._members[name], f"{self.name}, member {name!r}"
        flags, method = member.flag_bits, member.compress_type
        if flags & _ENCRYPTED:
            raise DataError(f"{place}: is encrypted, expected plain data; save it again without a password")
        if method not in (ZIP_STORED, ZIP_DEFLATED):
            kind = _METHODS.get(method, f"method {method}")
            raise DataError(
                f"{place}: is compressed by {kind}, expected deflate or none; save it again with "
                "scipy.sparse.save_npz or numpy.savez"
            )
        if flags & ~_UNDERSTOOD:
            raise DataError(f"{place}: found the flags {flags:#x}, which NumPy does not write; {AGAIN}")
        with _damage_named(place):
            stream = self._open.enter_context(self._zip.open(member))
        found_array = MemberArray(stream, place)
        if found_array.header.whole != member.file_size:
            raise DataError(
                f"{place}: found {member.file_size:,} bytes, expected {found_array.header.whole:,} for a header and "
                f"{found_array.header.described()}; {AGAIN}"
            )
        return found_array


class _ShortReads(io.FileIO):
    """A file that gives little at a time, so that a table of contents that claims gigabytes is refused."""

    def read(self, size: int | None = -1, /) -> bytes:
        """So many bytes, of the rest when negative; BadZipFile beyond the limit."""
        if size is None or size < 0:
            size = max(0, os.fstat(self.fileno()).st_size - self.tell())
        if size > _LARGEST_READ:
            raise BadZipFile(f"found a table of contents of {size:,} bytes, expected that of a few arrays")
        return super().read(size) or b""


@contextmanager
def _damage_named(place: str) -> Iterator[None]:
    """What zipfile and zlib raise about damaged archives becomes DataError with the place."""
    try:
        yield
    except (BadZipFile, NotImplementedError, EOFError, OSError, OverflowError, ValueError, zlib.error) as error:
        raise DataError(f"{place}: not a whole .npz file: {error}; {AGAIN}") from error
