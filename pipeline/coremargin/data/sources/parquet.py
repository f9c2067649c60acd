"""Parquet files, through pyarrow (extra ``arrow``): numeric columns, or one column of lists of equal length."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.sources.base import Batch, SourceOptions, batch_rows, find_column, label_column, refuse_options
from coremargin.data.sources.paths import file_bytes
from coremargin.errors import BadRow, DataError, UsageError

if TYPE_CHECKING:
    from coremargin.data.sources.vocabulary import Vocabulary


_BUFFER_BYTES = 2**18  #: per column


class ParquetFile:
    """Rows of one Parquet file, a record batch at a time."""

    sparse = False

    def __init__(self, path: Path, options: SourceOptions) -> None:
        refuse_options(options, f"{path}, a Parquet file", knows=("label", "drop", "weights"))
        _need_pyarrow(path)
        self.name, self.path = str(path), path
        self.total_bytes: int | None = file_bytes(path)
        with _opened(path) as file:
            schema = file.schema_arrow
            self.rows: int | None = int(file.metadata.num_rows)
            first = next(file.iter_batches(batch_size=1), None)
        if not self.rows or first is None:
            raise DataError(f"{path}: no rows: expected at least one")
        names = tuple(str(name) for name in schema.names)
        out = {find_column(column, names, len(names), place=self.name) for column in options.drop}
        label = None if options.unlabelled else label_column(options.label, names, len(names), place=self.name)
        if label in out:
            raise UsageError(f"{path}: column {names[label]!r} is dropped and is the label: choose one")
        weights = None
        if options.weights is not None:
            weights = find_column(options.weights, names, len(names), place=self.name)
            if weights in out or weights == label:
                raise UsageError(f"{path}: column {names[weights]!r} is dropped or is the label: choose one")
        self._weights = None if weights is None else names[weights]
        self.weight_from = None if weights is None else f"column {names[weights]!r}"
        self._names = [name for i, name in enumerate(names) if i not in out and i not in (label, weights)]
        self._label = None if label is None else names[label]
        self.label_from = None if label is None else f"column {names[label]!r}"
        self._check_types(schema)
        self._widths = [_width(first.column(name)) for name in self._names]
        self.features = sum(self._widths)
        if self.features == 0:
            raise DataError(f"{path}: zero features: expected columns of numbers beside the label {self._label!r}")
        self.feature_names: tuple[str, ...] | None = tuple(self._names)

    def batches(self, vocabulary: Vocabulary) -> Iterator[Batch]:
        """One batch per record batch."""
        columns = [*self._names, *(name for name in (self._label, self._weights) if name is not None)]
        done, total = 0, self.total_bytes or 0
        with _opened(self.path) as file:
            for records in file.iter_batches(batch_size=batch_rows(self.features), columns=columns):
                rows = np.empty((len(records), self.features))
                at = 0
                for name, width in zip(self._names, self._widths, strict=True):
                    rows[:, at : at + width] = self._values(records.column(name), name, width, done)
                    at += width
                start, done = done, done + len(records)
                yield Batch(
                    rows=rows,
                    codes=None if self._label is None else _codes(records.column(self._label), vocabulary, self.name),
                    origin=self.name,
                    place=_place(self.name, start),
                    column=self._column,
                    done_bytes=total * done // (self.rows or 1),
                    weights=self._weights_of(records, start),
                )

    def _weights_of(self, records: Any, start: int) -> np.ndarray | None:
        if self._weights is None:
            return None
        return self._values(records.column(self._weights), self._weights, 1, start)[:, 0]

    def _values(self, column: Any, name: str, width: int, start: int) -> np.ndarray:
        """Values (m, width) float64 of one column; a null or a list of another length is refused."""
        if column.null_count:
            row = start + int(np.argmax(np.asarray(column.is_null())))
            raise BadRow(
                f"{self.name}, row {row}, column {name!r}: found null, expected a number; fill in the value or "
                f"leave the column out with --drop {name}"
            )
        if not _is_list(column.type):
            return np.asarray(column.cast("float64")).reshape(-1, 1)
        flat = column.flatten()
        lengths = np.diff([0, *np.cumsum([len(item) for item in column])])
        if np.any(lengths != width):
            row = int(np.argmax(lengths != width))
            raise BadRow(
                f"{self.name}, row {start + row}, column {name!r}: found {lengths[row]} values, expected {width} as in "
                "the first row; make all lists of one length"
            )
        if flat.null_count:
            row = start + int(np.argmax(np.asarray(flat.is_null()))) // width
            raise BadRow(
                f"{self.name}, row {row}, column {name!r}: found null in the list, expected numbers; fill it in"
            )
        return np.asarray(flat.cast("float64")).reshape(-1, width)

    def _column(self, feature: int) -> str:
        for name, width in zip(self._names, self._widths, strict=True):
            if feature < width:
                return f"column {name!r}" if width == 1 else f"column {name!r}, position {feature}"
            feature -= width
        raise IndexError(feature)

    def _check_types(self, schema: Any) -> None:
        for name in [*self._names, *([] if self._weights is None else [self._weights])]:
            kind = schema.field(name).type
            if name == self._weights and _is_list(kind):
                raise UsageError(f"{self.name}, column {name!r}: found type {kind}, expected one weight per row")
            inner = kind.value_type if _is_list(kind) else kind
            if not any(part in str(inner) for part in ("int", "float", "double", "bool", "decimal", "halffloat")):
                raise UsageError(
                    f"{self.name}, column {name!r}: found type {kind}, expected numbers or lists of numbers; convert "
                    f"it, or leave it out with --drop {name}"
                )


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """The file for reading in small pieces; pyarrow's complaints become DataError with the name of the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        # By default whole row groups are read ahead: 600 MB for 600 MB of rows where this takes 130.
        with pq.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER_BYTES) as file:
            yield file
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a whole Parquet file ({error}): fetch or write it again") from error


def _need_pyarrow(path: Path) -> None:
    try:
        import pyarrow.parquet  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise UsageError(
            f"{path}: reading Parquet needs pyarrow, which is not installed: pip install 'coremargin[arrow]'"
        ) from error


def _is_list(kind: Any) -> bool:
    return str(kind).startswith(("list", "fixed_size_list", "large_list"))


def _width(column: Any) -> int:
    return len(column[0]) if _is_list(column.type) and column[0].is_valid else 1


def _codes(column: Any, vocabulary: Vocabulary, source: str) -> np.ndarray:
    if str(column.type).startswith("dictionary"):
        column = column.dictionary_decode()
    values = (
        np.asarray(column.to_pylist(), dtype=object)
        if column.null_count or _is_text(column.type)
        else np.asarray(column)
    )
    return vocabulary.encode(values, source)


def _is_text(kind: Any) -> bool:
    return "string" in str(kind) or "binary" in str(kind)


def _place(name: str, start: int) -> Any:
    return lambda row: f"{name}, row {start + row}"
