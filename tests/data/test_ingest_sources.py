"""Every kind of source gives the same store for the same rows."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coremargin.data.ingest import IngestReport, ingest
from coremargin.data.store import Store
from coremargin.errors import DataError

Rows = tuple[np.ndarray, np.ndarray]


@pytest.fixture
def rows(rng: np.random.Generator) -> Rows:
    """2,000 rows of 7 features with zeros among them, float32, and labels 3 and -4 in no order."""
    X = rng.standard_normal((2_000, 7)).astype("float32")
    X[rng.random(X.shape) < 0.3] = 0.0
    X[0] = 1.5  # no zero: the first SVMlight line shows all features
    return X, np.where(rng.random(2_000) < 0.4, 3, -4)


def csv_text(rows: Rows, delimiter: str = ",", header: str = "") -> str:
    """Delimited text with the label last; nine digits give float32 back exactly."""
    lines = [delimiter.join([*(f"{value:.9g}" for value in x), str(label)]) for x, label in zip(*rows, strict=True)]
    return header + "\n".join(lines) + "\n"


def svmlight_text(rows: Rows, base: int = 1) -> str:
    """SVMlight text; zeros are left out."""
    lines = []
    for x, label in zip(*rows, strict=True):
        pairs = " ".join(f"{j + base}:{x[j]:.9g}" for j in np.flatnonzero(x))
        lines.append(f"{label} {pairs}".rstrip())
    return "\n".join(lines) + "\n"


def as_npy(folder: Path, rows: Rows) -> dict[str, Any]:
    """X.npy with y.npy beside it."""
    np.save(folder / "X.npy", rows[0])
    np.save(folder / "y.npy", rows[1])
    return {"source": folder / "X.npy"}


def as_npy_fortran_double(folder: Path, rows: Rows) -> dict[str, Any]:
    """Big-endian doubles in column order, labels as floats in a file of another name."""
    np.save(folder / "A.npy", np.asfortranarray(rows[0].astype(">f8")))
    np.save(folder / "labels.npy", rows[1].astype(float))
    return {"source": folder / "A.npy", "labels": folder / "labels.npy"}


def as_csv(folder: Path, rows: Rows) -> dict[str, Any]:
    """Plain CSV without a header."""
    (folder / "rows.csv").write_text(csv_text(rows))
    return {"source": folder / "rows.csv"}


def as_csv_with_header_and_windows_lines(folder: Path, rows: Rows) -> dict[str, Any]:
    """What spreadsheets save: semicolons, byte order mark, carriage returns."""
    text = csv_text(rows, ";", header="a;b;c;d;e;f;g;outcome\n").replace("\n", "\r\n")
    (folder / "rows.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    return {"source": str(folder / "rows.csv"), "label": "outcome"}


def as_csv_quoted_label_first(folder: Path, rows: Rows) -> dict[str, Any]:
    """Quotes, blank lines, a column to leave out, the label in front, no end of the last line."""
    lines = [line.rpartition(",") for line in csv_text(rows).splitlines()]
    text = 'class,Id,"a,1",b,c,d,e,f,g\n' + "".join(f'"{label}",x-{k},{x}\n\n' for k, (x, _, label) in enumerate(lines))
    (folder / "rows.csv").write_text(text.rstrip("\n"))
    return {"source": folder / "rows.csv", "drop": ["Id"]}


def as_spaces(folder: Path, rows: Rows) -> dict[str, Any]:
    """Columns set apart by runs of spaces."""
    (folder / "rows.data").write_text(csv_text(rows, "   "))
    return {"source": folder / "rows.data"}


def as_tsv_gz_in_parts(folder: Path, rows: Rows) -> dict[str, Any]:
    """Several compressed files with a header each."""
    header = "\t".join([*"abcdefg", "target"]) + "\n"
    for part, start in enumerate(range(0, 2_000, 700)):
        text = csv_text((rows[0][start : start + 700], rows[1][start : start + 700]), "\t", header)
        (folder / f"part-{part}.tsv.gz").write_bytes(gzip.compress(text.encode()))
    return {"source": str(folder / "part-*.tsv.gz")}


def as_csv_labels_apart(folder: Path, rows: Rows) -> dict[str, Any]:
    """Rows and labels in two compressed text files."""
    np.savetxt(folder / "rows.csv.bz2", rows[0], fmt="%.9g", delimiter=",")
    (folder / "y.txt.xz").write_bytes(lzma.compress("".join(f"{label}\n" for label in rows[1]).encode()))
    return {"source": folder / "rows.csv.bz2", "labels": str(folder / "y.txt.xz")}


def as_svmlight(folder: Path, rows: Rows) -> dict[str, Any]:
    """SVMlight that counts features from 1."""
    (folder / "rows.svm").write_text(svmlight_text(rows))
    return {"source": folder / "rows.svm"}


def as_svmlight_zero_based_unsorted(folder: Path, rows: Rows) -> dict[str, Any]:
    """SVMlight from 0, indices descending, with comments and query ids, known by content only."""
    lines = ["# made by hand"]
    for line in svmlight_text(rows, base=0).splitlines():
        label, *pairs = line.split()
        lines.append(f"{label}.0 qid:7 {' '.join(reversed(pairs))}  # label first")
    (folder / "rows.bz2").write_bytes(bz2.compress("\n".join(lines).encode()))
    return {"source": folder / "rows.bz2"}


def as_svmlight_without_first_pass(folder: Path, rows: Rows) -> dict[str, Any]:
    """SVMlight whose shape is said."""
    return as_svmlight(folder, rows) | {"features": 7, "zero_based": False}


def as_parquet(folder: Path, rows: Rows) -> dict[str, Any]:
    """One column per feature, several row groups."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {f"f{j}": rows[0][:, j] for j in range(7)}
    parquet.write_table(pa.table({"label": rows[1], **columns}), folder / "rows.parquet", row_group_size=300)
    return {"source": folder / "rows.parquet"}


