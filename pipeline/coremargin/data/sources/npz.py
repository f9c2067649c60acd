"""Files of ``scipy.sparse.save_npz``: CSR in pieces whatever its size; other kinds in memory, when they fit there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse

from coremargin.data.sources.arrays import ArrayRows, refuse_repeated, row_batch
from coremargin.data.sources.base import BATCH_BYTES, Batch, RowSource, SourceOptions, check_matrix, refuse_options
from coremargin.data.sources.memory import refuse_beyond_memory
from coremargin.data.sources.npy_header import AGAIN, shown
from coremargin.data.sources.paths import file_bytes
from coremargin.data.sources.zip_members import Archive, MemberArray
from coremargin.data.sparse import check_structure, csr_rows
from coremargin.errors import BadRow, DataError
from coremargin.spec import format_size

if TYPE_CHECKING:
    from coremargin.data.sources.vocabulary import Vocabulary
    from coremargin.formats.columns import ColumnsRecord

#: The arrays of each kind of matrix, and their axes.
_PARTS = {
    "csr": {"data": 1, "indices": 1, "indptr": 1},
    "csc": {"data": 1, "indices": 1, "indptr": 1},
    "bsr": {"data": 3, "indices": 1, "indptr": 1},
    "coo": {"data": 1, "row": 1, "col": 1},
    "dia": {"data": 2, "offsets": 1},
}
_LARGEST_WORD = 1 << 10  # bytes of what says kind and shape
_PIECE_ROWS = 1 << 17  # row starts that are read at once
_BATCH_VALUES = BATCH_BYTES // 16  # a value and its index as float64 and int64


def open_npz(path: Path, options: SourceOptions) -> RowSource:
    """The rows of one .npz file. Raises DataError: another kind of file, damaged, or too large for the memory."""
    refuse_options(options, f"{path}, a SciPy file", knows=())
    file_bytes(path)
    with Archive(path) as archive:
        parts = _Parts(archive)
        check_matrix(parts.shape, parts.arrays["data"].header.dtype, str(path))
        if parts.kind == "csr":
            parts.check_csr()
            return CsrFile(path, parts)
        return _in_memory(path, parts, options)


class _Parts:
    """What the headers of a matrix say: its kind, its shape, and its arrays, from which nothing was read yet."""

    def __init__(self, archive: Archive) -> None:
        self.place = archive.name
        word = _small(archive.array("format"), f"{self.place}, member 'format'")
        if word.size != 1 or word.dtype.kind not in "SU":
            raise DataError(
                f"{self.place}, member 'format': found {word.dtype} of shape {word.shape}, expected a word; {AGAIN}"
            )
        self.kind = word.tobytes().replace(b"\0", b"").decode("ascii", errors="replace")  # of both kinds of text
        if self.kind not in _PARTS:
            known = ", ".join(_PARTS)
            raise DataError(
                f"{self.place}, member 'format': found {shown(self.kind)}, expected one of {known}; {AGAIN}"
            )
        sizes = _small(archive.array("shape"), f"{self.place}, member 'shape'")
        if sizes.dtype.kind not in "iu" or sizes.ndim != 1 or (sizes < 0).any():
            raise DataError(
                f"{self.place}, member 'shape': found {shown(str(sizes.tolist()))}, expected rows and features; {AGAIN}"
            )
        self.shape = tuple(int(size) for size in sizes)
        self.arrays = {name: archive.array(name) for name in _PARTS[self.kind]}
        for name, axes in _PARTS[self.kind].items():
            header = self.arrays[name].header
            if len(header.shape) != axes or (name != "data" and header.dtype.kind not in "iu"):
                what = "numbers" if name == "data" else "whole numbers"
                raise DataError(
                    f"{self.place}, member {name!r}: found {header.described()}, expected {what} along {axes} "
                    f"{'axis' if axes == 1 else 'axes'}; {AGAIN}"
                )

    def check_csr(self) -> None:
        """Refuse arrays whose lengths do not fit each other."""
        values = self.arrays["data"].header.shape[0]
        for name, expected in (("indices", values), ("indptr", self.shape[0] + 1)):
            found = self.arrays[name].header.shape[0]
            if found != expected:
                raise DataError(
                    f"{self.place}, member {name!r}: found {found:,} numbers, expected {expected:,} for {values:,} "
                    f"values in {self.shape[0]:,} rows; {AGAIN}"
                )


def _small(array: MemberArray, place: str) -> np.ndarray:
    if array.header.nbytes > _LARGEST_WORD:
        raise DataError(f"{place}: found {array.header.described()}, expected no more than a few; {AGAIN}")
    return array.whole()


class CsrFile:
    """Rows of a CSR matrix in a file, read in pieces."""

    label_from: str | None = None
    weight_from: str | None = None
    columns: ColumnsRecord | None = None
    sparse = True

    def __init__(self, path: Path, parts: _Parts) -> None:
        self.name, self.path = str(path), path
        self.features = parts.shape[1]
        self._count = parts.shape[0]
        self.rows: int | None = self._count
        self.total_bytes: int | None = parts.arrays["data"].header.nbytes

    def batches(self, vocabulary: Vocabulary) -> Iterator[Batch]:
        """Batches of about half a million values, or of one row."""
        with Archive(self.path) as archive:
            parts = _Parts(archive)
            if parts.kind != "csr" or parts.shape != (self._count, self.features):
                raise DataError(f"{archive.name}: the file changed while it was read; ingest it again")
            parts.check_csr()
            data, indices = parts.arrays["data"], parts.arrays["indices"]
            whole, dtype = data.left, _computable(data.header.dtype)
            for first, starts in self._runs(parts.arrays["indptr"], whole):
                count = int(starts[-1])
                values = data.take(count).astype(dtype, copy=False)
                found = csr_rows(values, indices.take(count).astype(np.int64), starts, self.features)
                check_structure(found, self.name, first)
                rows = csr_rows(values, found.indices.astype(np.int32), starts.astype(np.int32), self.features)
                rows.has_sorted_indices = rows.has_canonical_format = False  # not known yet
                refuse_repeated(rows, self.name, first)
                done = (whole - data.left) * data.header.dtype.itemsize
                yield row_batch(rows, self.name, first, done)

    def _runs(self, indptr: MemberArray, values: int) -> Iterator[tuple[int, np.ndarray]]:
        """First row and row starts, from 0 on, of one run of rows after the other; ``values``: where the last ends."""
        end = int(indptr.take(1).astype(np.int64)[0])
        if end != 0:
            raise DataError(f"{self.name}: row 0: starts at value {end}, expected 0; {AGAIN}")
        for row in range(0, self._count, _PIECE_ROWS):
            taken = indptr.take(min(_PIECE_ROWS, self._count - row)).astype(np.int64)
            starts = np.concatenate([[end], taken])
            counts = np.diff(starts)
            bad = (counts < 0) | (taken < 0) | (taken > values) | (counts > self.features)
            if bad.any():
                self._refuse(row + int(np.argmax(bad)), starts[int(np.argmax(bad)) :][:2].tolist(), values)
            low = 0
            while low < len(taken):
                high = max(low + 1, int(np.searchsorted(starts, starts[low] + _BATCH_VALUES, side="right")) - 1)
                high = min(high, len(taken))
                yield row + low, starts[low : high + 1] - starts[low]
                low = high
            end = int(starts[-1])
        if end != values:
            raise DataError(f"{self.name}: the rows end at value {end:,}, expected {values:,}; {AGAIN}")

    def _refuse(self, row: int, bounds: list[int], values: int) -> None:
        start, stop = bounds
        if 0 <= start <= stop <= values:
            raise BadRow(
                f"{self.name}, row {row}: holds {stop - start:,} values of {self.features:,} features: an index occurs "
                "twice, expected once; correct the matrix"
            )
        raise BadRow(
            f"{self.name}, row {row}: found values {start} to {stop}, expected a run within 0 to {values}; {AGAIN}"
        )


def _computable(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type to compute in: SciPy knows neither float16 nor other byte orders."""
    return np.dtype(np.float64) if dtype.kind == "f" and dtype.itemsize not in (4, 8) else dtype.newbyteorder("=")


