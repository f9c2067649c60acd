"""Models of sparse rows: what is written, read, refused, predicted, shown, and checked by verify's own sums."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.sparse import coo_array, csc_array, csr_array, csr_matrix

import coremargin
from coremargin.data.arrays import ArraySource
from coremargin.errors import BadRow, DataError, UsageError
from coremargin.formats.model_files import read_model_files
from coremargin.formats.open_folder import read_folder
from coremargin.models.evaluate import evaluate
from coremargin.models.model import Model
from coremargin.problems.registry import write_report
from coremargin.verify.hard_margin import KIND
from coremargin.verify.rows import Chunk
from coremargin.verify.sums import (
    SLAB_ROWS,
    combination,
    dot_products,
    row_lengths,
    same_rows,
    slabs,
)

if TYPE_CHECKING:
    from coremargin.verify.claim import Claim


def read_claim(path: Path) -> Claim:
    """What a folder claims."""
    return read_folder(path, lambda model: KIND.claim(read_model_files(model)))


def documents(rng: np.random.Generator, n: int = 60, d: int = 1500, dtype: str = "float32") -> csr_array:
    """Rows with a few of d features, every 37th, from row 3 on, without any."""
    X = np.zeros((n, d), dtype)
    for row in X:
        row[rng.choice(d, 12, replace=False)] = rng.standard_normal(12)
    X[3::37] = 0.0
    return csr_array(X)


@pytest.fixture
def rows(rng: np.random.Generator) -> csr_array:
    """Sparse rows."""
    return documents(rng)


@pytest.fixture
def labels(rng: np.random.Generator, rows: csr_array) -> np.ndarray:
    """The side of a plane; zero rows are of one class."""
    return np.where(rows @ rng.standard_normal(rows.shape[1]) >= 0, "yes", "no")


@pytest.fixture
def model(rows: csr_array, labels: np.ndarray) -> Model:
    """Trained on them."""
    found = coremargin.train(rows, labels)
    assert isinstance(found, Model)
    assert found.status == "certified"
    return found


def test_the_coreset_is_kept_sparse(tmp_path: Path, rows: csr_array, model: Model) -> None:
    """Rows of the coreset are those of the data, in memory and after a round trip, without being made dense."""
    model.save(tmp_path / "m", report=write_report)
    again = Model.load(tmp_path / "m")
    for found in (model, again):
        assert isinstance(found.coreset_x, csr_array)
        assert found.coreset_x.dtype == np.float64
        assert abs(found.coreset_x - rows[found.coreset_ids]).max() == 0
        with pytest.raises(ValueError, match="read-only"):
            found.coreset_x.data[0] = 1.0
    with np.load(tmp_path / "m" / "arrays.npz") as arrays:
        assert {name for name in arrays.files if name.startswith("coreset_x")} == {
            "coreset_x_data", "coreset_x_indices", "coreset_x_indptr", "coreset_x_shape",
        }  # fmt: skip
        assert arrays["coreset_x_data"].size == model.coreset_x.nnz
    again.save(tmp_path / "again")
    assert (tmp_path / "again" / "arrays.npz").read_bytes() == (tmp_path / "m" / "arrays.npz").read_bytes()
    assert "coreset" in (tmp_path / "m" / "report.html").read_text(encoding="utf-8")


def damages(arrays: dict[str, np.ndarray]) -> dict[str, dict[str, np.ndarray | None]]:
    """Parts of a coreset that do not make rows, or not those of the record."""
    columns, starts, shape = (arrays[f"coreset_x_{name}"] for name in ("indices", "indptr", "shape"))
    beyond, turned, falling = columns.copy(), columns.copy(), starts.copy()
    beyond[0], falling[1] = shape[1], starts[2] + 1
    turned[:2] = turned[:2][::-1]
    values = arrays["coreset_x_data"].copy()
    values[0] = np.nan
    return {
        "missing": {"coreset_x_indptr": None},
        "beyond": {"coreset_x_indices": beyond},
        "negative": {"coreset_x_indices": columns - 1 - columns.max()},
        "turned": {"coreset_x_indices": turned},
        "falling": {"coreset_x_indptr": falling},
        "short": {"coreset_x_data": values[1:]},
        "nan": {"coreset_x_data": values},
        "words": {"coreset_x_data": np.array(["a"] * len(values))},
        "wider": {"coreset_x_shape": shape + np.array([0, 1])},
        "longer": {"coreset_x_shape": shape + np.array([1, 0])},
        "three": {"coreset_x_shape": np.array([*shape, 1])},
    }


def test_altered_parts_are_refused(tmp_path: Path, model: Model) -> None:
    """Whatever of the parts is altered, loading and verify's own reader both refuse it by name."""
    model.save(tmp_path / "m")
    path = tmp_path / "m" / "arrays.npz"
    with np.load(path) as found:
        arrays = {name: found[name] for name in found.files}
    assert read_claim(tmp_path / "m").x.shape == model.coreset_x.shape
    for name, change in damages(arrays).items():
        altered = {key: values for key, values in (arrays | change).items() if values is not None}
        np.savez(path, **altered)
        with pytest.raises(DataError, match=str(tmp_path / "m")):
            Model.load(tmp_path / "m")
        with pytest.raises(DataError, match=str(tmp_path / "m")):
            read_claim(tmp_path / "m")
        assert name


