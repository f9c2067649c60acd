"""NumPy files: ``.npy``, and ``.npz`` of ``numpy.savez(path, X=X, y=y)`` and ``scipy.sparse.save_npz``.

``.npy`` is mapped into memory, or read in order where it is an object. Dense rows and CSR in archives are read in
pieces, whatever their size; other sparse matrices in memory, when they fit there.
"""

from __future__ import annotations

import math
import warnings
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

import numpy as np

from coremargin.data.sources.arrays import ArrayRows, refuse_repeated_indices, row_batch
from coremargin.data.sources.base import BATCH_BYTES, Batch, RowSource, batch_rows, check_matrix
from coremargin.data.sources.file_formats import detect_content, refuse_foreign
from coremargin.data.sources.memory import refuse_beyond_memory
from coremargin.data.sources.object_path import ObjectPath
from coremargin.data.sources.options import SourceOptions, refuse_options
from coremargin.data.sources.paths import FilePath, file_bytes
from coremargin.data.sparse import check_structure, csr_rows
from coremargin.errors import BadRow, DataError, UsageError
from coremargin.formats.row_types import common_row_type
from coremargin.spec import format_size

if TYPE_CHECKING:
    from coremargin.data.labels import LabelCoder

_ADVICE = "write it again"  #: what to do about a file that is not what it says
_READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


@dataclass(frozen=True, slots=True)
class NpyHeader:
    """The header of an array in NumPy's format."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    start: int  #: bytes before the values

    @property
    def values(self) -> int:
        """Their number."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all values."""
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
        raise DataError(f"{place}: not a whole .npy file: its header is nested too deeply; {_ADVICE}") from None
    except Exception as error:  # NumPy lets through what Python's parser raises
        text = " ".join(str(error).split())[:200]
        raise DataError(f"{place}: not a whole .npy file: {text or type(error).__name__}; {_ADVICE}") from error
    if dtype.hasobject:
        raise UsageError(
            f"{place}: holds Python objects, which are never unpickled: expected numbers or strings; save it again "
            "with a plain dtype"
        )
    if header.start + header.nbytes != nbytes:
        raise DataError(
            f"{place}: not a whole .npy file: found {nbytes:,} bytes, expected {header.start + header.nbytes:,} for a "
            f"header and {header}; {_ADVICE}"
        )
    return header


def open_npy(path: FilePath, options: SourceOptions) -> RowSource:
    """Rows of one .npy file of shape (rows, features)."""
    array, kind = open_array(path), f"{path}, a NumPy file"
    if isinstance(array, StreamedArray):
        refuse_options(options, kind, knows=())
        return StreamedRows(array)
    return ArrayRows(array, options, name=str(path), kind=kind)


def is_npy(path: FilePath) -> bool:
    """Whether a file starts as NumPy files do."""
    found = detect_content(path)
    return found is not None and found.kind == "npy"


def is_npy_not_text(path: FilePath) -> bool:
    """The same of a file that is one of both. Raises DataError for a format that is neither."""
    found = detect_content(path)
    if found is not None and found.kind not in ("npy", "packed"):
        refuse_foreign(path, found, "a NumPy file, or a text with one value a line")
    return found is not None and found.kind == "npy"


def open_array(path: FilePath) -> np.ndarray | StreamedArray:
    """The array in a .npy file of this machine, as a memory map, or of an object. Raises as ``map_npy``."""
    return StreamedArray(path, _header_of(path)) if isinstance(path, ObjectPath) else map_npy(path)


def map_npy(path: Path) -> np.ndarray:
    """The array in a .npy file as a memory map; object arrays (pickles) are refused, and files of another length."""
    header = _header_of(path)
    order = "F" if header.fortran else "C"
    try:
        mapped = np.memmap(path, header.dtype, "r", header.start, header.shape, order)  # type: ignore[call-overload]
    except (OSError, ValueError, OverflowError) as error:
        size = file_bytes(path)
        raise DataError(f"{path} ({size:,} bytes): cannot be mapped into memory: {error}; allow more of it") from error
    return np.asarray(mapped)


def _header_of(path: FilePath) -> NpyHeader:
    """The header of a .npy file. Raises as ``read_header``; DataError: an array without values."""
    size = file_bytes(path)
    with path.open("rb") as file:
        header = read_header(file, str(path), size)
    if header.nbytes == 0:
        raise DataError(f"{path}: found {header}, expected at least one value; {_ADVICE}")
    return header


