"""The relative margin as users meet it: trained, verified, forged, used, interrupted, retrained, refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial, partialmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner

import coremargin
from coremargin.cli import main
from coremargin.data.arrays import ArraySource
from coremargin.data.store import Store
from coremargin.engine.executors import InProcess
from coremargin.engine.plan import plan_blocks
from coremargin.errors import BadRow, CoremarginError, Interrupted, LabelError, SpecError, UsageError
from coremargin.learn import train as train_module
from coremargin.learn.train import Progress, train_job
from coremargin.maths.relative_margin import Pieces, minimise_within
from coremargin.models.registry import load
from coremargin.problems.registry import new_job
from coremargin.problems.relative_margin import relative_margin
from coremargin.problems.relative_margin.relative_margin import RelativeMargin, RelativeMarginState
from coremargin.verify.examine import examine
from model_kit import altered

if TYPE_CHECKING:
    from coremargin.engine.protocols import Executor

B, C = 2.0, 0.1
ASKED: dict[str, Any] = {"loss": "hinge", "C": C, "relative_margin": B}


def rows_of(seed: int = 0, n: int = 600, d: int = 3, *, sparse: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Rows off the origin, each column of another size, with noisy labels."""
    rng = np.random.default_rng(seed)
    X = (rng.standard_normal((n, d)) * rng.uniform(0.3, 3.0, d) + 1.0).astype(np.float32)
    if sparse:
        X[rng.random(X.shape) < 0.6] = 0.0
    y = (X - X.mean(axis=0)) @ rng.standard_normal(d) + rng.standard_normal(n) > 0
    return X, np.where(y, 1, 0)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """600 rows in chunks of 16."""
    X, y = rows_of()
    coremargin.ingest(X, tmp_path / "s.zarr", labels=y, chunk_bytes=16 * 12)
    return tmp_path / "s.zarr"


@pytest.fixture
def _in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sample is read first, scans send some of the rows, and none stay in memory."""
    monkeypatch.setattr(relative_margin, "NEAR_LEAST", 100)
    monkeypatch.setattr(RelativeMargin, "__init__", partialmethod(RelativeMargin.__init__, sample_bytes=1500))
    monkeypatch.setattr(train_module, "fits", lambda *_, **__: False)


def best_value(X: np.ndarray, y: np.ndarray, costs: np.ndarray, bound: float, *, intercept: bool = True) -> float:
    """The least value, by solving all rows at once; tests/maths/test_relative_margin.py compares that with daqp."""
    z = np.column_stack([X.astype(np.float64), np.full(len(X), float(intercept))])
    signs = np.where(y == y.max(), 1.0, -1.0)
    metric = np.append(np.ones(X.shape[1]), 0.0)
    found = minimise_within(
        Pieces(metric, np.zeros(len(metric)), z * signs[:, None], np.ones(len(z)), costs), z, z[0], bound, 1e-12
    )
    return value_of(found.point, X, y, costs)


def value_of(at: np.ndarray, X: np.ndarray, y: np.ndarray, costs: np.ndarray) -> float:
    """The objective by its definition."""
    margins = np.where(y == y.max(), 1, -1) * (X.astype(np.float64) @ at[:-1] + at[-1])
    return float(0.5 * at[:-1] @ at[:-1] + costs @ np.maximum(1.0 - margins, 0.0))


def states_of(problem: RelativeMargin, limit: int = 40) -> list[RelativeMarginState]:
    """All states of a job, without machinery."""
    states = [problem.start()]
    while not problem.done(states[-1]):
        assert len(states) <= limit
        probe = problem.probe(states[-1])
        summary = probe.empty()
        for block in plan_blocks(problem.source):
            summary = summary.merge(probe.narrow(block)(problem.source, block))
        states.append(problem.update(states[-1], summary))
    return states


def say(*words: object, code: int = 0) -> str:
    """What a command prints; code: that it ends with."""
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == code, done.output
    return done.output


@pytest.mark.parametrize("bound", [1.1, 2.0, 5.0])
@pytest.mark.parametrize("cost", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize("intercept", [True, False])
def test_both_bounds_hold_after_every_scan(
    monkeypatch: pytest.MonkeyPatch, bound: float, cost: float, *, intercept: bool
) -> None:
    """The least value lies between the bounds of every state, and the last ones are close."""
    monkeypatch.setattr(relative_margin, "NEAR_LEAST", 200)
    X, y = rows_of(1, n=2000)
    least = best_value(X, y, np.full(len(y), cost), bound, intercept=intercept)
    problem = RelativeMargin(ArraySource(X, y, chunk_rows=50), 1e-7, bound, cost, intercept=intercept)
    states = states_of(RelativeMargin(**{**vars(problem), "sample_bytes": 3000}))
    assert states[-1].status == "certified"
    for state in states[1:]:
        assert state.dual <= least * (1 + 1e-9)
        assert state.primal >= least * (1 - 1e-9)
        assert np.abs(X.astype(np.float64) @ state.best[:-1] + state.best[-1]).max() <= bound
    assert states[-1].primal == pytest.approx(least, rel=1e-6)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("weight", [None, "balanced", (0.5, 3.0)])
def test_weights_of_rows_and_classes_count(weight: Any, *, sparse: bool) -> None:
    """The value is the least one, with sample weights of which some are 0, class weights, and sparse rows."""
    X, y = rows_of(2, sparse=sparse)
    weights = np.random.default_rng(3).choice([0.0, 0.3, 1.0, 2.5], len(y))
    totals = np.array([weights[y == 0].sum(), weights[y == 1].sum()])
    factors = {None: (1.0, 1.0), "balanced": totals.sum() / (2 * totals)}.get(weight, weight)
    costs = 0.7 * weights * np.where(y == 1, factors[1], factors[0])
    kept = costs > 0
    model = coremargin.train(
        sp.csr_array(X) if sparse else X, y, weights=weights, loss="hinge", C=0.7, class_weight=weight,
        relative_margin=1.5, epsilon=1e-8,
    )  # fmt: skip
    assert model.status == "certified"
    assert model.certificate.upper == pytest.approx(best_value(X[kept], y[kept], costs[kept], 1.5), rel=1e-7)


def test_few_reads_prove_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a sample of 4 %, a gap of 1e-3 takes two scans, or three where columns are correlated."""
    monkeypatch.setattr(relative_margin, "NEAR_LEAST", 1000)
    rng = np.random.default_rng(1)
    X = rng.standard_normal((20_000, 8))
    w = rng.standard_normal(8)
    y = X @ w / np.linalg.norm(w) + 0.3 * rng.standard_normal(20_000) > 0
    for bound in (2.5, 4.0):
        for rows in (X, X @ rng.standard_normal((8, 8))):
            problem = RelativeMargin(ArraySource(rows.astype(np.float32), y, chunk_rows=100), 1e-3, bound, 1e-3)
            states = states_of(RelativeMargin(**{**vars(problem), "sample_bytes": 30_000}))
            assert states[-1].status == "certified"
            assert len(states) <= 4


