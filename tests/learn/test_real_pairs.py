"""Real data: every pair of classes is certified or proven inseparable, through a store on disk, and verified."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.engine.executors import InProcess
from coremargin.learn.record import summary_of
from coremargin.learn.train import train_job
from coremargin.problems.registry import new_job
from coremargin.verify import verify
from pair_catalogue import LARGE, SMALL, Pair, rows_of

if TYPE_CHECKING:
    from pathlib import Path

EPSILON = 1e-3
QUICK = {
    "usps 0-1", "usps 3-5", "usps 0-rest", "usps 9-rest", "optdigits 1-8", "optdigits 4-rest", "pendigits 0-9",
    "pendigits 7-9", "letter 1-2", "letter 5-6", "splice one-hot 1-2", "mushrooms 0-1", "banana -1-1",
}  # fmt: skip


def _parameter(pair: Pair) -> object:
    slow = pair in LARGE and pair.name not in QUICK
    marks = [pytest.mark.slow, pytest.mark.timeout(1800)] if slow else []
    return pytest.param(pair, id=pair.name, marks=marks)


def _store(pair: Pair, real_data: Path, path: Path) -> Store:
    """The rows in chunks of at least 32 rows, about eight chunks for small data."""
    X, y = rows_of(pair, real_data)
    chunk_bytes = max(32 * X.shape[1] * X.itemsize, min(1 << 20, X.nbytes // 8))
    with StoreWriter.create(path, features=X.shape[1], dtype=X.dtype.name, chunk_bytes=chunk_bytes) as writer:
        writer.write(X, y, origin=pair.name)
        writer.commit()
    return Store.open(path)


@pytest.mark.specimens(9)
@pytest.mark.parametrize("pair", [_parameter(pair) for pair in (*SMALL, *LARGE)])
def test_real_pair(tmp_path: Path, real_data: Path, pair: Pair) -> None:
    """A separable pair is certified to 1e-3, any other one ends with the proof that its hulls meet; both verify."""
    store = _store(pair, real_data, tmp_path / "rows.zarr")
    job = new_job(store=store.path, out=tmp_path / "m", epsilon=EPSILON)
    done = summary_of(train_job(job, store, InProcess(1)))
    assert done["status"] == ("certified" if pair.separable else "not_separable"), done
    result = verify(tmp_path / "m", store.path, threads=1)
    assert result.ok
    assert result.status == done["status"]
    if pair.separable:
        assert done["lower"] >= (1 - EPSILON) * done["upper"] > 0
