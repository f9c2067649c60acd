"""Several classes at once: values that rounding, prices or weights would make look better, overlaps that are none."""

from __future__ import annotations

import tracemalloc
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
from scipy.sparse import csr_array

import coremargin
from coremargin.data.local_storage import LocalStorage
from coremargin.data.writer import StoreWriter
from coremargin.formats.store_record import read_store_record
from coremargin.verify.crammer_singer import dual
from coremargin.verify.examine import examine
from model_kit import altered, store_of

if TYPE_CHECKING:
    from coremargin.verify.crammer_singer import ClassesClaim

_EMPTY = dict.fromkeys(("coreset_ids", "coreset_x", "coreset_classes", "duals"), lambda rows: rows[:0])


def _trained(place: Path, X: np.ndarray, labels: list[str], **asked: Any) -> Path:
    store = store_of(place / "s.zarr", X, labels, 64)
    coremargin.train(store, out=place / "m", classes="crammer-singer", loss="hinge", C=1.0, intercept=False, **asked)
    return store


def _stopped(store: Path, X: np.ndarray, upper: float) -> dict[str, Any]:
    """A claim about the value alone, of other rows than were trained on."""
    longest = float(np.abs(X).max())
    radius = float(np.linalg.norm(X / longest, axis=1).max()) * longest * (1 + 1e-9)
    claims = {"lower": None, "upper": upper, "ratio": None, "coreset_rows": 0, "radius": radius}
    claims["store_digest"] = read_store_record(LocalStorage(store)).commits[-1].digest
    return {"status": "stopped", "rows": len(X)} | {f"certificate.{name}": value for name, value in claims.items()}


def test_hypotheses_whose_squares_vanish_round_as_others_do(tmp_path: Path) -> None:
    """Of a short hypothesis and long rows scores are as large as any, and so is what plain sums lose of them."""
    rng = np.random.default_rng(3)
    w = rng.normal(size=4) * 1e-170
    v = np.zeros((2, 5))
    v[1, :4] = w
    X = rng.normal(size=(4000, 4)) * 1e187
    X[:, 3] = -(X[:, 0] * w[0] + X[:, 1] * w[1] + X[:, 2] * w[2]) / w[3]
    fast = (X @ v[:, :4].T)[:, 1]
    sums = [sum(Fraction(a) * Fraction(b) for a, b in zip(row, w.tolist(), strict=True)) for row in X.tolist()]
    sides = np.where(fast > 0, 1, -1)
    lost = [k for k in range(len(X)) if abs(fast[k]) > 2 and sums[k] * int(sides[k]) < -2][:20]
    labels = ["ab"[int(side > 0)] for side in sides[lost]]
    assert len(lost) == 20
    assert set(labels) == {"a", "b"}
    _trained(tmp_path, rng.normal(size=(20, 4)), ["ab"[k % 2] for k in range(20)])
    store = store_of(tmp_path / "far.zarr", X[lost], labels, 64)
    claims = _stopped(store, X[lost], 1e-3)
    place = altered(tmp_path / "m", tmp_path / "bad", claims, hypothesis=v, reference=np.zeros_like(v), **_EMPTY)
    assert {check.name for check in examine(place, store).failures} == {"value"}


@pytest.mark.parametrize("cost", [5e-324, 1e300])
def test_prices_that_sums_cannot_bear_are_refused(tmp_path: Path, cost: float) -> None:
    """A price of the least float times a loss of 0.4 is nothing, and so would be the value of any hypothesis."""
    y = np.arange(10) % 2
    X = np.where(y == 1, 1e170, -1e170)[:, None]
    v = np.array([[-0.3e-170, 0.0], [0.3e-170, 0.0]])
    labels = ["ab"[k] for k in y]
    _trained(tmp_path, X / 1e170, labels)
    store = store_of(tmp_path / "far.zarr", X, labels, 64)
    claims = _stopped(store, X, cost) | {"parameters.C": cost}
    place = altered(tmp_path / "m", tmp_path / "bad", claims, hypothesis=v, reference=np.zeros_like(v), **_EMPTY)
    assert "per-sample C" in {check.name for check in examine(place, store).failures}


