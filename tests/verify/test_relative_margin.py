"""Verification of relative margins against exact arithmetic: bounds are rounded outward, and by little."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import coremargin
from coremargin.data.writer import StoreWriter
from coremargin.models.model import Model
from coremargin.verify import verify
from coremargin.verify.examine import examine

WEIGHTS = (0.0, 0.5, 1.0, 1 / 3, 3.0)
BOUND = 1.5


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


def exact_bounds(
    model: Model, X: np.ndarray, labels: list[Any], weights: np.ndarray
) -> tuple[Fraction, Fraction, Fraction, Fraction]:
    """(value, dual, what the dual weights miss of their balance, largest decision value), all exact."""

    def decision(x: np.ndarray, w: np.ndarray, b: float) -> Fraction:
        return sum((Fraction(float(a)) * Fraction(float(c)) for a, c in zip(x, w, strict=True)), Fraction(float(b)))

    factor, bound = {"a": Fraction(1), "b": Fraction(2)}, Fraction(BOUND)
    named = dict(zip(model.coreset_ids.tolist(), model.numbers["alpha"].tolist(), strict=True))
    at = model.numbers["reference"]
    value = sum((Fraction(float(one)) ** 2 for one in model.w), Fraction(0)) / 2
    phi, missing, vector, largest = Fraction(0), Fraction(0), [Fraction(0)] * X.shape[1], Fraction(0)
    for row, (x, label, weight) in enumerate(zip(X, labels, weights, strict=True)):
        if label is None or not weight:
            continue
        y = 1 if label == "b" else -1
        c, f = Fraction("0.5") * factor[label] * Fraction(float(weight)), decision(x, model.w, model.b)
        value, largest = value + c * max(Fraction(0), 1 - y * f), max(largest, abs(f))
        g = Fraction(named[row]) if row in named else c * (y * decision(x, at[:-1], at[-1]) < 1)
        phi += bound * g if g < 0 else g if g <= c else c - bound * (g - c)
        missing += g * y
        vector = [v + g * y * Fraction(float(one)) for v, one in zip(vector, x, strict=True)]
    return value, phi - sum((v * v for v in vector), Fraction(0)) / 2, missing, largest


@pytest.mark.parametrize("epsilon", [0.5, 1e-3, 1e-9])
def test_bounds_are_those_of_exact_arithmetic_rounded_outward(tmp_path: Path, epsilon: float) -> None:
    """The value is below what is found here, the dual above, both by less than 1e-11 of it; so is the bound."""
    store = make_store(tmp_path / "s.zarr", *noisy())
    coremargin.train(
        store, loss="hinge", C=0.5, class_weight=(1.0, 2.0), relative_margin=BOUND, epsilon=epsilon,
        out=tmp_path / "m", cluster="threads",
    )  # fmt: skip
    result, model = verify(tmp_path / "m", store), Model.load(tmp_path / "m")
    value, dual, missing, largest = exact_bounds(model, *noisy())
    assert dual <= value
    assert (model.numbers["alpha"] < 0).any()
    assert abs(missing) <= Fraction(1, 10**13)
    for found, exact in ((Fraction(result.upper), value), (-Fraction(result.lower), -dual)):
        assert exact <= found <= exact + abs(exact) / 10**11
    assert largest <= Fraction(BOUND)


def _cases() -> dict[str, tuple[np.ndarray, dict[str, Any]]]:
    X, _, _ = noisy(80, 4, 1)
    wide, far, twice = X.copy(), X + 1e6, X.copy()
    wide[:, 1] *= 1e6
    wide[:, 2] *= 1e-6
    twice[40:] = twice[:40]
    return {
        "short": (X * 1e-100, {}), "long": (X * 1e50, {}), "longer": (X * 1e128, {}), "wide": (wide, {}),
        "far": (far, {}), "twice": (twice, {}), "small C": (X, {"C": 1e-90}), "large C": (X, {"C": 1e12}),
        "heavy": (X, {"C": 1e60}), "origin": (X * 1e3, {"intercept": False}), "tight": (X, {"B": 1 + 2**-50}),
        "loose": (X, {"B": 1e6}),
    }  # fmt: skip


CASES = _cases()


@pytest.mark.specimens(12)
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_whatever_numbers_are_like_what_is_claimed_holds(tmp_path: Path, name: str, *, sparse: bool) -> None:
    """Rows that are tiny, huge, far from the origin or equal, extreme C and B: claims may be weak, never false."""
    X, words = CASES[name]
    _, labels, weights = noisy(80, 4, 1)
    store = make_store(tmp_path / "s.zarr", X, labels, weights, sparse=sparse)
    options = {key: value for key, value in words.items() if key != "B"}
    bound = words.get("B", BOUND)
    model = coremargin.train(
        store, loss="hinge", relative_margin=bound, out=tmp_path / "m", cluster="threads", **options
    )
    result = examine(tmp_path / "m", store)
    assert result.ok, [check.text for check in result.failures]
    if name not in ("heavy", "long", "longer"):  # squares of the dual vector drown in rounding
        assert model.status == "certified"
