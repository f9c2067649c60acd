"""What leaves the house predicts what we predict, in other people's runtimes."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.svm import LinearSVC

import coremargin
from coremargin.errors import UsageError
from coremargin.models.decision import label_array
from coremargin.models.export import export
from coremargin.models.onnx_graph import as_onnx
from coremargin.models.sklearn_objects import Linear, as_sklearn

if TYPE_CHECKING:
    from click.testing import Result

    from coremargin.models.model import Model

LABELS = {
    "text": ("ham", "spam"), "numbers": (-1, 1), "floats": (1.0, 2.0), "answers": (False, True),
}  # fmt: skip


@pytest.fixture(params=LABELS.values(), ids=LABELS)
def trained(request: pytest.FixtureRequest, rng: np.random.Generator) -> tuple[Model, np.ndarray]:
    """A soft-margin model of two overlapping clouds with labels of each kind, and 400 rows to ask it about."""
    X = rng.normal(size=(300, 7)) * 10.0 ** rng.integers(-2, 3, 7)
    side = (X @ rng.normal(size=7) + rng.normal(size=300) > 0).astype(int)
    model = coremargin.train(X, [request.param[k] for k in side], loss="hinge", C=0.1)
    return model, rng.normal(size=(400, 7)) * np.abs(X).max(axis=0)


def run_onnx(graph: Any, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Labels and decision values as onnxruntime computes them."""
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(graph.SerializeToString(), providers=["CPUExecutionProvider"])
    label, decision = session.run(["label", "decision"], {"X": X})
    return label, decision


def test_onnx_agrees_in_float64(trained: tuple[Model, np.ndarray]) -> None:
    """onnxruntime gives the same labels, in their own kind, and decision values within 1e-12 of their size."""
    pytest.importorskip("onnx")
    model, X = trained
    label, decision = run_onnx(model.to_onnx(), X)
    expected = model.decision_function(X)
    np.testing.assert_allclose(decision, expected, rtol=1e-9, atol=1e-12 * np.abs(expected).max())
    assert label.tolist() == model.predict(X).tolist()


@pytest.mark.parametrize("scaling", ["standard", "rownorm"])
def test_scaling_goes_with_the_model(scaling: str, rng: np.random.Generator) -> None:
    """A model of scaled rows is exported for rows as they are: folded into coefficients, or with a step of its own."""
    pytest.importorskip("onnx")
    X = rng.normal(size=(200, 5)) * 10.0 ** np.arange(-2, 3) + 3.0
    y = np.where(X[:, 2] + 0.02 * X[:, 3] > 3.0, "yes", "no")
    model = coremargin.train(X, y, loss="hinge", scaling=scaling)
    X[7] = 0.0  # has no length to be divided by
    expected = model.decision_function(X)
    label, decision = run_onnx(model.to_onnx(), X)
    np.testing.assert_allclose(decision, expected, rtol=1e-9, atol=1e-12 * np.abs(expected).max())
    np.testing.assert_allclose(model.to_sklearn().decision_function(X), decision, rtol=1e-9, atol=1e-9)
    assert label.tolist() == model.predict(X).tolist() == model.to_sklearn().predict(X).tolist()


def test_onnx_in_float32_agrees_to_its_precision(trained: tuple[Model, np.ndarray]) -> None:
    """With 24 bits the decision values agree to 1e-6 of the terms they are sums of."""
    pytest.importorskip("onnx")
    model, X = trained
    label, decision = run_onnx(model.to_onnx("float32"), X.astype(np.float32))
    assert decision.dtype == np.float32
    expected = model.decision_function(X)
    size = np.abs(X) @ np.abs(model.w) + abs(model.b)
    assert (np.abs(decision - expected) <= 1e-6 * size).all()
    sure = np.abs(expected) > 1e-6 * size
    assert label[sure].tolist() == model.predict(X)[sure].tolist()


def test_onnx_says_where_it_comes_from(trained: tuple[Model, np.ndarray]) -> None:
    """The graph's metadata carry status and certificate, and one row is as good as many."""
    pytest.importorskip("onnx")
    model, X = trained
    graph = model.to_onnx()
    about = {entry.key: entry.value for entry in graph.metadata_props}
    assert json.loads(about["certificate"]) == model.record["certificate"]
    assert (graph.producer_name, about["status"]) == ("coremargin", "certified")
    assert run_onnx(graph, X[:1])[1].shape == (1,)


@pytest.mark.parametrize("classes", [["a", "b", "c"], [10, 20, 30]])
def test_onnx_of_several_classes_takes_the_largest_value(classes: list[Any], rng: np.random.Generator) -> None:
    """With one row of coefficients per class the label is that of the largest decision value, the first of equals."""
    pytest.importorskip("onnx")
    coef, X = rng.normal(size=(3, 4)), rng.normal(size=(50, 4))
    X[0] = 0.0  # all values are equal there
    linear = Linear(coef, np.zeros(3), np.array(classes), {})
    label, decision = run_onnx(as_onnx(linear), X)
    expected = X @ coef.T
    np.testing.assert_allclose(decision, expected, rtol=1e-12, atol=1e-14)
    assert label.tolist() == linear.classes[expected.argmax(axis=1)].tolist()
    np.testing.assert_array_equal(as_sklearn(linear).predict(X), label)


