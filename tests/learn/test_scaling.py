"""Training on scaled rows: the plain path on scaled arrays judges, verify agrees, raw rows are served."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import cloudpickle
import numpy as np
import pytest
from msgspec import structs
from scipy.sparse import csr_array
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, StandardScaler

import coremargin
from coremargin.data.scaled import scaled
from coremargin.data.writer import StoreWriter
from coremargin.engine.executors import InProcess
from coremargin.engine.plan import plan_blocks
from coremargin.engine.task import answer, open_handle
from coremargin.errors import BadRow, CheckpointError, ClaimRefuted, DataError, UsageError
from coremargin.learn.train import train_job
from coremargin.models.evaluate import evaluate
from coremargin.models.model import Model
from coremargin.models.predict import predict
from coremargin.problems.hard.hard_margin import HardMargin
from coremargin.problems.registry import new_job
from coremargin.verify import verify
from coremargin.verify.examine import examine

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from coremargin.data.store import Store

    MakeStore = Callable[..., Store]

JUDGES: dict[str, Any] = {
    "standard": StandardScaler, "minmax": MinMaxScaler, "maxabs": MaxAbsScaler, "rownorm": Normalizer,
}  # fmt: skip
LOSSES: list[dict[str, Any]] = [{}, {"loss": "hinge", "C": 0.5}, {"loss": "squared_hinge", "C": 0.5}]
SCALES = np.array([1e-3, 1.0, 1e4, 7e8, 1.0, 0.0])


def _badly_scaled(rng: np.random.Generator, kind: str, n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n, 6) with columns of all scales, one constant, that a plane separates once they are scaled by kind."""
    X = rng.standard_normal((n, 6)) * SCALES + [1e-3, 5.0, 0.0, 1e9, 0.0, 3.0]
    if kind == "rownorm":
        X = rng.standard_normal((n, 6)) * np.exp(3 * rng.standard_normal((n, 1)))
    Z = JUDGES[kind]().fit_transform(X)
    value = Z @ rng.standard_normal(6)
    value -= np.median(value)
    far = np.abs(value) > np.quantile(np.abs(value), 0.1)
    return X[far], (value[far] > 0).astype(int)


@pytest.mark.parametrize("loss", [{"loss": "hinge", "C": 1.0}, {"loss": "squared_hinge", "C": 1.0}])
def test_dividing_rows_by_their_lengths_costs_no_read(
    rng: np.random.Generator, make_store: MakeStore, tmp_path: Path, loss: dict[str, Any]
) -> None:
    """Unit rows, and the same rows at other lengths with "rownorm", are trained with the same reads, held or not."""
    y = rng.random(6000) < 0.03
    X = rng.normal(size=(6000, 16)) + 3.0 * y[:, None] * np.eye(16)[0]
    unit = (X / np.linalg.norm(X, axis=1, keepdims=True)).astype(np.float32)
    raw = unit * 2.0 ** rng.integers(-2, 3, size=(6000, 1)).astype(
        np.float32
    )  # exact, so that lengths are rounded alike
    stores = [make_store(rows, y.astype(int), chunk_rows=300, name=name) for rows, name in ((unit, "u"), (raw, "r"))]
    for memory in (2**18, 2**30):
        reads = [
            train_job(
                new_job(store=store.path, out=tmp_path / f"{k}-{memory}", memory=memory, **loss, **scaling),
                store, InProcess(1),
            ).run["bytes_read"]
            for k, (store, scaling) in enumerate(zip(stores, ({}, {"scaling": "rownorm"}), strict=True))
        ]  # fmt: skip
        assert reads[0] == reads[1] > 0


