"""What lies beside the rows: labels, weights, names of features, in arrays or files of their own."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.labels import label_vector
from coremargin.data.sources.arrays import computed
from coremargin.data.sources.base import BATCH_BYTES, plain_array
from coremargin.data.sources.numpy_files import is_npy_not_text, map_npy
from coremargin.data.sources.paths import expand, file_bytes, is_path
from coremargin.data.sources.text import is_number, lines_of
from coremargin.errors import BadRow, DataError, UsageError
from coremargin.formats.column_kinds import LONGEST_NAME
from coremargin.formats.columns import LARGEST, ColumnsRecord, plain_columns
from coremargin.formats.limits import LONGEST_LABEL
from coremargin.formats.local_path import local_path

if TYPE_CHECKING:
    from coremargin.data.sources.base import RowSource
    from coremargin.data.sources.vocabulary import Vocabulary


class Stream(ABC):
    """Values (n,) in order."""

    kind: str  #: what they are, in messages
    name: str  #: where they come from, in messages
    length: int | None  #: n, None when only reading tells

    def __init__(self, dtype: Any) -> None:
        self._left = np.empty(0, dtype)
        self._batches = self._read()

    @abstractmethod
    def _read(self) -> Iterator[np.ndarray]:
        """All values, part by part; nothing runs before the first ``take``."""

    def take(self, count: int) -> np.ndarray:
        """The next ``count`` values (fewer at the end)."""
        parts, have = [self._left], len(self._left)
        while have < count:
            part = next(self._batches, None)
            if part is None:
                break
            parts.append(part)
            have += len(part)
        values = np.concatenate(parts)
        self._left = values[count:]
        return values[:count]

    def count_rest(self) -> int:
        """How many values have not been taken yet; reads to the end."""
        return len(self._left) + sum(len(part) for part in self._batches)


_QUOTED = re.compile(r'"[^"]*+(?:""[^"]*+)*+"')


class LabelStream(Stream):
    """Labels that come from beside the rows: an array, a Dask array, or files with one label per row.

    They are taken as codes (int32) of the vocabulary. ``length`` is None when only reading tells (text files).
    """

    kind = "labels"

    def __init__(self, labels: Any, vocabulary: Vocabulary) -> None:
        """``labels``: array-like (n,), or a path, or a list of paths read one after the other (.npy or text)."""
        paths = _as_paths(labels)
        self._vocabulary = vocabulary
        if paths is not None:
            self.name = str(paths[0]) if len(paths) == 1 else f"{len(paths)} label files"
            arrays = [_load(path) for path in paths]
            known = [len(array) for array in arrays if array is not None]
            self.length = sum(known) if len(known) == len(arrays) else None
            self._parts: Iterator[tuple[Path | None, Any]] = zip(paths, arrays, strict=True)
        else:
            array = _as_array(labels)
            self.name = "labels"
            self.length = _known_length(_as_column(array, self.name).shape[0])
            self._parts = iter([(None, array)])
        super().__init__(np.int32)

    def _read(self) -> Iterator[np.ndarray]:
        for path, array in self._parts:
            if path is not None and array is None:
                yield from self._read_text(path)
            else:
                yield from self._read_array(array, self.name if path is None else str(path))

    def _read_array(self, array: Any, name: str) -> Iterator[np.ndarray]:
        column = _as_column(array, name)
        if hasattr(column, "dask"):
            yield from self._read_blocks(column, name)
            return
        step = max(1, min(2**18, BATCH_BYTES // max(1, column.dtype.itemsize)))
        for start in range(0, column.shape[0], step):
            yield self._vocabulary.encode(column[start : start + step], _place(f"{name}, row", start))

    def _read_blocks(self, column: Any, name: str) -> Iterator[np.ndarray]:
        start = 0
        for number in range(column.numblocks[0]):
            place = f"{name}, block {number}"
            block = _as_column(plain_array(computed(column.blocks[number], place), place), place)
            yield self._vocabulary.encode(block, _place(f"{name}, row", start))
            start += len(block)

    def _read_text(self, path: Path) -> Iterator[np.ndarray]:
        for first, lines in lines_of(path):
            found = [self._vocabulary.encode_text(text, f"{path}, line {first + k}") for k, text in labels_in(lines)]
            yield np.array(found, dtype=np.int32)


def _place(name: str, start: int) -> Callable[[int], str]:
    return lambda row: f"{name} {start + row}"


def labels_in(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
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


def _as_paths(labels: Any) -> list[Path] | None:
    if is_path(labels):
        return expand(labels)
    if isinstance(labels, list | tuple) and labels and all(isinstance(item, Path) for item in labels):
        return [path for item in labels for path in expand(item)]
    return None


def _load(path: Path) -> np.ndarray | None:
    """The memory map of a .npy file, or None for a text file."""
    return _as_column(map_npy(path), str(path)) if is_npy_not_text(path) else None


def _as_array(labels: Any) -> Any:
    """Labels as an array; the elements of a list keep their kinds: 1 and "1" are two labels."""
    if isinstance(labels, list | tuple):
        try:
            return np.array(labels, dtype=object)
        except ValueError as error:
            raise UsageError(f"labels: expected a list of labels, found one of arrays: {error}") from error
    if isinstance(labels, np.ma.MaskedArray):
        return label_vector(labels, "labels")
    return labels if hasattr(labels, "dask") and hasattr(labels, "numblocks") else plain_array(labels, "labels")


def _as_column(array: Any, name: str) -> Any:
    shape = tuple(array.shape)
    if len(shape) == 2 and shape[1] == 1:
        return array[:, 0]
    if len(shape) != 1:
        raise UsageError(f"{name}: shape {shape}: expected one label per row, shape (rows,)")
    return array


def _known_length(length: Any) -> int | None:
    return None if length != length else int(length)


# Weights that come from beside the rows: an array, or files with one number per row.


_STEP = 1 << 18


class WeightStream(Stream):
    """Weights (n,) in order, as float64; whether they are good is for whoever knows the rows."""

    kind = "weights"

    def __init__(self, weights: Any) -> None:
        """``weights``: array-like (n,), or a path or pattern, .npy or text with one per line."""
        if is_path(weights):
            paths = expand(weights)
            self.name = str(paths[0]) if len(paths) == 1 else f"{len(paths)} weight files"
            arrays = [_column(map_npy(path), str(path)) if is_npy_not_text(path) else None for path in paths]
            known = [len(array) for array in arrays if array is not None]
            self.length = sum(known) if len(known) == len(arrays) else None
            self._parts: list[tuple[Path | None, np.ndarray | None]] = list(zip(paths, arrays, strict=True))
        else:
            self.name = "weights"
            array = _column(plain_array(weights, self.name), self.name)
            self.length, self._parts = len(array), [(None, array)]
        super().__init__(np.float64)

    def _read(self) -> Iterator[np.ndarray]:
        for path, array in self._parts:
            if array is not None:
                for start in range(0, len(array), _STEP):
                    yield array[start : start + _STEP].astype(np.float64)
            elif path is not None:
                for first, lines in lines_of(path):
                    yield np.array([_number(line, path, first + k) for k, line in enumerate(lines)])


def _number(line: str, path: Path, number: int) -> float:
    if not is_number(line):
        found = line.strip() if len(line) < 80 else f"{line[:80].strip()}..."
        raise BadRow(
            f"{path}, line {number}: found {found!r}, expected a number: the weight of a row; correct the line"
        )
    return float(line.strip())


def _column(array: np.ndarray, name: str) -> np.ndarray:
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1 or array.dtype.kind not in "biuf":
        raise UsageError(f"{name}: {array.dtype} of shape {array.shape}: expected one number per row, shape (rows,)")
    return array


def named_columns(rows: RowSource, names: Any, *, append: bool) -> ColumnsRecord | None:
    """What the columns of a source are: its own, or numbers with these names, one a feature.

    names: texts, or a path to a file with one per line; append: the store is there. Raises UsageError: the source or
    the store has names of its own; DataError: too few or too many, one of them twice, empty or too long.
    """
    if names is None:
        return rows.columns
    if append:
        raise UsageError("--names cannot be combined with --append: names are those of the store")
    if rows.columns is not None and rows.columns.named:
        raise UsageError(f"{rows.name}: its columns have names: leave --names out")
    place, found = _read(names)
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


def _read(names: Any) -> tuple[str, list[str]]:
    """Where the names come from, and what they are."""
    if not is_path(names):
        return "names", [str(name) for name in names]
    path = local_path(names)
    file_bytes(path)
    return str(path), [line for _, lines in lines_of(path) for line in lines]
