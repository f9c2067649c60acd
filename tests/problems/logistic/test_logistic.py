"""The logistic loss: its bounds hold, its value is scikit-learn's, its states come back to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse as sp
from click.testing import CliRunner
from sklearn.linear_model import LogisticRegression

import coremargin
from coremargin.cli import main
from coremargin.data.arrays import ArraySource
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.engine.executors import InProcess
from coremargin.engine.plan import plan_blocks
from coremargin.errors import Interrupted, LabelError, SpecError, UsageError
from coremargin.estimators import MarginCoresetClassifier
from coremargin.learn import train as train_module
from coremargin.learn.train import Progress, train_job
from coremargin.problems.logistic import logistic
from coremargin.problems.logistic.logistic import Logistic, LogisticState
from coremargin.problems.registry import new_job
from coremargin.verify import verify

if TYPE_CHECKING:
    from coremargin.engine.protocols import Executor


def rows_of(seed: int = 0, n: int = 3000, d: int = 5, *, sparse: bool = False) -> tuple[Any, np.ndarray, np.ndarray]:
    """Rows off the origin with noisy labels, and weights of which some are 0."""
    rng = np.random.default_rng(seed)
    X = (rng.normal(size=(n, d)) * rng.uniform(0.1, 3.0, d) + 0.5).astype(np.float32)
    if sparse:
        X[rng.random(X.shape) < 0.6] = 0.0
    y = X @ rng.normal(size=d) + rng.logistic(size=n) > 0.5
    return X, y, rng.choice([0.0, 0.3, 1.0, 2.5], n)


def value_of(at: np.ndarray, X: np.ndarray, y: np.ndarray, row_c: np.ndarray) -> float:
    """P by its definition."""
    margins = np.where(y, 1, -1) * (X.astype(np.float64) @ at[:-1] + at[-1])
    return float(0.5 * at[:-1] @ at[:-1] + row_c @ np.logaddexp(0.0, -margins))


def best_value(X: np.ndarray, y: np.ndarray, row_c: np.ndarray, *, intercept: bool = True) -> float:
    """P at the minimiser that scikit-learn finds."""
    other = LogisticRegression(C=1.0, tol=1e-10, max_iter=10_000, fit_intercept=intercept)
    other.fit(X.astype(np.float64), y, sample_weight=row_c)
    return value_of(np.append(other.coef_[0], other.intercept_[0] if intercept else 0.0), X, y, row_c)


def states_of(problem: Logistic, limit: int = 40) -> list[LogisticState]:
    """All states of a job, without machinery."""
    states = [problem.start()]
    while not problem.done(states[-1]):
        assert len(states) <= limit
        probe = problem.probe(states[-1])
        answer = probe.empty()
        for block in plan_blocks(problem.source):
            answer = answer.merge(probe.narrow(block)(problem.source, block))
        states.append(problem.update(states[-1], answer))
    return states


@pytest.mark.parametrize("cost", [1e-4, 0.01, 1.0, 100.0])
@pytest.mark.parametrize("intercept", [True, False])
def test_both_bounds_hold_after_every_scan(monkeypatch: pytest.MonkeyPatch, cost: float, *, intercept: bool) -> None:
    """The least value, as scikit-learn has it, lies between the bounds of every state, and the last ones are close."""
    monkeypatch.setattr(logistic, "SAMPLE_BYTES", 2000)
    X, y, _ = rows_of()
    least = best_value(X, y, np.full(len(y), cost), intercept=intercept)
    states = states_of(Logistic(ArraySource(X, y, chunk_rows=100), 1e-9, cost, intercept=intercept))
    assert states[-1].status == "certified"
    for state in states[1:]:
        assert state.dual <= least * (1 + 1e-12)
        assert state.primal >= least * (1 - 1e-12)
    assert states[-1].primal == pytest.approx(least, rel=1e-8)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("weight", [None, "balanced", (0.5, 3.0)])
def test_the_value_is_that_of_scikit_learn(weight: Any, *, sparse: bool) -> None:
    """With sample weights, class weights, and sparse rows, within 1e-6 of it."""
    X, y, weights = rows_of(1, sparse=sparse)
    totals = np.array([weights[~y].sum(), weights[y].sum()])
    factors = {None: (1.0, 1.0), "balanced": totals.sum() / (2 * totals)}.get(weight, weight)
    row_c = 0.7 * weights * np.where(y, factors[1], factors[0])
    kept = row_c > 0
    model = coremargin.train(
        sp.csr_array(X) if sparse else X, y, weights=weights, loss="logistic", C=0.7, class_weight=weight, epsilon=1e-7
    )
    assert model.status == "certified"
    assert model.certificate.upper == pytest.approx(best_value(X[kept], y[kept], row_c[kept]), rel=1e-6)
    assert value_of(np.append(model.w, model.b), X, y, row_c) <= model.certificate.upper


def test_few_reads_prove_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gap of 1e-3 takes two scans after a sample, one of 1e-6 three, for any C."""
    monkeypatch.setattr(logistic, "SAMPLE_BYTES", 100_000)
    rng = np.random.default_rng(1)
    X = rng.normal(size=(20_000, 10)).astype(np.float32)
    w = rng.normal(size=10)
    y = X @ w / np.linalg.norm(w) + 0.5 * rng.normal(size=20_000) > 0
    for cost in (0.01, 1.0, 100.0):
        states = states_of(Logistic(ArraySource(X, y, chunk_rows=500), 1e-6, cost))
        gaps = [(state.primal - state.dual) / state.primal for state in states[1:]]
        assert gaps[1] <= 1e-3
        assert len(gaps) <= 3


