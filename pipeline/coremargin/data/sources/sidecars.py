"""What lies alongside the rows: labels, weights, groups and names of features, in arrays or files of their own."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.labels import label_vector
from coremargin.data.sources.arrays import compute
from coremargin.data.sources.base import BATCH_BYTES, plain_array, sum_if_known
from coremargin.data.sources.numpy_files import StreamedArray, is_npy_not_text, open_array
from coremargin.data.sources.object_path import ObjectPath
from coremargin.data.sources.paths import FilePath, expand, file_bytes, is_path
from coremargin.data.sources.text import is_number, read_lines
from coremargin.errors import BadRow, DataError, UsageError
from coremargin.formats.column_kinds import LONGEST_NAME
from coremargin.formats.columns import LARGEST, ColumnsRecord, plain_columns
from coremargin.formats.limits import LONGEST_LABEL
from coremargin.formats.location import Location

if TYPE_CHECKING:
    from coremargin.data.labels import LabelCoder
    from coremargin.data.sources.base import RowSource

_QUOTED = re.compile(r'"[^"]*+(?:""[^"]*+)*+"')
_MOST_VALUES = 1 << 18  # that are read at a time


class ValueStream(ABC):
    """One value per row, in order, from an array, a Dask array, or files (.npy, or text with one value per line)."""

    kind: str  #: what they are, in messages
    name: str  #: where they come from, in messages
    length: int | None  #: how many there are; None when only reading tells (text files)

    def __init__(self, values: Any, paths: Sequence[FilePath] | None, dtype: Any) -> None:
        """paths: files, read one after the other; None: ``values`` are an array."""
        if paths is None:
            self.name = self.kind
            self._parts: list[tuple[str | FilePath, Any]] = [(self.name, self._column(values, self.name))]
        else:
            self.name = str(paths[0]) if len(paths) == 1 else f"{len(paths)} {self.kind.removesuffix('s')} files"
            mapped = (self._column(open_array(path), str(path)) if is_npy_not_text(path) else None for path in paths)
            self._parts = list(zip(paths, mapped, strict=True))
        lengths = [None if array is None else array.shape[0] for _, array in self._parts]
        # a Dask array of unknown length has NaN
        self.length = sum_if_known([None if length is None or length != length else int(length) for length in lengths])
        self._rest, self._batches = np.empty(0, dtype), self._read()

    @abstractmethod
    def _column(self, array: Any, name: str) -> Any:
        """An array as one of one dimension. Raises UsageError."""

    @abstractmethod
    def _from_array(self, values: np.ndarray, name: str, start: int) -> np.ndarray:
        """The values of a part of an array, the first of which is number ``start``."""

    @abstractmethod
    def _from_lines(self, lines: Sequence[str], path: FilePath, first: int) -> Iterator[Any]:
        """The values of some lines of a file, the first of which is number ``first``."""

    def _read(self) -> Iterator[np.ndarray]:
        for source, array in self._parts:
            if array is None and not isinstance(source, str):
                for first, lines in read_lines(source):
                    yield np.array(list(self._from_lines(lines, source, first)), self._rest.dtype)
                continue
            name, start = str(source), 0
            for block in _blocks(array, name):
                column = self._column(block, name)
                step = max(1, min(_MOST_VALUES, BATCH_BYTES // max(1, column.dtype.itemsize)))
                for low in range(0, len(column), step):
                    yield self._from_array(column[low : low + step], name, start + low)
                start += len(column)

    def take(self, count: int) -> np.ndarray:
        """The next ``count`` values (fewer at the end)."""
        parts, have = [self._rest], len(self._rest)
        while have < count and (part := next(self._batches, None)) is not None:
            parts.append(part)
            have += len(part)
        values = np.concatenate(parts)
        self._rest = values[count:]
        return values[:count]

    def count_rest(self) -> int:
        """How many values are left; reads to the end."""
        return len(self._rest) + sum(len(part) for part in self._batches)


def _blocks(array: Any, name: str) -> Iterator[np.ndarray]:
    """An array as it is; one of Dask, or of an object, block by block."""
    if isinstance(array, StreamedArray):
        yield from array.blocks(max(1, BATCH_BYTES // array.dtype.itemsize))
        return
    if not hasattr(array, "dask"):
        yield array
        return
    for number in range(array.numblocks[0]):
        place = f"{name}, block {number}"
        yield plain_array(compute(array.blocks[number], place), place)


class LabelStream(ValueStream):
    """Labels as codes (int32) of the coder."""

    kind = "labels"

    def __init__(self, labels: Any, coder: LabelCoder) -> None:
        self._coder = coder
        paths = None
        if is_path(labels):
            paths = expand(labels)
        elif isinstance(labels, list | tuple):
            if labels and all(isinstance(item, Path | ObjectPath | Location) for item in labels):
                paths = [path for item in labels for path in expand(item)]
            else:
                try:
                    labels = np.array(labels, dtype=object)  # which keeps kinds apart: 1 and "1" are two labels
                except ValueError as error:
                    raise UsageError(f"labels: expected a list of labels, found one of arrays: {error}") from error
        elif isinstance(labels, np.ma.MaskedArray):
            labels = label_vector(labels, "labels")
        elif not (hasattr(labels, "dask") and hasattr(labels, "numblocks")):
            labels = plain_array(labels, "labels")
        super().__init__(labels, paths, np.int32)

    def _column(self, array: Any, name: str) -> Any:
        shape = tuple(array.shape)
        if len(shape) == 2 and shape[1] == 1:
            return array[:, 0]
        if len(shape) != 1:
            raise UsageError(f"{name}: shape {shape}: expected one label per row, shape (rows,)")
        return array

    def _from_array(self, values: np.ndarray, name: str, start: int) -> np.ndarray:
        return self._coder.encode_values(values, lambda row: f"{name}, row {start + row}")

    def _from_lines(self, lines: Sequence[str], path: FilePath, first: int) -> Iterator[int]:
        return (self._coder.encode_text(text, f"{path}, line {first + at}") for at, text in parse_labels(lines))


class WeightStream(ValueStream):
    """Weights as float64; the caller, who knows the rows, checks them."""

    kind = "weights"

    def __init__(self, weights: Any) -> None:
        paths = expand(weights) if is_path(weights) else None
        super().__init__(plain_array(weights, self.kind) if paths is None else None, paths, np.float64)

    def _column(self, array: Any, name: str) -> Any:
        if array.ndim == 2 and array.shape[1] == 1:
            array = array[:, 0]
        if array.ndim != 1 or array.dtype.kind not in "biuf":
            raise UsageError(
                f"{name}: {array.dtype} of shape {array.shape}: expected one number per row, shape (rows,)"
            )
        return array

    def _from_array(self, values: np.ndarray, name: str, start: int) -> np.ndarray:
        return values.astype(np.float64)

    def _from_lines(self, lines: Sequence[str], path: FilePath, first: int) -> Iterator[float]:
        for at, line in enumerate(lines):
            if not is_number(line):
                found = line.strip() if len(line) < 80 else f"{line[:80].strip()}..."
                raise BadRow(
                    f"{path}, line {first + at}: found {found!r}, expected a number: the weight of a row; correct the "
                    "line"
                )
            yield float(line.strip())


class GroupStream(ValueStream):
    """Ids of groups as they are, of any kind; the caller checks them."""

    kind = "groups"

    def __init__(self, groups: Any) -> None:
        if isinstance(groups, list | tuple):  # NumPy makes texts of lists of texts and NaN, which is no id
            groups = np.asarray(groups, object)
        paths = expand(groups) if is_path(groups) else None
        super().__init__(plain_array(groups, self.kind) if paths is None else None, paths, object)

    def _column(self, array: Any, name: str) -> Any:
        if array.ndim != 1:
            raise UsageError(f"{name}: shape {array.shape}: expected one id per row, shape (rows,)")
        return array

    def _from_array(self, values: np.ndarray, name: str, start: int) -> np.ndarray:
        return values.astype(object)

    def _from_lines(self, lines: Sequence[str], path: FilePath, first: int) -> Iterator[str]:
        return iter(lines)


def parse_labels(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The labels of some lines, each with the number of its first line: one in quotes may span lines.

    A quote alone belongs to the label: there is no end within the length of a label.
    """
    at = 0
    while at < len(lines):
        text, stop = lines[at].strip(), at + 1
        if text.startswith('"') and not _QUOTED.fullmatch(text):
            whole = text
            while stop < len(lines) and len(whole) <= 2 * LONGEST_LABEL:
                whole, stop = f"{whole}\n{lines[stop].rstrip()}", stop + 1
                if _QUOTED.fullmatch(whole):
                    text = whole
                    break
            else:
                stop = at + 1
        yield at, text[1:-1].replace('""', '"') if _QUOTED.fullmatch(text) else lines[at]
        at = stop


