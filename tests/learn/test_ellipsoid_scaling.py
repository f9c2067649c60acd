"""Rows scaled by the ellipsoid of least volume around them: scikit-learn judges, and no affine map changes anything."""

from __future__ import annotations

import json
import re
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from msgspec import structs
from scipy.sparse import csr_array
from sklearn.svm import SVC

import coremargin
from coremargin.active import ActiveLearner
from coremargin.cli.plan import describe_plan, plan_job
from coremargin.data.scaled import scaled, scaled_as
from coremargin.data.writer import StoreWriter
from coremargin.engine.executors import InProcess
from coremargin.errors import BadRow, DataError, RunError, UsageError
from coremargin.learn.train import train_job
from coremargin.maths.scaling import Metric
from coremargin.models.model import Model
from coremargin.problems.kernel.report import field_of
from coremargin.problems.registry import kind_of, new_job
from coremargin.verify.examine import examine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from coremargin.data.store import Store
    from coremargin.engine.protocols import Executor

    MakeStore = Callable[..., Store]

LOSSES: list[dict[str, Any]] = [{}, {"loss": "hinge", "C": 0.5}, {"loss": "squared_hinge", "C": 0.5}]
PREFIX = "scaling_"


def _slanted(rng: np.random.Generator, n: int = 300, d: int = 4) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n, d) of correlated columns of unlike scales, which a plane with a gap around it separates."""
    Z = rng.standard_normal((2 * n, d))
    side = Z @ np.arange(1, d + 1) / d
    far = np.flatnonzero(np.abs(side) > 0.2)[:n]
    mixed = Z[far] @ (np.eye(d) + 0.5 * rng.standard_normal((d, d)))
    return mixed * np.logspace(-2, 3, d) + 7.0, (side[far] > 0).astype(int)


def _arrays(model: Path) -> dict[str, np.ndarray]:
    with np.load(model / "arrays.npz") as held:
        return dict(held)


def _altered(model: Path, out: Path, **arrays: Any) -> Path:
    """A copy of a model with other arrays: names to functions of the earlier ones."""
    shutil.copytree(model, out)
    held = _arrays(model)
    np.savez(out / "arrays.npz", **(held | {name: change(held[name]) for name, change in arrays.items()}))
    return out


@pytest.mark.parametrize("loss", LOSSES, ids=["hard", "hinge", "squared"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_same_as_on_rows_that_are_mapped_before(
    rng: np.random.Generator, make_store: MakeStore, tmp_path: Path, loss: dict[str, Any], dtype: str
) -> None:
    """The rows of ``EllipsoidModel.transform`` train the same model; verify agrees; raw rows are served."""
    X, y = _slanted(rng)
    if loss:
        y[::17] = 1 - y[::17]
    store = make_store(X.astype(dtype), y)
    model: Any = coremargin.train(store, out=tmp_path / "m", scaling="ellipsoid", epsilon=1e-6, **loss)
    result = examine(tmp_path / "m", store.path)
    assert result.ok, [check.text for check in result.failures]
    assert "least around the store's rows" in str([check.text for check in result.checks if check.name == "scaling"])
    ellipsoid: Any = coremargin.train(store, one_class="ellipsoid", epsilon=1e-7)
    Z = ellipsoid.transform(X.astype(dtype)) * (np.sqrt(4) / ellipsoid.radius)
    plain: Any = coremargin.train(Z, y, epsilon=1e-6, **loss)
    assert model.status == plain.status == "certified"
    np.testing.assert_allclose(model.certificate.lower, plain.certificate.lower, rtol=2e-5)
    values = model.decision_function(X.astype(dtype))
    np.testing.assert_allclose(values, plain.decision_function(Z), rtol=0, atol=1e-3 * np.abs(values).max())
    loaded: Any = Model.load(tmp_path / "m")
    assert loaded.scaling == "ellipsoid"
    np.testing.assert_array_equal(loaded.decision_function(X.astype(dtype)), values)
    np.testing.assert_allclose(X @ loaded.coef + loaded.intercept, values, atol=1e-4 * np.abs(values).max())


def test_the_optimum_is_that_of_scikit_learn(rng: np.random.Generator) -> None:
    """LIBSVM in the metric of the model reaches the same value of the hinge loss."""
    X, y = _slanted(rng)
    y[::11] = 1 - y[::11]
    model: Any = coremargin.train(X, y, scaling="ellipsoid", loss="hinge", C=0.7, epsilon=1e-6)
    Z = (X - model.array(PREFIX + "centre")) @ model.array(PREFIX + "axes").T
    judge = SVC(kernel="linear", C=0.7, tol=1e-8).fit(Z, y)
    assert np.linalg.norm(Z, axis=1).max() == pytest.approx(2.0, rel=1e-6)
    w, b, sign = judge.coef_[0], judge.intercept_[0], 2 * y - 1
    best = 0.5 * w @ w + 0.7 * np.maximum(0, 1 - sign * (Z @ w + b)).sum()
    assert model.certificate.lower * (1 - 1e-9) <= best <= model.certificate.upper * (1 + 2e-6)


@pytest.mark.parametrize("options", [*LOSSES, {"kernel": "rbf", "gamma": 0.3, "loss": "hinge"}])
def test_no_affine_map_changes_anything(rng: np.random.Generator, options: dict[str, Any]) -> None:
    """Trained on X and on X A + b: the same margin or value, the same decision values."""
    X, y = _slanted(rng)
    if options:
        y[::17] = 1 - y[::17]
    one: Any = coremargin.train(X, y, scaling="ellipsoid", epsilon=1e-6, **options)
    for seed in range(2):
        draw = np.random.default_rng(seed)
        moved = X @ draw.standard_normal((4, 4)) * 10.0 ** draw.integers(-3, 4) + 100 * draw.standard_normal(4)
        other: Any = coremargin.train(moved, y, scaling="ellipsoid", epsilon=1e-6, **options)
        assert other.certificate.lower == pytest.approx(one.certificate.lower, rel=5e-6)
        values = one.decision_function(X)
        np.testing.assert_allclose(other.decision_function(moved), values, atol=1e-3 * np.abs(values).max())
        assert ((other.predict(moved) == one.predict(X)) | (np.abs(values) < 1e-3)).all()
    plain: Any = coremargin.train(moved, y, epsilon=1e-6, **options)
    assert plain.certificate.lower != pytest.approx(one.certificate.lower, rel=1e-2)


def test_to_the_bit(rng: np.random.Generator, make_store: MakeStore, tmp_path: Path) -> None:
    """Plain Python's sums, from the first column to the last, are the scaled rows of view, model and verifier."""
    X, y = _slanted(rng, n=60)
    store = make_store(X.astype(np.float32), y, chunk_rows=16)
    model: Any = coremargin.train(store, out=tmp_path / "m", scaling="ellipsoid", loss="hinge", C=10.0)
    arrays = _arrays(tmp_path / "m")
    axes, centre = arrays[PREFIX + "axes"].tolist(), arrays[PREFIX + "centre"].tolist()
    for row, shown in zip(
        X.astype(np.float32), scaled_as(store, model.row_scaling).rows_at(np.arange(60))[0], strict=True
    ):
        off = [float(x) - c for x, c in zip(row, centre, strict=True)]
        sums = []
        for line in axes:
            total = 0.0
            for factor, value in zip(line, off, strict=True):
                total += factor * value
            sums.append(np.float32(total))
        assert shown.tolist() == [float(value) for value in sums]
    assert examine(tmp_path / "m", store.path).ok
    order = np.array([2, 0, 3, 1])
    scaling = model.row_scaling
    np.testing.assert_array_equal(scaling.rearranged(order).of_rows(X[:, order])[0], scaling.of_rows(X)[0][:, order])


