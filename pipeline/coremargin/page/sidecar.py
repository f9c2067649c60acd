"""Texts and paths of images that lie beside the store, one for each of its rows: lines, or a column of a table."""

from __future__ import annotations

from codecs import BOM_UTF8
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.errors import DataError, UsageError
from coremargin.formats.local_path import local_path
from coremargin.formats.plain_file import opened_plain

if TYPE_CHECKING:
    from collections.abc import Sequence

TABLES = (".csv", ".tsv", ".parquet", ".pq")
LONGEST = 1 << 20  #: bytes of a line


class Lines:
    """A text file, one line a row; only where they begin is held in memory."""

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
        """The text of a row; None where there is none."""
        if not 0 <= row < len(self):
            return None
        with opened_plain(self._path) as file:
            file.seek(int(self._starts[row]))
            return file.readline(LONGEST).decode("utf-8", "replace").rstrip("\r\n")


class Column:
    """A column of a table, one entry a row or, where the table has a column ``row``, of the rows that this names."""

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
        """The entry of a row as text; None where there is none."""
        place = row
        if self._rows is not None and self._order is not None:
            at = int(np.searchsorted(self._rows, row))
            if at == len(self._rows) or self._rows[at] != row:
                return None
            place = int(self._order[at])
        value = self._values[place].as_py() if 0 <= place < len(self._values) else None
        return None if value is None else str(value)


def values_of(text: str, rows: int, option: str) -> Lines | Column:
    """What FILE or FILE:COLUMN holds, for a store of so many rows. Raises UsageError, DataError.

    option: as people wrote it, for messages.
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
