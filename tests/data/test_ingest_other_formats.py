"""Files of formats that are not read: named for what they are, with what to do, whatever their names say."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sqlite3
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest
import scipy.io

from coremargin.data.ingest import ingest
from coremargin.errors import DataError

Refused = Callable[..., str]
TEXT = b"a,b,label\n1,2,x\n3,4,y\n"
TABLE = pa.table({"a": [1.0, 2.0], "label": ["x", "y"]})


def packed(codec: str) -> bytes:
    """The text as this codec of Arrow's packs it, in a frame as its command line tool writes it."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(TEXT)
    return sink.getvalue().to_pybytes()


def written(write: Callable[[Path], object], suffix: str, folder: Path) -> bytes:
    """The bytes of a file that this writes."""
    path = folder / f"aside{suffix}"
    write(path)
    data = path.read_bytes()
    path.unlink()
    return data


def arrow(stream: bool) -> bytes:
    """Arrow's IPC, as a file or a stream."""
    sink = pa.BufferOutputStream()
    with (pa.ipc.new_stream if stream else pa.ipc.new_file)(sink, TABLE.schema) as out:
        out.write_table(TABLE)
    return sink.getvalue().to_pybytes()


def archive(names: dict[str, bytes]) -> bytes:
    """A zip archive."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as out:
        for name, data in names.items():
            out.writestr(name, data)
    return file.getvalue()


def tar() -> bytes:
    """A tar archive of the text."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as out:
        entry = tarfile.TarInfo("rows.csv")
        entry.size = len(TEXT)
        out.addfile(entry, io.BytesIO(TEXT))
    return file.getvalue()


def database(path: Path) -> None:
    """A table of SQLite's."""
    with sqlite3.connect(path) as base:
        base.execute("create table rows (a real)")


def orc(path: Path) -> None:
    """A file of ORC."""
    pyarrow.orc.write_table(TABLE, path)


PICKLE = b"\x80\x04\x95\x0c\x00\x00\x00\x00\x00\x00\x00]\x94(K\x01K\x02e."
HDF5 = b"\x89HDF\r\n\x1a\n" + bytes(90)
KINDS: dict[str, tuple[Callable[[Path], bytes], str, str]] = {
    "rows.csv.zst": (lambda _: packed("zstd"), "packed with Zstandard", "unpack it first"),
    "rows.csv": (lambda _: packed("zstd"), "packed with Zstandard", "unpack it first"),
    "rows.csv.lz4": (lambda _: packed("lz4"), "packed with LZ4", "unpack it first"),
    "rows.zip": (lambda _: archive({"rows.csv": TEXT}), "a zip archive", "unpack it first"),
    "rows.h5ad": (lambda _: HDF5, "AnnData (HDF5)", "read it with anndata"),
    "rows.h5": (lambda _: HDF5, "HDF5", "read it with h5py or pandas"),
    "block.h5": (lambda _: b"any words" + b"\0" * 503 + HDF5, "HDF5", "read it with h5py or pandas"),
    "rows.mat": (
        lambda folder: written(lambda path: scipy.io.savemat(path, {"X": np.eye(2)}), ".mat", folder),
        "a MATLAB file", "read it with SciPy",
    ),
    "rows.feather": (lambda _: arrow(stream=False), "Arrow IPC (Feather)", "read it with pyarrow"),
    "rows.arrows": (lambda _: arrow(stream=True), "an Arrow IPC stream", "read it with pyarrow"),
    "rows.orc": (lambda folder: written(orc, ".orc", folder), "ORC", "read it with pyarrow"),
    "rows.xlsx": (lambda _: archive({"xl/workbook.xml": b""}), "an Excel workbook", "read it with pandas"),
    "rows.xls": (lambda _: b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(90), "an Excel workbook (.xls)", "pandas"),
    "rows.pkl": (lambda _: PICKLE, "a pickle", "reading it could run any code"),
    "rows.pt": (lambda _: archive({"rows/data.pkl": b""}), "a pickle that PyTorch has saved", "could run any code"),
    "rows.db": (lambda folder: written(database, ".db", folder), "a SQLite database", "read it with pandas"),
    "rows.tar": (lambda _: tar(), "a tar archive", "unpack it first"),
    "rows.tar.gz": (lambda _: gzip.compress(tar()), "a tar archive, packed with gzip", "unpack it first"),
    "rows.tar.bz2": (lambda _: bz2.compress(tar()), "a tar archive, packed with bzip2", "unpack it first"),
    "rows.pkl.xz": (lambda _: lzma.compress(PICKLE), "a pickle, packed with xz", "could run any code"),
    "rows.parquet.gz": (
        lambda folder: gzip.compress(written(lambda path: pq.write_table(TABLE, path), ".parquet", folder)),
        "packed with gzip, expected parquet, by its name", "unpack it first",
    ),
    "rows.parquet": (lambda _: arrow(stream=False), "Arrow IPC (Feather), expected parquet, by its name", "pyarrow"),
    "table.csv": (
        lambda folder: written(lambda path: pq.write_table(TABLE, path), ".parquet", folder),
        "Parquet, expected csv, by its name", "rename it",
    ),
    "X.npy": (lambda _: archive({"X.npy": b""}), "a NumPy archive, expected npy, by its name", "rename it"),
}  # fmt: skip


@pytest.mark.parametrize("name", KINDS)
def test_other_formats_are_named(refused: Refused, tmp_path: Path, name: str) -> None:
    """Files of other libraries are called what they are, as rows and as labels, whatever the format was said to be."""
    make, what, advice = KINDS[name]
    (tmp_path / name).write_bytes(make(tmp_path))
    text = refused(tmp_path / name, DataError)
    assert text.startswith(f"{name}: is {what}")
    assert advice in text
    if "by its name" not in what:
        assert f"{name}: is {what}" in refused(tmp_path / name, DataError, format="csv")
        assert f"{name}: is {what}, expected a NumPy file, or a text" in refused(
            np.eye(2), DataError, labels=tmp_path / name
        )


def test_texts_that_begin_like_other_formats_are_read(tmp_path: Path) -> None:
    """Names of columns may begin with the letters by which other formats are known."""
    for number, word in enumerate(("ORC", "RDX", "LZIP", "PARE", "ARROW1", "FEA1", "CDF", "PK", "BZ")):
        (tmp_path / f"{number}.csv").write_text(f"{word},ü,label\n1,2,x\n3,4,y\n")
        assert ingest(tmp_path / f"{number}.csv", tmp_path / f"{number}.zarr").features == 2


def test_formats_that_are_read_need_no_name(tmp_path: Path) -> None:
    """Parquet, archives of NumPy and packed texts are known by their content."""
    pq.write_table(TABLE, tmp_path / "a")
    np.savez(tmp_path / "b.npz", X=np.eye(2), y=[0, 1])
    (tmp_path / "b.npz").rename(tmp_path / "b")
    (tmp_path / "c").write_bytes(gzip.compress(TEXT))
    pd.DataFrame({"a": [1.0, 2.0], "label": [0, 1]}).to_parquet(tmp_path / "d", compression="zstd")
    for name in "abcd":
        assert ingest(tmp_path / name, tmp_path / f"{name}.zarr").rows == 2
