"""Weights that come from beside the rows: an array, or files with one number per row."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from coremargin.data.sources.base import plain_array
from coremargin.data.sources.npy import is_npy_not_text, map_npy
from coremargin.data.sources.paths import expand, is_path
from coremargin.data.sources.stream import Stream
from coremargin.data.sources.text import is_number, lines_of
from coremargin.errors import BadRow, UsageError

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
