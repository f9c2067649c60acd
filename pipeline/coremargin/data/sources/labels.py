"""Labels that come from beside the rows: an array, or files with one label per row."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.labels import label_vector
from coremargin.data.sources.arrays import computed
from coremargin.data.sources.base import BATCH_BYTES, plain_array
from coremargin.data.sources.npy import is_npy_not_text, map_npy
from coremargin.data.sources.paths import expand, is_path
from coremargin.data.sources.stream import Stream
from coremargin.data.sources.text import lines_of
from coremargin.errors import UsageError
from coremargin.formats.limits import LONGEST_LABEL

if TYPE_CHECKING:
    from coremargin.data.sources.vocabulary import Vocabulary

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
