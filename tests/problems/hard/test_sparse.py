"""Hard margins on sparse sources: the same claims as on the same rows dense."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import loadmat
from scipy.sparse import csr_array, hstack
from sklearn.datasets import load_svmlight_file

from coremargin.data.arrays import ArraySource
from coremargin.maths.rows import is_sparse
from coremargin.problems.common.balls import balls_of
from coremargin.problems.hard.hard_margin import HardMargin
from coremargin.problems.hard.state import HardMarginState
from margin_judges import hulls_meet, margin_by_daqp
from plain_loop import Run, assert_bounds_hold, assert_certificate, assert_upper, dense, proceed, solve

#: A sample of few rows, so that small data need scans.
SMALL_SAMPLE: dict[str, Any] = {"sample_bytes": 400, "sample_share": 0.02}


def documents(
    rng: np.random.Generator, n: int, d: int, words: int = 12, *, margin: float = 0.05
) -> tuple[csr_array, np.ndarray]:
    """Rows of unit length with few of d features, most of them rare, and the side of a plane that they keep away from;
    every tenth feature does not occur.
    """
    share = 1.0 / np.arange(1, d + 1)
    share[::10] = 0.0
    places = rng.choice(d, (n, words), p=share / share.sum())
    X = np.zeros((n, d))
    np.put_along_axis(X, places, rng.random((n, words)) + 0.1, axis=1)
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    w = rng.standard_normal(d)
    y = np.where(X @ w - np.median(X @ w) >= 0, 1, -1)
    y[0] = -y[1]
    X[np.arange(n), places[:, 0]] += margin * y * np.sign(w[places[:, 0]])
    return csr_array(X), y


@pytest.mark.specimens(4)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize(("n", "d", "strategy"), [
    (150, 12, "fast"), (60, 12, "paper"), (60, 12, "any-violator"), (80, 300, "fast"), (100, 1100, "fast"),
    pytest.param(1300, 1100, "fast", marks=pytest.mark.slow), (14, 1100, "paper"), (14, 1100, "any-violator"),
])  # fmt: skip
def test_sparse_and_dense_rows_have_the_same_margin(
    rng: np.random.Generator, n: int, d: int, strategy: str, *, intercept: bool
) -> None:
    """Few features, many and more than are ever solved dense: both kinds certify, and their bounds enclose the margin
    that daqp finds.
    """
    X, y = documents(rng, n, d, margin=1.0 if d == 12 else 0.3)
    epsilon, options = 1e-4, {"intercept": intercept, "strategy": strategy, "chunk_rows": 1 + n // 10, **SMALL_SAMPLE}
    best = margin_by_daqp(X.toarray(), y, intercept=intercept) if n < 1000 else None
    runs = [solve(rows, y, epsilon, **options) for rows in (X, X.toarray())]
    for run in runs:
        assert_certificate(run)
        if best is not None:
            assert run.last.lower <= best * (1 + 1e-6)
            assert run.last.upper >= best * (1 - 1e-6)
        assert run.last.lower <= runs[0].last.upper * (1 + 1e-12)
        assert runs[0].last.lower <= run.last.upper * (1 + 1e-12)
    assert is_sparse(runs[0].last.working_set.rows)
    assert is_sparse(runs[0].last.coreset.rows)


def test_exact_solves_of_both_kinds_agree(rng: np.random.Generator) -> None:
    """Solved from all rows at once, bounds of sparse and dense rows are equal to ten digits."""
    X, y = documents(rng, 200, 2000)
    sparse, full = solve(X, y, 1e-6), solve(X.toarray(), y, 1e-6)
    assert_certificate(sparse)
    assert_certificate(full)
    assert sparse.last.upper == pytest.approx(full.last.upper, rel=1e-9)
    assert sparse.last.lower == pytest.approx(full.last.lower, rel=1e-9)
    assert sparse.last.best is not None
    assert full.last.best is not None
    assert sparse.last.best.w == pytest.approx(full.last.best.w, abs=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_zero_rows_and_columns_are_rows_and_columns(rng: np.random.Generator, dtype: str) -> None:
    """Rows without any value take part as points at the origin; columns without any value change nothing."""
    X, y = documents(rng, 60, 1200)
    X.data += 2.0
    dense_rows = X.toarray()
    dense_rows[y > 0, 5] += 9.0
    dense_rows[np.flatnonzero(y < 0)[:3]] = 0.0
    rows = csr_array(dense_rows.astype(dtype))
    run = solve(rows, y, 1e-5)
    assert_certificate(run)
    wider = solve(hstack([rows, csr_array((60, 700), dtype=dtype)], format="csr"), y, 1e-5)
    assert_certificate(wider)
    assert wider.last.upper == pytest.approx(run.last.upper, rel=1e-9)
    assert run.last.upper == pytest.approx(margin_by_daqp(dense(rows), y, intercept=True), rel=1e-5)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("d", [8, 1500])
def test_overlapping_sparse_classes_are_proven_to(rng: np.random.Generator, d: int, *, intercept: bool) -> None:
    """One document of both classes ends the job with rows whose hulls meet, as a linear program confirms."""
    X, y = documents(rng, 100, d, words=4)
    rows = X.toarray()
    rows[31], y[31] = rows[62], -y[62]
    run = solve(csr_array(rows), y, 1e-3, intercept=intercept, chunk_rows=10, **SMALL_SAMPLE)
    core = run.last.coreset
    assert run.last.status == "not_separable"
    assert run.last.upper < 1e-12
    assert_upper(run)
    used = np.flatnonzero(np.asarray(dense(core.rows)).any(axis=0))
    assert hulls_meet(dense(core.rows)[:, used], core.signs, intercept=intercept) < 1e-9


def test_hulls_that_meet_in_many_rows_are_found(rng: np.random.Generator) -> None:
    """A document that is the mean of nine of the other class's is enough, although no two documents are equal."""
    X, y = documents(rng, 120, 1400)
    rows = X.toarray()
    others = np.flatnonzero(y < 0)[:9]
    rows[np.flatnonzero(y > 0)[0]] = rows[others].mean(axis=0)
    run = solve(csr_array(rows), y, 1e-3)
    assert run.last.status == "not_separable"
    assert run.last.upper < 1e-12
    assert_upper(run)
    assert len(run.last.coreset) <= 20