@pytest.mark.specimens(7)
@pytest.mark.parametrize("loss", LOSSES, ids=["hard", "hinge", "squared"])
@pytest.mark.parametrize("kind", JUDGES)
def test_same_as_on_scaled_arrays(
    rng: np.random.Generator, make_store: MakeStore, tmp_path: Path, kind: str, loss: dict[str, Any]
) -> None:
    """The proof is that of the plain path on rows that scikit-learn scaled; verify agrees; raw rows are served."""
    X, y = _badly_scaled(rng, kind)
    if loss:
        y[::17] = 1 - y[::17]
    store = make_store(X, y)
    model = coremargin.train(store, out=tmp_path / "m", scaling=kind, epsilon=1e-6, **loss)
    Z = JUDGES[kind]().fit_transform(X)
    plain = coremargin.train(Z, y, epsilon=1e-6, **loss)
    assert model.status == plain.status == "certified"
    assert verify(tmp_path / "m", store.path).ok
    np.testing.assert_allclose(model.certificate.lower, plain.certificate.lower, rtol=2e-6)
    np.testing.assert_allclose(model.certificate.upper, plain.certificate.upper, rtol=2e-6)
    values = model.decision_function(X)
    np.testing.assert_allclose(values, Z @ model.w + model.b, rtol=0, atol=1e-9 * np.abs(values).max())
    loaded = Model.load(tmp_path / "m")
    np.testing.assert_array_equal(loaded.decision_function(X), values)
    assert loaded.scaling == kind
    if kind != "rownorm":
        np.testing.assert_allclose(X @ loaded.coef + loaded.intercept, values, rtol=1e-12)
    evaluation = evaluate(tmp_path / "m", store)
    assert evaluation.accuracy == ((values > 0) == y).mean()
    assert evaluation.lowest_margin == ((2 * y - 1) * values).min()
    assert predict(loaded, store, tmp_path / "p.zarr").least == np.abs(values).min()


@pytest.mark.parametrize("kind", JUDGES)
def test_float32_rows(rng: np.random.Generator, make_store: MakeStore, tmp_path: Path, kind: str) -> None:
    """In float32 the certificate is about the rows that float32 arithmetic gives, to the last bit."""
    X, y = _badly_scaled(rng, kind)
    store = make_store(X.astype(np.float32), y)
    model = coremargin.train(store, out=tmp_path / "m", scaling=kind)
    assert model.status == "certified"
    result = verify(tmp_path / "m", store.path)
    assert {check.name for check in result.checks} >= {"scaling", "coreset", "lower bound", "upper bound"}
    rows = scaled(store, model.scaling).rows_at(model.coreset_ids)[0]
    np.testing.assert_array_equal(rows, model.coreset_x)
    values = model.decision_function(store.rows_at(model.coreset_ids)[0])
    np.testing.assert_allclose(values, rows @ model.w + model.b, rtol=0, atol=1e-5 * np.abs(values).max())


@pytest.mark.parametrize("loss", LOSSES, ids=["hard", "hinge", "squared"])
def test_without_intercept(
    rng: np.random.Generator, make_store: MakeStore, tmp_path: Path, loss: dict[str, Any]
) -> None:
    """Centred rows have the origin at their mean: the hyperplane goes through it, whatever that means for raw rows."""
    X, y = _badly_scaled(rng, "standard")
    Z = StandardScaler().fit_transform(X)
    y = (Z @ np.arange(6) > 0).astype(int)
    store = make_store(X, y)
    model = coremargin.train(store, out=tmp_path / "m", scaling="standard", intercept=False, **loss)
    assert verify(tmp_path / "m", store.path).ok
    assert model.b == 0
    assert model.intercept == pytest.approx(-model.coef @ X.mean(axis=0))
    assert abs(model.decision_function(X.mean(axis=0)[None])[0]) < 1e-8


@pytest.mark.specimens(6)
@pytest.mark.parametrize("loss", LOSSES, ids=["hard", "hinge", "squared"])
@pytest.mark.parametrize("kind", ["standard", "maxabs", "rownorm"])
def test_sparse_rows(
    rng: np.random.Generator, make_store: MakeStore, tmp_path: Path, kind: str, loss: dict[str, Any]
) -> None:
    """Sparse rows keep their zeros; the proof is that of the same scaled rows made dense, and verify repeats it."""
    X = rng.poisson(0.3, (300, 20)) * np.exp(rng.standard_normal(20) * 3)
    X[:, 3], X[:, 4], X[7] = 2.5, 0.0, 0.0
    judge = StandardScaler(with_mean=False) if kind == "standard" else JUDGES[kind]()
    Z = judge.fit_transform(X)
    y = (Z @ rng.standard_normal(20) > np.median(Z @ np.ones(20)) / 9).astype(int)
    store = make_store(csr_array(X), y, sparse=True, chunk_rows=64)
    assert store.sparse
    model = coremargin.train(store, out=tmp_path / "m", scaling=kind, epsilon=1e-5, **loss)
    plain = coremargin.train(Z, y, epsilon=1e-5, **loss)
    assert model.status == plain.status
    result = verify(tmp_path / "m", store.path)
    assert "scaling" in {check.name for check in result.checks}
    if model.status == "certified":
        np.testing.assert_allclose(model.certificate.upper, plain.certificate.upper, rtol=2e-5)
        values = model.decision_function(csr_array(X))
        np.testing.assert_allclose(values, Z @ model.w + model.b, rtol=0, atol=1e-9 * np.abs(values).max())
    if kind != "rownorm":
        lie = _altered(tmp_path / "m", tmp_path / "lie", lambda _: None, factor=_moved(model.factor, 1e-3))  # type: ignore[arg-type]
        assert "column 1" in str([check.text for check in examine(lie, store.path).failures if check.name == "scaling"])
    if kind == "standard":
        lie = _altered(tmp_path / "m", tmp_path / "shift", lambda _: None, shift=X.mean(axis=0))
        assert "scaling" in {check.name for check in examine(lie, store.path).failures}