class StreamedArray:
    """The array in a .npy file at an address, which is read in order."""

    def __init__(self, path: ObjectPath, header: NpyHeader) -> None:
        self.path, self.header = path, header
        self.dtype, self.shape, self.ndim = header.dtype, header.shape, len(header.shape)

    def __getitem__(self, part: tuple[slice, int]) -> StreamedArray:
        """``[:, 0]`` of an array with one column alone."""
        del part
        return StreamedArray(self.path, replace(self.header, shape=self.shape[:1]))

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        """All rows in order, so many at a time. Raises DataError: columns that memory does not hold."""
        count, columns = self.shape[0], math.prod(self.shape[1:])
        columnwise = self.header.fortran and columns > 1
        if columnwise:
            what = f"{self.path}: {self.header} in columns, which cannot be read in pieces"
            refuse_beyond_memory(self.header.nbytes, what, "save it again, as numpy.ascontiguousarray(X)")
        step = count if columnwise else rows
        with self.path.open("rb") as file:
            file.seek(self.header.start)
            for start in range(0, count, step):
                shape = (min(step, count - start), *self.shape[1:])
                part = np.frombuffer(file.read(math.prod(shape) * self.dtype.itemsize), self.dtype)
                found = part.reshape(shape, order="F" if columnwise else "C")
                yield from (found[low : low + rows] for low in range(0, len(found), rows))


class StreamedRows(RowSource):
    """Rows of a .npy file at an address."""

    def __init__(self, array: StreamedArray) -> None:
        self.name, self._array = str(array.path), array
        check_matrix(array.shape, array.dtype, self.name)
        self.rows, self.features = array.shape
        self.total_bytes, self.row_type = array.header.nbytes, common_row_type([array.dtype.name])

    def batches(self, coder: LabelCoder) -> Iterator[Batch]:
        """One block after the other."""
        start = 0
        for rows in self._array.blocks(batch_rows(self.features)):
            yield row_batch(rows, self.name, start, (start + len(rows)) * self.features * rows.itemsize)
            start += len(rows)


def find_label_file(path: FilePath) -> FilePath | None:
    """The label file next to rows: ``y.npy`` for ``X.npy`` or ``X.npz``, ``y_train.npy`` for ``X_train.npy``."""
    if path.name[:1] in ("X", "x"):
        labels = path.with_name("y" + path.name[1:]).with_suffix(".npy")
        if labels.exists():
            return labels
    return None


#: The arrays of each kind of sparse matrix, besides its values, and how many axes these have.
_PARTS = {
    "csr": (("indices", "indptr"), 1),
    "csc": (("indices", "indptr"), 1),
    "bsr": (("indices", "indptr"), 3),
    "coo": (("row", "col"), 1),
    "dia": (("offsets",), 2),
}
_MATRIX = "X.npz holds the matrix of scipy.sparse.save_npz, or X and perhaps y of numpy.savez(path, X=X, y=y)"
_LARGEST_WORD = 1 << 10  # bytes of what says kind and shape
_LARGEST_READ = 4 << 20  # bytes at a time
_PIECE_ROWS = 1 << 17  # row starts that are read at once
_BATCH_VALUES = BATCH_BYTES // 16  # a value and its index as float64 and int64


def open_npz(path: FilePath, options: SourceOptions) -> RowSource:
    """The rows of one .npz file. Raises DataError: another kind of file, damaged, or too large for the memory."""
    refuse_options(options, f"{path}, a NumPy archive", knows=())
    with Archive(path) as archive:
        if "format" not in archive.names and "X" in archive.names:
            return DenseFile(path, archive, options)
        kind, shape = _kind_and_shape(archive)
        check_matrix(shape, archive.array("data").header.dtype, str(path))
        return CsrFile(path, archive, shape) if kind == "csr" else _load_matrix(path, archive, kind, options)


def holds_labels(path: FilePath) -> bool:
    """Whether a .npz file holds labels and rows. Raises DataError: it is damaged, or holds no rows."""
    with Archive(path) as archive:
        if "X" not in archive.names:
            archive.array("format")
        return "format" not in archive.names and "y" in archive.names


