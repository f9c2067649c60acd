"""Kernel machines that are trained together: certificates, agreement with scikit-learn, and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from kernel_kit import run_interrupted
from sklearn.datasets import load_iris, make_moons
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.svm import SVC

import coremargin
from coremargin.data.amend import set_weights
from coremargin.data.arrays import ArraySource
from coremargin.data.folds import fold_of
from coremargin.errors import CoremarginError
from coremargin.models.fleet import FleetModel
from coremargin.problems.kernel.kernel_margin import KernelMargin
from coremargin.problems.registry import new_job, problem_of
from model_kit import store_of

COSTS, GAMMAS, FOLDS = (0.3, 3.0), (0.2, 2.0), 3
ROWS = 150
GRID: dict[str, Any] = {
    "kernel": "rbf",
    "loss": "hinge",
    "epsilon": 1e-6,
    "C": list(COSTS),
    "gamma": list(GAMMAS),
    "folds": FOLDS,
}


@pytest.fixture(scope="module")
def moons() -> tuple[np.ndarray, np.ndarray]:
    """Two classes that overlap."""
    X, y = make_moons(ROWS, noise=0.3, random_state=0)
    return X, y


@pytest.fixture(scope="module")
def fleet(moons: tuple[np.ndarray, np.ndarray]) -> FleetModel:
    """Every C with every gamma, on all rows and without each fold."""
    found = coremargin.train(*moons, **GRID)
    assert isinstance(found, FleetModel)
    return found


def test_each_member_is_certified_and_decides_as_svc_does(
    moons: tuple[np.ndarray, np.ndarray], fleet: FleetModel
) -> None:
    """Whatever its C and gamma, with the rows of its fold left out."""
    (X, y), fold = moons, fold_of(np.arange(ROWS), FOLDS, 0)
    assert fleet.status == "certified"
    assert len(fleet.members) == len(COSTS) * len(GAMMAS) * (1 + FOLDS)
    for entry, member in zip(fleet.record["members"], fleet.members.values(), strict=True):
        mine = np.ones(ROWS, bool) if entry["fold"] is None else fold != entry["fold"]
        assert entry["ratio"] >= 1 - 1e-6
        assert mine[member.coreset_ids].all()
        judge = SVC(C=entry["C"], gamma=entry["gamma"], tol=1e-9).fit(X[mine], y[mine])
        np.testing.assert_allclose(member.decision_function(X), judge.decision_function(X), atol=1e-3)


def test_a_search_over_the_same_folds_chooses_the_same(moons: tuple[np.ndarray, np.ndarray], fleet: FleetModel) -> None:
    """C and gamma by the best mean accuracy, which is the one of scikit-learn's search for each of them."""
    grid = {"C": list(COSTS), "gamma": list(GAMMAS)}
    search = GridSearchCV(SVC(tol=1e-9), grid, cv=PredefinedSplit(fold_of(np.arange(ROWS), FOLDS, 0))).fit(*moons)
    found = {(line["C"], line["gamma"]): line["mean"] for line in fleet.record["validation"]}
    tried = zip(search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True)
    for params, mean in tried:
        assert found[params["C"], params["gamma"]] == pytest.approx(mean, abs=1e-12)
    assert {"C": fleet.C, "gamma": fleet.gamma} == search.best_params_
    assert (fleet.predict(moons[0]) == search.predict(moons[0])).all()


