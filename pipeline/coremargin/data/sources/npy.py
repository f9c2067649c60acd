"""NumPy files: ``X.npy`` with its labels in ``y.npy``, read through memory maps."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import BadZipFile

import numpy as np
from scipy.sparse import load_npz

from coremargin.data.sources.arrays import ArrayRows, array_batches, refuse_repeated
from coremargin.data.sources.base import Batch, SourceOptions, check_matrix, refuse_options
from coremargin.data.sources.paths import file_bytes
from coremargin.errors import DataError, UsageError

if TYPE_CHECKING:
    from coremargin.data.sources.vocabulary import Vocabulary

MAGIC = b"\x93NUMPY"


class NpyFile:
    """Rows of one .npy file of shape (rows, features)."""

    label_from: str | None = None
    weight_from: str | None = None
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


class NpzFile(ArrayRows):
    """Rows of one .npz file of ``scipy.sparse.save_npz``; all of it is in memory while it is read."""

    def __init__(self, path: Path, options: SourceOptions) -> None:
        refuse_options(options, f"{path}, a SciPy file", knows=())
        size = file_bytes(path)
        try:
            with path.open("rb") as file:
                matrix = load_npz(file)
        except (ValueError, OSError, KeyError, AttributeError, BadZipFile, zlib.error) as error:
            raise DataError(
                f"{path} ({size:,} bytes): not a whole file of scipy.sparse.save_npz: {error}; write it again"
            ) from error
        super().__init__(matrix, options, name=str(path))
        refuse_repeated(self._array, matrix.nnz, str(path))


def is_npy(path: Path) -> bool:
    """Whether the file starts as NumPy files do."""
    file_bytes(path)
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def map_npy(path: Path) -> np.ndarray:
    """The array in a .npy file as a memory map; object arrays (pickles) are refused."""
    size = file_bytes(path)
    try:
        return np.asarray(np.lib.format.open_memmap(path, mode="r"))
    except ValueError as error:
        if "Python objects" in str(error):
            raise UsageError(
                f"{path}: holds Python objects, which are never unpickled: expected numbers or strings; "
                "save it again with a plain dtype"
            ) from error
        raise DataError(f"{path} ({size:,} bytes): not a whole .npy file: {error}; write it again") from error


def companion(path: Path) -> Path | None:
    """The label file beside rows: ``y.npy`` for ``X.npy`` or ``X.npz``, ``y_train.npy`` for ``X_train.npy``."""
    if path.name[:1] in ("X", "x"):
        beside = path.with_name("y" + path.name[1:]).with_suffix(".npy")
        if beside.exists():
            return beside
    return None
