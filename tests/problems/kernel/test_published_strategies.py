"""Published strategies with kernels: against transcriptions, their bounds, and the strategies without a kernel."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.svm import SVC

import coremargin
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.engine.executors import InProcess
from coremargin.errors import BadRow, Interrupted, LabelError, SpecError
from coremargin.formats.choices import KernelStrategy
from coremargin.learn.train import Progress, train_job
from coremargin.problems.kernel import feature_space
from coremargin.problems.kernel.kernel_margin import KernelMargin
from coremargin.problems.registry import new_job, write_report

if TYPE_CHECKING:
    from coremargin.engine.protocols import Executor

STRATEGIES = tuple(name for name in get_args(KernelStrategy) if name != "fast")
WALKS = ("perceptron", "raw-perceptron", "averaged-perceptron", "romma", "aggressive-romma", "kowalczyk", "smo")
GAMMA = 1.0


def stored(folder: Path, X: Any, y: Any, weights: Any = None, chunk_rows: int = 40) -> Path:
    """A store in small chunks."""
    sparse = isinstance(X, csr_array)
    options: dict[str, Any] = {"sparse": True} if sparse else {"dtype": X.dtype.name}
    options |= {"chunk_rows": chunk_rows, "features": X.shape[1], "weighted": weights is not None}
    with StoreWriter.create(folder / "s.zarr", **options) as writer:
        writer.write(X, list(y), weights)
    return folder / "s.zarr"


def circles(n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Two rings, of radius 1 and 2, which no hyperplane separates; labels 0 and 1 alternate."""
    rng = np.random.default_rng(7)
    label = np.arange(n) % 2
    radius, angle = 1 + label + rng.uniform(-0.2, 0.2, n), rng.uniform(0, 2 * np.pi, n)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]), label


def trained(folder: Path, X: Any, y: Any, strategy: str, **options: Any) -> tuple[Any, dict[str, Any]]:
    """The model of a strategy with the rbf kernel, verified, and how the run went."""
    words = {"kernel": "rbf", "gamma": GAMMA, "epsilon": 1e-3} | options
    if words["kernel"] == "linear":
        del words["gamma"]
    store, out = stored(folder, X, y), folder / "m"
    model = coremargin.train(store, strategy=strategy, out=out, **words)
    assert coremargin.verify(out, store).ok
    return model, json.loads((out / "run.json").read_text())


def largest_margin(X: np.ndarray, y: np.ndarray) -> float:
    """The largest margin with the rbf kernel, by scikit-learn."""
    svm = SVC(C=1e10, gamma=GAMMA, tol=1e-9).fit(X, y)
    return float(1 / np.sqrt(np.abs(svm.dual_coef_).sum()))


@pytest.mark.parametrize("intercept", [True, False])
def test_the_perceptron_counts_mistakes(tmp_path: Path, *, intercept: bool) -> None:
    """Its dual form word by word: a coefficient for each row; mistakes, passes, margin and the bound R^2 / g^2."""
    X, label = circles()
    y = np.where(label == 1, 1, -1)
    K = rbf_kernel(X, gamma=GAMMA) + intercept  # the longest row has the length 1
    sizes = np.sqrt(np.diag(K))
    a, mistakes, passes, before = np.zeros(len(y)), 0, 0, -1
    while mistakes != before:
        before, passes = mistakes, passes + 1
        for i in range(len(y)):
            if y[i] * (K[i] @ (a * y)) <= 0:
                a[i] += 1 / sizes[i]
                mistakes += 1
    _, run = trained(tmp_path, X, label, "perceptron", intercept=intercept)
    own = run["own"]
    assert (own["updates"], own["passes"], run["working_set_rows"]) == (mistakes, passes, np.count_nonzero(a))
    assert run["scans"] == passes  # a pass is a scan
    values = y * (K @ (a * y))
    plain = (a * y) @ (K - intercept) @ (a * y)
    assert own["lower"] == pytest.approx(values.min() / np.sqrt(plain), rel=1e-6)
    if intercept:
        g = largest_margin(X, label)
        assert mistakes <= 2 * (1 + (1 - g) ** 2) / g**2
    assert mistakes <= own["updates_at_most"]