@pytest.mark.parametrize("weighted", [False, True])
def test_bounds_of_chunks_hold(rng: np.random.Generator, make_store: MakeStore, weighted: bool) -> None:
    """No scaled row is longer, or farther from its chunk's point, than the view says without reading."""
    X, y = _slanted(rng)
    X[:, 3] += np.linspace(0, 1e4, len(X))
    weights = np.where(np.arange(len(X)) % 7 == 0, 0.0, 1.0) if weighted else None
    store = make_store(X.astype(np.float32), y, weights, chunk_rows=32)
    model: Any = coremargin.train(store, scaling="ellipsoid", loss="hinge")
    view = scaled_as(store, model.row_scaling, model.numbers)
    scalars, centres = view.scalars(), view.centres()
    for chunk in range(view.chunks):
        z = view.read(chunk)[0].astype(np.float64)
        assert np.linalg.norm(z, axis=1).max() <= scalars.max_norm[chunk]
        assert np.linalg.norm(z - centres[chunk], axis=1).max() <= scalars.radius[chunk]
    if not weighted:
        assert scalars.max_norm.max() <= 2.0 * (1 + 1e-5)


@pytest.mark.parametrize("extra", ["function", "constant"])
def test_rows_in_a_flat(rng: np.random.Generator, make_store: MakeStore, tmp_path: Path, extra: str) -> None:
    """Columns that are functions of others are 0 in scaled rows, and nothing else changes."""
    X, y = _slanted(rng)
    more = np.full(len(X), 3.0) if extra == "constant" else X @ [1.0, -2.0, 0.01, 0.001]
    wide = np.column_stack([X[:, :2], more, X[:, 2:]])
    store = make_store(wide, y)
    model: Any = coremargin.train(store, out=tmp_path / "m", scaling="ellipsoid", epsilon=1e-6)
    result = examine(tmp_path / "m", store.path)
    assert result.ok, [check.text for check in result.failures]
    plain: Any = coremargin.train(X, y, scaling="ellipsoid", epsilon=1e-6)
    assert model.certificate.lower == pytest.approx(plain.certificate.lower, rel=5e-6)
    np.testing.assert_allclose(model.decision_function(wide), plain.decision_function(X), atol=1e-3)
    assert len(model.array(PREFIX + "span_columns")) == 4
    for name, change in (("span_slopes", lambda s: s + 0.1), ("span_offsets", lambda o: o + 1.0)):
        lie = _altered(tmp_path / "m", tmp_path / name, **{PREFIX + name: change})
        assert "scaling" in {check.name for check in examine(lie, store.path).failures}