def as_parquet_of_lists(folder: Path, rows: Rows) -> dict[str, Any]:
    """A column of lists beside a column of numbers."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    lists = pa.FixedSizeListArray.from_arrays(pa.array(rows[0][:, 1:].reshape(-1)), 6)
    table = pa.table({"first": rows[0][:, 0], "rest": lists, "kind": pa.array(rows[1]), "note": ["x"] * 2_000})
    parquet.write_table(table, folder / "rows.pq")
    return {"source": folder / "rows.pq", "label": "kind", "drop": ["note"]}


def as_array(folder: Path, rows: Rows) -> dict[str, Any]:
    """NumPy arrays."""
    return {"source": rows[0], "labels": rows[1].astype("int8")}


def as_strided_array(folder: Path, rows: Rows) -> dict[str, Any]:
    """A read-only view with gaps, labels in a list."""
    wide = np.zeros((4_000, 14))
    wide[::2, ::2] = rows[0]
    wide.flags.writeable = False
    return {"source": wide[::2, ::2], "labels": list(rows[1].tolist())}


def as_sparse(folder: Path, rows: Rows) -> dict[str, Any]:
    """A sparse array of SciPy, labels as one column."""
    sparse = pytest.importorskip("scipy.sparse")
    return {"source": sparse.coo_array(rows[0]), "labels": rows[1][:, None]}


def as_dask(folder: Path, rows: Rows) -> dict[str, Any]:
    """Dask arrays cut differently, also across columns."""
    da = pytest.importorskip("dask.array")
    return {
        "source": da.from_array(rows[0], chunks=(300, 4)),
        "labels": da.from_array(rows[1], chunks=450),
    }


def as_dask_of_unknown_length(folder: Path, rows: Rows) -> dict[str, Any]:
    """A Dask array that does not know its length."""
    da = pytest.importorskip("dask.array")
    X = da.from_array(rows[0], chunks=(300, 7))
    return {"source": X[da.from_array(np.ones(2_000, dtype=bool), chunks=300)], "labels": rows[1]}


KINDS: list[Callable[[Path, Rows], dict[str, Any]]] = [
    as_npy,
    as_npy_fortran_double,
    as_csv,
    as_csv_with_header_and_windows_lines,
    as_csv_quoted_label_first,
    as_spaces,
    as_tsv_gz_in_parts,
    as_csv_labels_apart,
    as_svmlight,
    as_svmlight_zero_based_unsorted,
    as_svmlight_without_first_pass,
    as_parquet,
    as_parquet_of_lists,
    as_array,
    as_strided_array,
    as_sparse,
    as_dask,
    as_dask_of_unknown_length,
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__.removeprefix("as_"))
def test_every_source_gives_the_same_store(
    kind: Callable[[Path, Rows], dict[str, Any]], rows: Rows, tmp_path: Path, make_store: Callable[..., Store]
) -> None:
    """The digest of the store is that of the rows and labels written directly, whatever they came from."""
    expected = make_store(*rows, name="expected.zarr")
    report = ingest(store=tmp_path / "rows.zarr", sparse=False, **kind(tmp_path, rows))
    assert Store.open(tmp_path / "rows.zarr").digest == expected.digest
    labels, counts = np.unique(rows[1], return_counts=True)
    assert report.classes == dict(zip(labels.tolist(), counts.tolist(), strict=True))
    assert (report.rows, report.features, report.skipped, report.estimated) == (2_000, 7, 0, False)


@pytest.mark.specimens(1)
@pytest.mark.parametrize("pieces", [64, 1_000, 2**21])
def test_pieces_of_text_do_not_show(rows: Rows, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: int) -> None:
    """Where text is cut into pieces, and how many rows make a batch, changes nothing."""
    digests = set()
    monkeypatch.setattr("coremargin.data.sources.text.read_pieces.__defaults__", (pieces,))
    monkeypatch.setattr("coremargin.data.sources.base.BATCH_BYTES", pieces)
    for kind in (as_csv, as_svmlight, as_npy, as_parquet, as_csv_labels_apart):
        ingest(store=tmp_path / "rows.zarr", overwrite=True, **kind(tmp_path, rows))
        digests.add(Store.open(tmp_path / "rows.zarr").digest)
    assert len(digests) == 1


def test_appending_equals_ingesting_at_once(rows: Rows, tmp_path: Path) -> None:
    """Two ingests, the second appended, give the store of one ingest; classes seen first keep their codes."""
    X, y = rows
    ingest(X, tmp_path / "once.zarr", labels=y)
    ingest(X[:501], tmp_path / "twice.zarr", labels=y[:501])
    (tmp_path / "rest.svm").write_text(svmlight_text((X[501:], y[501:])))
    report = ingest(tmp_path / "rest.svm", tmp_path / "twice.zarr", append=True)
    once, twice = Store.open(tmp_path / "once.zarr"), Store.open(tmp_path / "twice.zarr")
    assert (report.rows, report.store_rows) == (1_499, 2_000)
    assert (twice.digest, twice.classes) == (once.digest, once.classes)


def test_only_keeps_the_named_labels(rows: Rows, tmp_path: Path) -> None:
    """`only` keeps the rows of the labels it names, given as text or as they are, and counts the others."""
    X, y = rows
    (tmp_path / "rows.csv").write_text(csv_text(rows))
    for only in (("3",), (3,), ("3.0",), "3", 3, np.array([3])):
        report = ingest(tmp_path / "rows.csv", tmp_path / "rows.zarr", only=only, overwrite=True)
        store = Store.open(tmp_path / "rows.zarr")
        assert report.classes == {3: int((y == 3).sum())}
        assert report.skipped == int((y == -4).sum())
        assert np.array_equal(store.rows_at(np.arange(store.rows))[0], X[y == 3])


def test_rows_left_out_may_be_bad(rows: Rows, tmp_path: Path) -> None:
    """A NaN in a row that `only` leaves out is nobody's concern."""
    X, y = rows
    X[np.flatnonzero(y == -4)[5], 2] = np.nan
    assert ingest(X, tmp_path / "rows.zarr", labels=y, only=[3]).classes == {3: int((y == 3).sum())}