def test_separable_rows_and_a_poor_start_end_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows that a hyperplane separates, with a large C, steps that are too long are shortened."""
    monkeypatch.setattr(logistic, "SAMPLE_BYTES", 1)
    rng = np.random.default_rng(2)
    X = rng.normal(size=(2000, 30)).astype(np.float32)
    y = X[:, 0] > 0
    states = states_of(Logistic(ArraySource(X, y, chunk_rows=50), 1e-6, 100.0, sample_share=0.01))
    assert states[-1].status == "certified"
    assert states[-1].primal == pytest.approx(best_value(X, y, np.full(2000, 100.0)), rel=2e-6)


def test_a_state_comes_back_to_the_bit() -> None:
    """Through arrays, at every round, and the next state is the same."""
    X, y, _ = rows_of(3, n=500)
    problem = Logistic(ArraySource(X, y, chunk_rows=50), 1e-9, 1.0)
    for state in states_of(problem):
        again = problem.restore(state.to_arrays())
        assert {k: v.tobytes() for k, v in again.to_arrays().items()} == {
            k: v.tobytes() for k, v in state.to_arrays().items()
        }


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Rows with weights on disk, of which a small sample is read first, and none stays in memory."""
    monkeypatch.setattr(logistic, "SAMPLE_BYTES", 4000)
    monkeypatch.setattr(train_module, "fits", lambda *_, **__: False)
    X, y, weights = rows_of(4)
    with StoreWriter.create(tmp_path / "s.zarr", features=5, dtype="float32", weighted=True, chunk_rows=100) as writer:
        writer.write(X, np.where(y, "yes", "no").tolist(), weights)
    return Store.open(tmp_path / "s.zarr")


def bytes_of(folder: Path) -> list[bytes]:
    """What has to be the same."""
    return [(folder / name).read_bytes() for name in ("model.json", "arrays.npz")]


@pytest.mark.specimens(2)
@pytest.mark.parametrize("left", [1, 5, 20, 40])
def test_a_job_that_is_killed_goes_on_to_the_same_bits(tmp_path: Path, store: Store, left: int) -> None:
    """Interrupted after some blocks, in any scan, and resumed with another number of workers."""
    alone, broken = (
        new_job(store=store.path, out=tmp_path / name, loss="logistic", epsilon=1e-8, block=1) for name in "ab"
    )
    train_job(alone, store, InProcess(2))
    blocks = iter(range(left))

    def stop(_: object) -> None:
        if next(blocks, None) is None:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        train_job(broken, store, InProcess(1), progress=Progress(on_block=stop))
    done = train_job(broken, store, InProcess(1), begin="resume")
    assert done.run["resumed"] == 1
    assert bytes_of(Path(broken.out)) == bytes_of(Path(alone.out))
    assert verify(broken.out, store.path).ok


def test_any_workers_have_the_same_bits(tmp_path: Path, store: Store, embedded: Executor) -> None:
    """One thread, three, and two processes of a Dask cluster."""
    found = []
    for name, executor in (("one", InProcess(1)), ("three", InProcess(3)), ("dask", embedded)):
        job = new_job(store=store.path, out=tmp_path / name, loss="logistic", epsilon=1e-6, block=1, memory="1 GiB")
        train_job(job, store, executor)
        found.append(bytes_of(Path(job.out)))
    assert found[0] == found[1] == found[2]


