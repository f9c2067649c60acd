"""Several gammas of a map from end to end: scikit-learn's search judges the choice, and what is kept decides alike."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.model_selection import GridSearchCV, PredefinedSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.svm import SVC

import coremargin
from coremargin.data.folds import fold_of
from coremargin.models.fleet import FleetModel
from coremargin.verify import verify

ROWS, COSTS, GAMMAS, FOLDS = 150, [0.3, 30.0], ["scale", 0.05, 4.0], 3
SAID: dict[str, Any] = {
    "map": "nystroem", "components": 10, "loss": "hinge", "C": COSTS, "gamma": GAMMAS, "folds": FOLDS, "epsilon": 1e-6
}  # fmt: skip


def rows(n: int = ROWS, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n, 2) in a disc and a ring that overlaps it."""
    rng = np.random.default_rng(seed)
    inside = np.arange(n) % 2
    angle, radius = rng.uniform(0, 2 * np.pi, n), np.where(inside, rng.uniform(0, 1.4, n), rng.uniform(1, 2.4, n))
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]).astype(np.float32), inside


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store s and a fleet m of several gammas and values of C."""
    folder = tmp_path_factory.mktemp("map-gammas")
    X, y = rows()
    coremargin.ingest(X, folder / "s", labels=y, chunk_bytes=240)
    coremargin.train(folder / "s", out=folder / "m", **SAID)
    return folder


def test_a_search_over_the_same_folds_chooses_the_same(place: Path) -> None:
    """C and gamma by the best mean accuracy of pipelines with the very maps, on the same folds."""
    X, y = rows()
    fleet = coremargin.load(place / "m")
    assert isinstance(fleet, FleetModel)
    maps = dict(zip(fleet.gammas, fleet.row_maps, strict=True))
    steps = {gamma: FunctionTransformer(made.of_rows) for gamma, made in maps.items()}
    search = GridSearchCV(
        make_pipeline(FunctionTransformer(), SVC(kernel="linear", tol=1e-9)),
        {"functiontransformer": list(steps.values()), "svc__C": COSTS},
        cv=PredefinedSplit(fold_of(np.arange(ROWS), FOLDS, 0)),
    ).fit(X, y)
    found = {(line["C"], line["gamma"]): line["mean"] for line in fleet.record["validation"]}
    gamma_of = {id(step): gamma for gamma, step in steps.items()}
    tried = zip(search.cv_results_["params"], search.cv_results_["mean_test_score"], strict=True)
    means = {(one["svc__C"], gamma_of[id(one["functiontransformer"])]): mean for one, mean in tried}
    assert found == pytest.approx(means, abs=1e-12)
    assert (fleet.C, fleet.gamma) in {one for one, mean in means.items() if mean > max(means.values()) - 1e-12}
    assert len(set(means.values())) > 2
    judge = SVC(kernel="linear", tol=1e-9, C=30.0).fit(maps[4.0].of_rows(X), y)
    values = fleet.at(30.0, 4.0).decision_function(X)
    np.testing.assert_allclose(values, judge.decision_function(maps[4.0].of_rows(X)), atol=1e-2)


def test_all_of_it_is_read_once_and_checked(place: Path) -> None:
    """Rows cost one read, and labels one for the folds of each gamma; all are certified, and verify agrees."""
    run = json.loads((place / "m" / "run.json").read_text())
    assert run["members"] == run["members_certified"] == len(COSTS) * len(GAMMAS) * (1 + FOLDS)
    assert run["bytes_read"] == run["store_bytes"] + 4 * ROWS * len(GAMMAS)
    verify(place / "m", place / "s")
    told = (place / "m" / "report.html").read_text()
    assert "3 of gamma" in told


def test_each_gamma_decides_by_its_own_map(place: Path, tmp_path: Path) -> None:
    """The chosen one, and any other that is said; predictions and exports of scikit-learn are of the same."""
    X, _ = rows()
    fleet = coremargin.load(place / "m")
    values = [fleet.at(0.3, gamma).decision_function(X) for gamma in GAMMAS]
    for gamma, found in zip(GAMMAS, values, strict=True):
        member = fleet.members[f"C-0.3_gamma-{gamma if gamma == 'scale' else format(gamma, 'g')}"]
        assert np.array_equal(found, member.decision_function(X))
        np.testing.assert_allclose(fleet.at(0.3, gamma).to_sklearn().decision_function(X), found, atol=1e-9)
    assert not np.allclose(values[0], values[1], atol=1e-2)
    with pytest.raises(coremargin.CoremarginError, match="gamma: there are several"):
        fleet.at(0.3)


def test_the_command_line_takes_several(place: Path, tmp_path: Path, run_cli: Any) -> None:
    """A job's plan, its training, what is shown, and predictions of another gamma than the chosen one."""
    out = tmp_path / "m"
    words = ["--map", "nystroem", "--components", "10", "--gamma", "scale,0.05,4", "--loss", "hinge"]
    made = run_cli("train", place / "s", "--out", out, *words)
    assert "no gamma is chosen of scale, 0.05, 4" in made.stdout
    assert "10 features, of each of 3 gammas" in run_cli("show", out).stdout
    run_cli("predict", out, place / "s", tmp_path / "p.csv", "--gamma", "4")
    assert len((tmp_path / "p.csv").read_text().splitlines()) == ROWS + 1
    (tmp_path / "job.toml").write_text(
        f'job = "train"\nstore = "{place / "s"}"\nout = "{tmp_path / "o"}"\nmap = "fourier"\ncomponents = 10\n'
        'gamma = ["scale", 0.05]\nloss = "squared_hinge"\n'
    )
    assert "for each of 2 gammas rows of 10 components" in run_cli("plan", tmp_path / "job.toml").stdout


