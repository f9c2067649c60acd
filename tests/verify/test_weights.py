"""Verify against stores with sample weights, dense and sparse: what the trainer claims, and what is false of others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import coremargin
from coremargin.data.writer import StoreWriter
from coremargin.errors import UsageError
from coremargin.models.model import Model
from coremargin.problems.soft import near_margin
from coremargin.verify import verify
from coremargin.verify.examine import examine


def make_store(path: Path, X: Any, labels: list[Any], weights: np.ndarray | None) -> Path:
    """A store in chunks of 16 rows."""
    with StoreWriter.create(
        path, features=X.shape[1], sparse=not isinstance(X, np.ndarray), weighted=weights is not None, chunk_rows=16
    ) as writer:
        writer.write(X, labels, weights)
    return path


def noisy(seed: int, n: int = 300, d: int = 6) -> tuple[np.ndarray, list[Any], np.ndarray]:
    """Rows with zeros, two classes that overlap, some rows without label, weights of all sizes and 0."""
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.6)).astype(np.float32)
    labels: list[Any] = ["b" if v > 0.2 else "a" for v in X[:, 0] + X[:, 1] + rng.standard_normal(n)]
    labels[3] = None
    return X, labels, rng.choice([0.0, 0.1, 1 / 3, 2.0, 17.0], n)


@pytest.mark.specimens(4)
@pytest.mark.parametrize("weight", [None, "balanced", (0.3, 2.0)])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_what_is_claimed_of_weighted_rows_is_confirmed(
    tmp_path: Path, kind: str, loss: str, intercept: bool, weight: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any loss, weights of classes and rows together, rows of either kind: verified, and the bounds are tight."""
    monkeypatch.setattr(near_margin, "NEAR_BYTES_LEAST", 1)
    X, labels, weights = noisy(0)
    store = make_store(tmp_path / "s.zarr", X if kind == "dense" else csr_array(X), labels, weights)
    model = coremargin.train(
        store, out=tmp_path / "m", loss=loss, C=0.7, intercept=intercept, class_weight=weight, epsilon=1e-6,
        cluster="threads",
    )  # fmt: skip
    found = verify(tmp_path / "m", store)
    assert model.status == found.status == "certified"
    positive = np.array([label == "b" for label in labels])
    counted = np.array([label is not None for label in labels]) * weights
    factor = np.ones(2) if weight is None else np.array(weight if weight != "balanced" else [0.0, 0.0])
    if weight == "balanced":
        factor = counted.sum() / 2 / np.array([counted[~positive].sum(), counted[positive].sum()])
    xi = np.maximum(0, 1 - np.where(positive, 1, -1) * (X.astype(np.float64) @ model.w + model.b))
    row_c = 0.7 * counted * np.where(positive, factor[1], factor[0])
    value = 0.5 * model.w @ model.w + row_c @ (xi if loss == "hinge" else xi**2)
    assert found.upper == pytest.approx(value, rel=1e-9)
    assert found.lower == pytest.approx(value, rel=2e-6)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
@pytest.mark.parametrize(("size", "cost"), [(1e150, 1.0), (1e150, 1e20), (1e-300, 1.0)])
def test_prices_beyond_float64_are_refused(tmp_path: Path, loss: str, size: float, cost: float) -> None:
    """Weights are finite, but times C and summed up no bound could be a number: said before anything is scanned."""
    X, labels, weights = noisy(0)
    store = make_store(tmp_path / "s.zarr", X, labels, size * weights)
    with pytest.raises(UsageError, match=r"expected C times the weights of a class, summed up, from 1e-120 to 1e\+120"):
        coremargin.train(store, loss=loss, C=cost, cluster="threads")
    with pytest.raises(UsageError, match="weights t times as large are the same problem with C / t"):
        coremargin.train(store, loss="hinge", C=cost, classes="crammer-singer", cluster="threads")


def test_hard_margins_leave_rows_of_weight_0_out(tmp_path: Path) -> None:
    """Rows of weight 0 may lie anywhere: the margin of the others is confirmed."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((200, 3)).astype(np.float32)
    labels: list[Any] = ["b" if v > 0 else "a" for v in X[:, 0]]
    X[:, 0] += np.where(X[:, 0] > 0, 0.2, -0.2).astype(np.float32)
    weights = np.ones(200)
    for row in (5, 60):
        labels[row] = "a" if labels[row] == "b" else "b"
        weights[row] = 0.0
    store = make_store(tmp_path / "s.zarr", X, labels, weights)
    assert coremargin.train(store, out=tmp_path / "m", cluster="threads").status == "certified"
    assert verify(tmp_path / "m", store).ok
    plain = make_store(tmp_path / "plain.zarr", X, labels, None)
    names = {check.name for check in examine(tmp_path / "m", plain).failures}
    assert {"content", "lower bound"} <= names


def test_other_weights_are_another_question(tmp_path: Path) -> None:
    """The same rows with other weights: not what was trained on, and the bounds do not hold."""
    X, labels, weights = noisy(2)
    store = make_store(tmp_path / "s.zarr", X, labels, weights)
    coremargin.train(store, out=tmp_path / "m", loss="hinge", cluster="threads")
    others = make_store(tmp_path / "o.zarr", X, labels, weights[::-1].copy())
    names = {check.name for check in examine(tmp_path / "m", others).failures}
    assert {"content", "dual weights"} <= names


def test_a_coreset_row_of_weight_0_is_refused(tmp_path: Path) -> None:
    """A row that does not count cannot carry a proof."""
    X, labels, weights = noisy(3)
    store = make_store(tmp_path / "s.zarr", X, labels, weights)
    coremargin.train(store, out=tmp_path / "m", loss="hinge", cluster="threads")
    model = Model.load(tmp_path / "m")
    ids = model.coreset_ids.copy()
    ids[0] = int(np.flatnonzero(weights == 0)[0])
    arrays = dict(np.load(tmp_path / "m" / "arrays.npz")) | {"coreset_ids": ids}
    np.savez(tmp_path / "m" / "arrays.npz", **arrays)
    failed = {check.name: check.text for check in examine(tmp_path / "m", store).failures}
    assert "without label or weight" in failed["coreset"]


@pytest.mark.parametrize("options", [{}, {"scaling": "rownorm"}, {"classes": "ovr"}, {"classes": "crammer-singer"}])
def test_rows_of_zeros_that_contradict_each_other(tmp_path: Path, options: dict[str, Any]) -> None:
    """Two sparse rows without values, of two classes, are the whole proof that nothing separates."""
    X = csr_array(np.array([[1, 0], [0, 0], [0, 2], [0, 0]], np.float32))
    store = make_store(tmp_path / "s.zarr", X, ["a", "a", "b", "b"], None)
    model = coremargin.train(store, out=tmp_path / "m", cluster="threads", **options)
    assert model.status == "not_separable"
    assert verify(tmp_path / "m", store).ok