def test_a_first_hypothesis_that_is_worse_than_none_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows far from the origin without an intercept, begun from three of them."""
    monkeypatch.setattr(logistic, "SAMPLE_BYTES", 1)
    X, y, _ = rows_of(7, n=1000)
    far = X.astype(np.float64) * 10 + 1000 * np.arange(1, 6)
    problem = Logistic(ArraySource(far, y, chunk_rows=3), 1e-4, 5.0, intercept=False, sample_share=1e-3)
    last = states_of(problem)[-1]
    assert last.status == "certified"
    assert last.primal <= np.log(2.0) * 5000 * (1 + 1e-9)


def test_a_job_that_stops_at_a_limit_says_what_is_proven(tmp_path: Path, store: Store) -> None:
    """After one scan the model is stopped, its claims hold, and it goes on from there."""
    job = new_job(store=store.path, out=tmp_path / "m", loss="logistic", epsilon=1e-8, max_scans=1)
    assert train_job(job, store, InProcess(1)).model.status == "stopped"
    assert verify(job.out, store.path).ok
    more = new_job(store=store.path, out=tmp_path / "m", loss="logistic", epsilon=1e-8)
    assert train_job(more, store, InProcess(1), begin="resume").model.status == "certified"
    none = new_job(store=store.path, out=tmp_path / "none", loss="logistic", time_limit=1e-9)
    model = train_job(none, store, InProcess(1)).model
    assert (model.status, model.certificate.lower, model.certificate.upper) == ("stopped", None, None)
    assert verify(none.out, store.path).ok


@pytest.mark.specimens(1)
@pytest.mark.parametrize(
    "words",
    [
        {"scaling": "standard"},
        {"scaling": "rownorm", "intercept": False},
        {"map": "fourier", "components": 20},
        {"map": "nystroem", "components": 10},
    ],
)
def test_scaled_and_mapped_rows_are_proven(tmp_path: Path, store: Store, words: dict[str, Any]) -> None:
    """As with other losses, the certificate is about rows as they are made."""
    model = coremargin.train(store.path, loss="logistic", out=tmp_path / "m", **words)
    assert model.status == "certified"
    assert verify(tmp_path / "m", store.path).ok


def test_it_is_read_once_where_memory_holds_it(tmp_path: Path) -> None:
    """A store of half of the memory: each chunk once, although scans go on."""
    X, y, _ = rows_of(5)
    with StoreWriter.create(tmp_path / "s.zarr", features=5, dtype="float32", chunk_rows=100) as writer:
        writer.write(X, np.where(y, "yes", "no").tolist())
    store = Store.open(tmp_path / "s.zarr")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logistic, "SAMPLE_BYTES", 4000)
        done = train_job(new_job(store=store.path, out=tmp_path / "m", loss="logistic"), store, InProcess(2))
    assert done.run["bytes_read"] == pytest.approx(store.nbytes, abs=20 * store.chunks)


def test_it_is_trained_shown_and_verified_by_commands(tmp_path: Path, store: Store) -> None:
    """``--loss logistic`` is this kind, and every command knows its models."""
    out = tmp_path / "m"

    def say(*words: object) -> str:
        done = CliRunner().invoke(main, [str(word) for word in words])
        assert done.exit_code == 0, done.output
        return done.stdout

    words = ("--loss", "logistic", "--C", "0.5", "--class-weight", "balanced", "--cluster", "threads", "--quiet")
    assert say("train", store.path, "--out", out, *words).startswith("certified: the value ")
    assert "loss           logistic, C 0.5, class weight balanced" in say("show", out)
    assert "verified: no hypothesis has a value below" in say("verify", out, store.path)
    assert "log(1 + exp(−m))" in (out / "report.html").read_text()
    assert say("coefficients", out)
    assert coremargin.Model.load(out).kind == "logistic"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"folds": 3}, "folds: the logistic loss has none"),
        ({"C": [0.1, 1.0]}, "C: expected one, found"),
        ({"kernel": "rbf"}, "kernel: the logistic loss has none"),
        ({"classes": "ovr"}, "classes: the logistic loss has none"),
        ({"outliers": 3}, "outliers: the logistic loss has none"),
        ({"C": -1.0}, "C: expected a number above 0"),
    ],
)
def test_what_it_does_not_go_with_is_refused(words: dict[str, Any], message: str) -> None:
    """By the name of the parameter."""
    with pytest.raises(SpecError, match=message):
        new_job(store="a", out="b", loss="logistic", **words)
    assert new_job(store="a", out="b", loss="hinge").loss == "hinge"


def test_more_features_than_memory_has_room_for_are_refused() -> None:
    """With the memory that it would take, and other losses to choose."""
    X = sp.random(20, 3000, 0.01, "csr", np.float32, np.random.default_rng(0))
    with pytest.raises(UsageError, match=r"memory: expected at least .* take the loss squared_hinge or hinge"):
        coremargin.train(X, [0, 1] * 10, loss="logistic", memory="64 MiB")


def test_the_estimator_takes_it() -> None:
    """``MarginCoresetClassifier(loss="logistic")`` of two classes."""
    X, y, weights = rows_of(6, n=600)
    machine = MarginCoresetClassifier(loss="logistic", C=0.3, epsilon=1e-7).fit(X, y, sample_weight=weights)
    kept = weights > 0
    other = LogisticRegression(C=0.3, tol=1e-10, max_iter=1000).fit(X[kept], y[kept], sample_weight=weights[kept])
    assert machine.certificate_.ratio > 1 - 1e-6
    np.testing.assert_allclose(machine.coef_, other.coef_, atol=2e-3)
    assert machine.support_.tolist() == np.flatnonzero(kept).tolist()
    with pytest.raises(AttributeError, match="partial_fit") as caught:
        machine.partial_fit(X, y)
    assert "loss: 'logistic' needs all rows at once" in str(caught.value.__cause__)


def test_three_classes_are_refused_without_a_suggestion_that_would_be_refused() -> None:
    """The logistic loss has no option ``classes``, and people who call the estimator have not given one."""
    X, three = rows_of(n=90)[0], np.arange(90) % 3
    with pytest.raises(LabelError, match="expected two classes, found 3") as refused:
        coremargin.train(X, three, loss="logistic")
    assert "ovr" not in str(refused.value)
    with pytest.raises(UsageError, match="loss: 'logistic' is for two classes"):
        MarginCoresetClassifier(loss="logistic").fit(X, three)
