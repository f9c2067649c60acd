"""What a file is by its content: formats that are read, and others by name, so that a message can say what to do."""

from __future__ import annotations

import bz2
import lzma
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from zipfile import BadZipFile, ZipFile

from coremargin.data.sources.paths import FilePath, file_bytes
from coremargin.errors import DataError, UsageError

_ARROW = "read it with pyarrow and give the table to coremargin.ingest, or write Parquet"
_PANDAS = "read it with pandas and give the frame to coremargin.ingest, or write CSV or Parquet"
_UNPACK = "unpack it first; text may be packed with gzip, bzip2 or xz"
_PICKLE = "reading it could run any code: save the rows as .npy, .npz, CSV or Parquet"
_ANNDATA = "read it with anndata and give adata.X, and the labels, to coremargin.ingest"

#: (offset, bytes there), what such a file is, and what to do.
_MAGIC: tuple[tuple[int, bytes, str, str], ...] = (
    (0, b"\x28\xb5\x2f\xfd", "packed with Zstandard", _UNPACK),
    (0, b"\x04\x22\x4d\x18", "packed with LZ4", _UNPACK),
    (0, b"\x02\x21\x4c\x18", "packed with LZ4", _UNPACK),
    (0, b"\xff\x06\x00\x00sNaPpY", "packed with Snappy", _UNPACK),
    (0, b"LZIP", "packed with lzip", _UNPACK),
    (0, b"\x89LZO\x00\r\n\x1a\n", "packed with lzop", _UNPACK),
    (0, b"\x1f\x9d", "packed with compress (.Z)", _UNPACK),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", _UNPACK),
    (0, b"Rar!\x1a\x07", "a RAR archive", _UNPACK),
    (257, b"ustar", "a tar archive", _UNPACK),
    (0, b"\x89HDF\r\n\x1a\n", "HDF5", "read it with h5py or pandas and give the array or frame to coremargin.ingest"),
    (0, b"MATLAB 7.3 MAT-file", "a MATLAB file (HDF5)", "read it with h5py and give the array to coremargin.ingest"),
    (512, b"\x89HDF\r\n\x1a\n", "HDF5", "read it with h5py or pandas and give the array or frame to coremargin.ingest"),
    (0, b"CDF\x01", "NetCDF", "read it with xarray and give the array to coremargin.ingest"),
    (0, b"CDF\x02", "NetCDF", "read it with xarray and give the array to coremargin.ingest"),
    (
        0,
        b"MATLAB 5.0 MAT-file",
        "a MATLAB file",
        "read it with SciPy and give the array to coremargin.ingest",
    ),
    (0, b"ARROW1", "Arrow IPC (Feather)", _ARROW),
    (0, b"FEA1", "Feather", _ARROW),
    (0, b"\xff\xff\xff\xff", "an Arrow IPC stream", _ARROW),
    (0, b"ORC", "ORC", _ARROW),
    (0, b"PARE", "encrypted Parquet", _ARROW),
    (0, b"Obj\x01", "Avro", _PANDAS),
    (0, b"SQLite format 3\x00", "a SQLite database", _PANDAS),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Excel workbook (.xls)", _PANDAS),
    (0, b"<stata_dta>", "a Stata file", _PANDAS),
    (0, b"$FL2", "an SPSS file", _PANDAS),
    (0, b"RDX", "an R file", "write CSV or Parquet"),
    (0, b"%PDF", "PDF", "write CSV or Parquet"),
    (0, b"\x89PNG\r\n\x1a\n", "a PNG image", "give the pixels as an array"),
    (0, b"\xff\xd8\xff", "a JPEG image", "give the pixels as an array"),
)
_PACKED = ((b"\x1f\x8b", "gzip"), (b"BZh", "bzip2"), (b"\xfd7zXZ\x00", "xz"))
_READ = ((b"\x93NUMPY", "npy", "a NumPy file"), (b"PAR1", "parquet", "Parquet"))
_NO_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_LOOKED_AT = 4096
_PACKED_BYTES = 1 << 20  # of a packed file, of which bzip2 needs up to 900 kB for the first byte
_XZ_MEMORY = 512 << 20


class FileContent(NamedTuple):
    """What a file is. kind: a format that is read, "packed" where a text may be inside; None: neither."""

    kind: str | None
    what: str
    advice: str


