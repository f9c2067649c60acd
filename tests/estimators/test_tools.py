"""The estimator inside scikit-learn's tools, copied, pickled, saved and handed to others."""

from __future__ import annotations

import io
import pickle  # noqa: TID251  what users do with estimators
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC

from coremargin.estimators import MarginCoresetClassifier

LOSSES = pytest.mark.parametrize("loss", [None, "hinge", "squared_hinge"])


@pytest.fixture(scope="module")
def cancer() -> tuple[np.ndarray, np.ndarray]:
    """The breast cancer rows in standard deviations, and their labels as words."""
    X, y = load_breast_cancer(return_X_y=True)
    return StandardScaler().fit_transform(X), np.where(y == 1, "benign", "malignant")


@pytest.fixture
def fitted(loss: str | None, cancer: tuple[np.ndarray, np.ndarray]) -> tuple[MarginCoresetClassifier, np.ndarray]:
    """A machine with each loss, and rows to ask it about; without a loss, on rows that a plane separates."""
    X, y = cancer
    if loss is None:
        kept = np.abs(SVC(kernel="linear").fit(X, y).decision_function(X)) > 0.5
        X, y = X[kept], y[kept]
    return MarginCoresetClassifier(loss=loss).fit(X, y), cancer[0]


def same(one: Any, other: Any, X: np.ndarray) -> None:
    """Decision values and labels are equal to the bit, and so is what is proven."""
    np.testing.assert_array_equal(one.decision_function(X), other.decision_function(X))
    np.testing.assert_array_equal(one.predict(X), other.predict(X))
    assert one.certificate_ == other.certificate_


def test_grid_search_over_a_pipeline_finds_the_same_parameters_as_with_svc(
    cancer: tuple[np.ndarray, np.ndarray],
) -> None:
    """The grid's scores are those of SVC, within what epsilon leaves open."""
    X, y = cancer
    costs = [0.001, 0.1, 10.0]
    ours = GridSearchCV(make_pipeline(StandardScaler(), MarginCoresetClassifier(loss="hinge", epsilon=1e-6)),
                        {"margincoresetclassifier__C": costs}, cv=3).fit(X, y)  # fmt: skip
    theirs = GridSearchCV(make_pipeline(StandardScaler(), SVC(kernel="linear")), {"svc__C": costs}, cv=3).fit(X, y)
    np.testing.assert_allclose(
        ours.cv_results_["mean_test_score"], theirs.cv_results_["mean_test_score"], atol=2 / len(X)
    )


@pytest.mark.slow
def test_processes_of_joblib_train_it(cancer: tuple[np.ndarray, np.ndarray]) -> None:
    """Cross-validation in two processes gives the scores of one."""
    X, y = cancer
    machine = MarginCoresetClassifier(C=0.1)
    both = [cross_val_score(machine, X, y, cv=3, n_jobs=jobs) for jobs in (1, 2)]
    np.testing.assert_array_equal(*both)


def test_calibration_gives_probabilities(cancer: tuple[np.ndarray, np.ndarray]) -> None:
    """Calibrated probabilities sum to 1 and order rows nearly as decision values do."""
    X, y = cancer
    calibrated = CalibratedClassifierCV(MarginCoresetClassifier(C=0.1), cv=3).fit(X, y)
    chances = calibrated.predict_proba(X)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    assert calibrated.score(X, y) > 0.97


@LOSSES
def test_a_clone_learns_the_same_bits(
    fitted: tuple[MarginCoresetClassifier, np.ndarray], cancer: tuple[np.ndarray, np.ndarray]
) -> None:
    """A clone has the parameters and nothing learnt; trained on the same rows it is the same to the bit."""
    X, y = cancer
    machine = clone(fitted[0]).set_params(loss="hinge")
    with pytest.raises(NotFittedError):
        machine.predict(X)
    np.testing.assert_array_equal(machine.fit(X, y).coef_, clone(machine).fit(X, y).coef_)


@LOSSES
def test_pickle_and_joblib_keep_every_bit(fitted: tuple[MarginCoresetClassifier, np.ndarray]) -> None:
    """A machine that went through pickle or joblib predicts the same and still has its model."""
    joblib = pytest.importorskip("joblib")
    machine, X = fitted
    same(machine, pickle.loads(pickle.dumps(machine)), X)  # noqa: S301  our own bytes
    file = io.BytesIO()
    joblib.dump(machine, file)
    file.seek(0)
    same(machine, joblib.load(file), X)


@LOSSES
def test_skops_keeps_every_bit(fitted: tuple[MarginCoresetClassifier, np.ndarray], tmp_path: Path) -> None:
    """skops asks for trust in our own types and no others, and gives the same machine back."""
    skops = pytest.importorskip("skops.io")
    machine, X = fitted
    skops.dump(machine, tmp_path / "machine.skops")
    strangers = skops.get_untrusted_types(file=tmp_path / "machine.skops")
    assert sorted(strangers) == [
        "coremargin.data.digest.Digested",
        "coremargin.estimators.classifier.MarginCoresetClassifier",
        "coremargin.estimators.history.DroppedRows",
        "coremargin.estimators.history.History",
        "coremargin.estimators.history.PartialFitState",
        "coremargin.estimators.history.RowTotals",
        "coremargin.models.model.Model",
        "coremargin.models.record.Certificate",
    ]
    again = skops.load(tmp_path / "machine.skops", trusted=strangers)
    same(machine, again, X)
    np.testing.assert_array_equal(again.model_.w, machine.model_.w)


@LOSSES
def test_the_plain_object_is_scikit_learns_and_agrees(fitted: tuple[MarginCoresetClassifier, np.ndarray]) -> None:
    """``to_sklearn`` gives a LinearSVC with the same decision values and labels."""
    machine, X = fitted
    plain = machine.to_sklearn()
    assert type(plain) is LinearSVC
    np.testing.assert_allclose(plain.decision_function(X), machine.decision_function(X), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(plain.predict(X), machine.predict(X))


def test_the_graph_agrees(cancer: tuple[np.ndarray, np.ndarray]) -> None:
    """``to_onnx`` gives a graph with the same decision values and labels."""
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    X, y = cancer
    machine = MarginCoresetClassifier().fit(X, y)
    session = runtime.InferenceSession(machine.to_onnx().SerializeToString(), providers=["CPUExecutionProvider"])
    label, decision = session.run(["label", "decision"], {"X": X})
    np.testing.assert_allclose(decision, machine.decision_function(X), rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(label, machine.predict(X))


def test_columns_of_a_data_frame_are_remembered(cancer: tuple[np.ndarray, np.ndarray]) -> None:
    """The names of columns are kept, also by the plain object; other names at prediction are refused."""
    pandas = pytest.importorskip("pandas")
    X, y = cancer
    frame = pandas.DataFrame(X, columns=[f"c{k}" for k in range(X.shape[1])])
    machine = MarginCoresetClassifier(C=0.1).fit(frame, pandas.Series(y))
    assert machine.feature_names_in_.tolist() == frame.columns.tolist()
    np.testing.assert_array_equal(machine.predict(frame), machine.to_sklearn().predict(frame))
    with pytest.raises(ValueError, match="feature names should match"):
        machine.predict(frame.rename(columns={"c0": "d0"}))
