"""Text files in pieces of whole lines, compressed or not, in bounded memory."""

from __future__ import annotations

import bz2
import gzip
import lzma
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Self

import numpy as np

from coremargin.data.sources.paths import FilePath, file_bytes
from coremargin.errors import BadRow, DataError
from coremargin.spec import format_size

PIECE_BYTES = 2 * 2**20
LONGEST_LINE = 64 * 2**20  #: a longer line is a file without line ends, not a row
MOST_BLANK = 64 * 2**20  #: bytes of blank lines among the first lines
_READ = 2**16
_FEED = b"\n"[0]
_XZ = b"\xfd7zXZ\x00"
_BOM = b"\xef\xbb\xbf"
_XZ_MEMORY = 512 * 2**20  # `xz -9` asks for 65 MiB; kilobytes can ask for 4 GiB
_NUMBER = re.compile(r"[+-]?((\d++\.?\d*+|\.\d++)(e[+-]?\d+)?|nan|inf|infinity)", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole lines of a file."""

    path: FilePath
    data: bytes
    line: int  #: number of the first line, from 1
    done_bytes: int  #: bytes of the file (as it lies on disk) consumed so far

    @property
    def blank(self) -> bool:
        """There is nothing in it but white space: kilobytes can be gigabytes of that."""
        return not self.data.strip()

    def text(self) -> str:
        """The piece as text with plain line ends; raises BadRow with the line that is not."""
        data = self.data
        try:
            text = data.decode("utf-8").replace("\r\n", "\n")
        except UnicodeDecodeError as error:
            line = self.line + data[: error.start].count(b"\n")
            found = data[error.start]
            raise BadRow(
                f"{self.path}, line {line}: found byte 0x{found:02x}, expected UTF-8 text; convert the file first"
            ) from error
        lone = text.find("\r")
        if lone >= 0:
            line = self.line + text[:lone].count("\n")
            raise BadRow(
                f"{self.path}, line {line}: found a carriage return inside of the line, expected a line feed "
                "after every row; convert the line ends first"
            )
        return text


def read_pieces(path: FilePath, size: int = PIECE_BYTES) -> Iterator[Piece]:
    """The file in pieces of whole lines of about ``size`` bytes (uncompressed), without a byte order mark.

    gzip, bzip2 and xz are recognised by content. Raises DataError when the compressed data is damaged.
    """
    file_bytes(path)
    with path.open("rb") as raw, _decompressed(raw) as stream:
        line, line_bytes, parts = 1, 0, [_read(stream, size, path)]  # what was read since the last line's end
        _refuse_wide_characters(parts[0], path)
        if parts[0].startswith(_BOM):
            parts = [parts[0].removeprefix(_BOM) or _read(stream, size, path)]
        while parts[-1]:
            done, line_bytes = raw.tell(), line_bytes + len(parts[-1])
            block = _read(stream, size, path)
            cut = parts[-1].rfind(b"\n") + 1 if block else len(parts[-1])  # the last line may lack its end
            if cut:
                data = b"".join([*parts[:-1], parts[-1][:cut]])
                yield Piece(path, data, line, done)
                line += count_feeds(data)
                parts = [parts[-1][cut:]]
                line_bytes = len(parts[0])
            elif line_bytes > LONGEST_LINE:
                raise BadRow(
                    f"{path}, line {line}: longer than {LONGEST_LINE:,} bytes: expected one row per line, ended by a "
                    "line feed; convert the line ends first"
                )
            parts.append(block)


def _refuse_wide_characters(data: bytes, path: FilePath) -> None:
    """Raise DataError for UTF-16 and UTF-32, as Excel and Windows write "Unicode text"."""
    pairs = data[:64]
    halves = {pairs[0::2].strip(b"\0") == b"", pairs[1::2].strip(b"\0") == b""} if len(pairs) > 1 else {False}
    if data.startswith((b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")) or (True in halves and pairs.strip(b"\0")):
        name = "UTF-32" if b"\0\0" in data[:8] else "UTF-16"
        raise DataError(
            f"{path}: is text in {name}, expected UTF-8; convert it first, for instance with `iconv -f {name} -t UTF-8`"
        )


def _decompressed(raw: IO[bytes]) -> IO[bytes]:
    magic = raw.read(6)
    raw.seek(0)
    if magic.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=raw, mode="rb")  # type: ignore[return-value]
    if magic.startswith(b"BZh"):
        return bz2.BZ2File(raw)
    if magic.startswith(_XZ):
        return _XzReader(raw)  # type: ignore[return-value]
    return raw


class _XzReader:
    """What a .xz file holds. Python's own reader gives a file all the memory that it asks for, up to 4 GiB."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw, self._stream = raw, _xz_stream()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """The file below is closed by its opener."""

    def read(self, size: int) -> bytes:
        """At most so many bytes; none at the end."""
        while True:
            rest = b""
            if self._stream.eof:
                rest = self._next_stream()
                if not rest:
                    return b""
                self._stream = _xz_stream()
            elif self._stream.needs_input:
                rest = self._raw.read(_READ)
                if not rest:
                    raise EOFError("the compressed data ends within a stream")
            if data := self._stream.decompress(rest, size):
                return data

    def _next_stream(self) -> bytes:
        """The beginning of the stream that follows, after padding; nothing at the end."""
        block = self._stream.unused_data or self._raw.read(_READ)
        while block and not block.strip(b"\0"):
            block = self._raw.read(_READ)
        return block.lstrip(b"\0")


def _xz_stream() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)


