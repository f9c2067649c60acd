from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import crc32c
import numpy as np
import pytest
from sklearn import datasets, svm

from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import ClaimRefuted, DamagedChunk, DataError, StoreError, UsageError
from coremargin.models.model import Model
from coremargin.verify import sums, verify
from coremargin.verify.examine import examine
from coremargin.verify.sums import combination, dot_products, length, normalised_weights, row_lengths
from model_kit import certified_record

#: Two classes in the plane, 2 apart in x; rows 0 and 1 are the nearest pair. Row 5 has no label.
X = np.array([[-1, 0], [1, 0], [-2, 3], [4, -1], [-1.5, -2], [0, 0], [3, 5]], dtype=np.float32)
Y = ["a", "b", "a", "b", "a", None, "b"]


def make_store(
    path: Path, rows: np.ndarray = X, labels: Any = tuple(Y), *, chunk_rows: int = 2, **options: Any
) -> Path:
    """A store in small chunks."""
    chunk_bytes = chunk_rows * rows.shape[1] * rows.dtype.itemsize
    with StoreWriter.create(
        path, features=rows.shape[1], dtype=rows.dtype.name, chunk_bytes=chunk_bytes, **options
    ) as w:
        w.write(rows, list(labels))
    return path


def make_model(store: Path, *, record: dict[str, Any] | None = None, certificate: dict[str, Any] | None = None,
               **arrays: Any) -> Model:  # fmt: skip
    """The maximum-margin model of the plane above: w = (1, 0), b = 0, margin 1; anything can be replaced by a lie."""
    opened = Store.open(store)
    facts = {
        "classes": ["a", "b"],
        "features": opened.features,
        "rows": opened.rows,
        "dtype": opened.dtype.name,
    }
    claims = {
        "coreset_rows": len(arrays.get("alpha", (0, 0))),
        "store_digest": opened.digest,
        "radius": float(opened.scalars().max_norm.max()),
    }
    values = certified_record(facts, **(claims | (certificate or {})))
    default = {
        "w": np.array([1.0, 0.0]),
        "b": 0.0,
        "alpha": np.ones(2),
        "coreset_ids": np.array([0, 1]),
        "coreset_x": X[:2].astype(np.float64),
        "coreset_y": np.array([-1, 1]),
    }
    numbers = default | arrays
    rows = numbers.pop("coreset_x")
    return Model(values | (record or {}), numbers | {"b": np.array([numbers["b"]])}, rows)


def saved(model: Model, path: Path) -> Path:
    """The model in its folder."""
    model.save(path, {}, [], overwrite=True)
    return path


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """The rows above."""
    return make_store(tmp_path / "s.zarr")


def failures(model: Path, store: Path) -> dict[str, str]:
    """Names and messages of the false claims."""
    return {check.name: check.text for check in examine(model, store).failures}


def test_a_true_certificate_is_confirmed(tmp_path: Path, store: Path) -> None:
    """Exact claims pass without any tolerance, rows without label are counted apart."""
    result = verify(saved(make_model(store), tmp_path / "m"), store)
    assert result.ok
    assert (result.lower, result.upper) == (1.0, 1.0)
    assert (result.rows, result.unlabelled) == (7, 1)
    assert [check.name for check in result.checks] == [
        "rows", "classes", "hypothesis", "status", "dual weights", "upper bound", "content", "coreset", "lower bound",
        "radius",
    ]  # fmt: skip
    texts = {check.name: check.text for check in result.checks}
    assert texts["lower bound"] == (
        "all 6 rows, 1 without label not counted, have at least 1; lowest: row 0 (class 'a') has margin 1"
    )
    assert result.unchecked
    assert json.loads(json.dumps(result.to_dict()))["ok"] is True


def _ulp(value: float, up: bool) -> float:
    return float(np.nextafter(value, np.inf if up else -np.inf))