@pytest.mark.slow
@pytest.mark.parametrize("more", [{"loss": "hinge", "C": [0.1, 1.0]}, {"loss": "squared_hinge", "folds": 2}])
def test_a_run_that_goes_on_has_the_same_models(tmp_path: Path, more: dict[str, Any]) -> None:
    """Stopped after every scan and resumed, the folder has the same bytes as that of a run in one go."""
    X, y = rows(1200)
    coremargin.ingest(X, tmp_path / "s", labels=y, chunk_bytes=480)
    said = {"map": "fourier", "components": 20, "gamma": [0.1, 1.0], "memory": "100 KiB", "epsilon": 1e-2} | more
    coremargin.train(tmp_path / "s", out=tmp_path / "one", **said)
    model = coremargin.train(tmp_path / "s", out=tmp_path / "two", max_scans=1, **said)
    for scans in range(2, 60):
        if model.ended:
            break
        model = coremargin.train(tmp_path / "s", out=tmp_path / "two", begin="resume", max_scans=scans, **said)
    for path in [
        path for path in (tmp_path / "one").rglob("*") if path.name in ("fleet.json", "model.json", "arrays.npz")
    ]:
        assert path.read_bytes() == (tmp_path / "two" / path.relative_to(tmp_path / "one")).read_bytes()
    verify(tmp_path / "two", tmp_path / "s")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["nystroem", "fourier"])
def test_retraining_keeps_each_map(place: Path, tmp_path: Path, kind: str) -> None:
    """In the order of what was "scale" when it is a number; the new certificates are checked."""
    shutil.copytree(place / "s", tmp_path / "s")
    said = {"map": kind, "components": 10, "loss": "hinge", "gamma": ["scale", 0.05, 4.0], "C": 1.0}
    before = coremargin.train(tmp_path / "s", out=tmp_path / "m", **said)
    X, y = rows(60, 1)
    coremargin.ingest(X, tmp_path / "s", labels=y, append=True)
    after = coremargin.retrain(tmp_path / "m", tmp_path / "s", out=tmp_path / "n")
    arrays = [[made.numbers() for made in model.row_maps] for model in (before, after)]
    key = next(name for name in arrays[0][0] if name in ("normalization", "weights"))
    assert {a[key].tobytes() for a in arrays[0]} == {a[key].tobytes() for a in arrays[1]}
    if kind == "nystroem":
        assert [made.gamma for made in after.row_maps] == list(after.gammas) == sorted(after.gammas)
    verify(tmp_path / "n", tmp_path / "s")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["nystroem", "fourier", "polynomial"])
@pytest.mark.parametrize("more", [{}, {"folds": 2}, {"loss": "hinge", "classes": "ovr"}, {"loss": "squared_hinge"}])
def test_every_fleet_has_gammas(tmp_path: Path, kind: str, more: dict[str, Any]) -> None:
    """Certified and checked, hard or not, of two classes or each against the rest; here of sparse rows, scaled."""
    from scipy.sparse import csr_array

    rng = np.random.default_rng(1)
    y = np.arange(300) % (3 if "classes" in more else 2)
    X = (rng.uniform(0.1, 0.7, (300, 1)) + y[:, None]) * np.array([1.0, 0.5]) + 0.05 * rng.standard_normal((300, 2))
    coremargin.ingest(csr_array(X.astype(np.float32)), tmp_path / "s", labels=y, chunk_bytes=800)
    said = {"components": 10} if kind != "polynomial" else {"degree": 2, "coef0": 1.0}
    model = coremargin.train(
        tmp_path / "s", out=tmp_path / "m", map=kind, gamma=["scale", 0.5], scaling="maxabs", **said, **more
    )
    assert model.status in ("certified", "not_separable")
    verify(tmp_path / "m", tmp_path / "s")
