"""Labels as sources carry them: integers, floats, strings, booleans; from arrays, text and files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from coremargin.data.format import MOST_CLASSES
from coremargin.data.sources.npy import is_npy, map_npy
from coremargin.data.sources.paths import expand
from coremargin.data.sources.stream import Stream
from coremargin.data.sources.text import pieces
from coremargin.errors import LabelError, UsageError

Label = str | int | float | bool

MISSING = frozenset({"", "na", "n/a", "nan", "null", "?"})  #: texts that stand for a missing label, lower case
_INTEGER = re.compile(r"[+-]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def label_from_text(text: str) -> Label | None:
    """The label that a text stands for: an int, a float, a bool or the text; None when it is missing.

    "1", "+1" and "1.0" are the integer 1, so that CSV, SVMlight and arrays agree; "01" stays text.
    """
    text = text.strip()
    if text.lower() in MISSING:
        return None
    if _INTEGER.fullmatch(text):
        return int(text)
    if text in ("True", "true", "TRUE"):
        return True
    if text in ("False", "false", "FALSE"):
        return False
    if _FLOAT.fullmatch(text) and not (len(text) > 1 and text[0] == "0" and text[1].isdigit()):
        return label_from_value(float(text))
    return text


def label_from_value(value: Any) -> Label | None:
    """The label that a value stands for: whole floats are integers; None, NaN and "" are missing."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or value != value or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, bytes):
        return label_from_value(value.decode("utf-8", errors="replace"))
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, bool | int | float | str):
        return value
    raise LabelError(f"label {value!r} is a {type(value).__name__}: expected an integer, float, string or boolean")


class Vocabulary:
    """The labels met so far, in order of first appearance; a code is a position in ``labels``."""

    def __init__(self, labels: Iterable[Label] = ()) -> None:
        """labels: those that already have codes, when rows are appended."""
        self.labels: list[Label] = []
        self.odd: list[int] = []  #: codes of labels that are of another kind than the first (text and numbers, ...)
        self._codes: dict[tuple[bool, Label], int] = {}
        self._texts: dict[str, int] = {}
        for label in labels:
            self.add(label, "the store")

    def add(self, label: Label | None, source: str) -> int:
        """Code of a label, -1 for None; raises LabelError when there are too many to be classes."""
        if label is None:
            return -1
        key = (isinstance(label, bool), label)  # True and 1 are equal in Python, and two labels here
        code = self._codes.get(key)
        if code is None:
            if len(self.labels) == MOST_CLASSES:
                few = ", ".join(repr(known) for known in self.labels[:5])
                raise LabelError(
                    f"{source}: more than {MOST_CLASSES} different labels ({few}, ...): expected classes; "
                    "name the right column with --label, or say --unlabelled"
                )
            code = self._codes[key] = len(self.labels)
            self.labels.append(label)
            if _kind(label) != _kind(self.labels[0]):
                self.odd.append(code)
        return code

    def encode_text(self, text: str, source: str) -> int:
        """Code of the label that ``text`` stands for, -1 when it is missing."""
        code = self._texts.get(text)
        if code is None:
            code = self.add(label_from_text(text), source)
            if code >= 0:  # a missing label ends the ingest, so it need not be remembered
                self._texts[text] = code
        return code

    def encode(self, values: np.ndarray, source: str) -> np.ndarray:
        """Codes (m,) int32 of labels (m,) of any dtype, new ones in order of first appearance."""
        if values.dtype.kind in "OTV":
            codes = [self.add(label_from_value(value), source) for value in values.tolist()]
            return np.array(codes, dtype=np.int32)
        if values.dtype.kind == "c":
            raise LabelError(
                f"{source}: labels of dtype {values.dtype}: expected integers, floats, strings or booleans"
            )
        kinds, first, inverse = np.unique(values, return_index=True, return_inverse=True)
        table = np.empty(len(kinds), dtype=np.int32)
        for position in np.argsort(first, kind="stable"):
            table[position] = self.add(label_from_value(kinds[position]), source)
        return table[inverse.reshape(-1)]


def _kind(label: Label) -> str:
    return "number" if type(label) in (int, float) else type(label).__name__


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
            self.length = (
                None if any(array is None for array in arrays) else sum(len(a) for a in arrays if a is not None)
            )
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
            for block in range(column.numblocks[0]):
                yield self._vocabulary.encode(np.asarray(column.blocks[block].compute()), name)
            return
        for start in range(0, column.shape[0], 2**18):
            yield self._vocabulary.encode(np.asarray(column[start : start + 2**18]), name)

    def _read_text(self, path: Path) -> Iterator[np.ndarray]:
        vocabulary, name = self._vocabulary, str(path)
        for piece in pieces(path):
            lines = piece.text().split("\n")
            if lines and not lines[-1]:
                lines.pop()  # the end of the last line, not an empty label
            yield np.array([vocabulary.encode_text(line.strip().strip('"'), name) for line in lines], dtype=np.int32)


def _as_paths(labels: Any) -> list[Path] | None:
    if isinstance(labels, str | Path):
        return expand(labels)
    if isinstance(labels, list | tuple) and labels and all(isinstance(item, Path) for item in labels):
        return list(labels)
    return None


def _load(path: Path) -> np.ndarray | None:
    """The memory map of a .npy file, or None for a text file."""
    return map_npy(path) if is_npy(path) else None


def _as_array(labels: Any) -> Any:
    """Labels as an array; the elements of a list keep their kinds: 1 and "1" are two labels."""
    if isinstance(labels, list | tuple):
        return np.array(labels, dtype=object)
    return labels if hasattr(labels, "dask") and hasattr(labels, "numblocks") else np.asarray(labels)


def _as_column(array: Any, name: str) -> Any:
    shape = tuple(array.shape)
    if len(shape) == 2 and shape[1] == 1:
        return array[:, 0]
    if len(shape) != 1:
        raise UsageError(f"{name}: shape {shape}: expected one label per row, shape (rows,)")
    return array


def _known_length(length: Any) -> int | None:
    return None if length != length else int(length)