def name_features(rows: RowSource, names: Any, *, append: bool) -> ColumnsRecord | None:
    """The columns of a source: its own, or numbers with these names, one a feature.

    names: texts, or a path to a file with one per line; append: the store is there. Raises UsageError: the source or
    the store has names of its own; DataError: too few or too many, one of them twice, empty or too long.
    """
    if names is None:
        return rows.columns
    if append:
        raise UsageError("--names cannot be combined with --append: names are those of the store")
    if rows.columns is not None and rows.columns.named:
        raise UsageError(f"{rows.name}: its columns have names: leave --names out")
    place, found = "names", [] if is_path(names) else [str(name) for name in names]
    if is_path(names):
        path = expand(names)[0]
        file_bytes(path)
        place, found = str(path), [line for _, lines in read_lines(path) for line in lines]
    if len(found) != rows.features:
        raise DataError(
            f"{place}: found {len(found):,} names, expected {rows.features:,}, one for each feature of {rows.name}"
        )
    seen: dict[str, int] = {}
    for number, name in enumerate(found):
        if not name or len(name) > LONGEST_NAME:
            raise DataError(
                f"{place}, name {number + 1:,}: found {len(name):,} characters, expected 1 to {LONGEST_NAME:,}"
            )
        if seen.setdefault(name, number) != number:
            raise DataError(
                f"{place}: names {seen[name] + 1:,} and {number + 1:,} are both {name!r}, expected a name for each"
            )
    record = ColumnsRecord(columns=plain_columns(found))
    if len(record.encoded()) > LARGEST:
        raise DataError(f"{place}: takes more than the {LARGEST:,} bytes that names may take; leave --names out")
    return record
