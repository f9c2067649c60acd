"""What features have to say, by their names: the same numbers as the hyperplane's, in units that people know."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coremargin
from coremargin.errors import UsageError

TABLE = """age,job,seen,label
{rows}
"""


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of a table with numbers, categories and dates: the job decides, and age a little."""
    rng = np.random.default_rng(3)
    folder = tmp_path_factory.mktemp("people")
    jobs = rng.choice(["baker", "miner", "nurse"], 120)
    ages = rng.integers(20, 70, 120)
    rows = [
        f"{age},{job},2024-0{1 + k % 9}-11,{'yes' if job == 'nurse' or (job == 'baker' and age > 45) else 'no'}"
        for k, (age, job) in enumerate(zip(ages, jobs, strict=True))
    ]
    (folder / "people.csv").write_text(TABLE.format(rows="\n".join(rows)))
    store = folder / "people.zarr"
    coremargin.ingest(folder / "people.csv", store, label="label", categorical="job", dates="seen")
    return store


@pytest.mark.parametrize("scaling", [None, "standard", "minmax", "maxabs", "rownorm"])
def test_weights_are_for_rows_as_they_are(people: Path, scaling: Any) -> None:
    """Weights and intercept give the decision values of raw rows; effects are weights times one unit of the scaling."""
    model = coremargin.train(people, loss="hinge", scaling=scaling)
    (plane,) = model.coefficients()
    rows = coremargin.Store.open(people).read(0)[0].astype(float)
    weights = {one.feature: one.weight for one in plane.coefficients}
    assert set(weights) == set(model.feature_names or ())
    units = rows / np.linalg.norm(rows, axis=1)[:, None] if scaling == "rownorm" else rows
    values = units @ [weights[name] for name in model.feature_names or ()] + plane.intercept
    np.testing.assert_allclose(values, model.decision_function(rows), rtol=1e-4, atol=1e-4)
    effects = [abs(one.effect) for one in plane.coefficients]
    assert effects == sorted(effects, reverse=True)
    age = next(one for one in plane.coefficients if one.feature == "age")
    size = {"standard": rows[:, 0].std(), "minmax": np.ptp(rows[:, 0]), "maxabs": np.abs(rows[:, 0]).max()}
    assert age.effect == pytest.approx(age.weight * size.get(str(scaling), 1.0), rel=1e-5)


def test_features_are_called_by_their_names(people: Path) -> None:
    """Categories are readable and lead to their column; the label that positive weights speak for is named."""
    (plane,) = coremargin.train(people, loss="hinge", scaling="standard").coefficients(top=3)
    assert (plane.label, plane.against, len(plane.coefficients)) == ("yes", "no", 3)
    nurse = next(one for one in plane.coefficients if one.feature == "job=nurse")
    assert (nurse.column, nurse.weight > 0) == ("job", True)


def test_features_without_names_go_by_number(rng: np.random.Generator) -> None:
    """Rows of an array: "feature 1"; equal sizes stay in order, and a top below 1 is refused."""
    X = np.repeat(rng.normal(size=(60, 1)), 3, axis=1) * [1.0, 2.0, 1.0]
    model = coremargin.train(X, X[:, 0] > 0)
    (plane,) = model.coefficients()
    assert plane.coefficients[0].feature == "feature 1"
    assert {one.column for one in plane.coefficients} == {None}
    with pytest.raises(UsageError, match="top: expected at least 1, got 0"):
        model.coefficients(top=0)


@pytest.mark.parametrize("classes", ["ovr", "crammer-singer"])
def test_several_classes_have_a_hyperplane_each(rng: np.random.Generator, classes: Any) -> None:
    """One for each class, in their order, against all others, with the folded weights of the plain object."""
    X, y = rng.normal(size=(90, 4)) * [1, 10, 1, 1] + 6 * np.eye(4)[np.arange(90) % 3], np.arange(90) % 3
    model = coremargin.train(X, y, classes=classes, loss="hinge", scaling="standard")
    planes, plain = model.coefficients(), model.to_sklearn()
    assert [(plane.label, plane.against) for plane in planes] == [(0, None), (1, None), (2, None)]
    for plane, weights, intercept in zip(planes, plain.coef_, plain.intercept_, strict=True):
        found = {one.feature: one.weight for one in plane.coefficients}
        assert [found[f"feature {j}"] for j in range(4)] == weights.tolist()
        assert plane.intercept == intercept


def test_a_fleet_of_several_costs_asks_which(rng: np.random.Generator) -> None:
    """Without a choice of C there is no hyperplane to show; ``at`` chooses."""
    X = rng.normal(size=(60, 3))
    model = coremargin.train(X, X[:, 1] > 0, loss="hinge", C=[0.1, 1.0])
    with pytest.raises(UsageError, match="no C is chosen of 0.1, 1"):
        model.coefficients()
    assert model.at(0.1).coefficients(1)[0].coefficients[0].feature == "feature 1"  # type: ignore[union-attr]


@pytest.mark.parametrize("scaling", ["standard", "rownorm"])
def test_exports_know_the_names(people: Path, scaling: Any) -> None:
    """scikit-learn checks frames by the names, whatever the scaling; ONNX has names of features and columns."""
    pandas = pytest.importorskip("pandas")
    model = coremargin.train(people, loss="hinge", scaling=scaling)
    names = list(model.feature_names or ())
    machine = model.to_sklearn()
    assert machine.feature_names_in_.tolist() == names
    rows = coremargin.Store.open(people).read(0)[0].astype(float)
    frame = pandas.DataFrame(rows, columns=names)
    np.testing.assert_array_equal(machine.predict(frame), model.predict(rows))
    with pytest.raises(ValueError, match="feature names"):
        machine.predict(frame.rename(columns={"age": "years"}))
    pytest.importorskip("onnx")
    about = {entry.key: entry.value for entry in model.to_onnx().metadata_props}
    assert json.loads(about["feature_names"]) == names
    assert json.loads(about["columns"]) == ["age", "job", "seen"]


def test_skops_keeps_the_names_without_trust(people: Path, tmp_path: Path) -> None:
    """Names in the exported file are plain texts: nothing in it has to be trusted."""
    skops = pytest.importorskip("skops.io")
    model = coremargin.train(people, loss="hinge")
    data = skops.dumps(model.to_sklearn())
    assert skops.get_untrusted_types(data=data) == []
    assert skops.loads(data).feature_names_in_.tolist() == list(model.feature_names or ())