def _altered(model: Path, out: Path, change: Callable[[dict[str, Any]], None], **arrays: Any) -> Path:
    """A copy of a model with another record or other arrays."""
    shutil.copytree(model, out)
    record = json.loads((out / "model.json").read_text())
    change(record["parameters"])
    (out / "model.json").write_text(json.dumps(record))
    with np.load(out / "arrays.npz") as held:
        values = {name: arrays.get(name, held[name]) for name in held.files}
    np.savez(out / "arrays.npz", **{name: array for name, array in values.items() if array is not None})
    return out


def _moved(values: np.ndarray, by: float) -> np.ndarray:
    return np.where(np.arange(len(values)) == 1, values * np.float32(1 + by), values)


@pytest.mark.specimens(6)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["standard", "minmax", "maxabs"])
@pytest.mark.parametrize("name", ["shift", "factor"])
def test_verify_refutes_other_numbers(
    rng: np.random.Generator, make_store: MakeStore, tmp_path: Path, kind: str, name: str, dtype: str
) -> None:
    """A shift or factor that is not the column's is found in the same scan, and said with the column."""
    X, y = _badly_scaled(rng, kind)
    store = make_store(X.astype(dtype), y)
    model = coremargin.train(store, out=tmp_path / "m", scaling=kind, loss="hinge", epsilon=0.1)
    assert verify(tmp_path / "m", store.path).ok
    values = getattr(model, name)
    other = _moved(values, 1e-4) if values.any() else values + 1
    lie = _altered(tmp_path / "m", tmp_path / "lie", lambda _: None, **{name: other})
    result = examine(lie, store.path)
    (check,) = [check for check in result.checks if check.name == "scaling"]
    assert not check.ok
    assert f"model claims {kind}, column {0 if not values.any() else 1}: " in check.text
    odd = np.full(6, np.pi) if dtype == "float32" else -np.abs(values)
    lie = _altered(tmp_path / "m", tmp_path / "odd", lambda _: None, factor=odd)
    (check,) = [check for check in examine(lie, store.path).checks if check.name == "scaling"]
    assert not check.ok


def _loosely(X: np.ndarray, make_store: MakeStore, tmp_path: Path, **options: Any) -> tuple[Store, Path]:
    """A store of rows whose labels alternate, and a model of it on standard-scaled rows."""
    store = make_store(X, np.arange(len(X)) % 2, **options)
    coremargin.train(store, out=tmp_path / "m", scaling="standard", loss="hinge", epsilon=0.1)
    return store, tmp_path / "m"


@pytest.mark.parametrize("off", [0.95, -1e-3])
def test_a_mean_is_not_off_by_many_deviations(make_store: MakeStore, tmp_path: Path, off: float) -> None:
    """A column far from 0 is not shifted by a share of its mean: that may be hundreds of its deviations."""
    y = 2 * (np.arange(100) % 2) - 1
    X = (1e9 + 1e-3 * y * (1 + np.random.default_rng(0).random(100)))[:, None]
    store, model = _loosely(X, make_store, tmp_path)
    assert examine(model, store.path).ok
    with np.load(model / "arrays.npz") as held:
        shift = held["shift"] + off
    lie = _altered(model, tmp_path / "lie", lambda _: None, shift=shift)
    assert "scaling" in {check.name for check in examine(lie, store.path).failures}


def test_a_deviation_that_overflows_is_near_to_nothing(make_store: MakeStore, tmp_path: Path) -> None:
    """No trainer scales such a column, and no number is what it is scaled by."""
    X = np.random.default_rng(0).normal(size=(100, 1))
    _, model = _loosely(X, make_store, tmp_path)
    store = make_store(X * 1e200, np.arange(100) % 2, name="far.zarr")
    texts = {check.name: check.text for check in examine(model, store.path).failures}
    assert "scaling" in texts