def _in_memory(path: Path, parts: _Parts, options: SourceOptions) -> RowSource:
    """The matrix, when there is memory for it, for CSR made of it and for a sorted copy."""
    arrays = parts.arrays
    stored = sum(array.header.nbytes for array in arrays.values())
    data = arrays["data"]
    csr = data.left * (data.header.dtype.itemsize + 8) + (parts.shape[0] + 1) * 8
    refuse_beyond_memory(
        stored + 3 * csr,
        f"{parts.place}: a {parts.kind} matrix with {format_size(stored)}",
        "save it as CSR (matrix.tocsr()), which is read in pieces",
    )
    read = {name: array.whole() for name, array in arrays.items()}
    values, *places = (read[name] for name in _PARTS[parts.kind])
    values = values.astype(_computable(values.dtype), copy=False)
    given: Any = (values, tuple(places)) if parts.kind == "coo" else (values, *places)
    try:
        matrix = getattr(scipy.sparse, f"{parts.kind}_array")(given, shape=parts.shape)
    except (ValueError, TypeError, OverflowError, ZeroDivisionError) as error:
        raise DataError(f"{parts.place}: its arrays do not make a matrix: {error}; {AGAIN}") from error
    rows = ArrayRows(matrix, options, name=str(path))
    rows.refuse_repeated(matrix.nnz if parts.kind == "coo" else 0)
    return rows