FORGERIES: list[tuple[dict[str, Any], str]] = [
    ({"axes": lambda a: a * 1.001}, "radius"),
    ({"axes": lambda a: a @ np.diag([0.5, 2.0, 1.0, 1.0])}, "row .* is the outermost"),
    ({"axes": lambda a: a + 1e-3 * np.tril(a, -1)}, "outermost|allow no"),
    ({"axes": lambda a: a * 1e-320}, "radius"),
    ({"centre": lambda c: c * (1 + 1e-6)}, "outermost"),
    ({"bounds": lambda b: b * [1, 1 - 1e-9]}, "outermost"),
    ({"bounds": lambda b: b * [1 + 1e-6, 1]}, "allow no"),
    ({"bounds": lambda b: b * [1 - 1e-4, 1]}, ""),  # true, and within what is allowed
    ({"bounds": lambda b: b * [1 - 1e-3, 1]}, "do not prove the least volume"),
    ({"bounds": lambda b: b * 1.1}, "radius"),
    ({"alpha": lambda a: a[::-1].copy()}, "allow no"),
    ({"alpha": lambda a: a * 0.5}, "weights"),
    ({"coreset_ids": lambda i: i + 1}, "not what the store holds|not in the store"),
    ({"coreset_x": lambda x: x * 1.01}, "not what the store holds"),
]


def test_false_ellipsoids_are_rejected(rng: np.random.Generator, make_store: MakeStore, tmp_path: Path) -> None:
    """Other axes, another centre, other bounds, weights or rows: by a check of the scaling that says what is wrong."""
    X, y = _slanted(rng)
    store = make_store(X, y)
    coremargin.train(store, out=tmp_path / "m", scaling="ellipsoid", loss="hinge")
    for k, (change, text) in enumerate(FORGERIES):
        lie = _altered(tmp_path / "m", tmp_path / f"f{k}", **{PREFIX + name: by for name, by in change.items()})
        failures = {check.name: check.text for check in examine(lie, store.path).failures}
        if text:
            assert re.search(text, failures.get("scaling", "")), (change, failures)
        else:
            assert not failures


