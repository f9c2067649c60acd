"""Rows far from the origin, where plain float64 does not tell margins apart: the lowest row is the lowest.

The judge is rational arithmetic. A claim widens the set of rows that are summed exactly at most; it sets no tolerance.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import coremargin
from coremargin.verify.examine import examine
from coremargin.verify.hard_margin import decided
from coremargin.verify.sums import differences, dot_products
from margin_judges import exact_margins


def far_rows(rng: np.random.Generator, offset: float, rows: int = 40) -> tuple[np.ndarray, np.ndarray]:
    """Two classes that a margin of about 0.02 separates, moved by the same offset in every feature."""
    X, w = rng.standard_normal((rows, 4)), rng.standard_normal(4)
    y = np.where(X @ w > 0, 1, -1)
    return X + np.outer(y, w) * 0.01 + offset, y


def lower_bound_text(found: Any) -> str:
    """What a verification says of the lower bound."""
    return str(next(check.text for check in found.checks if check.name == "lower bound"))


@pytest.mark.parametrize("offset", [0.0, 1e3, 1e9, 1e14])
@pytest.mark.parametrize("features", [1, 3, 40])
def test_sums_of_many_rows_are_rounded_once(offset: float, features: int) -> None:
    """Dot products of dense and of sparse rows are the exact ones rounded once, whatever cancels."""
    rng = np.random.default_rng(features)
    X, w = rng.standard_normal((30, features)) + offset, rng.standard_normal(features)
    X[rng.random(X.shape) < 0.3] = 0.0
    b = -float(X[0] @ w)
    expected = [float(value) for value in exact_margins(X, np.ones(30), w, b)]
    assert dot_products(X, w, b).tolist() == expected
    assert dot_products(csr_array(X), w, b).tolist() == expected


def test_differences_of_scores_are_rounded_once() -> None:
    """The lead of a class over a rival is the exact one rounded once, for dense and for sparse rows."""
    rng = np.random.default_rng(2)
    X, w, b = rng.standard_normal((25, 6)) + 1e10, rng.standard_normal((3, 6)), rng.standard_normal(3) * 1e9
    X[rng.random(X.shape) < 0.3] = 0.0
    own = rng.integers(0, 2, 25)
    scores = [exact_margins(X, np.ones(25), v, float(c)) for v, c in zip(w, b, strict=True)]
    expected = [float(scores[k][i] - scores[2][i]) for i, k in enumerate(own)]
    assert differences(X, w, b, own, 2).tolist() == expected
    assert differences(csr_array(X), w, b, own, 2).tolist() == expected


def test_undecided_rows_include_every_possible_minimum() -> None:
    """Rows within twice the error of the least margin are summed exactly, and those that are not a number."""
    fast, error = np.array([1.0, 1.5, 3.0, np.nan, 9.0]), np.array([0.3, 0.3, 0.3, 0.3, 10.0])
    surely, again = decided(fast, error, -5.0)
    assert not surely.any()
    assert again.tolist() == [True, True, False, True, True]


@pytest.mark.specimens(4)
@pytest.mark.parametrize("offset", [1e4, 1e6, 1e8])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("kind", ["hard", "crammer_singer"])
def test_models_of_far_rows_verify_and_name_the_lowest_row(
    tmp_path: Path, offset: float, kind: str, sparse: bool
) -> None:
    """What is certified verifies, and the lower bound that is found is the exact least margin of all rows."""
    for seed in (1, 4, 8):
        X, y = far_rows(np.random.default_rng(seed), offset)
        store, out = tmp_path / f"s{seed}", tmp_path / f"m{seed}"
        options: dict[str, Any] = {}
        if kind == "crammer_singer":
            y = np.where(X[:, 0] > X[:, 0].mean() + 1.2, 2, y)
            options = {"classes": "crammer-singer"}
            X = X + 4.0 * np.eye(4)[y + 1]
        coremargin.ingest(csr_array(X) if sparse else X, store, labels=y, dtype="float64", chunk_bytes=300)
        model = coremargin.train(store, out=out, cluster="threads", **options)
        found = coremargin.verify(out, store)
        if kind == "hard":
            assert model.status == "certified"
            exact = exact_margins(X, y, model.w, model.b)
            size = float(np.linalg.norm(model.w))
            lowest = int(np.argmin(exact))
            assert found.lower == pytest.approx(float(min(exact)) / size, rel=1e-14)
            assert f"row {lowest} " in lower_bound_text(found)


def test_duplicates_are_not_slow_or_large(tmp_path: Path) -> None:
    """A store of thousands of equal rows far from the origin verifies: every one of them may be the lowest."""
    X = np.repeat(np.array([[1e7, 1e7 + 1.0], [1e7 + 2.0, 1e7 - 1.0]]), 5000, axis=0)
    store, out = tmp_path / "s", tmp_path / "m"
    coremargin.ingest(X, store, labels=np.repeat([0, 1], 5000), dtype="float64")
    coremargin.train(store, out=out, cluster="threads")
    found = coremargin.verify(out, store)
    assert found.lower == pytest.approx(np.sqrt(2.0), rel=1e-7)
    assert "lowest: row 0 " in lower_bound_text(found)


def refused(folder: Path, store: Path, model: Any, claims: dict[str, Any], arrays: dict[str, Any]) -> None:
    """The lower bound of a model with other claims and arrays is refused; as it was it is accepted."""
    model.save(folder)
    record, kept = json.loads((folder / "model.json").read_text()), dict(np.load(folder / "arrays.npz"))
    assert "lower bound" not in [check.name for check in examine(folder, store).failures]
    certificate = record["certificate"]
    certificate.update(claims)
    certificate["upper"] = max(certificate["upper"], certificate["lower"])
    certificate["ratio"] = certificate["lower"] / certificate["upper"]
    np.savez(folder / "arrays.npz", **(kept | arrays))
    (folder / "model.json").write_text(json.dumps(record))
    assert "lower bound" in [check.name for check in examine(folder, store).failures]


@pytest.mark.parametrize("offset", [1e4, 1e7])
@pytest.mark.parametrize("huge", [False, True])
def test_a_bound_one_ulp_too_high_is_refused(tmp_path: Path, offset: float, huge: bool) -> None:
    """However far the rows lie, and beside a row that is huge: a lower bound above the least margin is false."""
    X, y = far_rows(np.random.default_rng(3), offset)
    model = coremargin.train(X, y, cluster="threads")
    if huge:
        X, y = np.vstack([X, 1e100 * y[0] * model.w]), np.append(y, y[0])
    coremargin.ingest(X, tmp_path / "s", labels=y, dtype="float64")
    model.save(tmp_path / "m")
    found = examine(tmp_path / "m", tmp_path / "s").lower
    assert found == pytest.approx(model.certificate.lower, rel=1e-6)
    refused(tmp_path / "f", tmp_path / "s", model, {"lower": float(np.nextafter(found, np.inf))}, {})


@pytest.mark.parametrize("b", [1e15, 1e300])
@pytest.mark.parametrize("length", [1.0, 1e200])
def test_a_hypothesis_that_blurs_all_margins_proves_nothing(tmp_path: Path, b: float, length: float) -> None:
    """Where the claimed w and b are so large that no fast margin is known, each row is summed, and is below."""
    X, y = far_rows(np.random.default_rng(3), 1e4)
    store = tmp_path / "s"
    coremargin.ingest(X, store, labels=y, dtype="float64")
    model = coremargin.train(store, out=tmp_path / "m", cluster="threads")
    arrays = {"w": model.w * length, "b": np.array([b])}
    refused(tmp_path / "f", store, model, {}, arrays)


def test_scores_that_blur_all_margins_prove_nothing(tmp_path: Path) -> None:
    """The same of several classes, whose intercepts are made huge and equal."""
    rng = np.random.default_rng(0)
    y = np.arange(30) % 3
    X = 6.0 * np.eye(3)[y] + rng.standard_normal((30, 3)) * 0.3
    store = tmp_path / "s"
    coremargin.ingest(X, store, labels=y, dtype="float64")
    model = coremargin.train(store, out=tmp_path / "m", classes="crammer-singer", cluster="threads")
    found = examine(tmp_path / "m", store).lower
    assert found is not None
    refused(tmp_path / "f", store, model, {"lower": float(np.nextafter(found, 9.0))}, {})
    arrays = dict(np.load(tmp_path / "m" / "arrays.npz"))
    (name,) = (name for name, values in arrays.items() if values.shape == (3, 4))
    arrays[name][:, -1] += 1e16
    refused(tmp_path / "g", store, model, {"lower": found}, {name: arrays[name]})