class MemberArray:
    """One array of an archive, read in order."""

    def __init__(self, stream: IO[bytes], place: str, nbytes: int) -> None:
        """Raises DataError: its bytes are not as many as its header promises, which is known before they are read."""
        self._stream, self._place = stream, place
        with _name_damage(place):
            self.header: NpyHeader = read_header(stream, place, nbytes)
        self.left = self.header.values  #: values that have not been read

    def take(self, count: int) -> np.ndarray:
        """The next ``count`` values (count,) in the order in which they lie; DataError when they are not there."""
        values = np.empty(count, self.header.dtype)
        view = values.view(np.uint8).data if values.nbytes else memoryview(b"")
        done = 0
        with _name_damage(self._place):
            while done < len(view):
                part = self._stream.read(min(len(view) - done, _LARGEST_READ))
                if not part:
                    raise EOFError(f"it ends after {done:,} of {len(view):,} more bytes")
                view[done : done + len(part)] = part
                done += len(part)
            self.left -= count
            if not self.left:
                self._stream.read(1)  # zipfile checks the checksum at the end
        return values

    def whole(self) -> np.ndarray:
        """All values in their shape, before any is read by ``take``."""
        order = "F" if self.header.fortran else "C"
        return self.take(self.left).reshape(self.header.shape, order=order)  # type: ignore[call-overload, no-any-return]


class Archive:
    """The arrays of a .npz file by name, without their ending; close it, or use it in a ``with``."""

    def __init__(self, path: FilePath) -> None:
        self.name = f"{path} ({file_bytes(path):,} bytes)"
        self._open = ExitStack()
        try:
            with _name_damage(self.name):
                file = self._open.enter_context(path.open("rb"))
                if file.read(4) not in (b"PK\3\4", b"PK\5\6"):  # zipfile takes an archive behind anything else, too
                    raise BadZipFile("it does not begin as an archive does")
                self._zip = self._open.enter_context(ZipFile(file))
                members = self._zip.infolist()
            self._members = {member.filename.removesuffix(".npy"): member for member in members}
            if len(self._members) < len(members):
                raise DataError(f"{self.name}: some member is there twice, expected each once; {_ADVICE}")
        except BaseException:
            self._open.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    @property
    def names(self) -> list[str]:
        """The names of all members."""
        return list(self._members)

    def array(self, name: str) -> MemberArray:
        """An array from its beginning; several may be read at the same time. DataError when there is none."""
        if name not in self._members:
            found = ", ".join(repr(member[:40]) for member in self.names[:8]) or "none"
            raise DataError(f"{self.name}: found the members {found}, expected {name!r} among them: {_MATRIX}")
        member, place = self._members[name], f"{self.name}, member {name!r}"
        if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):  # zipfile unpacks others far ahead of what is read
            raise DataError(
                f"{place}: is compressed by method {member.compress_type}, expected deflate or none; save it again "
                "with scipy.sparse.save_npz or numpy.savez"
            )
        with _name_damage(place):
            stream = self._open.enter_context(self._zip.open(member))
        return MemberArray(stream, place, member.file_size)


@contextmanager
def _name_damage(place: str) -> Iterator[None]:
    """What zipfile and zlib raise about damaged and encrypted archives becomes DataError with the place."""
    try:
        yield
    except (
        BadZipFile,
        NotImplementedError,
        RuntimeError,
        EOFError,
        OSError,
        OverflowError,
        ValueError,
        zlib.error,
    ) as error:
        if isinstance(error, DataError | UsageError):
            raise
        raise DataError(f"{place}: not a whole .npz file: {error}; {_ADVICE}") from error