@pytest.mark.usefixtures("_in_parts")
def test_it_is_trained_verified_shown_and_reported(tmp_path: Path, store: Path) -> None:
    """A job file, a certificate to 1e-8, and every command about models."""
    X, y = rows_of()
    job, path = tmp_path / "job.toml", tmp_path / "m"
    words = f'loss = "hinge"\nC = {C}\nrelative_margin = {B}\nepsilon = 1e-8\n'
    job.write_text(f'job = "train"\nstore = "s.zarr"\nout = "m"\n{words}')
    assert "relative_margin" in say("plan", job)
    text = say("run", job, "--cluster", "threads", "--quiet")
    assert text.startswith("certified: the value")
    assert "no hyperplane with decision values from -2 to 2 has less than" in text
    model: Any = load(path)
    assert (model.certificate.kind, model.kind) == ("duality_gap", "relative_margin")
    assert model.certificate.upper == pytest.approx(best_value(X, y, np.full(len(y), C), B), rel=2e-8)
    assert np.abs(model.decision_function(X)).max() == pytest.approx(B, rel=1e-6)
    assert coremargin.verify(path, store).ok
    assert "of those with all decision values within 2" in say("verify", path, store, "--quiet")
    shown = say("show", path)
    assert "relative margin  decision values of all rows from -2 to 2" in shown
    page = (path / "report.html").read_text()
    assert "no decision value is beyond" in page
    assert "Decision values of all rows" in page
    found = json.loads(say("evaluate", path, store, "--json"))
    assert found["accuracy"] == pytest.approx(float((model.predict(X) == y).mean()))
    assert model.to_sklearn().decision_function(X) == pytest.approx(model.decision_function(X))


def test_onnx_predicts_the_same() -> None:
    """Labels, and decision values to rounding."""
    onnxruntime = pytest.importorskip("onnxruntime")
    X, y = rows_of()
    model: Any = coremargin.train(X, y, scaling="standard", **ASKED)
    session, X = onnxruntime.InferenceSession(model.to_onnx().SerializeToString()), X.astype(np.float64)
    label, decision = session.run(None, {"X": X})
    assert np.allclose(decision, model.decision_function(X), atol=1e-9)
    assert (label == model.predict(X))[np.abs(decision) > 1e-6].all()