def test_the_ellipsoid_of_another_store_is_rejected(
    rng: np.random.Generator, make_store: MakeStore, tmp_path: Path
) -> None:
    """One that is larger, smaller, or of rows in another order; and a scaling of another kind."""
    X, y = _slanted(rng)
    store = make_store(X, y)
    coremargin.train(store, out=tmp_path / "m", scaling="ellipsoid", loss="hinge")
    for name, other in {"larger": 2 * X, "part": X[:200], "turned": X[::-1]}.items():
        coremargin.train(other, y[: len(other)], out=tmp_path / name, scaling="ellipsoid", loss="hinge")
        theirs = _arrays(tmp_path / name)
        lie, held = _altered(tmp_path / "m", tmp_path / f"lie-{name}"), _arrays(tmp_path / "m")
        np.savez(lie / "arrays.npz", **(held | {key: theirs[key] for key in held if key.startswith(PREFIX)}))
        assert "scaling" in {check.name for check in examine(lie, store.path).failures}
    for kind in ("standard", "rownorm", None):
        lie = _altered(tmp_path / "m", tmp_path / f"lie-{kind}")
        record = json.loads((lie / "model.json").read_text())
        record["parameters"] |= {"scaling": kind}
        if kind is None:
            del record["parameters"]["scaling"]
        (lie / "model.json").write_text(json.dumps(record))
        with pytest.raises(DataError):
            examine(lie, store.path)


@pytest.mark.parametrize(
    "change",
    [
        {"axes": lambda a: a.T.copy()},
        {"axes": lambda a: -a},
        {"axes": lambda a: a[:3]},
        {"centre": lambda c: c[:3]},
        {"bounds": lambda b: -b},
        {"bounds": lambda b: b * np.inf},
        {"alpha": lambda a: -a},
        {"coreset_x": lambda x: x[:, :3]},
    ],
)
def test_what_is_no_ellipsoid_is_not_read(
    rng: np.random.Generator, make_store: MakeStore, tmp_path: Path, change: dict[str, Any]
) -> None:
    """Before a row is read, by models and by the verifier."""
    X, y = _slanted(rng, n=60)
    store = make_store(X, y)
    coremargin.train(store, out=tmp_path / "m", scaling="ellipsoid", loss="hinge")
    lie = _altered(tmp_path / "m", tmp_path / "lie", **{PREFIX + name: by for name, by in change.items()})
    with pytest.raises(DataError, match=PREFIX):
        examine(lie, store.path)
    with pytest.raises(DataError, match=PREFIX):
        Model.load(lie)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"one_class": "ellipsoid"}, "not scaled by one"),
        ({"kernel": "rbf"}, "needs a read of its own"),
        ({"map": "fourier", "components": 9}, "needs a read of its own"),
    ],
)
def test_what_is_refused(rng: np.random.Generator, options: dict[str, Any], text: str) -> None:
    """With what to do instead."""
    X, y = _slanted(rng, n=60)
    with pytest.raises(UsageError, match=text):
        coremargin.train(X, y, scaling="ellipsoid", **options)


def test_rows_that_are_refused(rng: np.random.Generator, make_store: MakeStore) -> None:
    """Sparse, wide, or equal rows; a time limit that the ellipsoid takes; sources that nobody has read before."""
    X, y = _slanted(rng, n=60)
    with pytest.raises(UsageError, match="zeros of sparse rows"):
        coremargin.train(csr_array(X), y, scaling="ellipsoid")
    wide = rng.standard_normal((20, 300))
    with pytest.raises(UsageError, match="at most 256 columns, found 300"):
        coremargin.train(wide, y[:20], scaling="ellipsoid")
    with pytest.raises(UsageError, match="of memory for 6 columns"):
        coremargin.train(rng.standard_normal((60, 6)), y, scaling="ellipsoid", memory="100 KB")
    with pytest.raises((UsageError, BadRow), match="equal"):
        coremargin.train(np.ones((60, 3)), y, scaling="ellipsoid")
    with pytest.raises(RunError, match="time limit"):
        coremargin.train(make_store(X, y), scaling="ellipsoid", time_limit=1e-9)
    with pytest.raises(UsageError, match="takes a read"):
        scaled(make_store(X, y, name="s.zarr"), "ellipsoid")
    with pytest.raises(UsageError, match="campaigns do not"):
        ActiveLearner(X, classes=[0, 1], scaling="ellipsoid")


