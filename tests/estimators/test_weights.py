"""Rows of weight 0 are as good as gone, and weights that are none are refused."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.ensemble import BaggingClassifier
from sklearn.svm import SVC

import coremargin
from coremargin.errors import BadRow, LabelError
from coremargin.estimators import KernelCoresetClassifier, MarginCoresetClassifier

MACHINES = {
    "hinge": MarginCoresetClassifier(loss="hinge", epsilon=1e-6),
    "squared hinge": MarginCoresetClassifier(epsilon=1e-6),
    "balanced": MarginCoresetClassifier(loss="hinge", class_weight="balanced", epsilon=1e-6),
    "hard": MarginCoresetClassifier(loss=None, epsilon=1e-6),
    "crammer-singer": MarginCoresetClassifier(loss="hinge", multi_class="crammer_singer", epsilon=1e-6),
    "kernel": KernelCoresetClassifier(gamma=0.5, epsilon=1e-6),
    "hard kernel": KernelCoresetClassifier(loss=None, gamma=0.5, epsilon=1e-6),
}


def rows_of(rng: np.random.Generator, classes: int, apart: float) -> tuple[np.ndarray, np.ndarray]:
    """90 rows of so many classes."""
    y = np.arange(90) % classes
    X = rng.normal(size=(90, 3))
    X[np.arange(90), y] += apart
    return X, y


@pytest.mark.specimens(15)
@pytest.mark.parametrize("share", [0.6, 0.2])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array])
def test_rows_of_weight_0_are_as_if_not_there(
    form: Any, name: str, classes: int, share: float, rng: np.random.Generator
) -> None:
    """However many they are, the answer is that of the others alone, and they do not support it."""
    X, y = rows_of(rng, classes, 9.0 if "hard" in name or name == "crammer-singer" else 1.5)
    weights = rng.uniform(0.5, 2.0, 90) * (rng.permutation(90) < share * 90)
    left = np.flatnonzero(weights)
    machine = MACHINES[name]
    ours = machine.fit(form(X), y, sample_weight=weights)
    values, support = ours.decision_function(form(X)), ours.support_
    alone = machine.fit(form(X[left]), y[left], sample_weight=weights[left])
    np.testing.assert_allclose(values, alone.decision_function(form(X)), atol=1e-4)
    np.testing.assert_array_equal(support, left[alone.support_])


def test_few_rows_with_weight_agree_with_svc(rng: np.random.Generator) -> None:
    """A third of the rows counts, as for scikit-learn's SVC with the same weights."""
    X = rng.normal(size=(60, 3))
    y = (X[:, 0] + 0.5 * rng.normal(size=60) > 0).astype(int)
    weights = np.where(np.arange(60) < 20, 1.0, 0.0)
    theirs = SVC(kernel="linear", tol=1e-9).fit(X, y, sample_weight=weights)
    ours = MarginCoresetClassifier(loss="hinge", epsilon=1e-6).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-3)


def test_bagging_weighs_rows_by_0(rng: np.random.Generator) -> None:
    """scikit-learn's bagging of few rows each, some of a class in none of them, votes as that of rows drawn does."""
    X, y = rows_of(rng, 3, 4.0)
    y = np.where(np.arange(90) < 2, 7, y)  # a class of two rows
    bag = BaggingClassifier(MarginCoresetClassifier(loss="hinge"), n_estimators=8, max_samples=0.2, random_state=0)
    assert bag.fit(X, y).score(X, y) > 0.7


@pytest.mark.parametrize("name", ["hinge", "hard", "crammer-singer", "kernel"])
@pytest.mark.parametrize("form", [np.asarray, lambda X: da.from_array(X, chunks=(30, 3))])
def test_a_class_without_weight_is_none(form: Any, name: str, rng: np.random.Generator) -> None:
    """A class all of whose rows have weight 0 is not in ``classes_``; of one class that is left there is an error."""
    X, y = rows_of(rng, 3, 9.0)
    machine = MACHINES[name].fit(form(X), y, sample_weight=(y != 1).astype(float))
    assert machine.classes_.tolist() == [0, 2]
    with pytest.raises(LabelError, match="found 1 class, 2"):
        machine.fit(form(X), y, sample_weight=(y == 2).astype(float))


@pytest.mark.parametrize(
    ("bad", "found"),
    [(np.nan, "row 7: found weight nan"), (-1.0, "row 7: found weight -1"), (np.inf, "row 7: found weight inf")],
)
@pytest.mark.parametrize("name", ["hinge", "kernel"])
def test_what_is_no_weight_is_refused(name: str, bad: float, found: str, rng: np.random.Generator) -> None:
    """NaN, infinite and negative weights are named by their row, whatever array they come in."""
    X, y = rows_of(rng, 2, 1.0)
    weights = np.ones(90)
    weights[7] = bad
    with pytest.raises(BadRow, match=f"sample_weight: {found}"):
        MACHINES[name].fit(X, y, sample_weight=weights)
    with pytest.raises(BadRow, match=found):
        coremargin.train(X, y, loss="hinge", weights=weights)


def test_missing_weights_are_refused(rng: np.random.Generator) -> None:
    """A weight that is masked or missing is no weight; all of them zero leave no row."""
    X, y = rows_of(rng, 2, 1.0)
    gap = np.arange(90) == 7
    for weights in (
        np.ma.array(np.ones(90), mask=gap),
        pd.Series(np.where(gap, None, 1.0), dtype="Float64"),
        [None if missing else 1.0 for missing in gap],
    ):
        with pytest.raises(BadRow, match="row 7: found weight nan"):
            MarginCoresetClassifier().fit(X, y, sample_weight=weights)
    with pytest.raises(BadRow, match="all weights are zero"):
        MarginCoresetClassifier().fit(X, y, sample_weight=np.zeros(90))


@pytest.mark.parametrize("loss", [None, "hinge"])
@pytest.mark.parametrize("classes", ["ovr", "crammer-singer"])
def test_a_class_of_a_store_without_weight_is_named(
    classes: Any, loss: Any, rng: np.random.Generator, tmp_path: Any
) -> None:
    """A store whose rows of a class all have weight 0 is refused by the label, whatever is trained."""
    X, y = rows_of(rng, 3, 9.0)
    names = np.array(["ham", "spam", "eggs"])[y]
    coremargin.ingest(X, tmp_path / "s.zarr", labels=names, weights=(y != 1).astype(float))
    with pytest.raises(LabelError, match="all of class 'spam' weigh 0"):
        coremargin.train(tmp_path / "s.zarr", classes=classes, loss=loss)