def test_infeasible_weights_prove_nothing(tmp_path: Path) -> None:
    """Weights above their prices are no dual point: where nothing is claimed by them, nothing is found either."""
    rng = np.random.default_rng(3)
    store = _trained(tmp_path, rng.normal(size=(60, 4)), ["abc"[k % 3] for k in range(60)])
    honest = examine(tmp_path / "m", store)
    claims = {"status": "stopped", "certificate.lower": None, "certificate.ratio": None, "certificate.upper": 61.0}
    nothing = np.zeros((3, 5))
    place = altered(tmp_path / "m", tmp_path / "bad", claims, hypothesis=nothing, duals=lambda duals: duals * 1.02)
    result = examine(place, store)
    assert honest.ok
    assert result.ok
    assert result.lower is not None
    assert honest.upper is not None
    assert result.lower <= honest.upper


def _beside(long: float, seed: int, tmp_path: Path, *, spoilt: bool = False) -> tuple[np.ndarray, np.ndarray, Path]:
    """Rows of three classes with a margin, one of length ``long`` beside them; spoilt: one stands in two classes."""
    rng = np.random.default_rng(seed)
    V, X = rng.normal(size=(3, 4)), rng.normal(size=(600, 4))
    best = np.sort(X @ V.T, axis=1)
    X = X[best[:, -1] - best[:, -2] > 0.5][:40]
    X = np.vstack([X, X[0] * long / np.linalg.norm(X[0])])
    y = (X @ V.T).argmax(axis=1)
    if spoilt:
        X, y = np.vstack([X, X[:1]]), np.append(y, (y[0] + 1) % 3)
    return X, y, store_of(tmp_path / "s.zarr", X, ["abc"[k] for k in y], 64)


def _sparse_store(place: Path, X: np.ndarray, y: np.ndarray) -> Path:
    """A store of the rows, zeros left out."""
    with StoreWriter.create(place, features=X.shape[1], dtype="float64", chunk_rows=60, sparse=True) as writer:
        writer.write(csr_array(X), ["abc"[k] for k in y])
    return place


def _with_sparse_coreset(model: Path, bad: Path) -> Path:
    """The model with the same coreset, zeros left out."""
    with np.load(model / "arrays.npz") as arrays:
        rows = csr_array(arrays["coreset_x"])
    parts = {"data": rows.data, "indices": rows.indices.astype(np.int32), "indptr": rows.indptr.astype(np.int32)}
    parts["shape"] = np.array(rows.shape, np.int64)
    return altered(model, bad, coreset_x=None, **{f"coreset_x_{name}": part for name, part in parts.items()})


def _claimed(place: Path, bad: Path, X: np.ndarray, y: np.ndarray, duals: np.ndarray) -> Path:
    """The model with the claim that these weights (m, K) of all rows prove that nothing separates the classes."""
    used = np.flatnonzero(duals.any(axis=1))
    claims = {"kind": "not_separable", "lower": None, "ratio": None, "coreset_rows": len(used), "upper": 1e15}
    record = {"status": "not_separable"} | {f"certificate.{name}": value for name, value in claims.items()}
    return altered(place, bad, record, coreset_ids=used, coreset_x=X[used], duals=duals[used],
                   coreset_classes=y[used].astype(np.int32))  # fmt: skip


def test_a_long_row_beside_the_others_makes_no_margin_zero(tmp_path: Path) -> None:
    """The margin beside a row of length 1e14 is certified, and whatever weights say that there is none are refused.

    Nor do weights that balance, of rows that nearly contradict each other, or of the long row.
    """
    X, y, store = _beside(1e14, 1, tmp_path)
    model = coremargin.train(store, out=tmp_path / "m", classes="crammer-singer")
    assert model.status == "certified"
    assert examine(tmp_path / "m", store).ok
    rng = np.random.default_rng(0)
    for k in range(12):
        circle = np.zeros((len(X), 3))
        turn = rng.permutation(3)[: 2 + k % 2]
        for own, rival in zip(turn, np.roll(turn, 1), strict=True):  # each class gives what is taken from it
            rows = np.flatnonzero(y == own)
            circle[40 if k % 4 == 0 and y[40] == own else rng.choice(rows), rival] = 1 / len(turn)
        place = _claimed(tmp_path / "m", tmp_path / f"circle-{k}", X, y, circle)
        assert {check.name for check in examine(place, store).failures} == {"overlap"}
    own = np.zeros((len(X), 3))
    own[1, (y[1] + 1) % 3] = 1.0  # of one row nothing is left about its mean, but its class only gives
    failures = examine(_claimed(tmp_path / "m", tmp_path / "own", X, y, own), store).failures
    assert [check.name for check in failures] == ["overlap"]
    assert "more than they take from it" in failures[0].text
    with np.load(tmp_path / "m" / "arrays.npz") as arrays:
        best = np.zeros((len(X), 3))
        best[arrays["coreset_ids"]] = arrays["duals"]
    failures = examine(_claimed(tmp_path / "m", tmp_path / "best", X, y, best), store).failures
    assert {check.name for check in failures} == {"overlap"}