def test_resumed_and_elsewhere(
    rng: np.random.Generator, make_store: MakeStore, tmp_path: Path, embedded: Executor
) -> None:
    """Stopped and resumed, with more threads, and with processes: the same bytes; the extra read is counted."""
    X, y = _slanted(rng, n=400)
    store = make_store(X, y, chunk_rows=16)
    options: Any = {"store": store.path, "scaling": "ellipsoid", "strategy": "paper", "epsilon": 1e-2, "block": 4096}
    train_job(new_job(out=tmp_path / "a", **options), store, InProcess(2))
    scans, begin = 0, "new"
    while True:
        scans += 4
        job = new_job(out=tmp_path / "b", max_scans=scans, **options)
        if not train_job(job, store, InProcess(1), begin=begin).resumable:  # type: ignore[arg-type]
            break
        begin = "resume"
    assert scans > 4
    train_job(new_job(out=tmp_path / "c", **options), store, embedded)
    for name in ("model.json", "arrays.npz"):
        assert len({(tmp_path / folder / name).read_bytes() for folder in "abc"}) == 1
    run = json.loads((tmp_path / "c" / "run.json").read_text())
    assert run["scaling"]["bytes_read"] >= store.nbytes
    assert run["bytes_read"] == run["scaling"]["bytes_read"] + sum(
        json.loads(line)["bytes_read"] for line in (tmp_path / "c" / "rounds.jsonl").read_text().splitlines()
    )
    run = json.loads((tmp_path / "a" / "run.json").read_text())
    assert run["bytes_read"] == store.nbytes  # rows stay in memory after the first read


def test_retrained(rng: np.random.Generator, make_store: MakeStore, tmp_path: Path) -> None:
    """Rows inside the ellipsoid leave it as it is, and the start is warm; others make it another one."""
    X, y = _slanted(rng, n=400)
    order = np.argsort(np.linalg.norm((X - X.mean(axis=0)) / X.std(axis=0), axis=1))
    inner, outer = order[:30], np.setdiff1d(np.arange(400), order[:30])
    store = make_store(X[outer], y[outer])
    coremargin.train(store, out=tmp_path / "m", scaling="ellipsoid", keep_for_retraining="1 MB")
    with StoreWriter.append(store.path) as writer:
        writer.write(X[inner], y[inner])
    coremargin.retrain(tmp_path / "m", store.path, out=tmp_path / "n")
    run = json.loads((tmp_path / "n" / "run.json").read_text())
    assert run["scaling"] == {"kept": True, "rows_compared": 30, "bytes_read": 0}
    assert "from_scratch" not in run["retrained"]
    one, two = _arrays(tmp_path / "m"), _arrays(tmp_path / "n")
    assert all(np.array_equal(one[name], two[name]) for name in one if name.startswith(PREFIX))
    assert examine(tmp_path / "n", store.path).ok
    with StoreWriter.append(store.path) as writer:
        writer.write(X[:2] * 10, y[:2])
    coremargin.retrain(tmp_path / "n", store.path, out=tmp_path / "o")
    run = json.loads((tmp_path / "o" / "run.json").read_text())
    assert "scaling has changed" in run["retrained"]["from_scratch"]
    assert run["scaling"]["bytes_read"] > 0
    assert examine(tmp_path / "o", store.path).ok


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"kernel": "rbf", "gamma": 0.3, "loss": "hinge"},
        {"map": "polynomial", "degree": 2, "gamma": 1.0, "loss": "hinge"},
        {"classes": "ovr", "loss": "hinge"},
    ],
)
def test_exports_predict_the_same(rng: np.random.Generator, options: dict[str, Any]) -> None:
    """Pipelines of scikit-learn, and ONNX where it is installed."""
    X, y = _slanted(rng, n=120)
    if "classes" in options:
        y = y + (X[:, 0] > np.median(X[:, 0]))
    model: Any = coremargin.train(X, y, scaling="ellipsoid", **options)
    values = model.decision_function(X)
    made = model.to_sklearn()
    np.testing.assert_allclose(made.decision_function(X), values, atol=1e-7 * np.abs(values).max())
    np.testing.assert_array_equal(made.predict(X), model.predict(X))
    runtime = pytest.importorskip("onnxruntime")
    session = runtime.InferenceSession(model.to_onnx().SerializeToString())
    labels = session.run(None, {"X": X})[0]
    np.testing.assert_array_equal(labels, model.predict(X))


