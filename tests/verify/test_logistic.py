"""Verification of the logistic loss: true claims are confirmed, false ones named, bounds are rounded outward."""

from __future__ import annotations

import decimal
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import coremargin
from coremargin.data.writer import StoreWriter
from coremargin.errors import CoremarginError
from coremargin.models.model import Model
from coremargin.verify import verify
from coremargin.verify.examine import examine
from model_kit import altered

WEIGHTS = (0.0, 0.5, 1.0, 1 / 3, 3.0)


def make_store(
    path: Path, X: np.ndarray, labels: list[Any], weights: np.ndarray | None = None, *, sparse: bool = False
) -> Path:
    """A store in chunks of 16 rows."""
    with StoreWriter.create(
        path, features=X.shape[1], dtype=X.dtype.name, chunk_rows=16, weighted=weights is not None, sparse=sparse,
        chunk_bytes=4096,
    ) as writer:  # fmt: skip
        writer.write(sp.csr_array(X) if sparse else X, labels, weights)
    return path


def noisy(n: int = 60, d: int = 3, seed: int = 0) -> tuple[np.ndarray, list[Any], np.ndarray]:
    """Rows of two overlapping classes, one without label, and their weights."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 0.5
    labels: list[Any] = ["b" if one else "a" for one in X[:, 0] + rng.normal(size=n) > 0.5]
    labels[3] = None
    return X, labels, rng.choice(WEIGHTS, n)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(model, store) with weights of rows and classes."""
    folder = tmp_path_factory.mktemp("logistic")
    store = make_store(folder / "s.zarr", *noisy())
    coremargin.train(store, loss="logistic", C=0.5, class_weight=(1.0, 2.0), out=folder / "m", cluster="threads")
    return folder / "m", store


def exact_bounds(
    model: Model, X: np.ndarray, labels: list[Any], weights: np.ndarray
) -> tuple[Decimal, Decimal, Decimal]:
    """(value, sum of entropies, the square of the dual vector) with 60 digits, the shares rounded to float64.

    The shares are those that the verifier may choose: any numbers within 0 and 1 that balance are a dual point.
    """
    factor = {"a": Decimal(1), "b": Decimal(2)}
    shares = shares_of(model, X, labels)
    value, entropy = sum((Decimal(float(one)) ** 2 for one in model.w), Decimal(0)) / 2, Decimal(0)
    totals = {1: Decimal(0), -1: Decimal(0)}
    terms = []
    for x, label, weight, q in zip(X, labels, weights, shares, strict=True):
        if label is None or not weight:
            continue
        y = 1 if label == "b" else -1
        c = Decimal("0.5") * factor[label] * Decimal(float(weight))
        score = sum((Decimal(float(a)) * Decimal(float(b)) for a, b in zip(x, model.w, strict=True)), Decimal(model.b))
        value += c * (1 + (-y * score).exp()).ln()
        totals[y] += c * q
        terms.append((x, y, c, q))
    least = min(totals.values())
    vector = [Decimal(0)] * X.shape[1]
    for x, y, c, q in terms:
        share = q * least / totals[y]
        if 0 < share < 1:
            entropy -= c * (share * share.ln() + (1 - share) * (1 - share).ln())
        vector = [v + y * c * share * Decimal(float(one)) for v, one in zip(vector, x, strict=True)]
    return value, entropy, sum((v * v for v in vector), Decimal(0))


def shares_of(model: Model, X: np.ndarray, labels: list[Any]) -> list[Decimal]:
    """The model's dual weights as shares of c, with 60 digits."""
    found = []
    for x, label in zip(X, labels, strict=True):
        y = 1 if label == "b" else -1
        m, t = (
            y * sum((Decimal(float(a)) * Decimal(float(b)) for a, b in zip(x, at[:-1], strict=True)), Decimal(at[-1]))
            for at in (model.numbers["reference"], model.numbers["move"])
        )
        s = 1 / (1 + m.exp())
        found.append(min(Decimal(1), max(Decimal(0), s - s * (1 - s) * t)))
    return found


def test_a_true_certificate_is_confirmed(trained: tuple[Path, Path]) -> None:
    """What training claims holds, and is no better than what is found."""
    model, store = trained
    result = verify(model, store)
    assert (result.status, result.rows, result.problem) == ("certified", 60, "logistic")
    assert result.claimed_lower <= result.lower <= result.upper <= result.claimed_upper
    assert [check.name for check in result.checks] == [
        "rows", "classes", "hypothesis", "status", "content", "per-sample C", "value", "dual bound", "errors", "radius",
    ]  # fmt: skip