def count_feeds(data: bytes) -> int:
    """Line feeds in some bytes; four times as fast as ``count``, which looks for one after the other."""
    text = np.frombuffer(data, np.uint8)
    return sum(int(np.count_nonzero(text[at : at + _READ] == _FEED)) for at in range(0, len(text), _READ))


def _read(stream: IO[bytes], size: int, path: FilePath) -> bytes:
    try:
        return stream.read(size)
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        if "Memory usage limit" in str(error):
            raise DataError(
                f"{path}: was compressed so that reading it takes more than {format_size(_XZ_MEMORY)} of memory; "
                "compress it again with xz -9 or less"
            ) from error
        raise DataError(f"{path}: cannot be read to its end ({error}): the file is damaged; fetch it again") from error


def read_lines(path: FilePath) -> Iterator[tuple[int, list[str]]]:
    """The lines of a file some MiB at a time, each part with the number of its first, without blank ones at the end."""
    held = 0  # blank lines that other lines must follow
    for piece in read_pieces(path):
        lines = piece.text().removesuffix("\n").split("\n")
        filled = len(lines)
        while filled and not lines[filled - 1].strip(" \t"):
            filled -= 1
        if filled:
            yield piece.line - held, [*[""] * held, *lines[:filled]]
            held = 0
        held += len(lines) - filled


def read_first_lines(path: FilePath, count: int, most_bytes: int = 2**63) -> list[str]:
    """The first ``count`` lines that are not blank, without line ends; fewer of a short file, or of many bytes.

    most_bytes: about so many are enough where they hold two lines.
    """
    found: list[str] = []
    blank = read = 0
    for piece in read_pieces(path, 2**16):
        if piece.blank:
            blank += len(piece.data)
        else:
            found += [line for line in piece.text().split("\n") if line.strip()]
        read += len(piece.data)
        if len(found) >= count or blank > MOST_BLANK or (len(found) > 1 and read >= most_bytes):
            break
    if blank > MOST_BLANK and not found:
        raise DataError(f"{path}: found {blank:,} bytes of blank lines, expected rows; check what has written the file")
    return found[:count]


def is_number(text: str) -> bool:
    """Whether a field is a number as NumPy's parser reads it (NaN and infinities are refused later, by name)."""
    return _NUMBER.fullmatch(text.strip()) is not None
