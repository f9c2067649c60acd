"""A hyperplane for each of three classes, made by scikit-learn's SVC: kept, read, checked, used and handed on."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.svm import SVC

import coremargin
from coremargin.cli import main
from coremargin.data.scaled import scaled
from coremargin.data.store import Store
from coremargin.errors import ClaimRefuted, DataError
from coremargin.models.evaluate import evaluate
from coremargin.models.kernel import KernelModel
from coremargin.models.model import Model
from coremargin.models.registry import load
from coremargin.problems.common.model import record_of, transform_arrays
from coremargin.problems.registry import write_report
from model_kit import altered, store_of

if TYPE_CHECKING:
    from coremargin.problems.common.model import ModelBounds

LABELS = ["setosa", "versicolor", "virginica"]
EPSILON = 1e-3


class Bounds:
    """What a record says of it."""

    def __init__(self, members: list[dict[str, Any]]) -> None:
        """The bounds of the class whose share is the least."""
        worst = min(members, key=lambda one: one["lower"] / one["upper"])
        self.status, self.kind = "stopped", "margin"
        self.lower, self.upper = worst["lower"], worst["upper"]


def flowers(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Three clouds of four features, each apart from the two others."""
    y = np.arange(150) % 3
    centres = np.array([[5.0, 3.4, 1.5, 0.2], [5.9, 1.0, 9.3, 1.3], [12.6, 3.0, 5.6, 7.0]])
    return (centres[y] + 0.3 * rng.standard_normal((150, 4))).astype(np.float32), y


def against_the_rest(Z: np.ndarray, signs: np.ndarray) -> tuple[np.ndarray, np.ndarray, dict[str, float]]:
    """The hyperplane (w, b) of length 1, dual weights (m,) of which each side's sum to 1, and the bounds, rounded."""
    machine = SVC(kernel="linear", C=1e10, tol=1e-10).fit(Z, signs)
    w, b = machine.coef_[0], machine.intercept_[0]
    plane = np.append(w, b) / np.linalg.norm(w)
    duals = np.zeros(len(Z))
    duals[machine.support_] = np.abs(machine.dual_coef_[0])
    for sign in (-1, 1):
        duals[signs == sign] /= duals[signs == sign].sum()
    lower = (signs * (Z @ plane[:-1] + plane[-1])).min()
    upper = np.linalg.norm((signs * duals) @ Z) / 2
    return plane, duals, {"lower": float(lower * (1 - 1e-12)), "upper": float(upper * (1 + 1e-12))}


def made(path: Path, rng: np.random.Generator, scaling: Any = None) -> tuple[Model, Path, np.ndarray]:
    """A model of 120 answers, the 30 rows that are furthest being without, with the store and the classes of all."""
    X, y = flowers(rng)
    store = store_of(path / f"{scaling}.zarr", X, [LABELS[code] for code in y], 32)
    source = scaled(Store.open(store), scaling)
    Z = np.concatenate([source.read(chunk)[0] for chunk in range(source.chunks)]).astype(np.float64)
    planes, columns, members = [], [], []
    for k, label in enumerate(LABELS):
        plane, duals, bounds = against_the_rest(Z, np.where(y == k, 1, -1))
        members.append({"label": label, **bounds})
        planes.append(plane)
        columns.append(duals)
    duals = np.column_stack(columns)
    near = np.abs(Z @ np.stack(planes)[:, :-1].T + np.stack(planes)[:, -1]).min(axis=1)
    order = np.argsort(near)
    answered, unsure = np.sort(order[:120]), np.sort(order[148:])
    ids = np.flatnonzero((duals > 0).any(axis=1))
    parameters = {
        "epsilon": EPSILON, "intercept": True, "method": "coreset", "error": 0.1, "confidence": 0.9, "seed": 0,
    } | ({} if scaling is None else {"scaling": scaling})  # fmt: skip
    found: ModelBounds = Bounds(members)
    record = record_of(
        source, (), found, "active_classes", parameters, len(ids), members=members, evidence=None, answers=120,
        log=None, unsure=2,
    ) | {"classes": LABELS}  # fmt: skip
    rows = {"answered_ids": answered, "answered_classes": y[answered].astype(np.int32)}
    none = {"draws_ids": np.zeros(0, np.int64), "draws_classes": np.zeros(0, np.int32)}
    shared = {"hypothesis": np.stack(planes), "duals": duals[ids], "coreset_ids": ids, "coreset_classes": y[ids]}
    unsure_rows = {"unsure_ids": unsure}
    model = Model(record, {**shared, **rows, **none, **unsure_rows, **transform_arrays(source)}, Z[ids])
    return model, store, y


