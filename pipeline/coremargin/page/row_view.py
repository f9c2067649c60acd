"""What people see of a row: its text, its image, its features as an image, or as a table."""

from __future__ import annotations

import os
import re
import struct
import zlib
from codecs import BOM_UTF8
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from coremargin.data.view import columns_of
from coremargin.errors import DataError, UsageError, raise_if_limit
from coremargin.formats.local_path import local_path
from coremargin.formats.plain_file import opened_plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coremargin.data.store import Store


TABLES = (".csv", ".tsv", ".parquet", ".pq")
LONGEST = 1 << 20  #: bytes of a line


class Lines:
    """A text file with a line for each row; memory holds only the offsets of lines."""

    def __init__(self, path: Path) -> None:
        self._path, starts, place = path, [0], 0
        with opened_plain(path) as file:
            while block := file.read(1 << 22):
                ends = np.flatnonzero(np.frombuffer(block, np.uint8) == 10) + 1 + place
                if not place and block.startswith(BOM_UTF8):
                    starts[0] = len(BOM_UTF8)
                starts.extend(ends.tolist())
                place += len(block)
        if starts[-1] == place:
            starts.pop()
        self._starts, self._stop = np.array(starts, np.int64), place

    def __len__(self) -> int:
        return len(self._starts)

    def get(self, row: int) -> str | None:
        """The text of a row; None without one."""
        if not 0 <= row < len(self):
            return None
        with opened_plain(self._path) as file:
            file.seek(int(self._starts[row]))
            return file.readline(LONGEST).decode("utf-8", "replace").rstrip("\r\n")


class Column:
    """A column of a table: an entry for each row or, if the table has a column ``row``, for the rows named there."""

    def __init__(self, values: Any, rows: np.ndarray | None) -> None:
        self._values = values
        self._order = None if rows is None else np.argsort(rows, kind="stable")
        self._rows = None if rows is None or self._order is None else rows[self._order]

    def __len__(self) -> int:
        return len(self._values)

    @property
    def partial(self) -> bool:
        """Whether the table names its rows, so that some may have no entry."""
        return self._rows is not None

    def get(self, row: int) -> str | None:
        """The entry of a row as text; None without one."""
        place = row
        if self._rows is not None and self._order is not None:
            at = int(np.searchsorted(self._rows, row))
            if at == len(self._rows) or self._rows[at] != row:
                return None
            place = int(self._order[at])
        value = self._values[place].as_py() if 0 <= place < len(self._values) else None
        return None if value is None else str(value)


def values_of(text: str, rows: int, option: str) -> Lines | Column:
    """The values of FILE or FILE:COLUMN, for a store with this number of rows. Raises UsageError, DataError.

    option: the command-line option, for messages.
    """
    path, column = _split(text)
    if not path.is_file():
        raise UsageError(f"{option}: expected a file, FILE or FILE:COLUMN, found nothing at {path}; give its path")
    found: Lines | Column = _column(path, column, option) if path.suffix in TABLES else Lines(path)
    if not (isinstance(found, Column) and found.partial) and len(found) < rows:
        raise DataError(
            f"{path}: expected an entry for each of the {rows:,} rows, found {len(found):,}; give a whole file, or a "
            "table with a column row"
        )
    return found


def _split(text: str) -> tuple[Path, str | None]:
    whole = local_path(text)
    if whole.exists() or ":" not in text:
        return whole, None
    path, _, column = text.rpartition(":")
    return local_path(path), column


def _column(path: Path, column: str | None, option: str) -> Column:
    if column is None:
        raise UsageError(f"{option}: expected the name of a column, {path}:COLUMN, found none; name it")
    table = _table(path)
    names: Sequence[str] = table.column_names
    if column not in names:
        raise DataError(f"{path}: expected a column {column!r}, found {', '.join(names)}; name one of them")
    rows = None
    if "row" in names and column != "row":
        try:
            rows = np.asarray(table.column("row").to_numpy(), np.int64)
        except (TypeError, ValueError) as error:
            raise DataError(f"{path}: row: expected whole numbers, found others: {error}; correct it") from error
    return Column(table.column(column), rows)


def _table(path: Path) -> Any:
    import pyarrow as pa
    from pyarrow import csv
    from pyarrow import parquet as pq

    try:
        if path.suffix in (".parquet", ".pq"):
            return pq.read_table(path)
        tabs = csv.ParseOptions(delimiter="\t" if path.suffix == ".tsv" else ",", newlines_in_values=True)
        return csv.read_csv(path, parse_options=tabs)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"{path}: expected a table, cannot be read: {error}; get a whole copy") from error


MOST_BYTES = 32 << 20
MOST_PIXELS = 50_000_000  #: a browser needs four bytes for each
MOST_SEGMENTS = 10_000  #: segments of a JPEG before the one with its size

_SOF = {*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC}  # markers of JPEG that hold its size


class Picture(NamedTuple):
    """An image for a browser."""

    kind: str
    data: bytes


def read_picture(path: Path) -> Picture:
    """A PNG, JPEG, GIF or WebP. Raises DataError: missing, another format, or too large.

    SVG is rejected, as it may contain scripts.
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
    """The format of an image, by its first bytes, and its width and height; None for other data."""
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
    """Features (d,) as an image of this height and width, and three colours if given: the smallest black, the largest
    white.

    NaN is black.
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


