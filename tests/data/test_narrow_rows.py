"""Rows in narrow types: stored as they come, read as float32, exactly."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import zarr

import coremargin
from coremargin.data.amend import set_weights
from coremargin.data.check import check_store
from coremargin.data.compact import compact
from coremargin.data.narrow_rows import first_not_finite, first_unfit, narrow, widen
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import BadRow, DamagedChunk, DataError, StoreError, UsageError
from coremargin.formats.row_types import NARROW_TYPES, common_row_type
from store_kit import edit_attributes, edit_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from click.testing import Result

LIMITS = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767)}


def rows_of(name: str, rng: np.random.Generator, shape: tuple[int, int] = (300, 5)) -> np.ndarray:
    """Rows that a type holds, in NumPy's type of that name, for bfloat16 in float32; the first are its extremes."""
    if name in LIMITS:
        X = rng.integers(LIMITS[name][0], LIMITS[name][1] + 1, shape).astype(name)
        X[0, :2] = LIMITS[name]
        return X
    X = (rng.standard_normal(shape) * 1e-4 ** rng.integers(0, 2, shape)).astype(np.float32)
    if name == "bfloat16":
        X[0, :3] = 3.3895314e38, -9.1835e-41, -0.0
        return (X.view(np.uint32) & 0xFFFF0000).view(np.float32)
    X[0, :3] = 65504, -6e-8, -0.0
    return X.astype(np.float16)


def make_store(path: Path, X: np.ndarray, name: str, **options: Any) -> Store:
    """A store of these rows with labels, in chunks of 64 rows."""
    y = np.arange(len(X)) % 2
    with StoreWriter.create(path, features=X.shape[1], dtype=name, chunk_rows=64, **options) as writer:
        writer.write(X, y, origin="test")
    return Store.open(path)


def values_of_bits(bits: np.ndarray, exponent_bits: int, digits: int) -> np.ndarray:
    """What floats of IEEE 754 with so many bits stand for, by their definition, exactly, in float64."""
    wide = bits.astype(np.int64)
    exponent, fraction = (wide >> digits) & ((1 << exponent_bits) - 1), wide & ((1 << digits) - 1)
    bias = (1 << exponent_bits - 1) - 1
    size = np.ldexp(fraction / 2.0**digits + (exponent > 0), np.maximum(exponent, 1) - bias)
    return np.where(wide >> (exponent_bits + digits), -size, size)


@pytest.mark.parametrize(("name", "exponent_bits", "digits"), [("float16", 5, 10), ("bfloat16", 8, 7)])
def test_every_finite_float_is_read_exactly(name: str, exponent_bits: int, digits: int) -> None:
    """All patterns of 16 bits, subnormal numbers and both zeros too, are what their definition says."""
    bits = np.arange(1 << 16, dtype=np.uint16)
    stored = bits.view(np.float16) if name == "float16" else bits
    finite = (bits >> digits) & ((1 << exponent_bits) - 1) != (1 << exponent_bits) - 1
    found = widen(stored[finite])
    assert found.dtype == np.float32
    assert not found.flags.writeable
    expected = values_of_bits(bits[finite], exponent_bits, digits)
    assert found.astype(np.float64).tobytes() == expected.tobytes()
    assert first_not_finite(stored[finite]) is None
    for one in np.flatnonzero(~finite).tolist():
        assert first_not_finite(stored[one - 1 : one + 1][-1:]) == 0
    assert first_not_finite(np.concatenate([stored[finite], stored[~finite]])) == finite.sum()


@pytest.mark.parametrize("name", NARROW_TYPES)
def test_held_numbers_come_back(name: str, rng: np.random.Generator) -> None:
    """Numbers that a type holds are stored and read without a change of any bit, also from float64."""
    X = rows_of(name, rng)
    for given in (X, X.astype(np.float64)):
        assert first_unfit(given, name) is None
        assert widen(narrow(given, name)).tobytes() == X.astype(np.float32).tobytes()