def test_rows_that_contradict_each_other_do_so_beside_a_long_one(tmp_path: Path) -> None:
    """Where nothing separates the classes, the proof is found and confirmed, and the long row carries none of it."""
    _, _, store = _beside(1e14, 1, tmp_path, spoilt=True)
    model = coremargin.train(store, out=tmp_path / "m", classes="crammer-singer")
    assert model.status == "not_separable"
    assert examine(tmp_path / "m", store).ok


@pytest.mark.parametrize("far", [0.0, 1e12])
def test_sparse_rows_are_measured_about_their_mean_too(tmp_path: Path, far: float) -> None:
    """Rows far from the origin in one column make no margin zero, nor do they hide that there is none."""
    rng = np.random.default_rng(4)
    X = rng.normal(size=(60, 3)) * (rng.random((60, 3)) < 0.7)
    X[:, 0] += far
    y = np.arange(60) % 2
    X[:, 2] = np.where(y == 1, 1.0, -1.0) + 0.1 * X[:, 2]
    used = np.array([0, 1])
    for name, spoilt in (("apart", False), ("meet", True)):
        X[1] = X[0] if spoilt else X[1]
        with StoreWriter.create(
            tmp_path / f"{name}.zarr", features=3, dtype="float64", chunk_rows=60, sparse=True
        ) as writer:
            writer.write(csr_array(X), ["ab"[k] for k in y])
        store = tmp_path / f"{name}.zarr"
        model = coremargin.train(store, out=tmp_path / name, classes="crammer-singer")
        assert examine(tmp_path / name, store).ok
        if spoilt:
            assert model.status == "not_separable"
            continue
        duals = np.zeros((60, 2))
        duals[used, 1 - y[used]] = 0.5
        place = _claimed(tmp_path / name, tmp_path / "bad", X, y, duals)
        with np.load(tmp_path / name / "arrays.npz") as arrays:
            parts = {key: arrays[key] for key in arrays if key.startswith("coreset_x")}
        assert {key.removeprefix("coreset_x_") for key in parts} == {"data", "indices", "indptr", "shape"}
        rows = csr_array(X[used])
        kept = {"coreset_x_data": rows.data, "coreset_x_indices": rows.indices, "coreset_x_indptr": rows.indptr}
        kept = {key: value.astype(parts[key].dtype) for key, value in kept.items()}
        kept["coreset_x_shape"] = np.array(rows.shape, parts["coreset_x_shape"].dtype)
        bad = altered(place, tmp_path / "sparse", coreset_x=None, **kept)
        assert {check.name for check in examine(bad, store).failures} == {"overlap"}


@pytest.mark.parametrize("total", [0.5, 2.0])
def test_weights_that_do_not_sum_to_one_prove_no_bound(tmp_path: Path, total: float) -> None:
    """Neither a bound nor an overlap follows from weights of another sum."""
    X, y, store = _beside(10.0, 1, tmp_path)
    coremargin.train(store, out=tmp_path / "m", classes="crammer-singer")
    place = altered(tmp_path / "m", tmp_path / "bad", duals=lambda duals: duals * total)
    assert "dual weights" in {check.name for check in examine(place, store).failures}
    half = np.zeros((len(X), 3))
    half[1, (y[1] + 1) % 3] = total
    place = _claimed(tmp_path / "m", tmp_path / "claimed", X, y, half)
    assert {"dual weights", "overlap"} <= {check.name for check in examine(place, store).failures}


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("long", [1e14, 1e20])
def test_a_little_too_much_for_a_class_is_no_overlap_of_long_rows(tmp_path: Path, long: float, sparse: bool) -> None:
    """Weights of long rows that sum to nothing while a class is given 1e-14 too much hide a margin: they are refused.

    Intercepts are as long as the rows: 1e-14 of 1e14 pays for a margin of 0.15.
    """
    X = np.array([[-0.5, 0], [-1, long / 2], [0.5, 0], [1, long / 2], [-long, long], [long, long]])
    y = np.array([0, 0, 1, 1, 2, 2])
    V = np.array([[-1, 0], [1, 0], [0, 6]])
    scores = X @ V.T + np.array([0, 0, -4 * long])
    scores[np.arange(6), y] -= 1.0  # what the hypothesis, of length 6.2, has to spare
    assert (scores[np.arange(6), y] == scores.max(axis=1)).all()
    labels = ["abc"[k] for k in y]
    store = _sparse_store(tmp_path / "s.zarr", X, y) if sparse else store_of(tmp_path / "s.zarr", X, labels, 64)
    coremargin.train(store, out=tmp_path / "m", classes="crammer-singer")
    w = 1 / (2 * long + 2)
    duals = np.zeros((6, 3))
    duals[[0, 2], [1, 0]] = w * (long - 2)
    duals[[4, 5], [0, 1]] = w
    duals[[1, 3], [2, 2]] = 2 * w
    place = _claimed(tmp_path / "m", tmp_path / "bad", X, y, duals)
    place = _with_sparse_coreset(place, tmp_path / "sparse") if sparse else place
    failures = examine(place, store).failures
    assert {check.name for check in failures} == {"overlap"}
    assert "more than they take from it" in failures[-1].text