def test_several_classes_have_a_function_each(tmp_path: Path) -> None:
    """In each member, whatever is held out; sparse rows give what dense ones do."""
    X, y = load_iris(return_X_y=True)
    asked = {**GRID, "loss": "squared_hinge", "classes": "ovr", "folds": 2, "gamma": ["scale", 1.0], "C": 2.0}
    models = [coremargin.train(rows, y, **asked) for rows in (X, sp.csr_array(X))]
    assert [one.status for one in models] == ["certified"] * 2
    assert models[0].gammas == ("scale", 1.0)
    first, second = (one.record["validation"] for one in models)
    assert [line["accuracies"] for line in first] == [line["accuracies"] for line in second]
    assert min(line["mean"] for line in first) > 0.9
    member = models[0].members["C-2_gamma-1_fold-1"]
    assert member.duals.shape[1] == 3
    one = coremargin.train(X, y, **{**asked, "folds": None, "gamma": 1.0, "C": 2.0})
    np.testing.assert_allclose(models[0].at(2.0, 1.0).decision_function(X), one.decision_function(X), atol=1e-3)
    models[0].save(tmp_path / "m")
    again = coremargin.load(tmp_path / "m")
    assert (again.predict(X) == models[0].predict(X)).all()


def test_a_hard_margin_has_no_c_and_may_have_gammas(tmp_path: Path) -> None:
    """With the margins of the same machines alone; folds choose among gammas."""
    X, y = load_iris(return_X_y=True)
    X, y = X[50:], y[50:] == 2
    X, kept = np.unique(X, axis=0, return_index=True)
    y = y[kept]
    store = store_of(tmp_path / "s.zarr", X, y.tolist(), 30)
    asked: dict[str, Any] = {"kernel": "rbf", "epsilon": 1e-4}
    found = coremargin.train(store, out=tmp_path / "m", gamma=[0.5, 2.0], folds=2, **asked)
    assert found.status == "certified"
    assert found.costs == (None,)
    one = coremargin.train(store, out=tmp_path / "n", gamma=2.0, **asked)
    assert found.members["gamma-2"].certificate.lower == pytest.approx(one.certificate.lower, rel=2e-4)
    assert coremargin.verify(tmp_path / "m", store).ok


def test_nobody_decides_before_one_is_chosen(moons: tuple[np.ndarray, np.ndarray]) -> None:
    """Without folds C and gamma are said, both of them where there are several."""
    X, _ = moons
    several = coremargin.train(*moons, **{**GRID, "folds": None, "epsilon": 1e-3})
    with pytest.raises(CoremarginError, match="no C is chosen of 0.3, 3, no gamma is chosen of 0.2, 2: say one"):
        several.predict(X)
    with pytest.raises(CoremarginError, match=r"gamma: there are several \(0.2, 2\)"):
        several.at(3.0)
    with pytest.raises(CoremarginError, match=r"gamma: expected one of those that were trained \(0.2, 2\), got 1.0"):
        several.at(3.0, 1.0)
    chosen = several.at(3.0, 2.0)
    assert chosen.choice == ""
    assert chosen.proof == {"C": 3.0, "gamma": 2.0}
    values = several.members["C-3_gamma-2"].decision_function(X)
    assert np.array_equal(chosen.decision_function(X), values)
    assert np.allclose(chosen.to_sklearn().decision_function(X), values, atol=1e-12)
    with pytest.raises(CoremarginError, match="no weights of features"):
        chosen.linear()


def test_balanced_weights_are_those_of_the_rows_of_a_member(tmp_path: Path) -> None:
    """Which are not those of its fold; weights of rows count."""
    rng = np.random.default_rng(1)
    X, y, weights = rng.normal(size=(90, 2)), np.arange(90) % 3 == 0, rng.integers(0, 3, 90).astype(float)
    X[y] += 1.0
    store = store_of(tmp_path / "s.zarr", X, y.tolist(), 20)
    set_weights(store, range(90), weights)
    asked: dict[str, Any] = {"kernel": "rbf", "gamma": 1.0, "loss": "hinge", "epsilon": 1e-6, "folds": 2}
    found = coremargin.train(store, out=tmp_path / "m", class_weight="balanced", **asked)
    assert coremargin.verify(tmp_path / "m", store).ok
    fold = fold_of(np.arange(90), 2, 0)
    mine = (fold != 1) & (weights > 0)
    share = [weights[mine].sum() / (2 * weights[mine & (y == side)].sum()) for side in (False, True)]
    judge = SVC(gamma=1.0, tol=1e-9, class_weight={False: share[0], True: share[1]})
    judge.fit(X[mine].astype(np.float32), y[mine], sample_weight=weights[mine])
    member = found.members["C-1_gamma-1_fold-1"]
    np.testing.assert_allclose(member.decision_function(X), judge.decision_function(X.astype(np.float32)), atol=1e-3)