def test_numbers_of_uint16_are_no_bits() -> None:
    """A number is stored as what it is, in bfloat16 too, which holds 32,640 and not the bits 32,640, an infinity."""
    numbers = np.array([[0, 1, 0x7F80]], np.uint16)
    for name in ("bfloat16", "int16"):
        assert first_unfit(numbers, name) is None
        assert widen(narrow(numbers, name)).tolist() == [[0.0, 1.0, 32640.0]]


def test_bfloat16_rounds_to_nearest_even(rng: np.random.Generator) -> None:
    """As ml_dtypes rounds float32."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    bits = rng.integers(0, 1 << 32, 20_000, dtype=np.uint32)
    bits[:3] = 0x3F808000, 0x3F818000, 0x007F8000  # ties to even, both ways; up from the largest subnormal number
    values = bits.view(np.float32)
    values = values[np.isfinite(values)]
    with np.errstate(over="ignore"):
        expected = values.astype(ml_dtypes.bfloat16)
    assert (narrow(values, "bfloat16") == expected.view(np.uint16)).all()
    beyond = ~np.isfinite(expected.astype(np.float32))
    assert [first_unfit(one, "bfloat16") for one in values[:, None]] == [0 if bad else None for bad in beyond]


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("name", NARROW_TYPES)
def test_store_is_that_of_float32(tmp_path: Path, rng: np.random.Generator, name: str, compression: str) -> None:
    """Rows, chunks and statistics are those of a float32 store; bytes, digest and SHA-256 are its own."""
    X = rows_of(name, rng)
    store = make_store(tmp_path / "a.zarr", X, name, compression=compression)
    wide = make_store(tmp_path / "b.zarr", X.astype(np.float32), "float32", compression=compression)
    assert (store.dtype, store.stored_dtype, wide.stored_dtype) == (np.float32, name, "float32")
    for chunk in range(store.chunks):
        for found, expected in zip(store.read(chunk), wide.read(chunk), strict=True):
            assert found.dtype == expected.dtype
            assert found.tobytes() == expected.tobytes()
            assert not found.flags.writeable
    ids = np.array([299, 0, 70, 0])
    assert store.rows_at(ids)[0].tobytes() == X[ids].astype(np.float64).tobytes()
    for entry in ("centre", "radius", "max_norm", "low", "high", "total", "spread", "counts"):
        assert getattr(store.statistics(), entry).tobytes() == getattr(wide.statistics(), entry).tobytes()
    assert store.nbytes == wide.nbytes == wide.scan_bytes
    width = 1 if name in ("int8", "uint8") else 2
    assert store.scan_bytes == 300 * (5 * width + 4)
    assert store.digest != wide.digest
    assert store.sha256 != wide.sha256
    assert check_store(tmp_path / "a.zarr").whole


@pytest.mark.parametrize("name", [name for name in NARROW_TYPES if name != "bfloat16"])
def test_zarr_reads_the_rows(tmp_path: Path, rng: np.random.Generator, name: str) -> None:
    """What zarr-python reads are the rows in their own type."""
    X = rows_of(name, rng)
    make_store(tmp_path / "a.zarr", X, name)
    found = zarr.open_array(tmp_path / "a.zarr" / "X", mode="r")[:]
    assert found.dtype == X.dtype
    assert found.tobytes() == X.tobytes()


def test_bfloat16_is_named_in_the_metadata(tmp_path: Path, rng: np.random.Generator) -> None:
    """zarr-python, which has no such type, reads the bits once the metadata say uint16."""
    X = rows_of("bfloat16", rng)
    make_store(tmp_path / "a.zarr", X, "bfloat16")
    with pytest.raises(ValueError, match="bfloat16"):
        zarr.open_array(tmp_path / "a.zarr" / "X", mode="r")
    edit_json(tmp_path / "a.zarr" / "X" / "zarr.json", lambda about: about.update(data_type="uint16", fill_value=0))
    found = zarr.open_array(tmp_path / "a.zarr" / "X", mode="r")[:]
    assert (found.astype(np.uint32) << 16).view(np.float32).tobytes() == X.tobytes()
    with pytest.raises(StoreError, match="uint16"):
        Store.open(tmp_path / "a.zarr")


@pytest.mark.parametrize("name", NARROW_TYPES)
def test_changes_keep_the_type(tmp_path: Path, rng: np.random.Generator, name: str) -> None:
    """Rows that are appended, in the last chunk and behind it, and what is left after compacting."""
    X = rows_of(name, rng)
    path = tmp_path / "a.zarr"
    make_store(path, X, name)
    with StoreWriter.append(path) as writer:
        writer.write(X.astype(np.float64), np.zeros(300, int))
    both = np.concatenate([X, X]).astype(np.float64)
    assert Store.open(path).rows_at(np.arange(600))[0].tobytes() == both.tobytes()
    set_weights(path, [0, 64, 599], [0.0, 0.0, 0.0])
    compact(path)
    store = Store.open(path)
    assert store.stored_dtype == name
    assert store.rows_at(np.arange(597))[0].tobytes() == np.delete(both, [0, 64, 599], axis=0).tobytes()
    assert check_store(path).whole


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("float16", 65520.0, "65520, too large for float16 (up to 65,504); scale the column"),
        ("float16", -1e6, "-1e+06, too large for float16"),
        ("bfloat16", 3.4e38, "too large for bfloat16"),
        ("bfloat16", 1e300, "too large for bfloat16"),
        ("int8", 128, "128, expected whole numbers from -128 to 127 (int8); a store of dtype='float32' holds it"),
        ("int8", 0.5, "0.5, expected whole numbers"),
        ("uint8", -1, "-1, expected whole numbers from 0 to 255"),
        ("int16", 1e30, "1e+30, expected whole numbers from -32,768 to 32,767"),
        *((name, bad, text) for name in NARROW_TYPES for bad, text in ((np.nan, "NaN"), (-np.inf, "infinity"))),
    ],
)
def test_what_a_type_does_not_hold(tmp_path: Path, name: str, value: float, text: str) -> None:
    """It is refused by row and column, by ``ingest`` and by the writer, and nothing is written."""
    X = np.zeros((300, 5))
    X[200, 3] = value
    with pytest.raises(BadRow) as caught:
        coremargin.ingest(X, tmp_path / "a.zarr", labels=np.arange(300) % 2, dtype=name)
    assert "row 200, feature 3: found " in str(caught.value)
    assert text in str(caught.value)
    with (
        pytest.raises(BadRow, match=r"row 200, column 3 \(counted from 0\): found "),
        StoreWriter.create(tmp_path / "a.zarr", features=5, dtype=name) as writer,
    ):
        writer.write(X)
    assert not (tmp_path / "a.zarr").exists()


def test_a_file_is_named(tmp_path: Path, run_cli: Callable[..., Result]) -> None:
    """The command names file, line and column, and its option."""
    (tmp_path / "a.csv").write_text("a,b,label\n1,2,x\n3,70000,y\n")
    result = run_cli("ingest", tmp_path / "a.csv", tmp_path / "a.zarr", "--dtype", "float16", exit_code=3)
    assert "line 3, column 'b': found 70000, too large for float16 (up to 65,504)" in result.stderr
    assert "a store of --dtype float32 holds it" in result.stderr
    run_cli("ingest", tmp_path / "a.csv", tmp_path / "a.zarr", "--dtype", "bfloat16")
    assert "features, bfloat16" in run_cli("info", tmp_path / "a.zarr").stdout


@pytest.mark.parametrize("name", ["float16", "int8", "uint8", "int16"])
def test_types_are_kept(tmp_path: Path, rng: np.random.Generator, name: str) -> None:
    """Of arrays, their files, archives, and columns of lists of Arrow and Parquet; none are made float32."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    X, y, path = rows_of(name, rng), np.arange(300) % 2, tmp_path / "a.zarr"
    np.save(tmp_path / "X.npy", X.astype(X.dtype.newbyteorder(">")))
    np.save(tmp_path / "y.npy", y)
    np.savez(tmp_path / "both.npz", X=X, y=y)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), 5)
    table = pa.table({"embedding": lists, "label": y})
    pq.write_table(table.slice(0, 150), tmp_path / "part-1.parquet")
    pq.write_table(table.slice(150), tmp_path / "part-2.parquet")
    sources = [X, tmp_path / "X.npy", tmp_path / "both.npz", table, str(tmp_path / "part-*.parquet")]
    for source in sources:
        given = {"labels": y} if source is X else {}
        report = coremargin.ingest(source, path, overwrite=True, **given)
        assert report.dtype == name
        assert report.nbytes == Store.open(path).scan_bytes
        assert Store.open(path).rows_at(np.arange(300))[0].tobytes() == X.astype(np.float64).tobytes()


