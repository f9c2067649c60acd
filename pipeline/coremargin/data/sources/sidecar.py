"""What belongs to rows and may lie beside them: files of labels, weights, and what a store says of its features."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.sources.base import plain_array
from coremargin.data.sources.npy import companion, is_npy_not_text, map_npy
from coremargin.data.sources.npz import holds_labels
from coremargin.data.sources.paths import expand, is_path
from coremargin.data.sources.python_objects import AnyTable, carries_labels, kinds_of
from coremargin.data.sources.stream import Stream
from coremargin.data.sources.text import is_number, lines_of
from coremargin.errors import BadRow, LabelError, UsageError

if TYPE_CHECKING:
    from coremargin.data.store import Store

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


def label_files(source: Any, *, unlabelled: bool | None) -> list[Path] | None:
    """The label files beside ``X.npy`` files; None for sources that carry their labels themselves, or may have none."""
    kinds = kinds_of(source)
    if carries_labels(source):
        return None
    if kinds is not None and not {kind for _, kind in kinds} <= {"npy", "npz"}:
        return None
    if kinds is None and unlabelled is None:
        return None
    if kinds is None:
        raise LabelError("labels are missing: expected one per row; give labels=..., or say unlabelled=True")
    found = [companion(path) for path, _ in kinds]
    own = [path for path, kind in kinds if kind == "npz" and holds_labels(path)]
    if own and any(found):
        raise UsageError(f"{own[0]}: holds labels, and y.npy lies beside: give the ones that count, --labels FILE")
    if len(own) == len(kinds):
        return None
    for (path, _), separate in zip(kinds, found, strict=True):
        if separate is None and unlabelled is None:
            return None
        if separate is None:
            raise LabelError(
                f"{path}: labels are missing: expected them in --labels FILE, or in y.npy beside X.npy; or --unlabelled"
            )
    return [separate for separate in found if separate is not None]


def svmlight_features(source: Any, base: Store) -> int | None:
    """How many features a store says that rows of SVMlight have; None of other sources, which say it themselves."""
    kinds = kinds_of(source)
    return base.features if kinds and kinds[0][1] == "svmlight" else None


def weights_of(source: Any, weights: Any) -> tuple[str | int | None, WeightStream | None]:
    """The column that holds the weights, or what reads them from beside the rows."""
    if weights is None:
        return None, None
    kinds = {kind for _, kind in kinds_of(source) or ()}
    if (kinds & {"csv", "parquet"} or isinstance(source, AnyTable)) and isinstance(weights, str | int):
        return weights, None
    return None, WeightStream(weights)


def key_of(base: Store | None, key: str | int | None) -> str | int | None:
    """The column of keys; of rows that join others the one that has the name of theirs. Raises UsageError."""
    columns = None if base is None else base.columns
    if base is None or (columns is not None and columns.key is not None and key is not None):
        return key
    if key is not None:
        raise UsageError(f"{base.name}: its rows have no keys: leave --key out, or give it when the store is made")
    return None if columns is None or columns.key is None else columns.key if columns.named else int(columns.key)