def _problem(**options: Any) -> KernelMargin:
    X, y = make_moons(600, noise=0.2, random_state=3)
    job = new_job(store="s", out="m", **{**GRID, "epsilon": 1e-3, "folds": 2} | options)
    problem = problem_of(job, ArraySource(X, y, chunk_rows=50))
    assert isinstance(problem, KernelMargin)
    return problem


def test_a_resumed_job_has_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each query: from arrays, with an empty cache."""
    monkeypatch.setattr("coremargin.problems.kernel.kernel_margin.FIRST", 100)
    assert run_interrupted([_problem() for _ in range(2)], 2000).status == "certified"


def test_gammas_share_the_memory_of_the_pool() -> None:
    """Each has its own kernel values: two of them leave room for fewer rows than one, and what is told says so."""
    one, two = _problem(gamma=1.0, memory="1 MiB"), _problem(memory="1 MiB")
    assert two.capacity.rows < one.capacity.rows
    held = len(two.kernels) * 4 * two.capacity.rows**2 + two.capacity.rows * 16 * len(two.columns)
    assert held <= 1 << 20
    assert "for each of 2 values of gamma" in two.capacity.describe()


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "gamma twice": ({"gamma": [1.0, 1.0]}, "gamma: expected different numbers"),
    "gamma 0": ({"gamma": [1.0, 0.0]}, "gamma: expected scale, or a number above 0"),
    "no gamma": ({"gamma": []}, "gamma: expected different numbers"),
    "C twice": ({"C": [1.0, 1.0]}, "C: expected different numbers"),
    "hard C": ({"loss": None}, "a hard margin has none"),
    "one fold": ({"folds": 1}, "folds"),
    "a seed of no folds": ({"folds": None, "fold_seed": 1}, "give folds too"),
    "folds without rows": ({"folds": 70}, "expected rows of class .* in each of 70 folds"),
    "gammas of none": ({"kernel": "linear", "gamma": [1.0, 2.0]}, "gamma: the kernel 'linear' has none"),
}


@pytest.mark.parametrize(("asked", "message"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_is_refused(moons: tuple[np.ndarray, np.ndarray], asked: dict[str, Any], message: str) -> None:
    """Before a row is read."""
    with pytest.raises(CoremarginError, match=message):
        coremargin.train(*moons, **GRID | asked)


def test_tables_that_rounding_decides_are_not_claimed(tmp_path: Path) -> None:
    """Of rows alike but for the last bit folds say nothing, no C is chosen, and what is claimed verifies."""
    rng = np.random.default_rng(0)
    y = rng.permutation(np.arange(24) % 2)
    X = np.where(rng.random((24, 3)) < 0.5, 0.3, np.nextafter(0.3, 1.0))
    coremargin.ingest(X, tmp_path / "s", labels=y, dtype="float64")
    model = coremargin.train(
        tmp_path / "s",
        out=tmp_path / "m",
        kernel="linear",
        loss="hinge",
        C=[0.1, 1.0],
        folds=3,
        intercept=False,
        epsilon=0.5,
        max_scans=8,
    )
    assert (model.record["evaluations"], model.record["validation"], model.record["chosen"]) == ([], None, None)
    assert (model.status, model.ended) == ("certified", True)
    assert "rounding decides" in model.choice
    assert "go on with" not in model.choice
    coremargin.verify(tmp_path / "m", tmp_path / "s")