@pytest.mark.parametrize("options", [{}, {"scaling": "standard"}, {"map": "polynomial", "degree": 2}])
def test_rows_of_any_form_have_the_same_value(tmp_path: Path, store: Path, options: dict[str, Any]) -> None:
    """In memory, sparse, in float64 and in a store; scaled and mapped; all are verified."""
    X, y = rows_of()
    known = coremargin.train(store, epsilon=1e-6, out=tmp_path / "m", **ASKED, **options)
    assert known.status == "certified"
    assert coremargin.verify(tmp_path / "m", store).ok
    coremargin.ingest(sp.csr_array(X), tmp_path / "p.zarr", labels=y, chunk_bytes=16 * 12)
    others = [
        coremargin.train(X.astype(np.float64), y, epsilon=1e-6, **ASKED, **options),
        coremargin.train(tmp_path / "p.zarr", epsilon=1e-6, out=tmp_path / "p", **ASKED, **options),
    ]
    assert coremargin.verify(tmp_path / "p", tmp_path / "p.zarr").ok
    for model in others:
        assert np.isclose(model.certificate.upper, known.certificate.upper, rtol=1e-4 if options else 3e-6)


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("scale", [1e-120, 1e-30, 1e15, 1e120])
@pytest.mark.parametrize("far", [0.0, 1e6])
def test_claims_hold_whatever_the_numbers(tmp_path: Path, form: str, scale: float, far: float) -> None:
    """Rows that are tiny, huge, far from the origin: claims may be weak, never false."""
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((80, 6)) * [1, 1e-6, 1, 10, 1, 1] + far) * scale
    y = (rng.random(80) < 0.5).astype(int)
    given = sp.csr_array(X) if form == "sparse" else X
    coremargin.ingest(given, tmp_path / "s.zarr", dtype="float64", labels=y, chunk_bytes=10 * 48)
    coremargin.train(tmp_path / "s.zarr", out=tmp_path / "m", **ASKED)
    result = examine(tmp_path / "m", tmp_path / "s.zarr")
    assert result.ok, [check.text for check in result.failures]


def test_equal_rows_and_rows_at_the_margin_have_the_sides_that_the_verifier_sees(tmp_path: Path) -> None:
    """A thousand copies of a few integer rows, of which a scan sends some only."""
    rng = np.random.default_rng(5)
    X = rng.integers(-2, 3, (4000, 2)).astype(np.float32)
    y = (X[:, 0] + rng.integers(-1, 2, 4000) > 0).astype(int)
    coremargin.ingest(X, tmp_path / "s.zarr", labels=y, chunk_bytes=100 * 8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relative_margin, "NEAR_LEAST", 100)
        patch.setattr(RelativeMargin, "__init__", partialmethod(RelativeMargin.__init__, sample_bytes=2000))
        asked = {**ASKED, "C": 0.01, "relative_margin": 1.5}
        model: Any = coremargin.train(tmp_path / "s.zarr", epsilon=1e-6, out=tmp_path / "m", **asked)
    result = examine(tmp_path / "m", tmp_path / "s.zarr")
    assert result.ok, [check.text for check in result.failures]
    assert model.certificate.lower > 0