def test_bounds_are_those_of_exact_arithmetic_rounded_outward(trained: tuple[Path, Path]) -> None:
    """With 60 digits the value is below what is found here, and the dual above, both by less than 1e-11 of it."""
    path, store = trained
    result, model = verify(path, store), Model.load(path)
    with decimal.localcontext() as context:
        context.prec = 60
        value, entropy, square = exact_bounds(model, *noisy())
        dual = entropy - square / 2
        assert dual <= value
        for found, exact in ((Decimal(result.upper), value), (-Decimal(result.lower), -dual)):
            assert exact <= found <= exact + abs(exact) * Decimal("1e-11")


@pytest.mark.parametrize(
    ("record", "arrays", "name"),
    [
        ({"certificate.upper": lambda v: v * (1 - 1e-5)}, {}, "value"),
        ({"certificate.lower": lambda v: v * (1 + 1e-3), "certificate.ratio": 1.0}, {}, "dual bound"),
        ({"parameters.C": 0.6}, {}, "value"),
        ({"parameters.class_weight": None}, {}, "dual bound"),
        ({"parameters.intercept": False}, {}, "hypothesis"),
        ({"status": "not_separable"}, {}, "status"),
        ({"certificate.ratio": 0.9}, {}, "ratio"),
        ({}, {"w": lambda w: 1.1 * w}, "value"),
        ({}, {"b": lambda b: b + 0.1}, "value"),
        ({}, {"reference": lambda v: 0.9 * v}, "dual bound"),
        ({}, {"reference": lambda v: 1e300 * v}, "dual bound"),
        ({}, {"move": lambda p: p + 1.0}, "dual bound"),
        ({}, {"move": lambda p: p + 1e308}, "dual bound"),
        ({}, {"w": lambda w: 1e300 * w}, "value"),
    ],
)
def test_false_claims_are_named(
    trained: tuple[Path, Path], tmp_path: Path, record: dict[str, Any], arrays: dict[str, Any], name: str
) -> None:
    """Each by the check that it fails."""
    model, store = trained
    failures = {check.name for check in examine(altered(model, tmp_path / "m", record, **arrays), store).failures}
    assert name in failures


@pytest.mark.parametrize(
    ("record", "arrays"),
    [
        ({"certificate.coreset_rows": 1}, {}),
        ({"parameters.loss": "hinge"}, {}),
        ({}, {"move": None}),
        ({}, {"reference": lambda v: v[:-1]}),
        ({}, {"move": lambda p: p * np.nan}),
    ],
)
def test_what_is_no_record_of_this_kind_is_refused(
    trained: tuple[Path, Path], tmp_path: Path, record: dict[str, Any], arrays: dict[str, Any]
) -> None:
    """Before a row is read."""
    model, store = trained
    with pytest.raises(CoremarginError):
        examine(altered(model, tmp_path / "m", record, **arrays), store)


def _cases() -> dict[str, tuple[np.ndarray, dict[str, Any]]]:
    X, _, _ = noisy(80, 4, 1)
    wide, far, twice = X.copy(), X + 1e6, X.copy()
    wide[:, 1] *= 1e6
    wide[:, 2] *= 1e-6
    twice[40:] = twice[:40]
    return {
        "short": (X * 1e-100, {}), "shorter": (X * 1e-128, {}), "long": (X * 1e50, {}), "longer": (X * 1e128, {}),
        "wide": (wide, {}), "far": (far, {}), "twice": (twice, {}), "small C": (X, {"C": 1e-90}),
        "large C": (X, {"C": 1e12}), "heavy": (X, {"C": 1e60}), "origin": (X * 1e3, {"intercept": False}),
    }  # fmt: skip


CASES = _cases()


@pytest.mark.specimens(9)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_whatever_numbers_are_like_what_is_claimed_holds(tmp_path: Path, name: str, *, sparse: bool) -> None:
    """Rows that are tiny, huge, far from the origin or equal, and extreme C: claims may be weak, never false."""
    X, words = CASES[name]
    _, labels, weights = noisy(80, 4, 1)
    store = make_store(tmp_path / "s.zarr", X, labels, weights, sparse=sparse)
    model = coremargin.train(store, loss="logistic", out=tmp_path / "m", cluster="threads", **words)
    result = examine(tmp_path / "m", store)
    assert result.ok, [check.text for check in result.failures]
    if name in ("short", "shorter", "far", "twice", "small C", "origin"):
        assert model.status == "certified"


def test_only_its_own_rows_confirm_it(trained: tuple[Path, Path], tmp_path: Path) -> None:
    """Of a store with other labels the content is another one."""
    model, _ = trained
    X, labels, weights = noisy()
    other = make_store(tmp_path / "o.zarr", X, labels[::-1], weights)
    assert "content" in {check.name for check in examine(model, other).failures}
    shutil.rmtree(other)