@pytest.mark.specimens(15)
@pytest.mark.parametrize(
    ("change", "failing", "message"),
    [
        (
            {"certificate": {"lower": _ulp(1.0, True)}},
            "lower bound",
            "model claims 1.0000000000000002, row 0 (class 'a') has margin 1",
        ),
        (
            {"certificate": {"upper": _ulp(1.0, False)}},
            "upper bound",
            "model claims 0.9999999999999999, 2 coreset rows prove at most 1",
        ),
        ({"certificate": {"upper": 0.9}}, "upper bound", "model claims 0.9, 2 coreset rows prove at most 1"),
        ({"certificate": {"lower": 0.5}}, "status", "its own numbers do not say so"),
        ({"certificate": {"lower": 0.5}}, "ratio", "model claims 1, its own bounds give 0.5"),
        ({"certificate": {"ratio": 0.5}}, "ratio", "model claims 0.5, its own bounds give 1"),
        ({"certificate": {"epsilon": 1e-9}}, "epsilon", "parameters say 0.001, certificate says 1e-09"),
        ({"certificate": {"lower": None}}, "status", "lower none"),
        ({"certificate": {"upper": None}}, "status", "upper none"),
        ({"certificate": {"store_digest": f"sha256:{12:064}"}}, "content", f"model claims sha256:{12:064}"),
        ({"certificate": {"radius": 1.0}}, "radius", "model claims 1, the longest row has norm 5.83"),
        ({"certificate": {"kind": "not_separable"}}, "status", "not_separable"),
        ({"record": {"status": "stopped"}, "certificate": {"kind": "not_separable"}}, "status", "'stopped' of a 'not_"),
        ({"record": {"status": "not_separable"}}, "status", "model claims that nothing separates the rows"),
        ({"record": {"status": "not_separable"}}, "overlap", "its proof leaves 1, zero is at most"),
        ({"record": {"rows": 8}}, "rows", "model claims 8 rows x 2 features of float32, the store has 7 rows"),
        ({"record": {"dtype": "float64"}}, "rows", "of float64, the store has 7 rows x 2 features of float32"),
        ({"record": {"classes": ["a", "c"]}}, "classes", "and 'c' (positive), the store has 'a', 'b'"),
        ({"record": {"classes": ["b", "a"]}}, "coreset", "rows 0, 1 are of another class in the store"),
        ({"record": {"classes": ["b", "a"]}}, "lower bound", "has margin -4; 6 of 6 rows are below"),
        (
            {"record": {"parameters": {"epsilon": 0.001, "intercept": False, "strategy": "fast"}}},
            "dual weights",
            "of the coreset sum to 2",
        ),
        ({"w": np.array([0.6, 0.8])}, "lower bound", "row 2 (class 'a') has margin -1.2"),
        ({"w": np.array([2.0, 0.0])}, "hypothesis", "||w|| = 2, b = 0: expected ||w|| = 1"),
        ({"b": 0.25}, "lower bound", "row 0 (class 'a') has margin 0.75; 1 of 6 rows are below"),
        ({"alpha": np.array([1.0, -1.0])}, "dual weights", "the weight of row 1 is -1"),
        ({"alpha": np.array([1.0, 0.5])}, "dual weights", "the weights of class 'b' sum to 0.5, expected 1"),
        ({"alpha": np.array([1.0, 0.0])}, "dual weights", "class 'b' sum to 0"),
        ({"alpha": np.ones(2), "coreset_ids": np.array([0, 3])}, "coreset", "row 3 is not what the store holds"),
        ({"coreset_ids": np.array([0, 700])}, "coreset", "row 700 is not in the store, which ends at row 6"),
        ({"coreset_ids": np.array([-1, 1])}, "coreset", "row -1 is not in the store"),
        ({"coreset_x": np.array([[-1, 0], [_ulp(1.0, True), 0]])}, "coreset", "row 1 is not what the store holds"),
        ({"coreset_x": np.array([[-1, -0.0], [1, 0]])}, "coreset", "row 0 is not what the store holds"),
        ({"coreset_y": np.array([-1, -1])}, "coreset", "row 1 is of another class"),
    ],
)
def test_every_false_claim_has_its_own_message(
    tmp_path: Path, store: Path, change: dict[str, Any], failing: str, message: str
) -> None:
    """A lie of one unit in the last place or more is found, and said where it is."""
    path = saved(make_model(store, **change), tmp_path / "m")
    found = failures(path, store)
    assert message in found.get(failing, str(found))
    with pytest.raises(ClaimRefuted) as error:
        verify(path, store)
    assert error.value.exit_code == 4
    for text in found.values():
        assert text in str(error.value)


