"""NumPy files: ``X.npy`` with its labels in ``y.npy``, read through memory maps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coremargin.data.sources.arrays import array_batches
from coremargin.data.sources.base import Batch, SourceOptions, check_matrix, refuse_options
from coremargin.data.sources.npy_header import AGAIN, MAGIC, read_header
from coremargin.data.sources.paths import file_bytes
from coremargin.errors import DataError

if TYPE_CHECKING:
    from coremargin.data.sources.vocabulary import Vocabulary
    from coremargin.formats.columns import ColumnsRecord


class NpyFile:
    """Rows of one .npy file of shape (rows, features)."""

    label_from: str | None = None
    weight_from: str | None = None
    columns: ColumnsRecord | None = None
    sparse = False

    def __init__(self, path: Path, options: SourceOptions) -> None:
        refuse_options(options, f"{path}, a NumPy file", knows=())
        self._array = map_npy(path)
        check_matrix(self._array.shape, self._array.dtype, str(path))
        self.name = str(path)
        self.rows: int | None = self._array.shape[0]
        self.features = int(self._array.shape[1])
        self.total_bytes: int | None = self._array.nbytes

    def batches(self, vocabulary: Vocabulary) -> Iterator[Batch]:
        """Slices of the memory map."""
        return array_batches(self._array, self.name)


def is_npy(path: Path) -> bool:
    """Whether the file starts as NumPy files do."""
    file_bytes(path)
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def map_npy(path: Path) -> np.ndarray:
    """The array in a .npy file as a memory map; object arrays (pickles) are refused, and files of another length."""
    size = file_bytes(path)
    with path.open("rb") as file:
        header = read_header(file.read, str(path))
    if header.whole != size:
        raise DataError(
            f"{path} ({size:,} bytes): not a whole .npy file: expected {header.whole:,} bytes for a header and "
            f"{header.described()}; {AGAIN}"
        )
    if header.nbytes == 0:
        raise DataError(f"{path}: found {header.described()}, expected at least one value; {AGAIN}")
    order = "F" if header.fortran else "C"
    try:
        mapped = np.memmap(path, header.dtype, "r", header.start, header.shape, order)  # type: ignore[call-overload]
    except (OSError, ValueError, OverflowError) as error:
        raise DataError(f"{path} ({size:,} bytes): cannot be mapped into memory: {error}; allow more of it") from error
    return np.asarray(mapped)


def companion(path: Path) -> Path | None:
    """The label file beside rows: ``y.npy`` for ``X.npy`` or ``X.npz``, ``y_train.npy`` for ``X_train.npy``."""
    if path.name[:1] in ("X", "x"):
        beside = path.with_name("y" + path.name[1:]).with_suffix(".npy")
        if beside.exists():
            return beside
    return None