@pytest.mark.parametrize("scaling", [None, "standard"])
def test_a_model_of_sklearns_planes_is_verified(tmp_path: Path, rng: np.random.Generator, scaling: Any) -> None:
    """The planes of SVC are within epsilon of the best for each class, which the verifier finds, too; less is refused.

    With the dual weights of one class altered the proof does not hold.
    """
    model, store, _ = made(tmp_path, rng, scaling)
    assert all((1 - EPSILON) * one["upper"] <= one["lower"] <= one["upper"] for one in model.record["members"])
    model.save(tmp_path / "m")
    done = coremargin.verify(tmp_path / "m", store)
    assert done.ok, [check.text for check in done.listed if not check.ok]

    def flattened(duals: np.ndarray) -> np.ndarray:
        own = model.coreset_classes == 1
        duals[:, 1] = np.where(own, 1 / own.sum(), 1 / (~own).sum())
        return duals

    wrong = altered(tmp_path / "m", tmp_path / "w", duals=flattened)
    with pytest.raises(ClaimRefuted, match="upper bound: class 'versicolor' against the rest"):
        coremargin.verify(wrong, store)


@pytest.mark.parametrize("scaling", [None, "standard", "rownorm"])
def test_it_predicts_the_class_with_the_largest_value(tmp_path: Path, rng: np.random.Generator, scaling: Any) -> None:
    """NumPy's argmax of w.z + b is the label that the model gives, and that ``coef`` gives for rows as they are."""
    model, store, y = made(tmp_path, rng, scaling)
    source = scaled(Store.open(store), scaling)
    Z = np.concatenate([source.read(chunk)[0] for chunk in range(source.chunks)]).astype(np.float64)
    X = flowers(np.random.default_rng())[0] if scaling is None else rng.uniform(-2, 12, (500, 4)).astype(np.float32)
    values = Z @ model.hypothesis[:, :-1].T + model.hypothesis[:, -1]
    stored = Store.open(store)
    rows = np.concatenate([stored.read(chunk)[0] for chunk in range(stored.chunks)])
    np.testing.assert_allclose(model.decision_function(rows), values, rtol=1e-9, atol=1e-9)
    expected = [LABELS[code] for code in values.argmax(axis=1)]
    assert model.predict(rows).tolist() == expected == [LABELS[code] for code in y]
    as_they_are = X / np.linalg.norm(X, axis=1)[:, None] if scaling == "rownorm" else X
    by_coef = as_they_are @ model.coef.T + model.intercept
    sure = np.partition(by_coef, -2, axis=1)
    sure = sure[:, -1] - sure[:, -2] > 1e-4
    assert sure.mean() > 0.9
    assert (model.predict(X) == np.array(LABELS)[by_coef.argmax(axis=1)])[sure].all()