@pytest.fixture
def own_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strategies end by their own rules, certified or not."""
    monkeypatch.setattr(KernelMargin, "proven", lambda _, machine: np.zeros(len(machine.lower), bool))


@pytest.mark.usefixtures("own_rule")
@pytest.mark.parametrize("intercept", [True, False])
def test_kowalczyk_moves_hull_points(tmp_path: Path, *, intercept: bool) -> None:
    """A transcription with coefficients of all rows."""
    X, label = circles(120)
    y, K = np.where(label == 1, 1, -1), rbf_kernel(X, gamma=GAMMA)
    unit = np.eye(len(y))
    p, q = unit[1], unit[0] if intercept else np.zeros(len(y))
    updates, before = 0, -1
    while updates != before:
        before = updates
        for i, sign in enumerate(y):
            w, middle = p - q, (p + q) / 2 if intercept else np.zeros(len(y))
            if sign * (w @ K @ (unit[i] - middle)) >= (1 - 0.3) * (w @ K @ w) / (2 if intercept else 1):
                continue
            updates += 1
            at, other, end = (p, q, unit[i] if intercept else sign * unit[i])
            if intercept and sign < 0:
                at, other = q, p
            along = end - at
            at = at + min(1.0, max(0.0, (other - at) @ K @ along / (along @ K @ along))) * along
            p, q = (p, at) if intercept and sign < 0 else (at, q)
    _, run = trained(tmp_path, X, label, "kowalczyk", intercept=intercept, epsilon=0.3, max_scans=500)
    w, middle = p - q, (p + q) / 2 if intercept else np.zeros(len(y))
    own = (y * (K @ w - w @ K @ middle)).min() / np.sqrt(w @ K @ w)
    assert run["own"]["lower"] == pytest.approx(own, rel=1e-6)
    assert run["own"]["updates"] == updates <= run["own"]["updates_at_most"]


def test_figure_1_adds_the_worst_row(tmp_path: Path) -> None:
    """The same number of rows as with scikit-learn's solutions, and the largest margin."""
    X, label = circles(100)
    y, K = np.where(label == 1, 1, -1), rbf_kernel(X, gamma=GAMMA)
    chosen = [0, 1]
    while True:
        svm = SVC(C=1e10, kernel="precomputed", tol=1e-10).fit(K[np.ix_(chosen, chosen)], label[chosen])
        margins = y * svm.decision_function(K[:, chosen])
        norm = np.sqrt(np.abs(svm.dual_coef_).sum())
        if margins.min() >= 1 - 1e-3:
            break
        margins[chosen] = np.inf
        chosen.append(int(margins.argmin()))
    model, run = trained(tmp_path, X, label, "paper")
    assert run["working_set_rows"] == len(chosen)
    assert model.certificate.lower == pytest.approx(1 / norm, rel=2e-3)
    best = largest_margin(X, label)
    assert model.certificate.lower <= best * (1 + 1e-7) <= model.certificate.upper * (1 + 2e-7)