def test_bfloat16_of_ml_dtypes(tmp_path: Path, rng: np.random.Generator) -> None:
    """Its arrays are kept as they are; NumPy's files of them have lost the type, which is said."""
    ml_dtypes = pytest.importorskip("ml_dtypes")
    X = rows_of("bfloat16", rng).astype(ml_dtypes.bfloat16)
    report = coremargin.ingest(X, tmp_path / "a.zarr", labels=np.arange(300) % 2)
    assert report.dtype == "bfloat16"
    assert Store.open(tmp_path / "a.zarr").rows_at(np.arange(300))[0].tobytes() == X.astype(np.float64).tobytes()
    np.save(tmp_path / "X.npy", X)
    with pytest.raises(UsageError, match=r"if these are bfloat16, save X.astype\(float32\) and give dtype='bfloat16'"):
        coremargin.ingest(tmp_path / "X.npy", tmp_path / "b.zarr", unlabelled=True)


def test_types_that_differ(tmp_path: Path, rng: np.random.Generator) -> None:
    """Files of several types are kept in what holds all; columns of single numbers and batches are float32."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    assert common_row_type(["int8", "uint8"]) == "int16"
    assert common_row_type(["float16", "int8"]) == "float16"
    for names in (["int16", "float16"], ["bfloat16", "float16"], ["bool"], ["int64"]):
        assert common_row_type(names) == "float32"
    X = rows_of("int8", rng)
    for number, part in enumerate((X.astype(np.int16), X)):
        lists = pa.FixedSizeListArray.from_arrays(pa.array(part.reshape(-1)), 5)
        pq.write_table(pa.table({"embedding": lists}), tmp_path / f"part-{number}.parquet")
    parts = str(tmp_path / "part-*.parquet")
    assert coremargin.ingest(parts, tmp_path / "a.zarr", unlabelled=True).dtype == "int16"
    table = pa.table({f"c{k}": X[:, k] for k in range(5)})
    assert coremargin.ingest(table, tmp_path / "b.zarr", unlabelled=True).dtype == "float32"
    assert coremargin.ingest(iter([X, X * 0.5]), tmp_path / "c.zarr", unlabelled=True).dtype == "float32"
    assert coremargin.ingest(iter([X, X]), tmp_path / "d.zarr", unlabelled=True, dtype="int8").dtype == "int8"


def test_bad_lists(tmp_path: Path) -> None:
    """Lists of unequal length, and with a null or NaN, are refused by row."""
    pa = pytest.importorskip("pyarrow")
    for last, text in (
        ([1.0], "found 1 values, expected 2"),
        ([1.0, None], "found null in the list"),
        ([1.0, np.nan], "found NaN"),
    ):
        values = [[np.float16(one) if one is not None else None for one in row] for row in ([1.0, 2.0], last)]
        table = pa.table({"embedding": pa.array(values, pa.list_(pa.float16()))})
        with pytest.raises(DataError, match=f"row 1, column 'embedding.*{text}"):
            coremargin.ingest(table, tmp_path / "a.zarr", unlabelled=True)


def test_sparse_rows_stay_wide(tmp_path: Path, rng: np.random.Generator) -> None:
    """They are float32 or float64, whatever comes; made dense they may be of any type."""
    sp = pytest.importorskip("scipy.sparse")
    X = sp.csr_array(rng.integers(0, 2, (40, 6)).astype(np.int8))
    assert coremargin.ingest(X, tmp_path / "a.zarr", unlabelled=True).dtype == "float32"
    with pytest.raises(UsageError, match="sparse rows are kept as float32 or float64, found dtype='int8'"):
        coremargin.ingest(X, tmp_path / "b.zarr", unlabelled=True, dtype="int8")
    coremargin.ingest(X, tmp_path / "b.zarr", unlabelled=True, dtype="int8", sparse=False)
    assert (Store.open(tmp_path / "b.zarr").read(0)[0] == X.toarray()).all()
    with pytest.raises(UsageError, match="expected float32 or float64 of sparse rows, got 'int8'"):
        StoreWriter.create(tmp_path / "c.zarr", features=6, dtype="int8", sparse=True)
    edit_attributes(tmp_path / "a.zarr", dtype="int8")
    with pytest.raises(StoreError, match="expected sparse rows of float32 or float64, found int8"):
        Store.open(tmp_path / "a.zarr")


def test_append_follows_the_store(tmp_path: Path) -> None:
    """Another type is refused; numbers that the store's type would round are refused by row."""
    coremargin.ingest(np.zeros((4, 2), np.uint8), tmp_path / "a.zarr", unlabelled=True)
    with pytest.raises(UsageError, match="holds uint8, found dtype='float32'"):
        coremargin.ingest(np.ones((2, 2)), tmp_path / "a.zarr", unlabelled=True, append=True, dtype="float32")
    with pytest.raises(BadRow, match=r"row 0, feature 1: found 0.5, expected whole numbers from 0 to 255"):
        coremargin.ingest(np.array([[1, 0.5]]), tmp_path / "a.zarr", unlabelled=True, append=True)
    assert coremargin.ingest(np.ones((2, 2)), tmp_path / "a.zarr", unlabelled=True, append=True).dtype == "uint8"