def test_rows_without_labels(rows: Rows, tmp_path: Path) -> None:
    """Unlabelled rows keep all columns and get no class."""
    (tmp_path / "rows.csv").write_text(csv_text(rows))
    report = ingest(tmp_path / "rows.csv", tmp_path / "rows.zarr", unlabelled=True)
    store = Store.open(tmp_path / "rows.zarr")
    assert (report.features, report.classes, report.unlabelled) == (8, {}, 2_000)
    assert store.classes == ()
    assert set(store.read(0)[1].tolist()) == {-1}


def test_a_dry_run_writes_nothing_and_says_the_same(rows: Rows, tmp_path: Path) -> None:
    """A dry run of small sources reports what the real run reports, and leaves no trace."""
    for kind in (as_csv, as_svmlight, as_npy, as_parquet, as_array):
        given = kind(tmp_path, rows)
        before = sorted(tmp_path.iterdir())
        dry = ingest(store=tmp_path / "dry.zarr", dry_run=True, **given)
        assert sorted(tmp_path.iterdir()) == before
        real = ingest(store=tmp_path / "rows.zarr", overwrite=True, **given)
        assert not dry.estimated
        for field in ("rows", "features", "classes", "nbytes", "label_from", "skipped"):
            assert getattr(dry, field) == getattr(real, field)