@pytest.mark.parametrize("kind", [csr_array, csr_matrix, csc_array, coo_array])
def test_decision_values_of_sparse_rows_are_those_of_dense_ones(rows: csr_array, model: Model, kind: Any) -> None:
    """SciPy's formats and kinds of numbers give the decision values and labels of the same rows dense."""
    dense = rows.toarray()
    expected = dense.astype(np.float64) @ model.w + model.b
    assert model.decision_function(kind(rows)) == pytest.approx(expected, abs=1e-12)
    assert model.decision_function(dense) == pytest.approx(expected, abs=1e-12)
    assert (model.predict(kind(rows)) == model.predict(dense)).all()
    counts = kind(np.round(dense * 3).astype(np.int16))
    assert model.decision_function(counts) == pytest.approx(np.round(dense * 3) @ model.w + model.b, abs=1e-12)


def test_a_sparse_row_that_cannot_be_judged_is_named(rows: csr_array, model: Model) -> None:
    """Other features, complex numbers and NaN are refused as those of dense rows."""
    with pytest.raises(UsageError, match="expected rows of 1500 features"):
        model.decision_function(rows[:, :100])
    with pytest.raises(UsageError, match="expected numbers, got complex"):
        model.decision_function(rows.astype(complex))
    bad = rows.copy()
    bad.data[bad.indptr[7]] = np.nan
    with pytest.raises(BadRow, match="row 7"):
        model.decision_function(bad)


def test_a_model_on_unit_rows_divides_sparse_rows_too(rows: csr_array, labels: np.ndarray) -> None:
    """With rows scaled to length 1, sparse rows to predict are divided by their lengths, in any format."""
    found = coremargin.train(rows, labels, scaling="rownorm")
    assert isinstance(found, Model)
    expected = found.decision_function(rows.toarray())
    assert found.decision_function(rows) == pytest.approx(expected, abs=1e-12)
    halves = coo_array(
        (np.tile(rows.data / 2, 2), (np.tile(rows.tocoo().row, 2), np.tile(rows.indices, 2))), rows.shape
    )
    assert found.decision_function(halves) == pytest.approx(expected, abs=1e-12)


def test_sparse_and_dense_models_are_the_same(rows: csr_array, labels: np.ndarray, model: Model) -> None:
    """Trained on the same rows dense, bounds agree and so do all labels."""
    dense = coremargin.train(rows.toarray(), labels)
    assert isinstance(dense, Model)
    for name in ("lower", "upper"):
        assert getattr(model.certificate, name) == pytest.approx(getattr(dense.certificate, name), rel=1e-6)
    assert (dense.predict(rows) == model.predict(rows)).all()
    assert evaluate(model, ArraySource(rows, labels)).accuracy == 1.0


# verify's own sums


@dataclass
class Store:
    """What a scan of verify needs to know of a store."""

    path: Path
    rows: int
    features: int
    dtype: str
    classes: tuple[str, ...]
    chunks: int = 4
    digest: str = ""


