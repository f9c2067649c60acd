from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from margin_judges import hulls_meet, margin_by_daqp
from pair_catalogue import named, rows_of
from plain_loop import assert_certificate, solve

#: Small enough to be solved whole by daqp as well.
SMALL = ["iris 0-1", "sonar 0-1", "shuttle 4-5", "optdigits 8-9", "usps 3-5", "colon -1-1"]
LARGE = ["mnist 0-1", "mnist 8-9", "kddcup 11-9", "kddcup 11-18", "arcene -1-1", "PCMAC 1-2"]


@pytest.mark.specimens(8)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("name", SMALL)
def test_small_pairs_certify(real_data: Path, name: str, *, intercept: bool) -> None:
    """Real pairs, from a sample of some chunks, certify 1e-3 with bounds that enclose the margin that daqp finds."""
    X, y = rows_of(named(name), real_data)
    run = solve(X, y, 1e-3, intercept=intercept, chunk_rows=max(10, len(X) // 40), sample_bytes=X.nbytes // 10)
    assert_certificate(run)
    if name != "sonar 0-1":  # its margin of 1e-3 beside rows of length 5 is beyond daqp's tolerances
        best = margin_by_daqp(X, y, intercept=intercept)
        assert run.last.lower * (1 - 1e-5) <= best <= run.last.upper * (1 + 1e-5)


@pytest.mark.parametrize("name", ["iris 1-2", "heart_statlog 0-1"])
def test_overlapping_pairs_are_proven_to(real_data: Path, name: str) -> None:
    """Real pairs that no plane separates end with few rows whose hulls meet, as a linear program confirms."""
    X, y = rows_of(named(name), real_data)
    run = solve(X, y, 1e-3, chunk_rows=10, sample_bytes=X.nbytes // 10)
    core = run.last.coreset
    assert run.last.status == "not_separable"
    assert len(core) <= X.shape[1] + 2
    assert hulls_meet(core.rows, core.signs, intercept=True) < 1e-9 * np.abs(X).max()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("name", LARGE)
def test_large_pairs_certify(real_data: Path, name: str, *, intercept: bool) -> None:
    """Large and wide real pairs certify 1e-3, from samples of a tenth where rows are many."""
    X, y = rows_of(named(name), real_data)
    sample = X.nbytes // 10 if len(X) > 10_000 else X.nbytes
    assert_certificate(solve(X, y, 1e-3, intercept=intercept, chunk_rows=max(20, len(X) // 100), sample_bytes=sample))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_all_strategies_agree_on_a_real_pair(real_data: Path) -> None:
    """Shuttle 1-5, 48,853 rows: fast, paper and any-violator certify margins within epsilon of each other."""
    X, y = rows_of(named("shuttle 1-5"), real_data)
    runs = [solve(X, y, 0.01, chunk_rows=1000, strategy=name) for name in ("fast", "paper", "any-violator")]
    for run in runs:
        assert_certificate(run)
    assert max(run.last.lower for run in runs) <= min(run.last.upper for run in runs)
