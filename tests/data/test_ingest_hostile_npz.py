"""NPZ files that are broken, lie, or hold gigabytes in kilobytes: refused by member or row, or read in pieces."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from coremargin.data.arrays import ArraySource
from coremargin.data.ingest import ingest
from coremargin.data.sources import memory
from coremargin.data.store import Store
from coremargin.errors import BadRow, DataError, LabelError, UsageError

Refused = Callable[..., str]


def matrix(rng: np.random.Generator) -> sp.csr_matrix:
    """30 rows of 8 features."""
    return sp.csr_matrix(rng.normal(size=(30, 8)) * (rng.random((30, 8)) < 0.4))


def members(found: Any, **changed: Any) -> dict[str, bytes]:
    """The members of an archive of this matrix, some of them other arrays or bytes, or not there (None)."""
    file = io.BytesIO()
    sp.save_npz(file, found)
    with zipfile.ZipFile(file) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    for name, value in changed.items():
        saved = io.BytesIO()
        if isinstance(value, bytes):
            saved.write(value)
        elif value is not None:
            np.save(saved, value)
        parts[f"{name}.npy"] = saved.getvalue()
    return {name: content for name, content in parts.items() if changed.get(name[:-4], b"") is not None}


def npz(path: Path, parts: dict[str, bytes], how: int = zipfile.ZIP_DEFLATED) -> Path:
    """An archive of these members."""
    with zipfile.ZipFile(path, "w", how) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
    return path


ARRAYS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no axis": (
        {"data": np.array(5.0)},
        DataError,
        "member 'data': found float64 of shape (), expected numbers along 1 axis",
    ),
    "two axes": (
        {"indices": np.zeros((2, 3), int)},
        DataError,
        "member 'indices': found int64 of shape (2, 3), expected whole",
    ),
    "floats for indices": (
        {"indices": np.zeros(9)},
        DataError,
        "member 'indices': found float64 of shape (9,), expected whole",
    ),
    "texts for row starts": (
        {"indptr": np.full(31, "0")},
        DataError,
        "member 'indptr': found <U1 of shape (31,), expected",
    ),
    "another length": ({"indptr": np.zeros(30, int)}, DataError, "member 'indptr': found 30 numbers, expected 31 for "),
    "falling row starts": (
        {"indptr": np.r_[0, 5, 3, [5] * 28]},
        BadRow,
        "X.npz, row 1: found values 5 to 3, expected a run",
    ),
    "row starts beyond": (
        {"indptr": np.r_[0, [2**40] * 30]},
        BadRow,
        f"X.npz, row 0: found values 0 to {2**40}, expected a run",
    ),
    "a first row later": ({"indptr": np.r_[3, [5] * 30]}, DataError, "X.npz: row 0: starts at value 3, expected 0"),
    "an early end": ({"indptr": np.zeros(31, int)}, DataError, "X.npz: the rows end at value 0, expected "),
    "a row too full": (
        {"indptr": np.r_[0, [9] * 30]},
        BadRow,
        "X.npz, row 0: holds 9 values of 8 features: an index occurs",
    ),
    "a shape of texts": (
        {"shape": np.array(["30", "8"])},
        DataError,
        "member 'shape': found ['30', '8'], expected rows and",
    ),
    "a negative shape": (
        {"shape": np.array([-30, 8])},
        DataError,
        "member 'shape': found [-30, 8], expected rows and features",
    ),
    "one axis": ({"shape": np.array([30])}, UsageError, "X.npz: shape (30,): expected two dimensions"),
    "many rows": ({"shape": np.array([2**62, 8])}, DataError, f"'indptr': found 31 numbers, expected {2**62 + 1:,}"),
    "many features": (
        {"shape": np.array([30, 2**62])},
        DataError,
        f"X.npz: found {2**62:,} features, expected at most 67,108,864",
    ),
    "a long shape": (
        {"shape": np.zeros(999, int)},
        DataError,
        "member 'shape': found int64 of shape (999,), expected no more",
    ),
    "an unknown kind": (
        {"format": np.array("lil")},
        DataError,
        "member 'format': found 'lil', expected one of csr, csc, bsr",
    ),
    "a kind of no letters": (
        {"format": np.array([0x110000], dtype="<u4").view("<U1")},
        DataError,
        "member 'format': found '\\x11', expected one of csr",
    ),
    "a number as kind": (
        {"format": np.array(3)},
        DataError,
        "member 'format': found int64 of shape (), expected one of csr",
    ),
    "a member less": (
        {"indices": None},
        DataError,
        "found the members 'indptr', 'format', 'shape', 'data', expected 'indices'",
    ),
    "an empty member": ({"data": b""}, DataError, "member 'data': not a whole .npy file: EOF: reading magic"),
    "texts": ({"data": np.array(["a"])}, UsageError, "X.npz: dtype <U1: expected real numbers"),
}


@pytest.mark.parametrize(("changed", "kind", "message"), ARRAYS.values(), ids=ARRAYS)
def test_odd_arrays_in_npz_are_named(
    refused: Refused,
    rng: np.random.Generator,
    tmp_path: Path,
    changed: dict[str, Any],
    kind: type[Exception],
    message: str,
) -> None:
    """Arrays of other shapes, types and lengths, and indices that lead nowhere, are refused by member or row."""
    assert message in refused(npz(tmp_path / "X.npz", members(matrix(rng), **changed)), kind, unlabelled=True)


@pytest.mark.parametrize("kind", ["csc", "coo", "dia", "bsr"])
def test_odd_arrays_of_other_kinds_are_named(
    refused: Refused, rng: np.random.Generator, tmp_path: Path, kind: str
) -> None:
    """Arrays that make no matrix of their kind end with what SciPy says of them, and with the name."""
    name = {"csc": "indices", "coo": "row", "dia": "offsets", "bsr": "indptr"}[kind]
    parts = members(matrix(rng).asformat(kind), **{name: np.array([7, 2**40])})
    assert "its arrays do not make a matrix: " in refused(npz(tmp_path / "X.npz", parts), DataError, unlabelled=True)


def test_archives_of_another_kind_are_named(
    refused: Refused, rng: np.random.Generator, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """LZMA, bzip2, encryption, a name twice, 300 characters of name and bytes before the archive are told apart."""
    parts = members(matrix(rng))
    for how, said in ((zipfile.ZIP_LZMA, "14"), (zipfile.ZIP_BZIP2, "12")):
        message = refused(npz(tmp_path / "X.npz", parts, how), DataError, unlabelled=True)
        assert (
            f"member 'format': is compressed by method {said}, expected deflate or none; save it again with" in message
        )
    data = bytearray(npz(tmp_path / "X.npz", parts).read_bytes())
    for at in range(len(data)):
        if data[at : at + 4] == b"PK\1\2":
            data[at + 8] |= 1  # the flag in the table of contents
    (tmp_path / "X.npz").write_bytes(data)
    assert "is encrypted, password required" in refused(tmp_path / "X.npz", DataError, unlabelled=True)
    data[3] = 0
    (tmp_path / "X.npz").write_bytes(data)
    assert "does not begin as an archive does" in refused(tmp_path / "X.npz", DataError, unlabelled=True)
    odd = {f"{name[0] * 300}.npy": content for name, content in parts.items()}
    assert "found the members 'iiiiiiii" in refused(npz(tmp_path / "X.npz", odd), DataError, unlabelled=True)
    with zipfile.ZipFile(tmp_path / "X.npz", "w") as archive:
        for name in [*parts, "data.npy"]:
            archive.writestr(name, parts[name])
    assert "some member is there twice, expected each once" in refused(tmp_path / "X.npz", DataError, unlabelled=True)
    assert len(recwarn) == 1  # zipfile's, about that name


def test_a_damaged_value_is_found_by_its_checksum(refused: Refused, rng: np.random.Generator, tmp_path: Path) -> None:
    """One other bit in a stored value, which is as good a number, is damage; deflate that is corrupt is, too."""
    parts = members(matrix(rng))
    for how in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        data = bytearray(npz(tmp_path / "X.npz", parts, how).read_bytes())
        with zipfile.ZipFile(tmp_path / "X.npz") as archive:
            entry = archive.getinfo("data.npy")
        data[entry.header_offset + 30 + 8 + entry.compress_size // 2] ^= 4
        (tmp_path / "X.npz").write_bytes(data)
        message = refused(tmp_path / "X.npz", DataError, unlabelled=True)
        assert "member 'data': not a whole .np" in message


def zeros_archive(path: Path, name: str, header: str, size: int, parts: dict[str, bytes]) -> Path:
    """An archive one member of which is a header and ``size`` zeros, a multiple of 16 MiB, as quickly as can be."""
    start = b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header.encode()
    pack = zlib.compressobj(1, zlib.DEFLATED, -15)
    head = pack.compress(start) + pack.flush(zlib.Z_FULL_FLUSH)
    block = pack.compress(bytes(1 << 24)) + pack.flush(zlib.Z_FULL_FLUSH)
    body, crc = head + block * (size >> 24) + pack.flush(), zlib.crc32(start)
    for _ in range(size >> 24):
        crc = zlib.crc32(bytes(1 << 24), crc)
    npz(path, parts)
    with zipfile.ZipFile(path, "a") as archive:
        entry = zipfile.ZipInfo(f"{name}.npy")
        entry.compress_type, entry.CRC, entry.compress_size, entry.file_size = 8, crc, len(body), len(start) + size
        entry.header_offset = archive.start_dir
        assert archive.fp is not None
        archive.fp.seek(archive.start_dir)
        local = struct.pack("<4s5H3I2H", b"PK\3\4", 45, 0, 8, 0, 33, crc, 2**32 - 1, 2**32 - 1, len(name) + 4, 20)
        extra = struct.pack("<2H2Q", 1, 16, entry.file_size, len(body))
        archive.fp.write(local + f"{name}.npy".encode() + extra + body)
        archive.start_dir = archive.fp.tell()
        archive.filelist.append(entry)
        archive.NameToInfo[entry.filename] = entry
        archive._didModify = True
    return path


def test_an_archive_larger_than_memory_says_so(
    refused: Refused, rng: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be read in pieces is refused with the sizes that it takes and that are there, before it is read."""
    size = 1 << 28
    parts = members(matrix(rng).tocoo(), data=None)
    count = size // 8
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({count},), }}\n"
    parts |= {key: content for key, content in members(matrix(rng).tocoo()).items() if key in ("row.npy", "col.npy")}
    path = zeros_archive(tmp_path / "X.npz", "data", header, size, parts)
    assert path.stat().st_size < size // 200
    monkeypatch.setattr(memory, "available_bytes", lambda: 100 << 20)
    message = refused(path, DataError, unlabelled=True)
    assert "a coo matrix with 256.0 MiB" in message
    assert (
        ": takes 1.8 GiB of memory, 100.0 MiB are there; save it as CSR (matrix.tocsr()), which is read in pieces"
        in message
    )


