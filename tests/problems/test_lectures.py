"""What the lectures and papers say of losses, constants and dual weights, against other solvers."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import ROUND_UP, Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.svm import SVC

import coremargin
from coremargin.data.writer import StoreWriter
from coremargin.maths.published_bounds import guaranteed_risk
from coremargin.verify import values
from coremargin.verify.examine import examine

if TYPE_CHECKING:
    from click.testing import Result


def overlapping(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of two classes that overlap."""
    y = np.where(np.arange(n) % 2 == 0, 1, -1)
    return rng.normal(size=(n, 3)) + 0.7 * y[:, None], y


@pytest.mark.parametrize("delta", [0.5, 2.0])
def test_the_squared_hinge_is_the_hard_margin_of_rows_with_private_features(
    rng: np.random.Generator, delta: float
) -> None:
    """The lambda trick: a feature delta for each row alone is the squared hinge with C = 1 / (2 delta^2)."""
    X, y = overlapping(rng, 40)
    soft = coremargin.train(X, y, loss="squared_hinge", C=1 / (2 * delta**2), epsilon=1e-9)
    hard = coremargin.train(np.hstack([X, delta * np.eye(40)]), y, epsilon=1e-9)
    assert (hard.status, soft.status) == ("certified", "certified")
    margin = hard.certificate.lower
    assert soft.certificate.upper == pytest.approx(1 / (2 * margin**2), rel=1e-7)
    assert hard.w[:3] / margin == pytest.approx(soft.w, rel=1e-5)
    assert hard.b / margin == pytest.approx(soft.b, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("loss", [{}, {"loss": "hinge", "C": 0.5}])
def test_a_polynomial_map_of_degree_1_adds_a_constant_feature(rng: np.random.Generator, loss: dict[str, Any]) -> None:
    """Awasthi's footnote 1: a hyperplane through the origin of rows (x, constant)."""
    X, y = overlapping(rng, 60)
    X = X + (0 if loss else 3) * y[:, None]
    mapped = {"map": "polynomial", "degree": 1, "gamma": 1.0, "coef0": 4.0}
    one = coremargin.train(X, y, intercept=False, epsilon=1e-8, **mapped, **loss)
    other = coremargin.train(np.column_stack([X, np.full(60, 2.0)]), y, intercept=False, epsilon=1e-8, **loss)
    assert one.certificate.upper == pytest.approx(other.certificate.upper, rel=1e-7)
    assert one.decision_function(X) == pytest.approx(
        other.decision_function(np.column_stack([X, np.full(60, 2.0)])), rel=1e-4, abs=1e-5
    )


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", None])
def test_rows_are_counted_by_their_dual_weights(
    tmp_path: Path, rng: np.random.Generator, run_cli: Callable[..., Result], loss: str | None
) -> None:
    """Non-critical, on the margin, violators: as scikit-learn's weights say, with a kernel."""
    X, y = overlapping(rng, 120)
    options: dict[str, Any] = {"loss": loss, "C": 2.0} if loss else {}
    kernel = X @ X.T + (0.25 * np.eye(120) if loss == "squared_hinge" else 0.0)
    if loss is None:
        X = X + 3 * y[:, None]
        kernel = X @ X.T
    folder = tmp_path / "m.model"
    coremargin.train(X, y, kernel="linear", epsilon=1e-8, out=folder, **options)
    judge = SVC(kernel="precomputed", C=2.0 if loss == "hinge" else 1e8, tol=1e-10).fit(kernel, y)
    weights = np.abs(judge.dual_coef_[0])
    at_limit = int((weights >= 2.0 * (1 - 1e-6)).sum()) if loss == "hinge" else len(weights) if loss else 0
    wanted = [120 - len(weights), len(weights) - at_limit, at_limit]
    assert json.loads((folder / "run.json").read_text())["kkt"] == [wanted]
    counted = f"{wanted[0]:,} rows non-critical, {wanted[1]:,} on the margin, {wanted[2]:,} violators"
    assert counted in run_cli("show", folder).stdout
    assert "Rows by their dual weight" in (folder / "report.html").read_text(encoding="utf-8")


def test_rows_of_hard_margins_are_counted_by_their_dual_weights(
    tmp_path: Path, rng: np.random.Generator, run_cli: Callable[..., Result]
) -> None:
    """On the margin as scikit-learn's support vectors, all others non-critical; of several models for each."""
    X, y = overlapping(rng, 120)
    X = X + 3 * y[:, None]
    on = len(SVC(kernel="linear", C=1e8, tol=1e-10).fit(X, y).support_)
    coremargin.train(X, y, epsilon=1e-9, out=tmp_path / "m.model")
    assert json.loads((tmp_path / "m.model" / "run.json").read_text())["kkt"] == [[120 - on, on, 0]]
    assert (
        f"{120 - on:,} rows non-critical, {on:,} on the margin, 0 violators"
        in run_cli("show", tmp_path / "m.model").stdout
    )
    assert "Karush–Kuhn–Tucker" in (tmp_path / "m.model" / "report.html").read_text(encoding="utf-8")
    coremargin.train(X, y, epsilon=1e-9, classes="ovr", folds=2, out=tmp_path / "f.model")
    assert json.loads((tmp_path / "f.model" / "run.json").read_text())["kkt"] == {"all": [120 - on, on, 0]}
    coremargin.train(X, y, kernel="linear", loss="hinge", C=[0.1, 1e6], folds=2, epsilon=1e-8, out=tmp_path / "k.model")
    counted = json.loads((tmp_path / "k.model" / "run.json").read_text())["kkt"]
    assert list(counted) == ["C-0.1", "C-1e+06"]
    assert counted["C-1e+06"] == [120 - on, on, 0]
    assert "Violators" in (tmp_path / "k.model" / "report.html").read_text(encoding="utf-8")


def test_reports_of_relative_margins_count_rows_by_their_dual_weights(tmp_path: Path, rng: np.random.Generator) -> None:
    """Those on the margin, violators of it, and those at the bound."""
    X, y = overlapping(rng, 400)
    coremargin.train(X, y, loss="hinge", relative_margin=1.5, C=0.1, epsilon=1e-6, out=tmp_path / "m.model")
    page = (tmp_path / "m.model" / "report.html").read_text(encoding="utf-8")
    assert "are violators of it, with the weight C" in page
    assert "lie at the bound, with a weight below 0" in page


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_reports_of_hyperplanes_name_violators(tmp_path: Path, rng: np.random.Generator, loss: str) -> None:
    """Between the rows below the margin, and these without the rows on it."""
    X, y = overlapping(rng, 200)
    coremargin.train(X, y, loss=loss, C=1.0, epsilon=1e-8, out=tmp_path / "m.model")
    page = (tmp_path / "m.model" / "report.html").read_text(encoding="utf-8")
    assert "Karush–Kuhn–Tucker" in page
    assert "violators" in page


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge", "logistic"])
def test_training_errors_are_counted_by_the_verifier(tmp_path: Path, rng: np.random.Generator, loss: str) -> None:
    """As many as `evaluate` finds; the guaranteed risk is that of the formula, in code of its own."""
    X, y = overlapping(rng, 3000)
    with StoreWriter.create(tmp_path / "s.zarr", dtype="float64", features=3, chunk_rows=500) as writer:
        writer.write(X, y.tolist())
    model = coremargin.train(tmp_path / "s.zarr", out=tmp_path / "m.model", loss=loss, C=0.1, epsilon=1e-6)
    wrong = int((model.predict(X) != y).sum())
    text = next(one.text for one in examine(tmp_path / "m.model", tmp_path / "s.zarr").checks if one.name == "errors")
    risk = guaranteed_risk(3000, 4, 0.05, wrong / 3000)
    assert text.startswith(f"at most {wrong:,} of 3,000 rows ({percent_up(wrong / 3000)}) are on the wrong side; ")
    assert f"at most {percent_up(risk)} of new ones" in text
    assert values.guaranteed_risk(3000, 4, wrong / 3000) == pytest.approx(risk)


@pytest.mark.parametrize("classes", [2, 3])
def test_training_errors_of_kernel_machines_are_counted(tmp_path: Path, rng: np.random.Generator, classes: int) -> None:
    """As many as predictions say, of the class with the largest decision value."""
    X = rng.normal(size=(400, 2))
    y = np.clip(np.round(X[:, 0] ** 2 + 0.3 * rng.normal(size=400)), 0, classes - 1).astype(int)
    with StoreWriter.create(tmp_path / "s.zarr", dtype="float64", features=2, chunk_rows=150) as writer:
        writer.write(X, y.tolist())
    options = {"classes": "ovr"} if classes > 2 else {}
    model = coremargin.train(
        tmp_path / "s.zarr", out=tmp_path / "m.model", loss="hinge", kernel="rbf", gamma=0.5, epsilon=1e-4, **options
    )
    wrong = int((model.predict(X) != y).sum())
    text = next(one.text for one in examine(tmp_path / "m.model", tmp_path / "s.zarr").checks if one.name == "errors")
    assert wrong > 0
    assert text.startswith(f"at most {wrong:,} of 400 rows ")


def test_rows_that_are_few_bound_no_error(tmp_path: Path, rng: np.random.Generator) -> None:
    """Nor do rows whose features a map may have made of them."""
    X, y = overlapping(rng, 40)
    with StoreWriter.create(tmp_path / "s.zarr", dtype="float64", features=3) as writer:
        writer.write(X + 3 * y[:, None], y.tolist())
    for options, words in (({}, "; too few rows for a bound on new rows"), ({"map": "fourier", "components": 20}, "")):
        coremargin.train(tmp_path / "s.zarr", out=tmp_path / "m", loss="hinge", C=10.0, overwrite=True, **options)
        text = next(one.text for one in examine(tmp_path / "m", tmp_path / "s.zarr").checks if one.name == "errors")
        assert text == f"none of 40 rows is on the wrong side{words}"


def test_errors_that_are_many_bound_no_error(tmp_path: Path, rng: np.random.Generator) -> None:
    """Rows without any signal are not said to be too few."""
    X, y = rng.normal(size=(3000, 3)), np.where(rng.random(3000) < 0.5, 1, -1)
    with StoreWriter.create(tmp_path / "s.zarr", dtype="float64", features=3) as writer:
        writer.write(X, y.tolist())
    coremargin.train(tmp_path / "s.zarr", out=tmp_path / "m", loss="hinge", C=0.1)
    text = next(one.text for one in examine(tmp_path / "m", tmp_path / "s.zarr").checks if one.name == "errors")
    assert text.endswith("; too many for a bound on new rows")


def percent_up(share: float) -> str:
    """To three digits, upward."""
    return f"{float(Decimal(100 * share).quantize(Decimal(10) ** (Decimal(100 * share).adjusted() - 2), ROUND_UP)):g} %"