def examined(model: Model, rows: csr_array, labels: np.ndarray, folder: Path) -> dict[str, bool]:
    """The checks that verify makes of a model's rows, on chunks as a reader of sparse stores hands them out."""
    model.save(folder, overwrite=True)
    claim = read_claim(folder)
    store: Any = Store(folder, *rows.shape, str(rows.dtype), ("no", "yes"), digest=claim.store_digest)
    scan, step = KIND.scan(claim, store), -(-rows.shape[0] // 4)
    codes = (labels == "yes").astype(np.int32)
    for start in range(0, rows.shape[0], step):
        part = slice(start, start + step)
        scan.add(scan.probe(Chunk(start, rows[part], codes[part])))
    return {check.name: check.ok for check in [*KIND.bound(claim)[1], *scan.checks()]}


def test_verify_confirms_and_refutes_sparse_claims(
    tmp_path: Path, rows: csr_array, labels: np.ndarray, model: Model
) -> None:
    """True claims about sparse rows hold without tolerance; raised bounds, changed rows do not."""
    assert set(examined(model, rows, labels, tmp_path / "m").values()) == {True}
    certificate = model.record["certificate"]
    for name, factor in (("lower", 1 + 1e-9), ("upper", 1 - 1e-9)):
        record = {**model.record, "certificate": {**certificate, name: certificate[name] * factor}}
        found = examined(replace(model, record=record), rows, labels, tmp_path / "m")
        assert [key for key, ok in found.items() if not ok] == [f"{name} bound"]
    moved = rows.copy()
    first = moved.indptr[model.coreset_ids[0]]
    moved.data[first] = np.nextafter(moved.data[first], np.inf)
    assert not examined(model, moved, labels, tmp_path / "m")["coreset"]
    moved = rows.copy()
    moved.indices[first] += 1 if moved.indices[first + 1] > moved.indices[first] + 1 else -1
    moved.has_canonical_format = moved.has_sorted_indices = True
    assert not examined(model, moved, labels, tmp_path / "m")["coreset"]
    assert not examined(replace(model, coreset_x=model.coreset_x.toarray()), rows, labels, tmp_path / "m")["coreset"]


def exact(values: Any) -> list[Fraction]:
    """The rational numbers that floats are."""
    return [Fraction(float(value)) for value in values]


def test_sums_of_sparse_rows_are_rounded_once(rng: np.random.Generator) -> None:
    """Dot products and combinations of rows of mixed sizes are the exact rational numbers, rounded once."""
    X = documents(rng, 12, 40, "float64")
    X.data *= 10.0 ** rng.integers(-12, 13, X.nnz)
    w, weights = rng.standard_normal(40) * 10.0 ** rng.integers(-6, 7, 40), rng.random(12)
    found = dot_products(X, w, 0.25)
    for value, row in zip(found, X.toarray(), strict=True):
        assert value == float(sum((a * b for a, b in zip(exact(row), exact(w), strict=True)), Fraction(1, 4)))
    mixed = combination(X, weights, np.zeros(12))
    for value, column in zip(mixed, X.toarray().T, strict=True):
        assert value == float(sum((a * b for a, b in zip(exact(column), exact(weights), strict=True)), Fraction(0)))


def test_lengths_of_sparse_rows(rng: np.random.Generator) -> None:
    """Lengths are those of the rows dense, near both ends of float64 and for rows without values."""
    X = documents(rng, 50, 30, "float64")
    for scale in (1.0, 1e-140, 1e200):
        rows = X * scale
        assert row_lengths(rows) == pytest.approx(np.sqrt((X.toarray() ** 2).sum(axis=1)) * scale, rel=1e-14)
    assert (row_lengths(csr_array((3, 5))) < 1e-153).all()  # what squares that vanish may hide


def test_slabs_are_all_rows_in_order(rng: np.random.Generator) -> None:
    """Slabs of either kind, of few or many rows, are the rows in float64."""
    X = documents(rng, 3000, 60)
    for x in (X, X.toarray()):
        for most in (None, 7, SLAB_ROWS):
            parts = list(slabs(x, most))
            assert [part.start for part, _ in parts] == [0, *(part.stop for part, _ in parts)][:-1]
            assert parts[-1][0].stop == 3000
            assert all(found.dtype == np.float64 and found.shape[0] <= (most or 3000) for _, found in parts)
            whole = np.vstack([found if x is not X else found.toarray() for _, found in parts])
            assert (whole == X.toarray()).all()


def test_equal_rows_are_told_from_others(rng: np.random.Generator) -> None:
    """Rows are equal when columns and values are, to the bit; -0.0 is not 0.0, and kinds do not mix."""
    X = documents(rng, 10, 30, "float64")
    Z = X.copy()
    Z.data[Z.indptr[4]] *= 1 + 2e-16
    Z.data[Z.indptr[6]] = 0.0
    expected = [k not in (4, 6) for k in range(10)]
    assert same_rows(X, Z).tolist() == expected
    assert same_rows(X.toarray(), Z.toarray()).tolist() == expected
    assert not same_rows(X, X.toarray()).any()
    assert not same_rows(np.array([[0.0]]), np.array([[-0.0]])).any()