@pytest.mark.parametrize("lie", ["header", "archive"])
def test_an_archive_that_lies_about_sizes_is_not_inflated(
    refused: Refused, rng: np.random.Generator, tmp_path: Path, lie: str
) -> None:
    """A member whose header promises less than its archive, or more, is refused before it is inflated."""
    count = 2**26 if lie == "archive" else 60
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({count},), }}\n"
    path = zeros_archive(tmp_path / "X.npz", "data", header, 1 << 28, members(matrix(rng), data=None))
    message = refused(path, DataError, unlabelled=True)
    assert f"member 'data': not a whole .npy file: found {(1 << 28) + len(header) + 10:,} bytes, expected " in message


@pytest.mark.slow
def test_csr_in_archives_is_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CSR of any size, in batches of any size, makes the store of its rows, whatever memory there is."""
    rng = np.random.default_rng(3)
    dense = np.round(4 * rng.normal(size=(500, 20))).astype("f4") * (rng.random((500, 20)) < 0.3)
    for kind in ("f4", "?", "i2", ">f8", "f2"):
        data = dense.astype(kind).astype("f4")
        found, file = sp.csr_matrix(data), tmp_path / "X.npz"
        npz(file, members(found, data=found.data.astype(kind), indices=found.indices.astype("u2")))
        monkeypatch.setattr(memory, "available_bytes", lambda: 0)
        for values, rows in ((1, 7), (33, 1000), (10**6, 64)):
            monkeypatch.setattr("coremargin.data.sources.numpy_files._BATCH_VALUES", values)
            monkeypatch.setattr("coremargin.data.sources.numpy_files._PIECE_ROWS", rows)
            ingest(file, tmp_path / "s.zarr", unlabelled=True, overwrite=(tmp_path / "s.zarr").exists())
            expected = ArraySource(sp.csr_array(data), None).digest
            assert Store.open(tmp_path / "s.zarr").digest == expected, (kind, values)


def test_rows_and_labels_of_savez_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """X and y of numpy.savez make the store of the arrays, packed or not, in batches of any size."""
    rng, source = np.random.default_rng(3), tmp_path / "rows.npz"
    X, y = rng.normal(size=(50, 3)), np.where(rng.random(50) < 0.5, "spam", "ham")
    ingest(X, tmp_path / "wanted.zarr", labels=y, dtype="float64")
    wanted = Store.open(tmp_path / "wanted.zarr").digest
    for rows in (1, 7, 1000):
        monkeypatch.setattr("coremargin.data.sources.numpy_files.batch_rows", lambda features, rows=rows: rows)
        for number, save in enumerate((np.savez, np.savez_compressed)):
            for place, labels in enumerate((y, y[:, None])):
                save(source, X=np.asfortranarray(X) if place else X, y=labels)
                out = tmp_path / f"{rows}-{number}-{place}.zarr"
                assert ingest(source, out, dtype="float64").label_from == "member 'y'"
                assert Store.open(out).digest == wanted
    np.savez(source, X=X)
    ingest(source, tmp_path / "alone.zarr", labels=y, dtype="float64")
    assert Store.open(tmp_path / "alone.zarr").digest == wanted


SAVEZ: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no names": ({"arr_0": np.eye(2), "arr_1": np.arange(2)}, DataError, "expected 'format' among them: X.npz holds"),
    "more": ({"X": np.eye(2), "y": np.arange(2), "w": np.ones(2)}, DataError, "found the member 'w' in addition to X"),
    "few labels": ({"X": np.eye(3), "y": np.arange(2)}, DataError, "found int64 of shape (2,), expected one label for"),
    "objects": ({"X": np.eye(2), "y": np.array(["a", 1], object)}, UsageError, "member 'y': holds Python objects"),
    "a vector": ({"X": np.arange(2.0), "y": np.arange(2)}, UsageError, "X.npz: shape (2,): expected two dimensions"),
    "not finite": ({"X": np.array([[0.0], [np.nan]]), "y": np.arange(2)}, BadRow, "X.npz, row 1, feature 0: found NaN"),
    "no label": ({"X": np.eye(2), "y": np.array([1, np.nan])}, LabelError, "X.npz, row 1: found no label"),
    "none": ({"X": np.eye(2)}, LabelError, "X.npz: labels are missing"),
}


@pytest.mark.parametrize("kind", SAVEZ)
def test_other_members_of_savez_are_named(refused: Refused, tmp_path: Path, kind: str) -> None:
    """What is neither X nor y, and what does not fit the rows, is refused."""
    arrays, error, text = SAVEZ[kind]
    np.savez(tmp_path / "X.npz", **arrays)
    assert text in refused(tmp_path / "X.npz", error)


def test_labels_in_two_places_are_refused(refused: Refused, tmp_path: Path) -> None:
    """Labels in the archive and in y.npy beside it: which count must be said."""
    np.savez(tmp_path / "X.npz", X=np.eye(2), y=[0, 1])
    np.save(tmp_path / "y.npy", [1, 0])
    assert "X.npz: holds labels, and y.npy lies next to it" in refused(tmp_path / "X.npz", UsageError)
    ingest(tmp_path / "X.npz", tmp_path / "rows.zarr", labels=tmp_path / "y.npy")
    assert Store.open(tmp_path / "rows.zarr").classes == (1, 0)
