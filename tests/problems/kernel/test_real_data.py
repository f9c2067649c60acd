"""Real data: whatever two classes of up to 10,000 rows are certified to 1e-6 and decide as scikit-learn's SVC does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.svm import SVC

import coremargin
from pair_catalogue import BESIDE, LARGE, SMALL, Pair, named, rows_of

ROWS = 10_000
PAIRS = (*SMALL, *LARGE, *BESIDE)
#: Values of sparse rows are fewer than this share.
SPARSE = 0.1


def _holds(pair: Pair, folder: Path) -> bool:
    """Whether it has so few rows; what has, is certified and decides as SVC does."""
    X, y = rows_of(pair, folder)
    if len(X) > ROWS:
        return False
    rows = csr_array(X) if np.count_nonzero(X) < SPARSE * X.size else X
    model = coremargin.train(rows, y, kernel="rbf", loss="hinge", epsilon=1e-6, scaling="maxabs")
    assert model.status == "certified", (pair.name, model.certificate)
    size = np.abs(X).max(axis=0)
    scaled = X / np.where(size > 0, size, 1).astype(np.float64)
    judge = SVC(gamma="scale", tol=1e-9).fit(csr_array(scaled) if rows is not X else scaled, y)
    values = judge.decision_function(csr_array(scaled) if rows is not X else scaled)
    np.testing.assert_allclose(model.decision_function(rows), values, atol=1e-4, rtol=0, err_msg=pair.name)
    return True


@pytest.mark.specimens(1)
@pytest.mark.parametrize("name", ["sonar 0-1", "optdigits 1-8", "splice one-hot 1-2"])
def test_some_real_pairs_decide_as_svc_does(real_data: Path, name: str) -> None:
    """Few rows with a small margin, digits, and sparse rows."""
    assert _holds(named(name), real_data)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "data", sorted({pair.data for pair in PAIRS} - {"adult", "magic", "kddcup", "mnist", "shuttle"})
)
def test_real_pairs_decide_as_svc_does(real_data: Path, data: str) -> None:
    """Every pair of the set that has no more rows than that."""
    assert sum(_holds(pair, real_data) for pair in PAIRS if pair.data == data) > 0
