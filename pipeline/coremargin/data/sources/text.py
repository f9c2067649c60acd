"""Text files in pieces of whole lines, compressed or not, in bounded memory."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from coremargin.data.sources.paths import file_bytes
from coremargin.errors import BadRow, DataError

PIECE_BYTES = 2 * 2**20
LONGEST_LINE = 256 * 2**20  #: a longer line is a file without line ends, not a row


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole lines of a file."""

    path: Path
    data: bytes
    line: int  #: number of the first line, from 1
    done_bytes: int  #: bytes of the file (as it lies on disk) consumed so far

    def text(self) -> str:
        """The piece as text with plain line ends; raises BadRow with the line that is not."""
        data = self.data.removeprefix(b"\xef\xbb\xbf") if self.line == 1 else self.data
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


def pieces(path: Path, size: int = PIECE_BYTES) -> Iterator[Piece]:
    """The file in pieces of whole lines of about ``size`` bytes (uncompressed).

    gzip, bzip2 and xz are recognised by content. Raises DataError when the compressed data is damaged.
    """
    file_bytes(path)
    with path.open("rb") as raw, _decompressed(raw) as stream:
        line, rest, block = 1, b"", _read(stream, size, path)
        while block:
            rest, done = rest + block, raw.tell()
            block = _read(stream, size, path)
            cut = rest.rfind(b"\n") + 1 if block else len(rest)  # the last line may lack its end
            if cut:
                data, rest = rest[:cut], rest[cut:]
                yield Piece(path, data, line, done)
                line += data.count(b"\n")
            elif len(rest) > LONGEST_LINE:
                raise BadRow(
                    f"{path}, line {line}: longer than {LONGEST_LINE} bytes: expected one row per line, ended by a "
                    "line feed; convert the line ends first"
                )


def _decompressed(raw: IO[bytes]) -> IO[bytes]:
    magic = raw.read(6)
    raw.seek(0)
    if magic.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=raw, mode="rb")  # type: ignore[return-value]
    if magic.startswith(b"BZh"):
        return bz2.BZ2File(raw)
    if magic.startswith(b"\xfd7zXZ\x00"):
        return lzma.LZMAFile(raw)
    return raw


def _read(stream: IO[bytes], size: int, path: Path) -> bytes:
    try:
        return stream.read(size)
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        raise DataError(f"{path}: cannot be read to its end ({error}): the file is damaged; fetch it again") from error


def first_lines(path: Path, count: int) -> list[str]:
    """The first ``count`` lines that are not blank (fewer in a short file), without line ends."""
    found: list[str] = []
    for piece in pieces(path, 2**16):
        found += [line for line in piece.text().split("\n") if line.strip()]
        if len(found) >= count:
            break
    return found[:count]