def detect_content(path: FilePath) -> FileContent | None:
    """What a file shows itself to be; None: text, or nothing known. Raises as ``file_bytes`` does."""
    file_bytes(path)
    with path.open("rb") as file:
        head = file.read(_LOOKED_AT)
        packed = next((what for magic, what in _PACKED if head.startswith(magic)), None)
        if packed is not None:
            inside = _foreign(_unpacked(packed, head + file.read(_PACKED_BYTES)))
            if inside is not None:
                return FileContent(None, f"{inside.what}, packed with {packed}", inside.advice)
            return FileContent("packed", f"packed with {packed}", _UNPACK)
    for magic, kind, what in _READ:
        if head.startswith(magic):
            return FileContent(kind, what, "rename it")
    if head.startswith((b"PK\3\4", b"PK\5\6")):
        return _zip(path)
    found = _foreign(head)
    return FileContent(None, "AnnData (HDF5)", _ANNDATA) if found and path.suffix.lower() == ".h5ad" else found


def _foreign(head: bytes) -> FileContent | None:
    """A format that is not read, by the first bytes of a file; texts may begin with the letters of some."""
    if re.match(rb"\x80[\x02-\x05]", head):
        return FileContent(None, "a pickle", _PICKLE)
    found = next((one for one in _MAGIC if head[one[0] :].startswith(one[1])), None)
    return (
        FileContent(None, *found[2:]) if found is not None and (_NO_TEXT.search(head) or not _is_utf8(head)) else None
    )


def _unpacked(how: str, data: bytes) -> bytes:
    """The first bytes of what was packed; none where that is damaged, which its reader says."""
    try:
        if how == "gzip":
            return zlib.decompressobj(31).decompress(data, _LOOKED_AT)
        if how == "bzip2":
            return bz2.BZ2Decompressor().decompress(data, _LOOKED_AT)
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY).decompress(data, _LOOKED_AT)
    except (OSError, EOFError, zlib.error, lzma.LZMAError):
        return b""


def refuse_foreign(path: FilePath, content: FileContent | None, expected: str) -> None:
    """Raise DataError for a file that is of another format than expected."""
    if content is not None:
        raise DataError(f"{path}: is {content.what}, expected {expected}; {content.advice}")


def _zip(path: FilePath) -> FileContent:
    try:
        with path.open("rb") as file, ZipFile(file) as archive:
            names = archive.namelist()
    except (BadZipFile, NotImplementedError, OSError, ValueError, OverflowError):
        names = []
    if names and all(name.endswith(".npy") for name in names):
        return FileContent("npz", "a NumPy archive", "rename it")
    if any(name.startswith("xl/") for name in names):
        return FileContent(None, "an Excel workbook", _PANDAS)
    if "content.xml" in names:
        return FileContent(None, "an OpenDocument file", _PANDAS)
    if any(name.endswith("data.pkl") for name in names):
        return FileContent(None, "a pickle that PyTorch has saved", _PICKLE)
    return FileContent(None, "a zip archive", _UNPACK)


def _is_utf8(head: bytes) -> bool:
    try:
        head[:-4].decode()
    except UnicodeDecodeError:
        return False
    return True


FORMATS = ("npy", "npz", "csv", "parquet", "svmlight", "conll")


_SUFFIXES = {
    ".npy": "npy",
    ".npz": "npz",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".svm": "svmlight",
    ".svmlight": "svmlight",
    ".libsvm": "svmlight",
    ".conll": "conll",
}


_COMPRESSED = (".gz", ".bz2", ".xz")


_SVMLIGHT_LINE = re.compile(r"\s*[^\s:]+(\s+(qid:\d+|\d+:\S+))*\s*(#.*)?")


def kind_from_name(path: FilePath) -> str | None:
    """The format that a file's name stands for, if any."""
    suffix = path.suffix.lower()
    if suffix in _COMPRESSED:
        suffix = Path(path.stem).suffix.lower()
    return _SUFFIXES.get(suffix)


def kind_from_content(path: FilePath, lines: Sequence[str]) -> str:
    """The text format of a file whose name does not tell: SVMlight when its lines look like "1 3:0.5 7:1"."""
    body = [line for line in lines if not line.lstrip().startswith("#")]
    if body and any(":" in line for line in body) and all(_SVMLIGHT_LINE.fullmatch(line) for line in body):
        return "svmlight"
    if body and len(re.split(r"[,;|\t ]", body[0])) > 1:
        return "csv"
    known = ", ".join(FORMATS)
    raise UsageError(f"{path}: cannot tell the format from name or content: say --format with one of {known}")