@pytest.mark.parametrize("strategy", ["smo", "any-violator", "kowalczyk", "aggressive-romma", "cvm"])
def test_strategies_that_maximise_the_margin_do(tmp_path: Path, strategy: str) -> None:
    """Bounds contain scikit-learn's margin; those that converge to it are certified."""
    X, label = circles()
    model, run = trained(tmp_path, X, label, strategy, epsilon=1e-2, max_scans=400)
    best = largest_margin(X, label)
    assert model.certificate.lower <= best * (1 + 1e-7)
    assert best <= model.certificate.upper * (1 + 1e-7)
    if strategy == "cvm":  # a ball's own rule says little of the margin: section 3 of the paper
        assert run["reason"].startswith("the strategy has ended") or model.status == "certified"
    else:
        assert model.status == "certified"


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name not in ("paper", "any-violator")])
@pytest.mark.parametrize("intercept", [True, False])
def test_the_linear_kernel_makes_the_updates_of_the_linear_strategy(
    tmp_path: Path, make_separable: Callable[..., Any], strategy: str, *, intercept: bool
) -> None:
    """In one chunk, after the same number of passes: updates and the strategy's own margin."""
    X, labels = make_separable(150, 3, margin=0.3)
    X, words = X.astype(np.float64), {"intercept": intercept, "epsilon": 1e-9, "max_scans": 3}
    (tmp_path / "k").mkdir()
    _, found = trained(tmp_path / "k", X, labels, strategy, kernel="linear", **words)
    store = stored(tmp_path, X, labels)
    coremargin.train(store, strategy=strategy, out=tmp_path / "linear", **words)
    plain = json.loads((tmp_path / "linear" / "run.json").read_text())
    assert found["own"]["updates"] == plain["own"]["updates"]
    assert found["own"]["passes"] == plain["own"]["passes"]
    if not intercept and found["own"]["lower"] is not None:  # with an intercept the linear margin is at its best offset
        assert found["own"]["lower"] == pytest.approx(plain["own"]["lower"], rel=1e-5)


@pytest.mark.specimens(1)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("sparse", [False, True])
def test_the_same_bits_on_threads_and_processes_and_after_interrupts(
    tmp_path: Path, embedded: Executor, strategy: str, *, sparse: bool
) -> None:
    """The files of a model are the same, wherever it was trained and however often it was interrupted."""
    X, label = circles()
    store = stored(tmp_path, csr_array(X) if sparse else X, label)
    words: dict[str, Any] = {"strategy": strategy, "kernel": "rbf", "gamma": GAMMA, "epsilon": 1e-2, "memory": "1MB"}

    def run(name: str, executor: Executor, interrupts: int = 0) -> dict[str, bytes]:
        job = new_job(store=store, out=tmp_path / name, block=1, max_scans=20, **words)
        begin, left = "new", 0

        def stop(_: object) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise KeyboardInterrupt

        for number in range(interrupts):
            left = 1 + 3 * number
            with pytest.raises(Interrupted):
                train_job(job, Store.open(store), executor, begin=begin, progress=Progress(on_block=stop))  # type: ignore[arg-type]
            begin = "resume"
        train_job(job, Store.open(store), executor, begin=begin)  # type: ignore[arg-type]
        return {file: (Path(job.out) / file).read_bytes() for file in ("model.json", "arrays.npz")}

    one = run("one", InProcess(1))
    assert one == run("four", InProcess(4))
    assert one == run("processes", embedded)
    assert one == run("interrupted", InProcess(1), interrupts=2)


@pytest.mark.parametrize("strategy", ["perceptron", "romma", "kowalczyk"])
def test_a_walk_keeps_no_more_rows_than_fit(tmp_path: Path, strategy: str) -> None:
    """Of a chunk of which nearly all rows are used: the walk ends within it, as the run does."""
    rng = np.random.default_rng(1)
    X, label = rng.normal(size=(4_000, 2)), rng.integers(0, 2, 4_000)
    store, spans = stored(tmp_path, X, label, chunk_rows=4_000), list[int]()

    def spy(block: Any, carried: Any, vectors: Any) -> Any:
        found = merged(block, carried, vectors)
        spans.append(len(found[1]))
        return found

    merged = feature_space._merged
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(feature_space, "_merged", spy)
        job = new_job(
            store=store, out=tmp_path / "m", kernel="rbf", gamma=50.0, strategy=strategy, memory="1MB", max_scans=3
        )
        outcome = train_job(job, Store.open(store), InProcess(1))
    working_set = outcome.run["working_set"]
    assert outcome.model.status == "stopped"
    assert "working set" in outcome.run["reason"] or "memory" in outcome.run["reason"], outcome.run["reason"]
    assert working_set["capacity"] < 1_000
    assert max(spans) <= working_set["capacity"] + feature_space.BLOCK