@pytest.mark.parametrize(
    ("classes", "what"),
    [
        ([2**63, 2**64 - 1], "labels up to 2"),
        ([-1, 2**64 - 1], "labels up to 2"),
        (["a", "a\0"], "without zero characters"),
        ([1, "1"], "found '1' twice"),
    ],
)
def test_labels_that_a_graph_would_change_are_refused(classes: list[Any], what: str) -> None:
    """What does not come back as it is gets a message, no traceback and no other label."""
    pytest.importorskip("onnx")
    linear = Linear(np.ones((1, 2)), np.zeros(1), label_array(classes), {})
    with pytest.raises(UsageError, match=what):
        as_onnx(linear)


def test_scikit_learn_object_agrees_and_is_one_of_theirs(trained: tuple[Model, np.ndarray]) -> None:
    """LinearSVC gives the same values and labels, and a calibration on top of it trusts that it is fitted."""
    model, X = trained
    machine = model.to_sklearn()
    assert type(machine).__module__.startswith("sklearn.")
    np.testing.assert_allclose(machine.decision_function(X), model.decision_function(X), rtol=1e-9)
    np.testing.assert_array_equal(machine.predict(X), model.predict(X))
    calibrated = CalibratedClassifierCV(FrozenEstimator(machine)).fit(X, model.predict(X))
    assert (calibrated.predict(X) == model.predict(X)).mean() > 0.9


def test_skops_reads_what_was_written_without_trust(trained: tuple[Model, np.ndarray], tmp_path: Path) -> None:
    """The file holds types of scikit-learn and NumPy only, so that skops loads it with nothing to be trusted."""
    skops = pytest.importorskip("skops.io")
    model, X = trained
    size = export(model, tmp_path / "rows.skops", format="sklearn-skops")
    assert size == (tmp_path / "rows.skops").stat().st_size
    assert skops.get_untrusted_types(file=tmp_path / "rows.skops") == []
    np.testing.assert_array_equal(skops.load(tmp_path / "rows.skops").predict(X), model.predict(X))


@pytest.mark.parametrize("kind", ["onnx", "sklearn-skops"])
def test_only_what_was_exported_is_replaced(trained: tuple[Model, np.ndarray], tmp_path: Path, kind: Any) -> None:
    """A file of somebody else's, a pipe and a folder stay, whatever is asked; a link keeps leading where it led."""
    onnx, skops = pytest.importorskip("onnx"), pytest.importorskip("skops.io")
    model, _ = trained
    theirs = as_onnx(Linear(np.ones((1, 2)), np.zeros(1), np.array([0, 1]), {}))
    theirs.producer_name = "somebody"
    onnx.save(theirs, tmp_path / "theirs.onnx")
    skops.dump(LinearSVC(), tmp_path / "theirs.skops")
    (tmp_path / "notes").write_text("coremargin")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    for name in (*before, "folder", "pipe"):
        with pytest.raises(UsageError, match="expected an exported model or nothing"):
            export(model, tmp_path / name, format=kind, overwrite=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()} == before
    export(model, tmp_path / "ours", format="onnx" if kind != "onnx" else "sklearn-skops")
    (tmp_path / "link").symlink_to("ours")
    with pytest.raises(UsageError, match="an exported model is there already"):
        export(model, tmp_path / "link", format=kind)
    assert export(model, tmp_path / "link", format=kind, overwrite=True) == (tmp_path / "ours").stat().st_size
    assert (tmp_path / "link").is_symlink()
    with pytest.raises(UsageError, match="expected onnx or sklearn-skops, got 'pmml'"):
        export(model, tmp_path / "c", format="pmml")  # type: ignore[arg-type]
    assert {entry.name for entry in tmp_path.iterdir()} == {*before, "folder", "pipe", "ours", "link"}


def test_the_command_exports_a_folder(
    run_cli: Callable[..., Result], trained: tuple[Model, np.ndarray], tmp_path: Path
) -> None:
    """`coremargin export` writes a graph that onnxruntime opens from the file."""
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    model, X = trained
    model.save(tmp_path / "rows.model")
    told = json.loads(run_cli("export", tmp_path / "rows.model", tmp_path / "rows.onnx", "--json").stdout)
    assert told["bytes"] == (tmp_path / "rows.onnx").stat().st_size
    session = runtime.InferenceSession(tmp_path / "rows.onnx", providers=["CPUExecutionProvider"])
    assert session.run(["label"], {"X": X})[0].tolist() == model.predict(X).tolist()
    assert (
        "an exported model is there already"
        in run_cli("export", tmp_path / "rows.model", tmp_path / "rows.onnx", exit_code=2).stderr
    )


def test_a_fleet_is_exported_for_one_c(
    run_cli: Callable[..., Result], tmp_path: Path, rng: np.random.Generator
) -> None:
    """Of several values of C one must be chosen; the graph then has its classes."""
    pytest.importorskip("onnx")
    X, y = rng.normal(size=(150, 3)), rng.integers(0, 3, 150)
    X[:, 0] += y
    fleet = coremargin.train(X, y, loss="hinge", classes="ovr", C=[0.1, 1.0])
    fleet.save(tmp_path / "fleet.model")
    refused = run_cli("export", tmp_path / "fleet.model", tmp_path / "a.onnx", exit_code=2)
    assert "cannot decide yet: no C is chosen" in refused.stderr
    run_cli("export", tmp_path / "fleet.model", tmp_path / "a.onnx", "--C", "0.1")
    label, decision = run_onnx(fleet.at(0.1).to_onnx(), X)
    np.testing.assert_allclose(decision, fleet.at(0.1).decision_function(X), rtol=1e-9, atol=1e-12)
    assert label.tolist() == fleet.at(0.1).predict(X).tolist() == fleet.at(0.1).to_sklearn().predict(X).tolist()