CHANGES: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"parameters.relative_margin": 1.9}, {}, "relative margin"),
    ({"parameters.relative_margin": B * (1 - 1e-12)}, {}, "relative margin"),
    ({"parameters.relative_margin": 2.1}, {}, "dual bound"),
    ({"certificate.upper": lambda v: v * (1 - 1e-9), "certificate.ratio": 1.0}, {}, "value"),
    ({"certificate.lower": lambda v: v * (1 + 1e-9), "certificate.ratio": 1.0}, {}, "dual bound"),
    ({"certificate.lower": None, "certificate.ratio": None}, {}, "status"),
    ({"certificate.ratio": 0.5}, {}, "ratio"),
    ({"certificate.radius": lambda v: v * 2}, {}, "radius"),
    ({"certificate.epsilon": 1e-12}, {}, "epsilon"),
    ({"parameters.C": 0.11}, {}, "value"),
    ({"parameters.C": 0.09}, {}, "dual bound"),
    ({"parameters.class_weight": [1.0, 1.1]}, {}, "value"),
    ({"parameters.intercept": False}, {}, "hypothesis"),
    ({"status": "not_separable"}, {}, "status"),
    ({}, {"w": lambda w: w * (1 + 1e-9)}, "relative margin"),
    ({}, {"w": lambda w: w * 1.1}, "relative margin"),
    ({}, {"w": lambda w: w * 0.99}, "value"),
    ({}, {"w": lambda w: w * 1e300}, "relative margin"),
    ({}, {"b": lambda b: b + 0.1}, "relative margin"),
    ({}, {"reference": lambda v: v + 0.1}, "dual bound"),
    ({}, {"reference": lambda v: v * 1e300}, "dual bound"),
    ({}, {"alpha": lambda a: a * 0}, "dual weights"),
    ({}, {"alpha": np.abs}, "dual weights"),
    ({}, {"alpha": lambda a: a * 1e300}, "dual bound"),
    ({}, {"coreset_ids": lambda i: i + 1}, "dual bound"),
    ({}, {"coreset_ids": lambda i: i * 0 + 10**6}, "coreset"),
    ({}, {"coreset_ids": lambda i: np.full_like(i, i[0])}, "coreset"),
    ({}, {"coreset_y": lambda y: -y}, "coreset"),
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(model, store) to forge."""
    folder, (X, y) = tmp_path_factory.mktemp("relative"), rows_of()
    coremargin.ingest(X, folder / "s.zarr", labels=y, chunk_bytes=16 * 12)
    coremargin.train(folder / "s.zarr", epsilon=1e-8, out=folder / "m", cluster="threads", **ASKED)
    return folder / "m", folder / "s.zarr"


@pytest.mark.parametrize(("record", "arrays", "name"), CHANGES)
def test_false_claims_are_named(
    trained: tuple[Path, Path], tmp_path: Path, record: dict[str, Any], arrays: dict[str, Any], name: str
) -> None:
    """Each by the check that it fails."""
    path, store = trained
    failures = {check.name for check in examine(altered(path, tmp_path / "f", record, **arrays), store).failures}
    assert name in failures


@pytest.mark.parametrize(
    ("record", "arrays"),
    [
        ({"certificate.kind": "margin"}, {}),
        ({"parameters.relative_margin": 1}, {}),
        ({"parameters.relative_margin": -2.0}, {}),
        ({"parameters.relative_margin": 1e300}, {}),
        ({"parameters.loss": "squared_hinge"}, {}),
        ({"problem": "soft_margin"}, {}),
        ({}, {"reference": None}),
        ({}, {"reference": lambda v: v[:-1]}),
        ({}, {"alpha": lambda a: a * np.nan}),
    ],
)
def test_what_is_no_record_of_this_kind_is_refused(
    trained: tuple[Path, Path], tmp_path: Path, record: dict[str, Any], arrays: dict[str, Any]
) -> None:
    """Before a row is read, by models and by the verifier."""
    path, store = trained
    forged = altered(path, tmp_path / "f", record, **arrays)
    for read in (lambda: examine(forged, store), lambda: load(forged)):
        with pytest.raises(CoremarginError):
            read()


def test_any_numbers_in_balance_are_dual_weights(trained: tuple[Path, Path], tmp_path: Path) -> None:
    """Moved along the balance, the weights prove less, and a bound that is as much lower is confirmed."""
    path, store = trained
    y = np.load(path / "arrays.npz")["coreset_y"].astype(float)
    shift = np.zeros(len(y))
    shift[:2] = 5.0 * y[:2] * (1.0, -1.0)
    forged = altered(path, tmp_path / "f", {}, alpha=lambda a: a + shift)
    result = examine(forged, store)
    assert {check.name for check in result.failures} == {"dual bound"}
    lower = {"certificate.lower": result.lower, "status": "stopped"}
    upper = load(path).certificate.upper
    ratio = {"certificate.ratio": max(0.0, (result.lower or 0.0) / upper)}
    assert examine(altered(forged, tmp_path / "g", lower | ratio), store).ok


def test_a_state_comes_back_to_the_bit() -> None:
    """Through arrays, at every round."""
    X, y = rows_of(3)
    problem = RelativeMargin(ArraySource(X, y, chunk_rows=50), 1e-9, B, C, sample_bytes=3000)
    for state in states_of(problem):
        arrays = state.to_arrays()
        again = problem.restore(arrays).to_arrays()
        assert {name: values.tobytes() for name, values in again.items()} == {
            name: values.tobytes() for name, values in arrays.items()
        }


@pytest.mark.usefixtures("_in_parts")
def test_it_is_killed_and_resumed_and_stopped(tmp_path: Path, store: Path, embedded: Executor) -> None:
    """On threads, in processes, interrupted within each scan: the same bytes; stopped at a limit, bounds that hold."""

    def stop(_: object) -> None:
        raise KeyboardInterrupt

    def job(name: str) -> Any:
        return new_job(store=store, out=tmp_path / name, epsilon=1e-7, block=1, **ASKED)

    alone, broken, processes = job("a"), job("b"), job("p")
    train_job(alone, Store.open(store), InProcess(1))
    for interrupted in range(3):
        begin: Any = "resume" if interrupted else "new"
        with pytest.raises(Interrupted):
            train_job(broken, Store.open(store), InProcess(1), begin=begin, progress=Progress(on_block=stop))  # type: ignore[arg-type]
    assert train_job(broken, Store.open(store), InProcess(2), begin="resume").run["resumed"] == 3
    train_job(processes, Store.open(store), embedded)
    for name in ("model.json", "arrays.npz"):
        assert Path(broken.out, name).read_bytes() == Path(alone.out, name).read_bytes()
        assert Path(processes.out, name).read_bytes() == Path(alone.out, name).read_bytes()
    for limit in ("time_limit", "max_scans"):
        options = {limit: 1e-9 if limit == "time_limit" else 1}
        stopped = coremargin.train(store, epsilon=1e-9, out=tmp_path / limit, **ASKED, **options)
        assert stopped.status == "stopped"
        assert coremargin.verify(tmp_path / limit, store).ok


@pytest.mark.usefixtures("_in_parts")
def test_retraining_begins_with_the_earlier_hypothesis(tmp_path: Path, store: Path) -> None:
    """Two scans prove it again where little has changed; rows that are appended, beyond the bound, or removed count."""
    X, y = rows_of()
    coremargin.train(store, out=tmp_path / "m0", **ASKED)
    changes: list[Callable[[], object]] = [
        lambda: coremargin.ingest(2.0 * X[:20], store, append=True, labels=y[:20]),
        lambda: say("remove", store, 3, 4, 5),
    ]
    for k, change in enumerate(changes, 1):
        change()
        model: Any = coremargin.retrain(tmp_path / f"m{k - 1}", store, out=tmp_path / f"m{k}")
        run = json.loads((tmp_path / f"m{k}" / "run.json").read_text())
        assert model.status == "certified"
        assert "from_scratch" not in run["retrained"]
        assert run["bytes_read"] < 3.5 * run["store_bytes"]
        assert coremargin.verify(tmp_path / f"m{k}", store).ok
        fresh: Any = coremargin.train(store, **ASKED)
        assert model.certificate.lower <= fresh.certificate.upper
        assert fresh.certificate.lower <= model.certificate.upper


def test_what_it_cannot_do_is_refused_by_name(tmp_path: Path, store: Path) -> None:
    """Bounds that are none, hard margins, other losses, several C, other kinds, three classes, too little memory."""
    job: Any = partial(new_job, store=store, out=store)
    for bound in (1.0, 0.5, -3.0, float("nan"), float("inf"), 1e7):
        with pytest.raises(SpecError, match="relative_margin: expected a number above 1"):
            job(loss="hinge", relative_margin=bound)
    with pytest.raises(SpecError, match="relative_margin: a hard margin has none; give loss 'hinge' too"):
        job(relative_margin=2.0)
    for loss in ("squared_hinge", "logistic", "auto"):
        with pytest.raises(SpecError, match=f"loss: a relative margin has only 'hinge', found '{loss}'"):
            job(loss=loss, relative_margin=2.0)
    with pytest.raises(SpecError, match="C: expected one, found"):
        job(loss="hinge", relative_margin=2.0, C=[0.1, 1.0])
    for options in ({"classes": "ovr"}, {"outliers": 3}, {"folds": 3}, {"one_class": "ball"}):
        with pytest.raises(SpecError, match="has none"):
            job(loss="hinge", relative_margin=2.0, **options)
    X, y = rows_of()
    with pytest.raises(LabelError, match="expected two classes, found 3"):
        coremargin.train(X, np.arange(600) % 3, **ASKED)
    with pytest.raises(UsageError, match="memory: expected at least .* for a relative margin of 3 features"):
        coremargin.train(X, y, memory=100, **ASKED)
    with pytest.raises(BadRow, match="rescale the features"):
        coremargin.train([[1e200], [2e200]], [0, 1], **ASKED)
    assert "--relative-margin" in say("train", "--help")