class DenseFile(RowSource):
    """Rows X (n, d) and, where they are there, labels y (n,), both read in pieces."""

    def __init__(self, path: FilePath, archive: Archive, options: SourceOptions) -> None:
        """Raises DataError for other members, whose meaning is unknown, and for another number of labels."""
        other = [name for name in archive.names if name not in ("X", "y")]
        if other:
            raise DataError(
                f"{archive.name}: found the member {other[0][:40]!r} in addition to X, expected y alone: {_MATRIX}"
            )
        header = archive.array("X").header
        self.name, self.path, self._header = str(path), path, header
        check_matrix(header.shape, header.dtype, str(path))
        self.rows = header.shape[0]
        self.features = header.shape[1]
        self.total_bytes, self.row_type = header.nbytes, common_row_type([header.dtype.name])
        labelled = "y" in archive.names and not options.unlabelled and not options.label_optional
        self.label_from = "member 'y'" if labelled else None
        if labelled:
            found = archive.array("y").header
            if found.shape not in ((self.rows,), (self.rows, 1)):
                raise DataError(
                    f"{archive.name}, member 'y': found {found}, expected one label for each of {self.rows:,} rows"
                )
        if header.fortran and header.shape[1] > 1:
            what = f"{archive.name}, member 'X': {header} in columns, which cannot be read in pieces"
            refuse_beyond_memory(header.nbytes, what, "save it again, as numpy.ascontiguousarray(X)")

    def batches(self, coder: LabelCoder) -> Iterator[Batch]:
        """Batches of rows with their labels."""
        with Archive(self.path) as archive:
            X = archive.array("X")
            y = archive.array("y") if self.label_from else None
            if X.header != self._header:
                raise DataError(f"{archive.name}: the file changed while it was read; ingest it again")
            rows, features = X.header.shape
            whole, step = X.whole() if X.header.fortran else None, batch_rows(features)
            for start in range(0, rows, step):
                count = min(step, rows - start)
                part = X.take(count * features).reshape(count, features) if whole is None else whole[start:][:count]
                batch = row_batch(part, self.name, start, (start + count) * features * part.itemsize)
                codes = None if y is None else coder.encode_values(y.take(count), batch.place)
                yield replace(batch, codes=codes)


def _kind_and_shape(archive: Archive) -> tuple[str, tuple[int, ...]]:
    """Which kind of sparse matrix an archive holds, and its shape."""
    word, sizes = _read_small(archive, "format"), _read_small(archive, "shape")
    kind = word.tobytes().replace(b"\0", b"").decode("ascii", errors="replace")  # of both kinds of text
    if word.size != 1 or word.dtype.kind not in "SU" or kind not in _PARTS:
        found = repr(kind[:40]) if word.dtype.kind in "SU" else f"{word.dtype} of shape {word.shape}"
        raise DataError(
            f"{archive.name}, member 'format': found {found}, expected one of {', '.join(_PARTS)}; {_ADVICE}"
        )
    if sizes.dtype.kind not in "iu" or sizes.ndim != 1 or (sizes < 0).any():
        raise DataError(
            f"{archive.name}, member 'shape': found {str(sizes.tolist())[:80]}, expected rows and features; {_ADVICE}"
        )
    return kind, tuple(int(size) for size in sizes)


def _read_small(archive: Archive, name: str) -> np.ndarray:
    array = archive.array(name)
    if array.header.nbytes > _LARGEST_WORD:
        raise DataError(
            f"{archive.name}, member {name!r}: found {array.header}, expected no more than a few; {_ADVICE}"
        )
    return array.whole()


def _check_parts(archive: Archive, kind: str) -> dict[str, MemberArray]:
    """The arrays of a matrix, values first, from which nothing was read yet. Raises DataError for other axes, types."""
    names, axes = _PARTS[kind]
    arrays = {name: archive.array(name) for name in ("data", *names)}
    for name, array in arrays.items():
        wanted = axes if name == "data" else 1
        if len(array.header.shape) != wanted or (name != "data" and array.header.dtype.kind not in "iu"):
            what = "numbers" if name == "data" else "whole numbers"
            raise DataError(
                f"{archive.name}, member {name!r}: found {array.header}, expected {what} along {wanted} "
                f"{'axis' if wanted == 1 else 'axes'}; {_ADVICE}"
            )
    return arrays