def test_a_weight_moved_to_another_row_breaks_the_upper_bound(tmp_path: Path, store: Path) -> None:
    """Weights that sum to 1 but are not the best prove less than is claimed."""
    changes = {
        "alpha": np.array([0.9, 0.1, 1.0]),
        "coreset_ids": np.array([0, 2, 1]),
        "coreset_x": X[[0, 2, 1]].astype(np.float64),
        "coreset_y": np.array([-1, -1, 1]),
    }
    assert set(failures(saved(make_model(store, **changes), tmp_path / "m"), store)) == {"upper bound"}


def test_an_intercept_where_there_should_be_none(tmp_path: Path) -> None:
    """Without intercept the offset must be 0, the weights sum to 1 in all, and the bound is the whole norm."""
    store = make_store(tmp_path / "s.zarr")
    record = {"parameters": {"epsilon": 0.001, "intercept": False, "strategy": "fast"}}
    path = saved(make_model(store, record=record, alpha=np.array([0.5, 0.5])), tmp_path / "m")
    assert verify(path, store).upper == 1.0
    path = saved(make_model(store, record=record, alpha=np.array([0.5, 0.5]), b=1e-9), tmp_path / "m")
    assert "b = 1e-09: expected ||w|| = 1 and b = 0" in failures(path, store)["hypothesis"]


def test_a_stopped_run_may_claim_less(tmp_path: Path, store: Path) -> None:
    """True bounds without the proof of epsilon are confirmed as what they are; missing bounds claim nothing."""
    record = {"status": "stopped"}
    path = saved(make_model(store, record=record, certificate={"lower": 0.5, "ratio": 0.5}), tmp_path / "m")
    assert verify(path, store).status == "stopped"
    nothing = {"lower": None, "upper": None, "ratio": None}
    result = verify(saved(make_model(store, record=record, certificate=nothing), tmp_path / "m"), store)
    assert (result.lower, result.upper, result.claimed_lower) == (None, None, None)


def test_overlapping_classes_are_proven_by_rows_whose_hulls_meet(tmp_path: Path) -> None:
    """Overlap is confirmed by a combination of the coreset of length zero, and refuted by any other."""
    rows = np.array([[0, 0], [2, 2], [0, 2], [2, 0]], dtype=np.float32)
    store = make_store(tmp_path / "s.zarr", rows, "aabb")
    changes: dict[str, Any] = {
        "record": {"status": "not_separable"},
        "certificate": {"kind": "not_separable", "lower": None, "upper": 1e-18, "ratio": None, "coreset_rows": 4},
        "alpha": np.full(4, 0.5),
        "coreset_ids": np.arange(4),
        "coreset_x": rows.astype(np.float64),
        "coreset_y": np.array([-1, -1, 1, 1]),
    }
    result = verify(saved(make_model(store, **changes), tmp_path / "m"), store)
    assert result.upper == 0.0
    changes["alpha"] = np.array([0.5, 0.5, 0.6, 0.4])
    assert set(failures(saved(make_model(store, **changes), tmp_path / "m"), store)) == {"upper bound", "overlap"}


@pytest.mark.parametrize(
    ("rows", "labels", "names"),
    [
        (X, ["a", "b", "a", "b", "a", None, "a"], {"content", "lower bound"}),
        (X + np.float32([0, 1]), Y, {"content", "coreset", "radius"}),
        (X * np.float32([0.5, 1]), Y, {"content", "coreset", "lower bound", "radius"}),
    ],
    ids=["label flipped", "rows moved", "rows shrunk"],
)
def test_a_rewritten_store_is_another_store(
    tmp_path: Path, store: Path, rows: np.ndarray, labels: Any, names: set[str]
) -> None:
    """A store that was written again with other labels or rows is whole, but not what the certificate is about."""
    path = saved(make_model(store), tmp_path / "m")
    make_store(store, rows, labels, overwrite=True)
    assert set(failures(path, store)) == names


def test_rows_appended_after_training_are_named(tmp_path: Path, store: Path) -> None:
    """A store that grew is refused, with the reason."""
    path = saved(make_model(store), tmp_path / "m")
    with StoreWriter.append(store) as writer:
        writer.write(np.array([[0.25, 0]], dtype=np.float32), ["b"])
    found = failures(path, store)
    assert set(found) == {"rows", "content", "lower bound"}
    assert "rows were appended after training" in found["rows"]
    assert "row 7 (class 'b') has margin 0.25" in found["lower bound"]


