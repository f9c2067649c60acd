"""Published strategies: each against a direct transcription and its bound; the same bits wherever and however run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import csr_array

import coremargin
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.engine.executors import InProcess
from coremargin.errors import BadRow, Interrupted, SpecError
from coremargin.learn.train import Progress, train_job
from coremargin.maths.hard_margin import solve_hard_margin
from coremargin.problems.hard.strategies.linear_program import ENOUGH, FIRST, ROWS
from coremargin.problems.hard.strategies.perceptron import Perceptron
from coremargin.problems.hard.strategies.iterative import RowBlock, Task
from coremargin.problems.registry import new_job

if TYPE_CHECKING:
    from coremargin.engine.protocols import Executor

Maker = Callable[..., tuple[np.ndarray, np.ndarray]]
STRATEGIES = ("perceptron", "lp")
CHUNK_ROWS = 40


def stored(folder: Path, X: Any, y: Any, weights: Any = None) -> Path:
    """A store in chunks of 40 rows."""
    sparse = isinstance(X, csr_array)
    options: dict[str, Any] = {"sparse": True} if sparse else {"dtype": X.dtype.name}
    options |= {"chunk_rows": CHUNK_ROWS, "features": X.shape[1], "weighted": weights is not None}
    with StoreWriter.create(folder / "s.zarr", **options) as writer:
        writer.write(X, list(y), weights)
    return folder / "s.zarr"


def perceptron(X: np.ndarray, y: np.ndarray, constant: float) -> tuple[np.ndarray, float, int, int, set[int]]:
    """Awasthi's Algorithm 1 word by word: w, the weight of the constant, mistakes, passes, rows added."""
    Z = np.column_stack([X, np.full(len(X), constant)])
    w, mistakes, passes, added = np.zeros(Z.shape[1]), 0, 0, set[int]()
    while True:
        passes, before = passes + 1, mistakes
        for i, z in enumerate(Z):
            if y[i] * (w @ z) <= 0:
                w = w + y[i] * z / np.linalg.norm(z)
                mistakes += 1
                added.add(i)
        if mistakes == before:
            return w[:-1], float(w[-1]), mistakes, passes, added


def run_of(model: Path) -> dict[str, Any]:
    """How a run went."""
    return dict(json.loads((model / "run.json").read_text()))


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_perceptron_is_the_algorithm_of_the_lecture(
    tmp_path: Path, make_separable: Maker, *, intercept: bool, sparse: bool
) -> None:
    """Mistakes, passes, rows touched and hyperplane; its bound holds, for the best margin and for the proven one."""
    X, labels = make_separable(300, 4, margin=0.1)
    X = X + np.float32(0.3 * intercept)
    y = np.where(labels == max(labels), 1, -1)
    longest = float(np.linalg.norm(X.astype(np.float64), axis=1).max())
    constant = longest if intercept else 0.0
    w, last, mistakes, passes, added = perceptron(X.astype(np.float64), y, constant)
    store = stored(tmp_path, csr_array(X) if sparse else X, labels)
    words: dict[str, Any] = {"strategy": "perceptron", "intercept": intercept, "epsilon": 1e-12}
    model = coremargin.train(store, out=tmp_path / "m", **words)
    run, margins = run_of(tmp_path / "m"), y * (X @ w + constant * last)
    walk = run["own"]
    assert (walk["updates"], walk["passes"], run["working_set_rows"]) == (mistakes, passes, len(added))
    low, high = margins[y > 0].min(), margins[y < 0].min()
    own = ((low + high) / 2 if intercept else min(low, high)) / np.linalg.norm(w)
    assert walk["lower"] == pytest.approx(own, rel=1e-5)
    best = solve_hard_margin(X, y, intercept=intercept)
    square = 2 * (longest**2 + best.b**2) if intercept else longest**2
    assert mistakes <= square / best.upper**2 * (1 + 1e-6) <= walk["updates_at_most"] * (1 + 2e-6)
    touched = solve_hard_margin(X[sorted(added)], y[sorted(added)], intercept=intercept)
    assert model.certificate.upper == pytest.approx(touched.upper)
    assert model.certificate.lower >= walk["lower"] > 0
    assert coremargin.verify(tmp_path / "m", store).ok


def test_a_walk_is_the_same_in_blocks_of_any_size(make_separable: Maker) -> None:
    """The numbers after two blocks are those after one; rows touched are positions in their block."""
    X, labels = make_separable(700, 3, margin=0.05)
    rule, y = Perceptron(), np.where(labels == max(labels), 1, -1).astype(np.int8)
    begun = {"w": np.zeros(3), "last": np.array(0.0), "constant": np.array(2.0), "updates": np.array(0)}

    def walked(*ends: int) -> tuple[Any, list[int]]:
        carried: Any = begun
        touched = list[int]()
        for first, end in zip((0, *ends), (*ends, 700), strict=True):
            part = slice(first, end)
            block = RowBlock(X[part].astype(np.float64), y[part], np.arange(first, end), "rows")
            carried, here = rule.walk(block, carried)
            touched += (here + first).tolist()
        return carried, touched

    (one, rows), (several, same) = walked(), walked(0, 1, 250, 256, 257)
    assert rows == same
    assert one["updates"] == several["updates"] == len(rows)
    assert np.allclose(one["w"], several["w"], rtol=1e-12)