def test_machines_with_a_kernel_are_drawn_around_rows_as_they_are(rng: np.random.Generator, tmp_path: Path) -> None:
    """Not in the metric, from which rows of two columns are restored; not of rows on a line."""
    X, y = _slanted(rng, n=120, d=2)
    asked: dict[str, Any] = {"scaling": "ellipsoid", "kernel": "rbf", "gamma": 0.5, "loss": "hinge"}
    for rows in (X, np.column_stack([X[:, 0], 2 * X[:, 0]])):
        coremargin.ingest(rows, tmp_path / "s", labels=y, dtype="float64", overwrite=True)
        model: Any = coremargin.train(tmp_path / "s", out=tmp_path / "m", overwrite=True, **asked)
        field = field_of(tmp_path / "m", model.record)
        assert ("<h2>The boundary</h2>" in (tmp_path / "m" / "report.html").read_text()) == (field is not None)
        if rows is not X:
            assert field is None
            continue
        assert field is not None
        np.testing.assert_allclose(field.points, X[model.coreset_ids[model.carriers]], rtol=1e-12)
        middle = len(field.y) // 2
        grid = np.column_stack([field.x, np.full(len(field.x), field.y[middle])])
        np.testing.assert_allclose(field.values[middle], model.decision_function(grid))


def test_metric_of_two_columns() -> None:
    """A row is moved, multiplied by a triangle, and 0 in the column that is left out."""
    arrays = {
        "centre": np.array([1.0, 2.0]),
        "axes": np.array([[2.0, 0.0], [1.0, 4.0]]),
        "span_columns": np.array([0, 2]),
    }
    metric = Metric.of(3, {PREFIX + name: values for name, values in arrays.items()})
    out = np.empty((1, 3))
    metric.into(np.array([[3.0, 9.0, 5.0]]), out)
    assert out.tolist() == [[4.0, 0.0, 14.0]]
    shift, matrix = metric.affine()
    assert ((np.array([3.0, 9.0, 5.0]) - shift) @ matrix).tolist() == [4.0, 0.0, 14.0]


def test_planned(rng: np.random.Generator, make_store: MakeStore, tmp_path: Path) -> None:
    """A plan counts the read for the ellipsoid, unless rows stay in memory, or the earlier ellipsoid stays."""
    X, y = _slanted(rng, n=400)
    store = make_store(X, y)
    job = new_job(store=store.path, out=tmp_path / "m", scaling="ellipsoid", loss="hinge", memory=2**20)
    plan = plan_job(job, "threads")
    assert (plan["in_memory"], plan["reads_before"]) == (True, 0)
    away = plan_job(job, "embedded")
    assert (away["in_memory"], away["reads_before"]) == (False, 1)
    other = plan_job(structs.replace(job, scaling="standard"), "embedded")
    assert away["bytes_expected"] == other["bytes_expected"] + store.nbytes
    assert any(line.startswith("scaling") for line in describe_plan(away, kind_of(job)))
    with pytest.raises(UsageError, match="of memory for 4 columns"):
        plan_job(structs.replace(job, memory=1000), "threads")