def test_the_command_and_the_page_state_the_own_hyperplane(tmp_path: Path, run_cli: Any) -> None:
    """Updates next to the theorem's bound; `plan` knows how the strategy reads."""
    X, label = circles(80)
    store, words = stored(tmp_path, X, label), ("--strategy", "perceptron", "--kernel", "rbf", "--gamma", GAMMA)
    told = run_cli("train", store, "--out", tmp_path / "m", *words, "--epsilon", 0.9, "--quiet").stdout
    assert "perceptron: " in told
    assert "by its theorem at most" in told
    assert "its theorem allows at most" in (tmp_path / "m" / "report.html").read_text()
    run_cli("verify", tmp_path / "m", store)
    assert json.loads((tmp_path / "m" / "model.json").read_text())["parameters"]["strategy"] == "perceptron"
    job = tmp_path / "job.toml"
    job.write_text('job = "train"\nstore = "s.zarr"\nout = "n"\nkernel = "rbf"\nstrategy = "perceptron"\n')
    assert "a read for each pass" in json.loads(run_cli("plan", job, "--json").stdout)["reading"]


def test_an_own_hyperplane_is_the_model_where_the_exact_solution_proves_nothing(tmp_path: Path) -> None:
    """The solution of the rows that ROMMA used does not separate all rows, which its own hyperplane does."""
    rng = np.random.default_rng(13)
    label = np.arange(120) % 2
    radius, angle = 1 + label + rng.uniform(-0.35, 0.35, 120), rng.uniform(0, 6.3, 120)
    X = np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    model, run = trained(tmp_path, X, label, "romma")
    assert model.certificate.upper is None
    assert model.certificate.lower == pytest.approx(run["own"]["lower"])
    assert (model.predict(X) == label).all()
    assert "this function separates all 120 rows" in write_report(tmp_path / "m").read_text()


@pytest.mark.parametrize("strategy", ["perceptron", "smo", "paper"])
def test_rows_without_weight_do_not_count(tmp_path: Path, strategy: str) -> None:
    """Rows of weight 0 on the wrong side change nothing."""
    X, label = circles(80)
    (tmp_path / "w").mkdir()
    store = stored(tmp_path / "w", np.vstack([X, X[:2]]), [*label, *label[:2][::-1]], [*np.ones(80), 0.0, 0.0])
    words: dict[str, Any] = {"strategy": strategy, "kernel": "rbf", "gamma": GAMMA, "epsilon": 1e-2}
    weighted = coremargin.train(store, **words)
    plain = coremargin.train(stored(tmp_path, X, label), **words)
    assert weighted.certificate.upper == pytest.approx(plain.certificate.upper, rel=1e-9)


def test_what_a_strategy_cannot_do_is_refused_with_an_alternative() -> None:
    """A loss, several classes, functions, other strategies, equal rows of both classes, rows without a direction."""
    X, label = circles(40)
    words: dict[str, Any] = {"kernel": "rbf", "gamma": GAMMA}
    with pytest.raises(SpecError, match="'smo' is for hard margins between two classes, found loss 'hinge'"):
        coremargin.train(X, label, strategy="smo", loss="hinge", **words)
    with pytest.raises(SpecError, match="found classes 'ovr'"):
        coremargin.train(X, label, strategy="smo", classes="ovr", **words)
    with pytest.raises(SpecError, match="a kernel machine has only .*'kowalczyk'.*, found 'lp'; it belongs to"):
        coremargin.train(X, label, strategy="lp", **words)
    with pytest.raises(SpecError, match="strategy: a fleet of kernel machines has none"):
        coremargin.train(X, label, strategy="smo", kernel="rbf", gamma=(0.5, 1.0))
    with pytest.raises(SpecError, match="needs a bound on k"):
        coremargin.train(X, label, strategy="smo", kernel=lambda a, b: a @ b.T)
    with pytest.raises(LabelError, match="are equal, of classes"):
        coremargin.train(np.vstack([X, X[:1]]), [*label, 1 - label[0]], strategy="smo", **words)
    with pytest.raises(BadRow, match="a row of zeros has no direction"):
        coremargin.train(np.vstack([X, [[0, 0]]]), [*label, 0], strategy="perceptron", kernel="linear", intercept=False)
