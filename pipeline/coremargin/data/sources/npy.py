"""NumPy files: ``X.npy`` with its labels in ``y.npy``, read through memory maps."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from coremargin.data.sources.arrays import array_batches
from coremargin.data.sources.base import Batch, SourceOptions, check_matrix, refuse_options
from coremargin.data.sources.content import content_of, refuse_foreign
from coremargin.data.sources.paths import file_bytes
from coremargin.errors import DataError, UsageError

if TYPE_CHECKING:
    from coremargin.data.sources.vocabulary import Vocabulary
    from coremargin.formats.columns import ColumnsRecord

AGAIN = "write it again"  #: what to do about a file that is not what it says
_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


@dataclass(frozen=True, slots=True)
class NpyHeader:
    """What an array in NumPy's format promises about itself."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    start: int  #: bytes before the values

    @property
    def values(self) -> int:
        """How many there are."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the values, however large."""
        return self.values * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype} of shape {self.shape}"


def read_header(stream: IO[bytes], place: str, nbytes: int) -> NpyHeader:
    """The header at the beginning of a stream of ``nbytes``, by NumPy's reader.

    Raises DataError: damaged, or another number of bytes than it promises; UsageError: Python objects, which need a
    pickle.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about headers that Python 2 wrote
            version = np.lib.format.read_magic(stream)
            if version not in _READERS:
                raise ValueError(f"found format version {version}, which arrays of numbers do not need")
            shape, fortran, dtype = _READERS[version](stream)
        header = NpyHeader(dtype, shape, fortran, stream.tell())
        if any(not 0 <= size < 2**63 for size in shape):
            raise ValueError(f"found the shape {shape}")
    except MemoryError:  # of Python's parser, about brackets without end
        raise DataError(f"{place}: not a whole .npy file: its header is nested too deeply; {AGAIN}") from None
    except Exception as error:  # NumPy lets through what Python's parser raises
        text = " ".join(str(error).split())[:200]
        raise DataError(f"{place}: not a whole .npy file: {text or type(error).__name__}; {AGAIN}") from error
    if dtype.hasobject:
        raise UsageError(
            f"{place}: holds Python objects, which are never unpickled: expected numbers or strings; save it again "
            "with a plain dtype"
        )
    if header.start + header.nbytes != nbytes:
        raise DataError(
            f"{place}: not a whole .npy file: found {nbytes:,} bytes, expected {header.start + header.nbytes:,} for a "
            f"header and {header}; {AGAIN}"
        )
    return header


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
    """Whether a file starts as NumPy files do."""
    found = content_of(path)
    return found is not None and found.kind == "npy"


def is_npy_not_text(path: Path) -> bool:
    """The same of a file that is one of both. Raises DataError for a format that is neither."""
    found = content_of(path)
    if found is not None and found.kind not in ("npy", "packed"):
        refuse_foreign(path, found, "a NumPy file, or a text with one value a line")
    return found is not None and found.kind == "npy"


def map_npy(path: Path) -> np.ndarray:
    """The array in a .npy file as a memory map; object arrays (pickles) are refused, and files of another length."""
    size = file_bytes(path)
    with path.open("rb") as file:
        header = read_header(file, str(path), size)
    if header.nbytes == 0:
        raise DataError(f"{path}: found {header}, expected at least one value; {AGAIN}")
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