FEATURES_SHOWN = 24
LONGEST_TEXT = 20_000  #: characters; longer texts are cut, with a note
ROW = "{row}"

Content = dict[str, Any]


class RowView:
    """How the rows of a store are shown; by default, as a table of their features.

    text: FILE, one line a row, or FILE:COLUMN. image: a path with ``{row}`` in it, or FILE:COLUMN of paths that begin
    where the file lies. pixels: HEIGHTxWIDTH, or HEIGHTxWIDTHx3. Raises UsageError, DataError. The attribute ``parts``
    has the names of what is shown: "image", "text", or else "features"; ``store`` may be set to a later commit.
    """

    def __init__(
        self, store: Store, *, text: str | None = None, image: str | None = None, pixels: str | None = None
    ) -> None:
        self.store = store
        self._texts = None if text is None else values_of(text, store.rows, "--text")
        self._images = None if image is None else _images(image, store.rows)
        self._shape = None if pixels is None else _shape(pixels, store.features)
        there = {"image": self._images or self._shape, "text": self._texts}
        self.parts = [name for name, one in there.items() if one is not None] or ["features"]
        columns = columns_of(store)
        self._names = None if columns is None else [name for column in columns.columns for name in column.features]

    def content(self, row: int) -> Content:
        """What a browser shows of a row: "text", "image", "features" of (name, value), "more" omitted, "missing"."""
        found: Content = {"row": row, "missing": []}
        if self._texts is not None:
            text = self._texts.get(row)
            if text is None:
                found["missing"].append(f"expected a text for row {row:,}, found none")
            else:
                found["text"], found["cut"] = text[:LONGEST_TEXT], len(text) > LONGEST_TEXT
        if self._images is not None or self._shape is not None:
            try:
                self.picture(row)
                found["image"] = f"image/{row}"
                found["pixels"] = self._images is None
            except DataError as error:
                found["missing"].append(str(error))
        if not {"text", "image"} & set(found):
            found |= self._table(row)
        return found

    def picture(self, row: int) -> Picture:
        """The image of a row. Raises DataError, also for a row beyond the store."""
        if not 0 <= row < self.store.rows:
            raise DataError(f"row {row:,}: expected one below {self.store.rows:,}: the store has no other")
        if self._images is not None:
            return read_picture(self._images.path(row))
        if self._shape is None:
            raise DataError(f"row {row:,}: expected an image, found a campaign that shows none")
        return drawn(self._values(row), self._shape)

    def _values(self, row: int) -> np.ndarray:
        found = self.store.rows_at(np.array([row], np.int64))[0]
        return np.asarray(found.toarray() if hasattr(found, "toarray") else found, np.float64).reshape(-1)

    def _table(self, row: int) -> Content:
        """The first features that are not zero or, if there are few features, all of them."""
        values = self._values(row)
        places = np.arange(len(values)) if len(values) <= FEATURES_SHOWN else np.flatnonzero(values)
        shown = [(self._name(int(place)), f"{values[place]:.6g}") for place in places[:FEATURES_SHOWN]]
        zeros = len(values) - len(places)
        return {"features": shown, "more": len(places) - len(shown), "zeros": zeros}

    def _name(self, place: int) -> str:
        return f"feature {place}" if self._names is None else self._names[place]


class _Pattern:
    """Paths with the number of the row in them."""

    def __init__(self, pattern: str) -> None:
        self._pattern = pattern

    def path(self, row: int) -> Path:
        return Path(self._pattern.replace(ROW, str(row)))


class _Paths:
    """Paths in a column, relative to the folder of its file; paths to other folders are rejected."""

    def __init__(self, values: Lines | Column, folder: Path) -> None:
        self._values, self._folder = values, folder.resolve()

    def path(self, row: int) -> Path:
        text = self._values.get(row)
        if not text:
            raise DataError(f"expected the path of an image for row {row:,}, found none")
        if "\0" in text:
            raise DataError(f"row {row:,}: expected the path of an image, found one that no file has")
        found = Path(os.path.realpath(self._folder / text))
        if not found.is_relative_to(self._folder):
            raise DataError(f"row {row:,}: expected an image below {self._folder}, found a path to elsewhere")
        return found


def _images(image: str, rows: int) -> _Pattern | _Paths:
    if ROW in image:
        return _Pattern(str(local_path(image)))
    values = values_of(image, rows, "--image")
    path = local_path(image)
    path = path if path.exists() else local_path(image.rpartition(":")[0])
    return _Paths(values, path.parent)


def _shape(pixels: str, features: int) -> tuple[int, ...]:
    found = re.fullmatch(r"([1-9]\d{0,5})x([1-9]\d{0,5})(x3)?", pixels)
    if found is None:
        raise UsageError(f"--pixels: expected HEIGHTxWIDTH or HEIGHTxWIDTHx3, found {pixels!r}; for example 28x28")
    shape = (int(found[1]), int(found[2]), *((3,) if found[3] else ()))
    if int(np.prod(shape)) != features:
        raise UsageError(f"--pixels: expected as many as the {features:,} features, found {int(np.prod(shape)):,}")
    return shape