class CsrFile(RowSource):
    """Rows of a CSR matrix in a file, read in pieces."""

    sparse = True

    def __init__(self, path: FilePath, archive: Archive, shape: tuple[int, ...]) -> None:
        self.name, self.path = str(path), path
        self._count, self.features = shape
        self.rows = self._count
        self.total_bytes = self._arrays(archive)["data"].header.nbytes

    def batches(self, coder: LabelCoder) -> Iterator[Batch]:
        """Batches of about half a million values, or of one row."""
        with Archive(self.path) as archive:
            if _kind_and_shape(archive) != ("csr", (self._count, self.features)):
                raise DataError(f"{archive.name}: the file changed while it was read; ingest it again")
            arrays = self._arrays(archive)
            data, indices = arrays["data"], arrays["indices"]
            whole, dtype = data.left, _native_dtype(data.header.dtype)
            for first, starts in self._runs(arrays["indptr"], whole):
                count = int(starts[-1])
                values = data.take(count).astype(dtype, copy=False)
                found = csr_rows(values, indices.take(count).astype(np.int64), starts, self.features)
                check_structure(found, self.name, first)
                rows = csr_rows(values, found.indices.astype(np.int32), starts.astype(np.int32), self.features)
                rows.has_sorted_indices = rows.has_canonical_format = False  # not known yet
                refuse_repeated_indices(rows, self.name, first)
                done = (whole - data.left) * data.header.dtype.itemsize
                yield row_batch(rows, self.name, first, done)

    def _arrays(self, archive: Archive) -> dict[str, MemberArray]:
        """The arrays, from which nothing was read yet. Raises DataError where their lengths do not fit each other."""
        arrays = _check_parts(archive, "csr")
        values = arrays["data"].left
        for name, expected in (("indices", values), ("indptr", self._count + 1)):
            if arrays[name].left != expected:
                raise DataError(
                    f"{archive.name}, member {name!r}: found {arrays[name].left:,} numbers, expected {expected:,} for "
                    f"{values:,} values in {self._count:,} rows; {_ADVICE}"
                )
        return arrays

    def _runs(self, indptr: MemberArray, values: int) -> Iterator[tuple[int, np.ndarray]]:
        """First row and row starts, from 0 on, of one run of rows after the other; ``values``: where the last ends."""
        end = int(indptr.take(1).astype(np.int64)[0])
        if end != 0:
            raise DataError(f"{self.name}: row 0: starts at value {end}, expected 0; {_ADVICE}")
        for row in range(0, self._count, _PIECE_ROWS):
            ends = indptr.take(min(_PIECE_ROWS, self._count - row)).astype(np.int64)
            starts = np.concatenate([[end], ends])
            counts = np.diff(starts)
            bad = (counts < 0) | (ends < 0) | (ends > values) | (counts > self.features)
            if bad.any():
                self._refuse(row + int(np.argmax(bad)), starts[int(np.argmax(bad)) :][:2].tolist(), values)
            low = 0
            while low < len(ends):
                high = max(low + 1, int(np.searchsorted(starts, starts[low] + _BATCH_VALUES, side="right")) - 1)
                high = min(high, len(ends))
                yield row + low, starts[low : high + 1] - starts[low]
                low = high
            end = int(starts[-1])
        if end != values:
            raise DataError(f"{self.name}: the rows end at value {end:,}, expected {values:,}; {_ADVICE}")

    def _refuse(self, row: int, bounds: list[int], values: int) -> None:
        start, stop = bounds
        if 0 <= start <= stop <= values:
            raise BadRow(
                f"{self.name}, row {row}: holds {stop - start:,} values of {self.features:,} features: an index occurs "
                "twice, expected once; correct the matrix"
            )
        raise BadRow(
            f"{self.name}, row {row}: found values {start} to {stop}, expected a run within 0 to {values}; {_ADVICE}"
        )


def _native_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The type to compute in: SciPy knows neither float16 nor other byte orders."""
    return np.dtype(np.float64) if dtype.kind == "f" and dtype.itemsize not in (4, 8) else dtype.newbyteorder("=")


def _load_matrix(path: FilePath, archive: Archive, kind: str, options: SourceOptions) -> RowSource:
    """The matrix, when there is memory for it, for CSR made of it and for a sorted copy."""
    from scipy.sparse import load_npz

    arrays = _check_parts(archive, kind)
    stored, rows = sum(array.header.nbytes for array in arrays.values()), _kind_and_shape(archive)[1][0]
    csr = arrays["data"].left * (arrays["data"].header.dtype.itemsize + 8) + (rows + 1) * 8
    refuse_beyond_memory(
        stored + 3 * csr,
        f"{archive.name}: a {kind} matrix with {format_size(stored)}",
        "save it as CSR (matrix.tocsr()), which is read in pieces",
    )
    with _name_damage(archive.name):
        try:
            with path.open("rb") as file:
                matrix: Any = load_npz(file)
        except (ValueError, TypeError, KeyError, IndexError, ZeroDivisionError) as error:
            raise ValueError(f"its arrays do not make a matrix: {error}") from error
    matrix.data = matrix.data.astype(_native_dtype(matrix.data.dtype), copy=False)
    found = ArrayRows(matrix, options, name=str(path))
    found.refuse_repeated(matrix.nnz if kind == "coo" else 0)
    return found
