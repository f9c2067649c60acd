"""Sparse rows and weights through the door: what becomes a sparse store, what is said, what is refused by name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse as sp

from coremargin.data.arrays import ArraySource
from coremargin.data.check import check_store
from coremargin.data.ingest import ingest
from coremargin.data.store import Store
from coremargin.errors import BadRow, CoremarginError, DataError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from click.testing import Result

SVM = "1 3:0.5 70:-2\n-1 1:1 # a comment\n1\n-1 2:4 3:1e-3 99:7\n"


def svm(folder: Path, text: str = SVM, name: str = "rows.svm") -> Path:
    """A file with this text."""
    path = folder / name
    path.write_text(text)
    return path


def stored(path: Path) -> np.ndarray:
    """All rows of a store, dense."""
    store = Store.open(path)
    rows = store.rows_at(np.arange(store.rows))[0]
    return np.asarray(rows.toarray() if store.sparse else rows)


class TestSvmlight:
    """SVMlight becomes sparse where that saves something."""

    def test_sparse_by_default(self, tmp_path: Path) -> None:
        """Few values of many features make a sparse store; the rows are those of the dense one."""
        report = ingest(svm(tmp_path), tmp_path / "s.zarr")
        assert (report.sparse, report.nonzeros, report.features, report.rows) == (True, 6, 99, 4)
        assert Store.open(tmp_path / "s.zarr").sparse
        assert report.nbytes == Store.open(tmp_path / "s.zarr").nbytes
        full = ingest(svm(tmp_path), tmp_path / "d.zarr", sparse=False)
        assert (full.sparse, Store.open(tmp_path / "d.zarr").sparse) == (False, False)
        np.testing.assert_array_equal(stored(tmp_path / "s.zarr"), stored(tmp_path / "d.zarr"))
        assert check_store(tmp_path / "s.zarr").whole

    def test_dense_by_default(self, tmp_path: Path) -> None:
        """Many values of few features do not; asking for it does."""
        path = svm(tmp_path, "1 1:1 2:2\n-1 2:1\n")
        assert not ingest(path, tmp_path / "a.zarr").sparse
        assert ingest(path, tmp_path / "b.zarr", sparse=True).sparse

    def test_without_a_first_pass(self, tmp_path: Path) -> None:
        """With features and first index given, the first lines decide."""
        report = ingest(svm(tmp_path), tmp_path / "s.zarr", features=200, zero_based=False)
        assert (report.sparse, report.features) == (True, 200)

    def test_zeros_and_order_are_said(self, tmp_path: Path) -> None:
        """Explicit zeros are dropped, indices in any order sorted, both are counted."""
        path = svm(tmp_path, "1 90:1 3:2 7:0\n-1 5:0.0 6:-0\n1 9:1 8:1\n")
        report = ingest(path, tmp_path / "s.zarr")
        assert (report.zeros, report.unsorted, report.nonzeros) == (3, 2, 4)
        expected = np.zeros((3, 90))
        expected[0, [89, 2]], expected[2, [8, 7]] = (1, 2), 1
        np.testing.assert_array_equal(stored(tmp_path / "s.zarr"), expected)

    @pytest.mark.parametrize(
        ("text", "options", "message"),
        [
            ("1 2:1\n-1 3:1 9:2 3:4\n", {}, "rows.svm, line 2: index 3 occurs twice, expected once"),
            (SVM, {"features": 98}, "rows.svm, line 4: found index 99, expected 1 to 98; say --features"),
            ("1 2:1\n-1 0:1 7:1\n", {"zero_based": False}, "line 2: found index 0, expected 1 to 7"),
            (
                "1 2:1\n-1 44:1e39\n",
                {},
                "line 2, index 44: found 1e+39, too large for float32; scale the column",
            ),
            ("1 2:1\n-1 44:nan\n", {}, "line 2, index 44: found NaN, expected a finite number"),
            ("1 2:1\n-1 44:inf\n", {}, "line 2, index 44: found infinity"),
            ("1 2:1\n-1 4x:1\n", {}, "line 2: found '4x:1', expected index:value"),
            ("1 2:1\n-1 -4:1\n", {}, "line 2: found '-4:1', expected index:value"),
        ],
    )
    def test_refused(self, tmp_path: Path, text: str, options: dict[str, Any], message: str) -> None:
        """What is wrong is named by file, line and index, and nothing is written."""
        with pytest.raises(CoremarginError, match="rows.svm") as found:
            ingest(svm(tmp_path, text), tmp_path / "s.zarr", sparse=True, **options)
        assert message in str(found.value)
        assert not (tmp_path / "s.zarr").exists()

    def test_float64_holds_it(self, tmp_path: Path) -> None:
        """What float32 cannot hold, --dtype float64 does."""
        ingest(svm(tmp_path, "1 2:1\n-1 44:1e39\n"), tmp_path / "s.zarr", dtype="float64")
        assert stored(tmp_path / "s.zarr")[1, 43] == 1e39

    def test_append_follows_the_store(self, tmp_path: Path) -> None:
        """Dense rows appended to a sparse store become sparse, and back; an option against it is refused."""
        rows = np.zeros((3, 99))
        rows[1, 4] = 2.0
        for name, sparse in (("s.zarr", True), ("d.zarr", False)):
            ingest(svm(tmp_path), tmp_path / name, sparse=sparse)
            ingest(rows, tmp_path / name, labels=[1, -1, 1], append=True)
            report = ingest(svm(tmp_path, "1 5:1\n", "more.svm"), tmp_path / name, append=True)
            assert (report.sparse, report.store_rows) == (sparse, 8)
            with pytest.raises(UsageError, match="leave --sparse and --dense out when appending"):
                ingest(rows, tmp_path / name, labels=[1, -1, 1], append=True, sparse=not sparse)
        np.testing.assert_array_equal(stored(tmp_path / "s.zarr"), stored(tmp_path / "d.zarr"))

    @pytest.mark.parametrize("zero_based", [True, False])
    def test_what_scikit_learn_writes(self, tmp_path: Path, rng: np.random.Generator, *, zero_based: bool) -> None:
        """A matrix written by dump_svmlight_file, comments and query ids included, comes back to the bit."""
        from sklearn.datasets import dump_svmlight_file

        X = sp.csr_matrix(np.round(rng.normal(size=(2000, 70)), 9) * (rng.random((2000, 70)) < 0.05))
        y = rng.integers(0, 3, 2000)
        path = tmp_path / "rows.svm"
        dump_svmlight_file(X, y, str(path), zero_based=zero_based, comment="made by hand", query_id=np.arange(2000))
        report = ingest(path, tmp_path / "s.zarr", dtype="float64", features=70, zero_based=zero_based)
        assert (report.sparse, report.unsorted, report.zeros) == (True, 0, 0)
        classes = Store.open(tmp_path / "s.zarr").classes
        assert Store.open(tmp_path / "s.zarr").digest == ArraySource(X, y, classes=classes).digest

    def test_a_choice_of_labels(self, tmp_path: Path) -> None:
        """Rows of some labels are picked from sparse batches."""
        report = ingest(svm(tmp_path), tmp_path / "s.zarr", only=-1)
        assert (report.rows, report.skipped, report.nonzeros) == (2, 2, 4)
        assert stored(tmp_path / "s.zarr")[:, [0, 98]].tolist() == [[1, 0], [0, 7]]


class TestMatrices:
    """SciPy matrices, in memory and in files."""

    @pytest.fixture
    def matrix(self, rng: np.random.Generator) -> sp.csr_array:
        """300 rows of 40 features."""
        return sp.csr_array((rng.normal(size=(300, 40)) * (rng.random((300, 40)) < 0.2)).astype(np.float32))

    @pytest.mark.parametrize("kind", ["csr", "csc", "coo", "lil"])
    def test_in_memory(self, tmp_path: Path, matrix: sp.csr_array, kind: str) -> None:
        """A matrix of any format makes the sparse store of its rows."""
        labels = np.arange(300) % 2
        report = ingest(matrix.asformat(kind), tmp_path / "s.zarr", labels=labels)
        assert (report.sparse, report.nonzeros) == (True, matrix.nnz)
        assert Store.open(tmp_path / "s.zarr").digest == ArraySource(matrix, labels).digest
        assert not ingest(matrix, tmp_path / "d.zarr", labels=labels, sparse=False).sparse
        assert Store.open(tmp_path / "d.zarr").digest == ArraySource(matrix.toarray(), labels).digest

    @pytest.mark.parametrize("compressed", [True, False])
    def test_files(self, tmp_path: Path, matrix: sp.csr_array, *, compressed: bool) -> None:
        """X.npz with y.npy beside it."""
        sp.save_npz(tmp_path / "X.npz", matrix, compressed=compressed)
        np.save(tmp_path / "y.npy", np.arange(300) % 2)
        report = ingest(tmp_path / "X.npz", tmp_path / "s.zarr")
        assert (report.sparse, report.classes) == (True, {0: 150, 1: 150})
        assert Store.open(tmp_path / "s.zarr").digest == ArraySource(matrix, np.arange(300) % 2).digest

    @pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"nothing of the kind", None])
    def test_bad_files(self, tmp_path: Path, matrix: sp.csr_array, content: bytes | None) -> None:
        """A file that is empty, cut or something else is refused by name."""
        path = tmp_path / "X.npz"
        if content is None:
            np.savez(path, a=np.zeros(3))
        else:
            path.write_bytes(content)
        with pytest.raises(DataError, match=r"X\.npz"):
            ingest(path, tmp_path / "s.zarr", unlabelled=True)

    def test_a_damaged_file(self, tmp_path: Path, matrix: sp.csr_array) -> None:
        """Indices that lead out of the matrix are refused with their row."""
        matrix.indices[matrix.indptr[7]] = 40
        sp.save_npz(tmp_path / "X.npz", matrix)
        with pytest.raises(BadRow, match=r"X\.npz: row 7: found feature 40, expected 0 to 39"):
            ingest(tmp_path / "X.npz", tmp_path / "s.zarr", unlabelled=True)

    @pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array, sp.coo_array])
    def test_repeated(self, tmp_path: Path, kind: Any) -> None:
        """An index that occurs twice in a row is refused, in whatever format the matrix was saved."""
        values = np.array([1.0, 2.0, 3.0, 4.0])
        places = {
            sp.csr_array: (np.array([2, 0, 1, 1]), np.array([0, 2, 4])),
            sp.csc_array: (np.array([0, 1, 1, 0]), np.array([0, 1, 3, 4])),
            sp.coo_array: (np.array([[0, 0, 1, 1], [2, 0, 1, 1]]),),
        }
        parts = (values, tuple(places[kind][0])) if kind is sp.coo_array else (values, *places[kind])
        repeated = kind(parts, shape=(2, 3))
        sp.save_npz(tmp_path / "X.npz", repeated)
        with pytest.raises(BadRow, match=r"X\.npz.*index .*twice"):
            ingest(tmp_path / "X.npz", tmp_path / "s.zarr", unlabelled=True)

    def test_unsorted(self, tmp_path: Path) -> None:
        """Indices in any order are sorted, and that is said."""
        found = sp.csr_array((np.arange(1.0, 6.0), np.array([2, 0, 0, 1, 1]), np.array([0, 2, 4, 5])), shape=(3, 3))
        sp.save_npz(tmp_path / "X.npz", found)
        assert ingest(tmp_path / "X.npz", tmp_path / "s.zarr", unlabelled=True).unsorted == 1
        np.testing.assert_array_equal(Store.open(tmp_path / "s.zarr").read(0)[0].toarray(), found.toarray())

    def test_not_finite(self, tmp_path: Path, matrix: sp.csr_array) -> None:
        """NaN is refused with its row and feature."""
        matrix.data[matrix.indptr[299]] = np.nan
        feature = matrix.indices[matrix.indptr[299]]
        with pytest.raises(BadRow, match=f"row 299, feature {feature}: found NaN"):
            ingest(matrix, tmp_path / "s.zarr", unlabelled=True)


class TestWeights:
    """Weights come with the rows or from beside them."""

    def sources(self, folder: Path) -> dict[str, tuple[Any, dict[str, Any]]]:
        """The same five rows, labels and weights in every way."""
        X, y, w = np.arange(10.0).reshape(5, 2), np.array([0, 1, 0, 1, 1]), np.array([1.0, 0.0, 2.5, 1e-3, 4.0])
        lines = [f"{a},{v},{b},{t}" for (a, b), v, t in zip(X.tolist(), w.tolist(), y.tolist(), strict=True)]
        (folder / "rows.csv").write_text("\n".join(["a,weight,b,label", *lines]))
        (folder / "plain.csv").write_text("\n".join(lines))
        np.save(folder / "X.npy", X)
        np.save(folder / "y.npy", y)
        np.save(folder / "w.npy", w)
        (folder / "w.txt").write_text("\n".join(map(str, w.tolist())) + "\n")
        (folder / "rows.svm").write_text("".join(f"{t} 1:{a} 2:{b}\n" for (a, b), t in zip(X, y, strict=True)))
        found: dict[str, tuple[Any, dict[str, Any]]] = {
            "column by name": (folder / "rows.csv", {"weights": "weight"}),
            "column by number": (folder / "plain.csv", {"weights": 1}),
            "npy": (folder / "X.npy", {"weights": folder / "w.npy"}),
            "text": (folder / "X.npy", {"weights": str(folder / "w.txt")}),
            "svmlight": (folder / "rows.svm", {"weights": str(folder / "w.npy"), "sparse": False}),
            "array": (X, {"labels": y, "weights": w}),
            "list": (X, {"labels": y, "weights": w.tolist()}),
        }
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            return found
        pq.write_table(pa.table({"a": X[:, 0], "weight": w, "b": X[:, 1], "label": y}), folder / "rows.parquet")
        return found | {"parquet": (folder / "rows.parquet", {"weights": "weight"})}

    def test_every_way_gives_the_same_store(self, tmp_path: Path) -> None:
        """Columns, files and arrays give one store, which has its weights."""
        digests = set()
        for name, (source, options) in self.sources(tmp_path).items():
            report = ingest(source, tmp_path / f"{name}.zarr", **options)
            store = Store.open(tmp_path / f"{name}.zarr")
            weights = store.weights(0)
            assert weights is not None
            assert weights.tolist() == [1.0, 0.0, 2.5, 1e-3, 4.0], name
            assert (report.features, report.nbytes) == (2, store.nbytes) == (2, 5 * (8 + 4 + 8))
            assert report.weight_from
            digests.add(store.digest)
        assert len(digests) == 1

    def test_chosen_rows_keep_theirs(self, tmp_path: Path) -> None:
        """A choice of labels chooses weights with the rows."""
        source, options = self.sources(tmp_path)["npy"]
        ingest(source, tmp_path / "s.zarr", only=1, **options)
        weights = Store.open(tmp_path / "s.zarr").weights(0)
        assert weights is not None
        assert weights.tolist() == [0.0, 1e-3, 4.0]

    @pytest.mark.parametrize(("value", "shown"), [("-0.5", "-0.5"), ("nan", "nan"), ("inf", "inf")])
    def test_refused_by_row(self, tmp_path: Path, value: str, shown: str) -> None:
        """Negative and not finite weights are refused with line or row."""
        (tmp_path / "rows.csv").write_text(f"a,w,label\n1,1,0\n2,{value},1\n")
        message = f"found weight {shown}, expected a number from 0 to 1e.200; 0 leaves a row out"
        with pytest.raises(BadRow, match=f"rows.csv, line 3: {message}"):
            ingest(tmp_path / "rows.csv", tmp_path / "s.zarr", weights="w")
        with pytest.raises(BadRow, match=f"array, row 1: {message}"):
            ingest(np.eye(2), tmp_path / "s.zarr", labels=[0, 1], weights=[1.0, float(value)])

    def test_all_zero(self, tmp_path: Path) -> None:
        """Weights that leave nothing are refused, and nothing is written."""
        with pytest.raises(BadRow, match="all weights are"):
            ingest(np.eye(2), tmp_path / "s.zarr", labels=[0, 1], weights=[0, 0])
        assert not (tmp_path / "s.zarr").exists()

    @pytest.mark.parametrize(
        ("weights", "message"),
        [
            (np.ones(3), "array holds 2 rows, weights holds 3 weights: expected as many"),
            (np.ones((2, 2)), "expected one number per row"),
            (["a", "b"], "expected one number per row"),
            ("nowhere.npy", "nowhere.npy"),
        ],
    )
    def test_what_does_not_fit(self, tmp_path: Path, weights: Any, message: str) -> None:
        """Another number of weights, or something else, is refused before anything is written."""
        with pytest.raises(CoremarginError, match=message):
            ingest(np.eye(2), tmp_path / "s.zarr", labels=[0, 1], weights=weights)
        assert not (tmp_path / "s.zarr").exists()

    def test_text_is_counted_and_read(self, tmp_path: Path) -> None:
        """Text files are found too short, too long or no numbers, by line."""
        for text, message in (
            ("1\n", "array holds 2 rows, .*w.txt holds 1 weights"),
            ("1\n1\n1\n", "array holds 2 rows, .*w.txt holds 3 weights"),
            ("1\nheavy\n", "w.txt, line 2: found 'heavy', expected a number"),
        ):
            (tmp_path / "w.txt").write_text(text)
            with pytest.raises(DataError, match=message):
                ingest(np.eye(2), tmp_path / "s.zarr", labels=[0, 1], weights=tmp_path / "w.txt")

    def test_columns(self, tmp_path: Path) -> None:
        """The column of weights is none of the features; it cannot be the label, nor be dropped."""
        (tmp_path / "rows.csv").write_text("a,w,label\n1,1,0\n2,2,1\n")
        for options in ({"weights": "label"}, {"weights": "w", "drop": "w"}):
            with pytest.raises(UsageError, match="is dropped or is the label"):
                ingest(tmp_path / "rows.csv", tmp_path / "s.zarr", **options)
        with pytest.raises(UsageError, match="no column named 'nothing'"):
            ingest(tmp_path / "rows.csv", tmp_path / "s.zarr", weights="nothing")

    def test_append(self, tmp_path: Path) -> None:
        """Rows are appended with weights where the store has them, and without where it has none."""
        X, labels = np.eye(2), [0, 1]
        ingest(X, tmp_path / "w.zarr", labels=labels, weights=[1, 2])
        ingest(X, tmp_path / "n.zarr", labels=labels)
        with pytest.raises(UsageError, match="has weights: say --weights"):
            ingest(X, tmp_path / "w.zarr", labels=labels, append=True)
        with pytest.raises(UsageError, match="has none: leave --weights out"):
            ingest(X, tmp_path / "n.zarr", labels=labels, append=True, weights=[1, 2])
        ingest(X, tmp_path / "w.zarr", labels=labels, append=True, weights=[3, 4])
        weights = Store.open(tmp_path / "w.zarr").weights(0)
        assert weights is not None
        assert weights.tolist() == [1, 2, 3, 4]


class TestCommand:
    """What the command line says."""

    def test_says_what_it_did(self, tmp_path: Path, run_cli: Callable[..., Result]) -> None:
        """Sparse, zeros, order and weights are on the screen."""
        path = svm(tmp_path, "1 90:1 3:2 7:0\n-1 5:1\n")
        np.save(tmp_path / "w.npy", [1.0, 2.0])
        shown = run_cli("ingest", path, tmp_path / "s.zarr", "--weights", tmp_path / "w.npy", "-q").stdout
        assert "sparse: 3 nonzero values, 1.67% of all (--dense stores all)" in shown
        assert "explicit zeros dropped: 1" in shown
        assert "rows with unsorted indices, sorted: 1" in shown
        assert f"weights from {tmp_path}/w.npy" in shown
        assert "sparse" in run_cli("info", tmp_path / "s.zarr").stdout
        found = json.loads(run_cli("info", tmp_path / "s.zarr", "--json").stdout)
        assert (found["sparse"], found["nonzeros"], found["weighted"]) == (True, 3, True)
        assert "undamaged" in run_cli("check", tmp_path / "s.zarr", "-q").stdout

    def test_dense_on_request(self, tmp_path: Path, run_cli: Callable[..., Result]) -> None:
        """--dense keeps all; a dry run says the same as the real one."""
        path = svm(tmp_path)
        for options in (["--dense"], ["--sparse"]):
            dry = json.loads(run_cli("ingest", path, tmp_path / "x.zarr", *options, "--dry-run", "--json", "-q").stdout)
            real = run_cli("ingest", path, tmp_path / f"{options[0]}.zarr", *options, "--json", "-q").stdout
            for key in ("sparse", "nonzeros", "nbytes", "rows"):
                assert dry[key] == json.loads(real)[key]
            assert dry["sparse"] == (options == ["--sparse"])