@pytest.mark.specimens(1)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("total", [1.0, 1.0 - 3e-10])
def test_equal_rows_of_three_classes_overlap_whatever_they_sum_to(tmp_path: Path, total: float, sparse: bool) -> None:
    """Of one row in three classes nothing is left, though weights do not sum to 1 and their mean is the row itself."""
    rng = np.random.default_rng(7)
    for trial in range(6):
        X = np.vstack([np.repeat(rng.normal(size=(1, 3)), 3, axis=0), rng.normal(size=(3, 3))])
        y, folder = np.array([0, 1, 2, 0, 1, 2]), tmp_path / str(trial)
        folder.mkdir()
        labels = ["abc"[k] for k in y]
        store = _sparse_store(folder / "s.zarr", X, y) if sparse else store_of(folder / "s.zarr", X, labels, 64)
        coremargin.train(store, out=folder / "m", classes="crammer-singer")
        assert examine(folder / "m", store).ok
        duals = np.zeros((6, 3))
        duals[[0, 1, 2], [1, 2, 0]] = total / 3
        place = _claimed(folder / "m", folder / "claim", X, y, duals)
        place = _with_sparse_coreset(place, folder / "sparse") if sparse else place
        assert examine(place, store).ok


def test_weights_that_balance_prove_it_whatever_they_sum_to() -> None:
    """A constant far above the rows counts for nothing where each class is given exactly what is taken from it."""
    first, last = np.round(np.array([0.37453154, 0.12546846 - 3e-10]) * 2.0**52) / 2.0**52
    duals = np.array([[0.0, 0.0, first], [first + last, 0.0, 0.0], [0.0, 0.0, last]])
    claim = SimpleNamespace(
        x=np.array([[3.08232088], [2.67487457], [1.45862068]]) * 1e-66, ids=np.arange(3), y=np.array([1, 3, 1]),
        duals=duals, constant=2.0, upper=1e-66, status="stopped", labels=("a", "b", "c"),
    )  # fmt: skip
    found, checks = dual(cast("ClassesClaim", claim))
    assert found is not None
    assert 0.0 < found < 1e-66
    assert all(check.ok for check in checks)


@pytest.mark.specimens(1)
@pytest.mark.parametrize("apart", [0.0, 1e-3])
def test_columns_without_values_cost_nothing(apart: float) -> None:
    """An overlap of a thousand sparse rows among 2^26 features is judged as that of the same rows among those that they
    have values in, and takes no more memory.
    """
    rng = np.random.default_rng(8)
    columns, values = np.sort(rng.choice(4000, (500, 3)), axis=1), rng.normal(size=(500, 3))
    columns[:, 1:] += np.arange(1, 3) * 4000
    both = np.concatenate([values, values + apart]).ravel()
    claim = SimpleNamespace(
        moved=0.0, radius=1.0,
        upper=1e-9 + apart, duals=np.where(np.arange(1000)[:, None] < 500, [0.0, 1e-3], [1e-3, 0.0]),
        y=np.repeat([1, 2], 500), constant=1.0, ids=np.arange(1000), status="not_separable", intercept=True,
        labels=("a", "b"),
    )  # fmt: skip
    told = []
    for features, step in [(12_000, 1), (1 << 26, 5591)]:
        indices = np.tile(columns * step, (2, 1)).ravel()
        claim.x = csr_array((both, indices, np.arange(0, 3001, 3)), shape=(1000, features))
        claim.features = 12_000  # what rounding may leave goes by it
        tracemalloc.start()
        told.append(dual(cast("ClassesClaim", claim)))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 32 << 20
    assert told[0] == told[1]
    assert {check.name for check in told[0][1] if not check.ok} == ({"overlap"} if apart else set())
