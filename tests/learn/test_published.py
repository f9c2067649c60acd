"""The published outlier algorithms as people call them: the search's answer, by tasks anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import coremargin
from coremargin.errors import UsageError
from coremargin.learn.published import outlier_svm
from coremargin.maths.outliers import published

if TYPE_CHECKING:
    from coremargin.maths.outliers.published import Published


def rows() -> tuple[np.ndarray, list[str]]:
    """14 rows in the plane; rows 2 and 9 have the wrong label."""
    rng = np.random.default_rng(4)
    x, y = rng.normal(size=(14, 2)), np.repeat([1, -1], 7)
    x[:, 0] = y * (0.5 + np.abs(x[:, 0]))
    y[[2, 9]] *= -1
    return x, ["b" if one > 0 else "a" for one in y]


@pytest.mark.specimens(1)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("algorithm", ["outlier-svm", "simple-outlier-svm"])
def test_the_answer_is_that_of_the_search(algorithm: Published, intercept: bool) -> None:
    """Figure 4a and 4b name the wrong labels and have the margin that train proves to be the best."""
    X, y = rows()
    best = coremargin.train(X, y, outliers=2, epsilon=0, intercept=intercept).certificate
    found = outlier_svm(X, y, 2, algorithm=algorithm, epsilon=0.1, intercept=intercept)
    assert best.upper is not None
    assert 0.9 * best.upper <= found.margin <= best.upper
    assert set(found.excluded) == {2, 9}
    assert outlier_svm(X, y, 1, algorithm=algorithm, intercept=intercept).margin <= 1e-12


def test_tasks_of_dask_workers(embedded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranges of subsets on the workers of a cluster give the answer of this process, to the bit."""
    X, y = rows()
    monkeypatch.setattr(published, "RANGE", 50)
    here = outlier_svm(X, y, 2)
    there = outlier_svm(X, y, 2, cluster=embedded.client.scheduler.address)
    assert here.w.tobytes() == there.w.tobytes()
    assert (here.margin, here.b, here.excluded, here.subsets) == (there.margin, there.b, there.excluded, there.subsets)


def test_what_it_refuses() -> None:
    """A class that vanishes, negative k, another algorithm, no epsilon, more subsets than anyone can try."""
    X, y = rows()
    for k in (-1, 7):
        with pytest.raises(UsageError, match="k: expected a number from 0 to 6"):
            outlier_svm(X, y, k)
    with pytest.raises(UsageError, match="algorithm: expected"):
        outlier_svm(X, y, 1, algorithm="paper")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="epsilon: expected"):
        outlier_svm(X, y, 1, epsilon=0)
    with pytest.raises(UsageError, match="14 rows of 2 features may have 364 subsets"):
        outlier_svm(X, y, 1, most_subsets=100)
