"""Retraining hard margins of several classes together from disk: a chunk that is new is read once for all of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import coremargin
from coremargin.data.amend import remove_rows, write_labels
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.verify import verify

if TYPE_CHECKING:
    from pathlib import Path

CENTRES = 6.0 * np.eye(4, 5)


def made(rows: int, seed: int, size: float = 0.5) -> tuple[np.ndarray, np.ndarray]:
    """Rows near one of four centres."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, rows)
    noise = np.clip(rng.standard_normal((rows, 5)), -3, 3)
    return (CENTRES[y] + size * noise).astype(np.float32), y


def append(path: Path, rows: int, seed: int, size: float = 0.5) -> None:
    """More of them."""
    with StoreWriter.append(path) as writer:
        writer.write(*made(rows, seed, size), origin="test")


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """20,030 rows in chunks of 100."""
    with StoreWriter.create(tmp_path / "rows.zarr", features=5, dtype="float32", chunk_rows=100) as writer:
        writer.write(*made(20_030, 1), origin="test")
    return tmp_path / "rows.zarr"


NIGHTS: dict[str, Any] = {
    "the same": lambda path, carried: None,
    "beyond": lambda path, carried: append(path, 470, 2, 0.45),
    "closer": lambda path, carried: append(path, 470, 2, 0.52),
    "hurt": remove_rows,
    "relabelled": lambda path, carried: write_labels(path, carried, [None] * len(carried)),
}


@pytest.mark.specimens(1)
@pytest.mark.parametrize("night", NIGHTS)
def test_a_night(night: str, store: Path, tmp_path: Path) -> None:
    """Each member is proven on all rows, as good as one of nothing, and little is read."""
    before: Any = coremargin.train(store, out=tmp_path / "0", classes="ovr", epsilon=1e-3, cluster="threads")
    assert before.status == "certified"
    carried = np.unique(np.concatenate([member.coreset_ids[:1] for member in before.deciders()]))
    NIGHTS[night](store, carried)
    found: Any = coremargin.retrain(tmp_path / "0", store, out=tmp_path / "1", cluster="threads")
    run, rows = json.loads((tmp_path / "1" / "run.json").read_text()), Store.open(store)
    assert "from_scratch" not in run["retrained"]
    assert verify(tmp_path / "1", store).status == "certified"
    assert run["bytes_read"] <= 0.1 * rows.nbytes
    anew: Any = coremargin.train(store, out=tmp_path / "anew", classes="ovr", epsilon=1e-3, cluster="threads")
    for one, other in zip(found.deciders(), anew.deciders(), strict=True):
        assert one.certificate.upper >= other.certificate.lower
        assert other.certificate.upper >= one.certificate.lower


@pytest.mark.slow
def test_a_member_that_nothing_separates_stays_one(store: Path, tmp_path: Path) -> None:
    """The others go on; how all do together is not counted, for that all rows would have to be read."""
    write_labels(store, np.arange(20), [0] * 20)
    before: Any = coremargin.train(store, out=tmp_path / "0", classes="ovr", epsilon=1e-3, cluster="threads")
    words = [member.status for member in before.deciders()]
    assert words[0] == "not_separable"
    proven = verify(tmp_path / "0", store).status
    append(store, 470, 2, 0.45)
    found: Any = coremargin.retrain(tmp_path / "0", store, out=tmp_path / "1", cluster="threads")
    run = json.loads((tmp_path / "1" / "run.json").read_text())
    assert [member.status for member in found.deciders()] == words
    assert "from_scratch" not in run["retrained"]
    assert run["bytes_read"] <= 0.1 * Store.open(store).nbytes
    assert verify(tmp_path / "1", store).status == proven