def test_a_row_of_other_features_stops_before_the_scan(tmp_path: Path, store: Path) -> None:
    """When features differ there is nothing to scan for, and the rest is still reported."""
    path = saved(make_model(store), tmp_path / "m")
    other = make_store(tmp_path / "other.zarr", np.ones((3, 3), dtype=np.float32), "abc")
    result = examine(path, other)
    assert {check.name for check in result.failures} == {"rows"}
    assert result.lower is None


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("missing", "is missing"),
        ("cut", "cannot be read"),
        ("flip", "cannot be read"),
        ("crc", "rows are not what was ingested"),
    ],
)
@pytest.mark.parametrize("threads", [1, 3])
def test_damaged_chunks_are_damage(tmp_path: Path, store: Path, kind: str, message: str, threads: int) -> None:
    """A chunk that is missing, cut, flipped, or changed together with its checksum is named: exit code 3."""
    path = saved(make_model(store), tmp_path / "m")
    chunk = store / "X" / "c.2.0"
    data = bytearray(chunk.read_bytes())
    if kind == "missing":
        chunk.unlink()
    else:
        data[0] ^= 1
        if kind == "crc":
            data[-4:] = crc32c.crc32c(bytes(data[:-4])).to_bytes(4, "little")
        chunk.write_bytes(data[:7] if kind == "cut" else data)
    with pytest.raises(DamagedChunk, match=message) as error:
        verify(path, store, threads=threads)
    assert "chunk 2 (rows 4 to 5)" in str(error.value)
    assert error.value.exit_code == 3


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_and_encodings_do_not_matter(tmp_path: Path, compression: str, dtype: str, threads: int) -> None:
    """The outcome is the same to the bit for any number of threads, and equal for any encoding."""
    store = make_store(tmp_path / "s.zarr", X.astype(dtype), compression=compression)
    seen: list[tuple[int, int]] = []
    result = verify(
        saved(make_model(store), tmp_path / "m"), store, threads=threads, on_progress=lambda *done: seen.append(done)
    )
    assert (result.lower, result.upper, result.unlabelled) == (1.0, 1.0, 1)
    assert seen == [(2, 7), (4, 7), (6, 7), (7, 7)]