@pytest.mark.specimens(2)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("chunk_rows", [100, 3000])
@pytest.mark.parametrize("features", [3, 40])
def test_honest_means_of_hard_columns(
    rng: np.random.Generator, make_store: MakeStore, tmp_path: Path, features: int, chunk_rows: int, dtype: str
) -> None:
    """Timestamps, thirds, sorted values and one that is far from all others: sums lose digits, and verify knows it."""
    X = rng.normal(size=(3000, features))
    X[:, 0] = 1.6e18 + X[:, 0] * 1e12
    X[:, 1] = 1e9 / 3 + X[:, 1] * 1e-3
    X[:, 2] = 1e6 + np.sort(X[:, 2])
    X[5, 2] = 1e15 / 3
    X[:, 3:] += 1e4 / 3
    store, model = _loosely(X.astype(dtype), make_store, tmp_path, chunk_rows=chunk_rows)
    assert [check.text for check in examine(model, store.path).failures] == []
    with np.load(model / "arrays.npz") as held:
        shift = held["shift"]
    kind = np.dtype(dtype).type
    for column, by in enumerate((1, 1, 1) if dtype == "float32" else (10_000, 10_000, None)):
        if by is None or column == 2:
            continue  # far from the rest: its deviation is its mean many times
        moved = shift.copy()
        for _ in range(by):
            moved[column] = np.nextafter(kind(moved[column]), kind(np.inf))
        lie = _altered(model, tmp_path / f"lie-{column}", lambda _: None, shift=moved)
        assert "scaling" in {check.name for check in examine(lie, store.path).failures}


def test_verify_refutes_other_kinds(rng: np.random.Generator, make_store: MakeStore, tmp_path: Path) -> None:
    """A model whose record names another scaling, or none, is refuted or not read at all."""
    X, y = _badly_scaled(rng, "rownorm")
    store = make_store(X, y)
    coremargin.train(store, out=tmp_path / "r", scaling="rownorm")
    coremargin.train(store, out=tmp_path / "m", scaling="maxabs", loss="hinge")
    with pytest.raises(ClaimRefuted):
        verify(_altered(tmp_path / "r", tmp_path / "r0", lambda p: p.pop("scaling")), store.path)
    with pytest.raises(ClaimRefuted, match="model claims minmax"):
        verify(_altered(tmp_path / "m", tmp_path / "m0", lambda p: p.update(scaling="minmax")), store.path)
    with pytest.raises(DataError):
        verify(_altered(tmp_path / "m", tmp_path / "m1", lambda p: p.update(scaling="log")), store.path)
    with pytest.raises(DataError):
        verify(_altered(tmp_path / "m", tmp_path / "m2", lambda p: None, shift=None), store.path)
    for name in ("m1", "m2"):
        with pytest.raises(DataError, match="scaling|shift"):
            Model.load(tmp_path / name)


