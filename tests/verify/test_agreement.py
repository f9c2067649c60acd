"""What training proves, verification finds: where either once lost more in rounding than the other had allowed for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import coremargin
from coremargin.errors import BadRow, LabelError, UsageError
from coremargin.maths.kernel.machine import weighted_losses
from coremargin.verify.checks import are_classes
from coremargin.verify.gamma import Variance
from coremargin.verify.rows import Rows


def trained(folder: Path, X: Any, y: Any, *, weights: Any = None, dtype: str = "float64", **asked: Any) -> Any:
    """A saved model that verifies."""
    coremargin.ingest(X, folder / "s", labels=y, weights=weights, dtype=dtype)
    model = coremargin.train(folder / "s", out=folder / "m", cluster="threads", max_scans=6, **asked)
    coremargin.verify(folder / "m", folder / "s")
    return model


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("classes", [2, 3])
def test_errors_of_long_rows_that_cancel_count_in_full(tmp_path: Path, classes: int, intercept: bool) -> None:
    """Of equal rows far from the origin the dual vector may be 0, and what rounding leaves of it is all there is."""
    X, y = np.full((4 * classes, 1), 1e14), np.arange(4 * classes) % classes
    several: dict[str, Any] = {"classes": "crammer-singer"} if classes > 2 else {}
    trained(tmp_path, X, y, loss="hinge", C=29.0, intercept=intercept, **several)


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_fleets_of_long_rows_that_cancel(tmp_path: Path, loss: str) -> None:
    """The same of models that are trained together."""
    X, y = np.repeat([[2e14], [2e14 + 64.0]], 5, axis=0), np.arange(10) % 2
    trained(tmp_path, X, y, loss=loss, C=[29.0, 290.0])


@pytest.mark.parametrize("gamma", [1.0, 1e99])
@pytest.mark.parametrize("odd", [0.0, 1.0])
def test_kernels_of_rows_that_are_equal(tmp_path: Path, gamma: float, odd: float) -> None:
    """Equal rows have a kernel value of 1 whatever gamma is, also where one other row lies elsewhere."""
    X = np.repeat(np.random.default_rng(0).standard_normal((1, 3)), 20, axis=0)
    X[-1] += odd
    if odd or gamma > 1.0:
        X = X.astype(np.float32)  # so that the mean of equal rows is exact
    if odd and gamma > 1.0:
        with pytest.raises(UsageError, match="no digit"):
            trained(tmp_path, X, np.arange(20) % 2, kernel="rbf", gamma=gamma, loss="squared_hinge", C=1e3)
        return
    trained(tmp_path, X, np.arange(20) % 2, kernel="rbf", gamma=gamma, loss="squared_hinge", C=1e3)


@pytest.mark.parametrize("asked", [{"kernel": "rbf", "gamma": 1e30}, {"kernel": "poly", "degree": 4, "gamma": 1e20}])
def test_kernels_of_huge_scale_are_refused_or_verify(tmp_path: Path, asked: dict[str, Any]) -> None:
    """Rows that differ in their last bits, of which a huge gamma makes much."""
    X = np.repeat(np.random.default_rng(0).standard_normal((1, 3)), 20, axis=0)
    X[::3] = np.nextafter(X[::3], np.inf)
    trained(tmp_path, X, np.arange(20) % 2, loss="hinge", C=10.0, **asked)


def test_losses_of_a_kernel_that_overflow() -> None:
    """A squared loss that overflows is infinite, and none of a row that costs nothing, without a warning."""
    assert weighted_losses("squared_hinge", np.array([0.0, 1.0]), np.array([1e200, 1e200])).tolist() == [0.0, np.inf]


def test_deviations_of_sparse_rows_far_from_the_origin(tmp_path: Path) -> None:
    """Where rows are so far that their deviation is rounding, its factor is what plain sums give of sparse rows."""
    rng = np.random.default_rng(0)
    X = np.where(rng.random((17, 2)) < 0.5, 1.9e14, np.nextafter(1.9e14, np.inf))
    trained(tmp_path, csr_array(X), np.arange(17) % 2, scaling="standard")


@pytest.mark.parametrize("asked", [{"classes": "ovr"}, {"classes": "ovr", "loss": "hinge"}])
def test_fleets_of_rows_that_vanish_are_refused(tmp_path: Path, asked: dict[str, Any]) -> None:
    """Rows whose squares underflow are refused by a fleet, as by each of its members."""
    with pytest.raises(BadRow, match="longest row"):
        trained(tmp_path, np.full((6, 4), 1e-250), np.arange(6) % 3, **asked)


@pytest.mark.parametrize("asked", [{"kernel": "rbf"}, {}])
def test_a_fold_in_which_a_class_weighs_nothing_is_refused(tmp_path: Path, asked: dict[str, Any]) -> None:
    """A fold needs rows of each class that have a weight: without one its table says nothing, and does not verify."""
    X, y = np.random.default_rng(0).standard_normal((12, 2)), np.arange(12) % 2
    weights = np.ones(12)
    weights[[1, 3, 5, 7, 9]] = 0.0
    with pytest.raises(LabelError, match="in each of 2 folds"):
        trained(tmp_path, X, y, weights=weights, folds=2, loss="hinge", C=[1.0, 10.0], **asked)


def test_margins_of_several_classes_are_those_of_the_saved_hypothesis(tmp_path: Path) -> None:
    """The bound holds for the numbers that are saved: another normalisation would round them again."""
    rng = np.random.default_rng(4)
    y = np.arange(40) % 3
    X = rng.standard_normal((40, 4)) + 4.0 * np.eye(4)[y] + 1e6
    trained(tmp_path, X, y, classes="crammer-singer")


def test_a_class_that_no_row_has_any_more(tmp_path: Path) -> None:
    """A store keeps the name of a class that its rows have lost; a fleet of the others verifies, none of fewer."""
    X, y = np.random.default_rng(0).standard_normal((16, 3)) + 9.0 * np.eye(4, 3)[np.arange(16) % 4], np.arange(16) % 4
    store, out = tmp_path / "s", tmp_path / "m"
    coremargin.ingest(X, store, labels=y, dtype="float64")
    coremargin.write_labels(store, np.flatnonzero(y == 3), [2] * 4)
    coremargin.train(store, out=out, loss="hinge", C=1.0, classes="ovr", cluster="threads")
    assert coremargin.verify(out, store).status == "certified"
    rows = Rows(store)
    assert are_classes([0, 1, 2], rows)
    assert are_classes([2, 1, 0, 3], rows)
    assert not are_classes([0, 1], rows)
    assert not are_classes([0, 1, 2.0], rows)


def test_the_variance_of_far_rows_is_known_up_to_rounding_only() -> None:
    """Gamma "scale" of rows that differ in their last bits is what plain sums make of it; of others it is exact."""
    far, near = Variance.of(np.array([[2e8], [2e8 + 6e-8], [2e8 - 3e-8]])), Variance.of(np.array([[0.0], [1.0], [3.0]]))
    assert far.is_scale(1.2 * far.scale(1), 1, np.zeros(0))
    assert not far.is_scale(1e-9 * far.scale(1), 1, np.zeros(0))
    assert near.is_scale(near.scale(1), 1, np.zeros(0))
    assert not near.is_scale(1.0001 * near.scale(1), 1, np.zeros(0))