def _edit(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.update(format="x"), "expected a record of format"),
        (lambda r: r.update(version=2), "expected version 1, found 2"),
        (lambda r: r.update(problem="other"), "problem: invalid value 'other'"),
        (lambda r: r.pop("classes"), "key 'classes' is missing"),
        (lambda r: r.update(classes=["a"]), "classes: expected a list of length >= 2"),
        (
            lambda r: r["certificate"].update(lower="1"),
            "certificate.lower: expected float",
        ),
        (lambda r: r["certificate"].update(lower=True), "got bool; found True"),
        (lambda r: r["parameters"].update(intercept=1), "parameters.intercept: expected bool"),
        (
            lambda r: r["certificate"].update(coreset_rows=3),
            r"coreset_ids: expected shape \(3\)",
        ),
        (lambda r: r.update(features=3), r"coreset_x: expected shape \(2, 3\)"),
    ],
)
def test_a_model_that_makes_no_sense_is_unreadable(
    tmp_path: Path, store: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    """A record of another kind, of a newer version or with keys missing is a data error, not a refuted claim."""
    path = saved(make_model(store), tmp_path / "m")
    _edit(path / "model.json", change)
    with pytest.raises(DataError, match=message):
        verify(path, store)


def test_broken_files_of_a_model_are_named(tmp_path: Path, store: Path) -> None:
    """Missing and truncated files of a model are named."""
    path = saved(make_model(store), tmp_path / "m")
    for name, message in (
        ("arrays.npz", r"arrays\.npz: truncated or altered"),
        ("model.json", r"model\.json: expected JSON"),
    ):
        whole = (path / name).read_bytes()
        (path / name).write_bytes(whole[:-7])
        with pytest.raises(DataError, match=message):
            verify(path, store)
        (path / name).unlink()
        with pytest.raises(DataError, match=name):
            verify(path, store)
        (path / name).write_bytes(whole)
    (path / "model.json").write_text("[" * 100_000)
    with pytest.raises(DataError, match="nested too deep"):
        verify(path, store)
    np.savez(path / "arrays.npz", w=np.array([print], dtype=object))
    (path / "model.json").write_text(json.dumps(dict(make_model(store).record)))
    with pytest.raises(DataError, match="could run code: refused"):
        verify(path, store)


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        ("zarr.json", lambda r: r["attributes"].update(format="x"), "found another kind of Zarr data"),
        ("zarr.json", lambda r: r["attributes"].update(version=6), "expected a store of format 5, found 6"),
        ("zarr.json", lambda r: r["attributes"].pop("rows"), "key 'rows' is missing"),
        ("zarr.json", lambda r: r["attributes"].update(rows=70), "rows of the last commit, 7, got 70"),
        ("zarr.json", lambda r: r["attributes"].update(dtype="float64"), "expected float64 for 7 rows"),
        ("zarr.json", lambda r: r["attributes"]["commits"][0].update(first=1), "no commit covers chunk 0"),
        (
            "X/zarr.json",
            lambda r: r["codecs"].insert(1, {"name": "gzip", "configuration": {"level": 1}}),
            "gzip",
        ),
    ],
)
def test_a_store_that_makes_no_sense_is_refused(
    tmp_path: Path, store: Path, file: str, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    """Another kind of data, a newer format and metadata that do not fit are store errors."""
    path = saved(make_model(store), tmp_path / "m")
    _edit(store / file, change)
    with pytest.raises(StoreError, match=message):
        verify(path, store)


def test_no_store_and_no_threads(tmp_path: Path, store: Path) -> None:
    """Nothing at the store's place, and fewer than one thread, are refused."""
    path = saved(make_model(store), tmp_path / "m")
    with pytest.raises(StoreError, match="found nothing there"):
        verify(path, tmp_path / "nowhere")
    with pytest.raises(UsageError, match="threads"):
        verify(path, store, threads=0)
    shutil.copy(store / "X" / "zarr.json", store / "zarr.json")
    with pytest.raises(StoreError, match="unknown key|node_type"):
        verify(path, store)


def test_slabs_do_not_change_the_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: Path) -> None:
    """Cutting chunks into slabs of one row finds the same."""
    path = saved(make_model(store), tmp_path / "m")
    whole = examine(path, store)
    monkeypatch.setattr(sums, "SLAB_VALUES", 1)
    assert examine(path, store) == whole


@pytest.mark.parametrize("name", ["digits", "breast_cancer", "iris"])
def test_models_of_another_solver_are_confirmed(tmp_path: Path, name: str) -> None:
    """Bounds from scikit-learn's SVC at C = 1e10, rounded outward, are confirmed; a shade more is refuted."""
    rows, target = getattr(datasets, f"load_{name}")(return_X_y=True)
    if name != "breast_cancer":
        rows, target = rows[target < 2], target[target < 2]
    else:  # not separable with few features: lift it
        rng = np.random.default_rng(0)
        rows = np.hstack([rows, np.eye(len(rows))[:, rng.permutation(len(rows))] * 5])
    rows = (rows / np.abs(rows).max(axis=0, initial=1e-9)).astype(np.float32)
    labels = ["ab"[code] for code in target]
    store = make_store(tmp_path / "s.zarr", rows, labels, chunk_rows=100)
    fitted = svm.SVC(kernel="linear", C=1e10, tol=1e-9).fit(rows.astype(np.float64), target)
    ids = fitted.support_
    alpha, y = np.abs(fitted.dual_coef_[0]), np.where(target[ids] == 1, 1, -1)
    for sign in (-1, 1):
        alpha[y == sign] /= alpha[y == sign].sum()
    x = rows[ids].astype(np.float64)
    w = fitted.coef_[0] / np.linalg.norm(fitted.coef_[0])
    b = float(fitted.intercept_[0] / np.linalg.norm(fitted.coef_[0]))
    lower = float((np.where(target == 1, 1, -1) * (rows @ w + b)).min())
    upper = float(np.linalg.norm((alpha * y) @ x) / 2)
    claims = {"lower": lower - 1e-12, "upper": upper + 1e-12, "coreset_rows": len(ids), "epsilon": 0.01}
    claims["ratio"] = claims["lower"] / claims["upper"]
    arrays = {"w": w, "b": b, "alpha": alpha, "coreset_ids": ids, "coreset_x": x, "coreset_y": y}
    record = {"parameters": {"epsilon": 0.01, "intercept": True, "strategy": "fast"}}
    model = make_model(store, record=record, certificate=claims, **arrays)
    result = verify(saved(model, tmp_path / "m"), store)
    assert result.lower == pytest.approx(lower, abs=1e-12)
    assert result.upper == pytest.approx(upper, abs=1e-12)
    for key, value in (("lower", lower + 1e-11), ("upper", upper - 1e-11)):
        lie = make_model(store, record=record, certificate=claims | {key: value}, **arrays)
        assert f"{key} bound" in failures(saved(lie, tmp_path / "m"), store)