def test_linear_programs_are_those_of_the_lecture(tmp_path: Path, make_separable: Maker) -> None:
    """The last program over the rows of the working set, solved at once, has the proven margin; all rows have half."""
    X, labels = make_separable(400, 3, margin=0.05)
    y = np.where(labels == max(labels), 1, -1)
    store = stored(tmp_path, X, labels)
    model = coremargin.train(store, strategy="lp", epsilon=1e-9, out=tmp_path / "m")
    run = run_of(tmp_path / "m")
    last = json.loads((tmp_path / "m" / "rounds.jsonl").read_text().splitlines()[-1])
    assert run["working_set_rows"] <= FIRST + ROWS * run["scans"]
    margins = y * (X.astype(np.float64) @ model.w + model.b)
    assert margins.min() >= model.certificate.lower > 0
    whole = linprog(
        [0.0] * 4 + [-1.0],
        A_ub=np.column_stack([-y[:, None] * np.column_stack([X, np.ones(400)]), np.ones(400)]),
        b_ub=np.zeros(400),
        bounds=[(-1, 1)] * 3 + [(None, None)] * 2,
    )
    t = -whole.fun / np.linalg.norm(whole.x[:3])
    assert ENOUGH * t <= last["lower_now"] <= model.certificate.upper
    assert t <= model.certificate.upper * (1 + 1e-9)
    assert coremargin.verify(tmp_path / "m", store).ok


@pytest.mark.specimens(1)
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("sparse", [False, True])
def test_the_same_bits_on_threads_and_processes_and_after_interrupts(
    tmp_path: Path, make_separable: Maker, embedded: Executor, strategy: str, *, sparse: bool
) -> None:
    """The files of a model are the same, wherever it was trained and however often it was interrupted."""
    X, labels = make_separable(300, 4, margin=0.05)
    store = stored(tmp_path, csr_array(X) if sparse else X, labels)

    def trained(name: str, executor: Executor, interrupts: int = 0) -> dict[str, bytes]:
        job = new_job(store=store, out=tmp_path / name, strategy=strategy, epsilon=1e-3, memory="1MB", block=1)
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
        return {file: (job.out / file).read_bytes() for file in ("model.json", "arrays.npz")}

    one = trained("one", InProcess(1))
    assert one == trained("four", InProcess(4))
    assert one == trained("processes", embedded)
    assert one == trained("interrupted", InProcess(1), interrupts=3)


@pytest.mark.specimens(1)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_run_that_stops_at_a_limit_is_continued(tmp_path: Path, make_separable: Maker, strategy: str) -> None:
    """After one scan little is proven, and verified; with --resume the model is that of a run in one go."""
    X, labels = make_separable(300, 4, margin=0.02)
    store = stored(tmp_path, X, labels)
    words: dict[str, Any] = {"strategy": strategy, "epsilon": 1e-9, "memory": "1MB"}
    stopped = coremargin.train(store, out=tmp_path / "a", max_scans=1, **words)
    assert stopped.status == "stopped"
    assert coremargin.verify(tmp_path / "a", store).ok
    coremargin.train(store, out=tmp_path / "a", begin="resume", **words)
    coremargin.train(store, out=tmp_path / "b", **words)
    assert (tmp_path / "a" / "arrays.npz").read_bytes() == (tmp_path / "b" / "arrays.npz").read_bytes()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rows_that_nothing_separates_are_proven_so(tmp_path: Path, make_separable: Maker, strategy: str) -> None:
    """By the rows that the strategy has met, not by its patience."""
    X, labels = make_separable(200, 2, margin=0.2)
    wrong = np.concatenate([X, X[:20]])
    model = coremargin.train(wrong, [*labels, *labels[:20][::-1]], strategy=strategy)
    assert model.status == "not_separable"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_rows_without_label_or_weight_do_not_count(tmp_path: Path, make_separable: Maker, strategy: str) -> None:
    """They may lie on the wrong side."""
    X, labels = make_separable(200, 3, margin=0.1)
    weights = np.ones(210)
    weights[200:] = 0
    rows, more = np.concatenate([X, X[:10]]), [*labels, *np.where(labels[:10] == max(labels), min(labels), max(labels))]
    store = stored(tmp_path, rows, more, weights=weights)
    model = coremargin.train(store, strategy=strategy, out=tmp_path / "m")
    assert model.certificate.lower > 0
    assert coremargin.verify(tmp_path / "m", store).ok


def test_what_a_strategy_cannot_do_is_refused_with_an_alternative(
    tmp_path: Path, make_separable: Maker, run_cli: Any
) -> None:
    """A loss, several classes, a kernel; a row of zeros without an intercept; a misspelt name."""
    X, labels = make_separable(100, 2)
    for words in ({"loss": "hinge"}, {"classes": "ovr"}, {"kernel": "rbf"}, {"outliers": 1}):
        with pytest.raises(SpecError, match=r"strategy: .* has none, found 'perceptron'; it belongs to a hard margin"):
            coremargin.train(X, labels, strategy="perceptron", **words)
    with pytest.raises(SpecError, match="expected 'any-violator' or 'fast' or 'lp' or 'paper' or 'perceptron'"):
        coremargin.train(X, labels, strategy="perceptrn")  # type: ignore[arg-type]
    X[7] = 0
    with pytest.raises(BadRow, match="row 7: a row of zeros has no direction"):
        coremargin.train(X, labels, strategy="perceptron", intercept=False)
    store = stored(tmp_path, X, labels)
    told = run_cli("train", store, "--out", tmp_path / "m", "--strategy", "perceptron", "--epsilon", 0.9, "--quiet")
    assert "perceptron: " in told.stdout
    assert "by its theorem at most" in told.stdout
    assert "its theorem allows at most" in (tmp_path / "m" / "report.html").read_text()
    job = tmp_path / "job.toml"
    for strategy, reading in (("perceptron", "a read for each pass"), ("lp", "a scan for each 50 rows")):
        job.write_text(f'job = "train"\nstore = "s.zarr"\nout = "n"\nstrategy = "{strategy}"\nmemory = "1kB"\n')
        assert reading in run_cli("plan", job).stdout