def same_bits(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    """Equal names, precisions and bits."""
    return one.keys() == other.keys() and all(
        one[k].tobytes() == other[k].tobytes() and one[k].dtype == other[k].dtype for k in one
    )


@pytest.mark.specimens(1)
@pytest.mark.parametrize(
    ("n", "d", "strategy"),
    [
        pytest.param(800, 1100, "fast", marks=pytest.mark.slow),
        (300, 40, "fast"),
        (90, 20, "paper"),
        (90, 20, "any-violator"),
    ],
)
def test_a_restored_sparse_state_continues_to_the_same_bits(
    rng: np.random.Generator, n: int, d: int, strategy: str
) -> None:
    """Interrupted after any scan, states and summaries written as plain arrays and read back end with the same bits."""
    X, y = documents(rng, n, d, words=8, margin=0.5)
    whole = solve(X, y, 1e-4, strategy=strategy, chunk_rows=20, working_set_bytes=200 * 150, **SMALL_SAMPLE)
    assert whole.last.round >= 2
    for k in {0, whole.last.round // 2, whole.last.round - 1}:
        arrays = whole.states[k].to_arrays()
        assert all(type(values) is np.ndarray for values in arrays.values())
        again = HardMarginState.from_arrays(arrays)
        assert same_bits(again.to_arrays(), arrays)
        assert same_bits(proceed(Run(whole.problem, [again])).last.to_arrays(), whole.last.to_arrays())
    for summary in whole.summaries:
        assert same_bits(type(summary).from_arrays(summary.to_arrays()).to_arrays(), summary.to_arrays())


def test_block_bounds_of_sparse_rows_hold(rng: np.random.Generator) -> None:
    """Bounds hold for every row outside the working set, after rows have left a working set with room for few."""
    X, y = documents(rng, 900, 30, words=5, margin=0.5)
    run = solve(X, y, 1e-3, working_set_bytes=1, chunk_rows=30, block_chunks=3, **SMALL_SAMPLE)
    assert_certificate(run)
    assert_bounds_hold(run, rng)


def test_centres_that_cost_more_than_chunks_are_not_read(rng: np.random.Generator) -> None:
    """If dense centres are as long as the sparse chunks, block bounds read none: balls are around the origin."""

    class NoCentres(ArraySource):
        def centres(self, start: int = 0, stop: int | None = None) -> np.ndarray:
            raise AssertionError("centres are not to be read")

    X, y = documents(rng, 60, 5000)
    source = NoCentres(X, y, chunk_rows=10)
    problem = HardMargin(source, 1e-3, sample_bytes=100)
    run = proceed(Run(problem, [problem.start()]))
    assert_certificate(run)
    (part, balls), every = *balls_of(source, np.array([1, 4])), source.scalars()
    assert (part, balls.centre, balls.radius.tolist()) == (slice(0, 2), None, every.max_norm[[1, 4]].tolist())
    assert not list(balls_of(source, np.array([], np.int64)))
    dense = ArraySource(X.toarray(), y, chunk_rows=10)
    narrow = ArraySource(np.tile(X[:, :4].toarray(), (200, 1)), np.tile(y, 200))
    for other in (dense, narrow):
        (_, balls), *_ = balls_of(other, np.arange(other.chunks))
        assert balls.centre is not None
        assert (balls.radius == other.scalars().radius).all()


def test_a_pool_of_sparse_rows_is_measured_by_its_values(rng: np.random.Generator) -> None:
    """Memory for rows is that of their values, not of d numbers each; few features count in full."""
    wide, y = documents(rng, 50, 4000)
    narrow = csr_array(wide[:, :40])
    assert HardMargin(ArraySource(wide, y), 0.1, working_set_bytes=1 << 20).working_set_rows > 2000
    assert HardMargin(ArraySource(narrow, y), 0.1, working_set_bytes=1 << 20).working_set_rows == (1 << 20) // (8 * 40)


# real data

Reader = Callable[[Path], tuple[csr_array, np.ndarray]]


def scikit_feature(name: str) -> Reader:
    """A pair of newsgroups as term counts."""

    def read(folder: Path) -> tuple[csr_array, np.ndarray]:
        found = loadmat(folder / f"20newsgroups/{name}.mat")
        return csr_array(found["X"].astype(np.float32)), np.where(found["Y"].ravel() == 1, 1, -1)

    return read


def newsgroups(one: str, other: str) -> Reader:
    """The training documents of two newsgroups as counts of 33,843 terms."""

    def read(folder: Path) -> tuple[csr_array, np.ndarray]:
        parts, about = (np.load(folder / f"20newsgroups/bydate_{name}.npz") for name in ("tf", "meta"))
        X = csr_array(
            (parts["data"].astype(np.float32), parts["indices"], parts["indptr"]), shape=tuple(parts["shape"])
        )
        names = [str(name) for name in about["label_names"]]
        of = about["label"]
        mine = np.flatnonzero(about["is_train"].astype(bool) & np.isin(of, [names.index(one), names.index(other)]))
        return X[mine], np.where(of[mine] == names.index(one), 1, -1)

    return read


def earn_acq(folder: Path) -> tuple[csr_array, np.ndarray]:
    """The Reuters stories about exactly one of earnings and acquisitions."""
    parts, about = (np.load(folder / f"reuters21578/modapte_{name}.npz") for name in ("tf", "meta"))
    X = csr_array((parts["data"].astype(np.float32), parts["indices"], parts["indptr"]), shape=tuple(parts["shape"]))
    names = [str(name) for name in about["topic_names"]]
    indices = about["topics_indices"]
    topics = csr_array((np.ones(len(indices)), indices, about["topics_indptr"]), shape=(X.shape[0], len(names)))
    earn, acq = (topics[:, [names.index(name)]].toarray()[:, 0] > 0 for name in ("earn", "acq"))
    mine = np.flatnonzero(about["is_train"].astype(bool) & (earn ^ acq))
    return X[mine], np.where(earn[mine], 1, -1)


def rcv1(folder: Path) -> tuple[csr_array, np.ndarray]:
    """1,000 Reuters stories, 47,237 terms."""
    X, y = load_svmlight_file(str(folder / "libsvm/rcv1_small.train.gz"), n_features=47237, dtype=np.float32)
    return csr_array(X), y


READERS: dict[str, Reader] = {
    "rcv1": rcv1, "PCMAC": scikit_feature("PCMAC"), "RELATHE": scikit_feature("RELATHE"),
    "BASEHOCK": scikit_feature("BASEHOCK"), "earn-acq": earn_acq,
    "atheism-christian": newsgroups("alt.atheism", "soc.religion.christian"),
    "pc-mac": newsgroups("comp.sys.ibm.pc.hardware", "comp.sys.mac.hardware"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_documents_are_certified(real_data: Path, name: str) -> None:
    """Pairs of text classes that are separable are proven to be, to 1e-6, as sparse rows."""
    X, y = READERS[name](real_data)
    run = solve(X, y, 1e-6, chunk_rows=200)
    assert_certificate(run)
    assert run.last.round <= 3


@pytest.mark.slow
def test_rcv1_is_certified(real_data: Path) -> None:
    """1,000 documents of 47,237 terms, 780 of them with weight: certified to 1e-3 from their sample by one scan."""
    X, y = rcv1(real_data)
    run = solve(X, y, 1e-3, chunk_rows=100)
    assert_certificate(run)
    assert run.last.round == 1