def test_whole_numbers_that_are_rounded_are_counted(tmp_path: Path) -> None:
    """As of float32: beyond 2,048 of float16, beyond 256 of bfloat16."""
    X = np.array([[256, 2048], [257, 2049], [258, 2050]])
    for name, count in (("float16", 1), ("bfloat16", 3)):
        report = coremargin.ingest(X, tmp_path / f"{name}.zarr", unlabelled=True, dtype=name)
        assert report.rounded == count
    assert report.rounded_at == "array, row 1, feature 0: 257 became 256"


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_infinity_in_a_chunk(tmp_path: Path, rng: np.random.Generator, name: str) -> None:
    """A chunk with right checksums and a value that is not finite is refused: it must not be read as a number."""
    store = make_store(tmp_path / "a.zarr", rows_of(name, rng), name)
    reader = store.readers().X
    stored = reader.read(1).copy()
    stored.view(np.uint16)[5, 2] = 0xFC00 if name == "float16" else 0xFF80
    with pytest.raises(DamagedChunk, match="row 69, column 2 is not finite"):
        reader._checked(1, _forged(reader, stored), None)


def _forged(reader: Any, stored: np.ndarray) -> np.ndarray:
    """The bytes of a chunk, which the reader's manifest is made to name."""
    from coremargin.data.checksum import crc32c

    raw = stored.view(np.uint8).reshape(-1)
    reader._crcs = reader._crcs.copy()
    reader._crcs[1] = crc32c(raw.data)
    return raw