@pytest.mark.specimens(1)
@pytest.mark.parametrize("kind", JUDGES)
def test_stopped_and_resumed(rng: np.random.Generator, make_store: MakeStore, tmp_path: Path, kind: str) -> None:
    """A job that was stopped and resumed again and again ends with the bits of one that was not."""
    X, y = _badly_scaled(rng, kind)
    store = make_store(X.astype(np.float32), y)
    options = {"store": store.path, "scaling": kind, "strategy": "paper", "epsilon": 1e-2, "block": 4096}
    train_job(new_job(out=tmp_path / "a", **options), store, InProcess(2))  # type: ignore[arg-type]
    scans, begin = 0, "new"
    while True:
        scans += 3
        job = new_job(out=tmp_path / "b", max_scans=scans, **options)  # type: ignore[arg-type]
        if not train_job(job, store, InProcess(1), begin=begin).resumable:  # type: ignore[arg-type]
            break
        begin = "resume"
        with pytest.raises(CheckpointError, match="scaling"):
            train_job(structs.replace(job, scaling=None), store, InProcess(1), begin="resume")
    assert scans > 3
    for name in ("model.json", "arrays.npz"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    assert verify(tmp_path / "b", store.path).ok


@pytest.mark.parametrize("kind", JUDGES)
def test_workers_make_the_same_rows(rng: np.random.Generator, make_store: MakeStore, kind: str) -> None:
    """What a worker answers from the pickled handle is what the driver's own source answers."""
    X, y = _badly_scaled(rng, kind)
    source = scaled(make_store(X.astype(np.float32), y), kind)  # type: ignore[arg-type]
    problem = HardMargin(source, 1e-3)
    probe = problem.probe(problem.start())
    for block in plan_blocks(source):
        here = answer(source, probe, block).summary.to_arrays()
        there = answer(
            open_handle(cloudpickle.loads(cloudpickle.dumps(source.handle()))), probe, block
        ).summary.to_arrays()
        assert all(here[name].tobytes() == there[name].tobytes() for name in here)


@pytest.mark.slow
def test_embedded_cluster(rng: np.random.Generator, make_store: MakeStore, tmp_path: Path) -> None:
    """On worker processes the model has the same bits as in this process."""
    X, y = _badly_scaled(rng, "standard", 4000)
    store = make_store(X.astype(np.float32), y)
    for name, cluster in (("a", "embedded"), ("b", "threads")):
        coremargin.train(store, out=tmp_path / name, scaling="standard", cluster=cluster)
    for name in ("model.json", "arrays.npz"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_column_that_cannot_be_scaled(make_store: MakeStore, tmp_path: Path) -> None:
    """A column too short to be scaled is named before anything is read; scaled rows are not scaled again."""
    X = np.array([[0.0, 1e-40], [1.0, 0.0], [2.0, 1e-40]], np.float32)
    store = make_store(X, [0, 1, 1])
    with pytest.raises(BadRow, match="column 1 .*standard deviation"):
        coremargin.train(store, out=tmp_path / "m", scaling="standard")
    assert not (tmp_path / "m").exists()
    with pytest.raises(UsageError, match="scaled already"):
        coremargin.train(scaled(store, "rownorm"), scaling="rownorm")


@pytest.mark.parametrize("kind", JUDGES)
def test_export(rng: np.random.Generator, kind: str) -> None:
    """What is exported serves rows as they are."""
    X, y = _badly_scaled(rng, kind)
    model = coremargin.train(X, y, scaling=kind, loss="hinge")
    values = model.decision_function(X)
    np.testing.assert_allclose(model.to_sklearn().decision_function(X), values, rtol=0, atol=1e-9 * abs(values).max())


@pytest.fixture(scope="module")
def kdd(real_data: Path) -> tuple[np.ndarray, np.ndarray]:
    """KDD Cup 99 as it comes, 494,020 x 41 with values up to 7e8, and its labels (11: normal, 18: smurf)."""
    rows = np.loadtxt(real_data / "uci" / "kddcup.tsv.gz", delimiter="\t", skiprows=1)
    return rows[:, :-1].astype(np.float32), rows[:, -1].astype(int)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("other", "options"),
    [(18, {}), (0, {"loss": "squared_hinge", "C": 0.01})],
    ids=["hard", "squared"],
)
def test_raw_kdd(kdd: tuple[np.ndarray, np.ndarray], tmp_path: Path, other: int, options: dict[str, Any]) -> None:
    """Scaled as it is read, KDD is certified: normal against smurf with a margin, against all the rest with a loss."""
    X, codes = kdd
    keep = (codes == 11) | (codes == other) if other else np.ones(len(codes), bool)
    with StoreWriter.create(tmp_path / "kdd.zarr", features=41) as writer:
        writer.write(X[keep], np.where(codes[keep] == 11, "normal", "attack"))
    model = coremargin.train(tmp_path / "kdd.zarr", out=tmp_path / "m", scaling="standard", **options)
    assert model.status == "certified"
    assert verify(tmp_path / "m", tmp_path / "kdd.zarr").ok
    assert evaluate(tmp_path / "m", tmp_path / "kdd.zarr").accuracy > 0.99


@pytest.mark.parametrize("loss", LOSSES, ids=["hard", "hinge", "squared"])
@pytest.mark.parametrize("kind", ["standard", "minmax"])
def test_columns_that_are_all_constant(make_store: MakeStore, tmp_path: Path, kind: Any, loss: dict[str, Any]) -> None:
    """All rows are scaled to zeros: nothing separates them, and a soft margin has w = 0."""
    store = make_store(np.full((12, 3), [0.1, 5.0, -7.0], np.float32), [0, 1, 1] * 4, chunk_rows=5)
    model = coremargin.train(store.path, out=tmp_path / "m", scaling=kind, cluster="threads", **loss)
    assert model.status == ("certified" if loss else "not_separable")
    assert not loss or not model.w.any()
    assert examine(tmp_path / "m", store.path).ok