@pytest.mark.specimens(1)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_trained_models_are_confirmed(tmp_path: Path, dtype: str, intercept: bool) -> None:
    """What our own trainer claims holds without any tolerance; a hair more than it claims does not."""
    import coremargin

    rows, target = datasets.load_digits(return_X_y=True)
    rows, target = rows[(target == 8) | (target == 9)], target[(target == 8) | (target == 9)]
    store = make_store(tmp_path / "s.zarr", rows.astype(dtype), target, chunk_rows=50)
    coremargin.train(store, out=tmp_path / "m", epsilon=1e-6, intercept=intercept)
    result = verify(tmp_path / "m", store)
    assert result.status == "certified"
    _edit(tmp_path / "m" / "model.json", lambda r: r["certificate"].update(lower=_ulp(result.lower or 0.0, up=True)))
    assert "lower bound" in failures(tmp_path / "m", store)


def test_overlap_found_by_our_own_trainer_is_confirmed(tmp_path: Path) -> None:
    """The proof that iris versicolor and virginica overlap holds."""
    import coremargin

    rows, target = datasets.load_iris(return_X_y=True)
    store = make_store(tmp_path / "s.zarr", rows[target > 0], target[target > 0], chunk_rows=50)
    coremargin.train(store, out=tmp_path / "m")
    assert verify(tmp_path / "m", store).status == "not_separable"


def _exact(values: Iterator[tuple[float, float]] | Any) -> Fraction:
    return sum((Fraction(a) * Fraction(b) for a, b in values), Fraction(0))


def test_sums_are_rounded_once() -> None:
    """Dot products, lengths and combinations agree with rational arithmetic to the last place, whatever cancels."""
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(6, 40)) * 10.0 ** rng.integers(-8, 9, size=(6, 40))
    w = rng.normal(size=40)
    w[1::2] = -w[::2] * (1 + 1e-15 * rng.normal(size=20))
    rows[:, 1::2] = rows[:, ::2]
    for row, value in zip(rows, dot_products(rows, w, 0.25), strict=True):
        assert value == float(_exact(zip(row.tolist(), w.tolist(), strict=True)) + Fraction(0.25))
    assert length(w) == pytest.approx(float(np.linalg.norm(w)), rel=4e-16)
    assert [length(np.array(v)) for v in ([3e200, 4e200], [3e-200, 4e-200], [0.0, 0.0])] == pytest.approx(
        [5e200, 5e-200, 0]
    )
    np.testing.assert_allclose(row_lengths(rows * 1e160), np.linalg.norm(rows, axis=1) * 1e160, rtol=1e-13)
    alpha = rng.random(6)
    high, low = normalised_weights(alpha, [np.arange(6) < 3, np.arange(6) >= 3])
    for k, value in enumerate(combination(rows, high, low)):
        totals = [sum(map(Fraction, alpha[:3])), sum(map(Fraction, alpha[3:]))]
        exact = sum(Fraction(alpha[i]) / totals[i // 3] * Fraction(rows[i, k]) for i in range(6))
        assert value == pytest.approx(float(exact), rel=3e-16)


def test_a_verification_can_be_compared() -> None:
    """Two outcomes of the same claims are equal, and one changed check makes them differ."""
    from coremargin.verify.checks import Check
    from coremargin.verify.outcome import Verification

    checks = (Check("rows", True, ""),)
    one = Verification("m", "s", "certified", 0.1, 1.0, 1.0, 1.0, 1.0, 2, 0, 2, checks, (), "hard_margin")
    assert one == replace(one)
    assert not replace(one, checks=(Check("rows", False, ""),)).ok
