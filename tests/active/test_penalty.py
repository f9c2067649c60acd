"""C by folds of the examples: the one that scikit-learn's models of the same folds choose."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.svm import SVC, LinearSVC

from coremargin.active.penalty import FOLDS, assign_folds, candidate_costs, choose_cost
from coremargin.data.arrays import ArraySource
from coremargin.errors import DataError

ASKED: dict[int, Any] = {2: {"loss": "hinge", "intercept": True}, 3: {"loss": "squared_hinge", "intercept": False}}


def noisy(rows: int, classes: int, seed: int) -> tuple[Any, np.ndarray]:
    """Clouds that overlap, and the place of each."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, classes, rows)
    return rng.standard_normal((rows, 3)) * [3, 1, 0.3] + np.eye(3)[codes] + [0.5, 0, 0], codes


@pytest.mark.slow
@pytest.mark.parametrize(("classes", "seed"), [(2, 1), (3, 7)])
def test_c_is_the_best_of_scikit_learn(classes: int, seed: int) -> None:
    """Of the values tried none has fewer mistakes in rows held out by scikit-learn's models, and of those that have as
    few it is the middle one: of two classes with the hinge, of three with its square and through the origin, as
    LinearSVC has it.
    """
    X, codes = noisy(70, classes, seed)
    known = {row: int(codes[row]) for row in range(5, 70)}
    found = choose_cost(ArraySource(X), known, list("abc")[:classes], seed=3, place="c", **ASKED[classes])
    ids = np.array(sorted(known))
    fold, shares = assign_folds(ids, codes[ids], 3), {}
    for cost in candidate_costs(X[ids]):
        share = []
        for k in range(FOLDS):
            model = SVC(kernel="linear", C=cost) if classes == 2 else LinearSVC(C=cost, fit_intercept=False, dual=False)
            model.fit(X[ids[fold != k]], codes[ids[fold != k]])
            share.append(np.sum(model.predict(X[ids[fold == k]]) != codes[ids[fold == k]]))
        shares[cost] = int(sum(share))
    equal = [cost for cost, share in shares.items() if share == min(shares.values())]
    assert found == equal[len(equal) // 2]
    assert len(set(shares.values())) > 1


def test_folds_have_rows_of_each_class_whatever_their_order() -> None:
    """Each fold has as many rows of a class as any other, up to one, and a row's fold is not a matter of its place."""
    ids = np.random.default_rng(0).permutation(1000)[:103]
    codes = (ids % 7 == 0).astype(np.int64)
    fold = assign_folds(ids, codes, 5)
    for code in (0, 1):
        counts = np.bincount(fold[codes == code], minlength=FOLDS)
        assert counts.max() - counts.min() <= 1
    order = np.argsort(ids)
    assert assign_folds(ids[order], codes[order], 5).tolist() == fold[order].tolist()
    assert assign_folds(ids, codes, 6).tolist() != fold.tolist()


def test_c_follows_the_length_of_rows() -> None:
    """Rows that are a hundred times as long get a C that is ten thousand times smaller: the same model."""
    X, codes = noisy(90, 2, 4)
    known = {row: int(code) for row, code in enumerate(codes)}
    costs = [
        choose_cost(ArraySource(t * X), known, "ab", loss="squared_hinge", intercept=True, seed=0, place="c")
        for t in (1.0, 100.0)
    ]
    assert costs[1] == pytest.approx(costs[0] * 1e-4, rel=1e-12)


@pytest.mark.parametrize(
    ("labels", "classes", "message"),
    [
        ([0] * 9 + [1] * 4, "ab", r'C "auto": expected examples of each class, 5 rows at least, found 4 of \'b\''),
        ([0] * 9 + [1] * 9, "abc", r"found 0 of \'c\'; give more with examples, or C as a number"),
        ([0] * 9, "a", "expected examples of two classes, 5 rows of each at least, found 9 examples"),
        ([], "", "expected examples of two classes, 5 rows of each at least, found 0 examples"),
    ],
)
def test_too_few_examples(labels: list[int], classes: str, message: str) -> None:
    """Where a class has fewer rows than there are folds it is named, with what to do."""
    source = ArraySource(np.random.default_rng(0).standard_normal((20, 2)))
    with pytest.raises(DataError, match=message):
        choose_cost(source, dict(enumerate(labels)), classes, loss="hinge", intercept=True, seed=0, place="c")