@pytest.mark.parametrize("scaling", [None, "standard", "rownorm"])
def test_other_runtimes_give_the_same_labels(tmp_path: Path, rng: np.random.Generator, scaling: Any) -> None:
    """scikit-learn and onnxruntime, without us, give the labels and the values that the model gives."""
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    model, _, _ = made(tmp_path, rng, scaling)
    X = rng.uniform(-2, 12, (300, 4))
    graph = model.to_onnx().SerializeToString()
    label, decision = runtime.InferenceSession(graph, providers=["CPUExecutionProvider"]).run(None, {"X": X})
    expected = model.decision_function(X)
    assert len(set(model.predict(X).tolist())) == 3
    np.testing.assert_allclose(decision, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(model.to_sklearn().decision_function(X), expected, rtol=1e-5, atol=1e-5)
    assert label.tolist() == model.predict(X).tolist() == model.to_sklearn().predict(X).tolist()


def test_it_is_the_same_when_it_is_read_again(tmp_path: Path, rng: np.random.Generator) -> None:
    """A folder, and a deep copy, give every array and the record back; one of two classes is refused by name."""
    model, _, _ = made(tmp_path, rng, "standard")
    model.save(tmp_path / "m")
    for again in (
        load(tmp_path / "m"),
        Model.load(tmp_path / "m"),
        copy.deepcopy(model),
    ):
        assert type(again) is Model
        assert again.record == model.record
        assert {name: (a.dtype, a.tobytes()) for name, a in again.arrays().items()} == {
            name: (a.dtype, a.tobytes()) for name, a in model.arrays().items()
        }
    assert (again.answers, again.log, again.evidence) == (120, None, None)
    assert again.unsure_ids.tobytes() == model.numbers["unsure_ids"].tobytes()
    assert len(again.unsure_ids) == 2
    np.testing.assert_allclose(again.row_duals.sum(), 6.0)
    assert repr(again).startswith("Model(stopped: 3 classes, 150 rows x 4 features, lower ")
    with pytest.raises(DataError, match="expected a model of a kernel, found one of problem 'active_classes'"):
        KernelModel.load(tmp_path / "m")


@pytest.mark.parametrize(
    ("record", "arrays", "message"),
    [
        ({}, {"answered_classes": lambda a: a + 3}, "answered_classes: expected places of classes"),
        ({}, {"hypothesis": lambda a: a[:2]}, r"hypothesis: expected shape \(3, 5\)"),
        ({}, {"unsure_ids": None}, "missing or unknown: unsure_ids"),
        ({}, {"unsure_ids": lambda a: a + 150}, "different rows below 150"),
        ({"members": lambda members: members[::-1]}, {}, "expected the bounds of each class, in their order"),
    ],
)
def test_what_does_not_fit_is_refused(
    tmp_path: Path, rng: np.random.Generator, record: dict[str, Any], arrays: dict[str, Any], message: str
) -> None:
    """Arrays of other shapes, classes that there are not, rows twice, bounds of other classes."""
    made(tmp_path, rng)[0].save(tmp_path / "m")
    with pytest.raises(DataError, match=message):
        load(altered(tmp_path / "m", tmp_path / "other", record, **arrays))


def test_every_command_takes_it(tmp_path: Path, rng: np.random.Generator) -> None:
    """show, report, verify, predict, evaluate and export of a model of three classes end well, and say what it is."""
    pytest.importorskip("onnx")
    model, store, y = made(tmp_path, rng)
    model.save(tmp_path / "m")

    def say(*words: object) -> str:
        done = CliRunner().invoke(main, [str(word) for word in words])
        assert done.exit_code == 0, done.output
        return done.stdout

    shown = say("show", tmp_path / "m")
    assert "active_classes" in shown
    assert all(repr(label) in shown for label in LABELS)
    assert json.loads(say("show", tmp_path / "m", "--json"))["members"] == model.record["members"]
    assert "virginica" in write_report(tmp_path / "m").read_text()
    assert "verified" in say("verify", tmp_path / "m", store, "--quiet")
    say("predict", tmp_path / "m", store, tmp_path / "p.parquet", "--quiet")
    import pyarrow.parquet as pq

    assert pq.read_table(tmp_path / "p.parquet")["label"].to_pylist() == [LABELS[code] for code in y]
    assert json.loads(say("evaluate", tmp_path / "m", store, "--json", "--quiet"))["accuracy"] == 1.0
    say("export", tmp_path / "m", tmp_path / "m.onnx")
    score = evaluate(model, store)
    assert np.array_equal(score.confusion, 50 * np.eye(3))
    values = np.sort(model.decision_function(flowers(np.random.default_rng(0))[0]), axis=1)
    assert score.lowest_margin > 0
    assert values.shape == (150, 3)