def test_a_dry_run_of_much_text_estimates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dry run reads the beginning only and estimates the rows from the bytes, within a few percent."""
    monkeypatch.setattr("coremargin.data.sources.text.read_pieces.__defaults__", (2_000,))
    (tmp_path / "rows.csv").write_text("".join(f"{k % 7}.25,{k % 3}.5,{k % 2}\n" for k in range(50_000)))
    report = ingest(tmp_path / "rows.csv", tmp_path / "rows.zarr", dry_run=True)
    assert report.estimated
    assert report.rows == pytest.approx(50_000, rel=0.05)
    assert list(report.classes) == [0, 1]


def progress_of(tmp_path: Path, given: dict[str, Any]) -> tuple[list[tuple[str, int, int, int | None]], IngestReport]:
    """Everything that on_progress was told."""
    heard: list[tuple[str, int, int, int | None]] = []
    report = ingest(
        store=tmp_path / "rows.zarr",
        overwrite=True,
        on_progress=lambda step: heard.append((step.stage, step.rows, step.done_bytes, step.total_bytes)),
        **given,
    )
    return heard, report


def test_progress_reaches_the_end(rows: Rows, tmp_path: Path) -> None:
    """Progress never goes back, and ends at all rows and all bytes."""
    for kind in (as_npy, as_tsv_gz_in_parts, as_svmlight, as_parquet, as_sparse, as_dask):
        heard, report = progress_of(tmp_path, kind(tmp_path, rows))
        stage, *last = heard[-1]
        assert (stage, last[0]) == ("writing", report.rows)
        assert last[1] == last[2]
        for name in ("first pass", "writing"):
            done = [entry[2] for entry in heard if entry[0] == name]
            assert done == sorted(done)


def test_files_of_different_columns_do_not_mix(rows: Rows, tmp_path: Path) -> None:
    """Files whose columns differ in number or name are refused before anything is written, naming both."""
    (tmp_path / "a.csv").write_text("x,y1,label\n1,2,0\n")
    (tmp_path / "b.csv").write_text("x,z,label\n1,2,0\n")
    (tmp_path / "c.csv").write_text("1,2,3,0\n")
    with pytest.raises(DataError, match=r"b\.csv: other columns than those of .*a\.csv: 'y1' is missing, 'z' is"):
        ingest([tmp_path / "a.csv", tmp_path / "b.csv"], tmp_path / "rows.zarr")
    with pytest.raises(DataError, match=r"c\.csv: found 4 columns, expected 3 as in .*a\.csv"):
        ingest([tmp_path / "a.csv", tmp_path / "c.csv"], tmp_path / "rows.zarr")
    assert not (tmp_path / "rows.zarr").exists()


def test_float64_keeps_every_bit(rng: np.random.Generator, tmp_path: Path) -> None:
    """A store of float64 holds the very numbers, through text as well."""
    X, y = rng.standard_normal((50, 3)), np.arange(50) % 2
    (tmp_path / "rows.csv").write_text(
        "".join(f"{a!r},{b!r},{c!r},{k}\n" for (a, b, c), k in zip(X.tolist(), y, strict=True))
    )
    ingest(tmp_path / "rows.csv", tmp_path / "rows.zarr", dtype="float64")
    assert np.array_equal(Store.open(tmp_path / "rows.zarr").rows_at(np.arange(50))[0], X)
