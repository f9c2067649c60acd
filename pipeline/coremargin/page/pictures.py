"""Images as a page shows them: files that are what they say and not huge, and features drawn as one."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from coremargin.errors import DataError, raise_if_limit
from coremargin.formats.plain_file import opened_plain

MOST_BYTES = 32 << 20
MOST_PIXELS = 50_000_000  #: a browser needs four bytes for each
MOST_SEGMENTS = 10_000  #: of a JPEG before its size

_SOF = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # markers of JPEG that hold its size


class Picture(NamedTuple):
    """What a browser gets."""

    kind: str
    data: bytes


def read_picture(path: Path) -> Picture:
    """A PNG, JPEG, GIF or WebP. Raises DataError: nothing is there, it is something else, or huge.

    SVG is a program as much as a picture, and is refused.
    """
    try:
        with opened_plain(path) as file:
            data = file.read(MOST_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(f"{path}: expected an image, found nothing there") from None
    except OSError as error:
        raise_if_limit(error, path)
        raise DataError(f"{path}: expected an image, cannot be read: {error.strerror}") from error
    if len(data) > MOST_BYTES:
        raise DataError(f"{path}: expected an image of at most {MOST_BYTES >> 20} MiB, found a larger file")
    kind, size = _size_of(data)
    if size is None:
        raise DataError(f"{path}: expected a PNG, JPEG, GIF or WebP, found something else")
    if size[0] * size[1] > MOST_PIXELS:
        raise DataError(f"{path}: expected at most {MOST_PIXELS:,} pixels, found {size[0]:,} x {size[1]:,}")
    return Picture(kind, data)


def _size_of(data: bytes) -> tuple[str, tuple[int, int] | None]:
    """What an image is, by its first bytes, and its width and height; None for what is none."""
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR":
            return "image/png", struct.unpack(">II", data[16:24])
        if data[:6] in (b"GIF87a", b"GIF89a"):
            return "image/gif", struct.unpack("<HH", data[6:10])
        if data.startswith(b"\xff\xd8\xff"):
            return "image/jpeg", _jpeg(data)
        if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
            return "image/webp", _webp(data)
    except (struct.error, IndexError):  # cut short
        pass
    return "", None


def _jpeg(data: bytes) -> tuple[int, int] | None:
    place = 2
    for _ in range(MOST_SEGMENTS):
        if data[place] != 0xFF:
            break
        marker, length = data[place + 1], struct.unpack(">H", data[place + 2 : place + 4])[0]
        if marker in _SOF:
            height, width = struct.unpack(">HH", data[place + 5 : place + 9])
            return width, height
        place += 2 + length
    return None


def _webp(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8X" and len(data) >= 30:
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 ":
        width, height = struct.unpack("<HH", data[26:30])
        return width & 0x3FFF, height & 0x3FFF
    return None


def drawn(values: NDArray[np.float64], shape: tuple[int, ...]) -> Picture:
    """Features (d,) as an image of height and width, or those and three colours: the smallest black, the largest white.

    What is no number is black.
    """
    low, high = float(np.nanmin(values, initial=np.inf)), float(np.nanmax(values, initial=-np.inf))
    span = high - low if high > low else 1.0
    levels = np.nan_to_num((values - low) / span * 255.0, nan=0.0).round().astype(np.uint8).reshape(shape)
    colour = 2 if levels.ndim == 3 else 0
    head = struct.pack(">IIBBBBB", shape[1], shape[0], 8, colour, 0, 0, 0)
    lines = levels.reshape(shape[0], -1)
    raw = b"".join(b"\0" + line.tobytes() for line in lines)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(raw)), (b"IEND", b""))
    return Picture("image/png", b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in parts))


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
