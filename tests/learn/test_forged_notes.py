"""Retraining by a forged note of which rows a commit has changed: what is made of it, ``verify`` refutes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import coremargin
from coremargin.data.amend import write_labels
from coremargin.data.changes import CHANGES
from coremargin.data.difference import FILE, read_changed_rows, write_changed_rows
from coremargin.data.local_storage import LocalStorage
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import ClaimRefuted
from coremargin.verify import verify

if TYPE_CHECKING:
    from pathlib import Path


def other_rows(store: Path, ids: np.ndarray) -> None:
    """Let the last commit say that it has changed these rows, of the same chunks, instead of those that it has."""
    note = max(store.glob(f"{CHANGES}/*/{FILE}"))
    storage, group = LocalStorage(store), note.parent.name
    found = read_changed_rows(storage, group, 2)
    assert found is not None
    note.unlink()
    codes = Store.open(store).rows_at(ids)[1].astype(np.int32)
    rows = replace(found[0], ids=ids, codes_before=(1 - codes).astype(np.int32), codes_after=codes)
    write_changed_rows(storage, group, rows)


@pytest.mark.parametrize("options", [{}, {"loss": "hinge", "C": 0.1}, {"loss": "squared_hinge", "C": 0.1}])
def test_a_note_that_names_other_rows_of_the_same_chunks(options: dict[str, Any], tmp_path: Path) -> None:
    """The next model claims what is not so, for it did not look at the rows that have changed; reading all shows it."""
    rng, path = np.random.default_rng(1), tmp_path / "rows.zarr"
    X = rng.standard_normal((2000, 4)).astype(np.float32)
    y = np.where(X[:, 0] >= 0, 1, -1)
    X[:, 0] += y
    if options:
        y = np.where(rng.random(2000) < 0.1, -y, y)
    with StoreWriter.create(path, features=4, dtype="float32", chunk_rows=100) as writer:
        writer.write(X, y, origin="test")
    coremargin.train(path, out=tmp_path / "0", epsilon=1e-2, cluster="threads", **options)
    wide = np.abs(X[:, 0])
    changed, named = np.sort(np.argsort(wide)[-40:]), np.array([], np.int64)
    for chunk in np.unique(changed // 100):  # as many others of each chunk, near the plane
        mine = np.arange(100 * chunk, 100 * chunk + 100)
        near = mine[np.argsort(wide[mine])]
        named = np.append(named, near[30 : 30 + np.count_nonzero(changed // 100 == chunk)])
    write_labels(path, changed, [int(-y[row]) for row in changed])
    other_rows(path, np.sort(named))
    found = coremargin.retrain(tmp_path / "0", path, out=tmp_path / "1", cluster="threads")
    about = json.loads((tmp_path / "1" / "run.json").read_text())["retrained"]
    assert about["rows_changed"] == 40
    assert found.status == "certified"
    with pytest.raises(ClaimRefuted, match=r"(lower|dual) bound: model claims"):
        verify(tmp_path / "1", path)
