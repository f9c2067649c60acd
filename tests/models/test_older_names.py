"""Models whose arrays have the names that they had at first are read and verified; what they say is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coremargin
from coremargin.data.folder import write_arrays
from coremargin.errors import DataError
from coremargin.models.model import Model
from model_kit import store_of

KINDS: dict[str, dict[str, Any]] = {"soft": {"loss": "hinge", "C": 0.1}, "outliers": {"outliers": 2}}


def rewritten(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    """The same model with other arrays."""
    (folder / "arrays.npz").unlink()
    write_arrays(folder / "arrays.npz", arrays)


@pytest.mark.parametrize("kind", KINDS)
def test_older_names_of_arrays(tmp_path: Path, rng: np.random.Generator, kind: str) -> None:
    """The word "ledger" before names of what proves a soft margin, or is said of outliers, makes no difference."""
    X = rng.standard_normal((60, 3)).astype(np.float32)
    store = store_of(tmp_path / "s.zarr", X, ["b" if x > 0 else "a" for x in X[:, 0]], 16)
    model = tmp_path / "m"
    today = coremargin.train(store, out=model, **KINDS[kind])
    assert isinstance(today, Model)
    assert today.extra
    assert not any(name.startswith("ledger_") for name in today.extra)
    with np.load(model / "arrays.npz") as file:
        arrays = dict(file)
    older = {f"ledger_{name}" if name in today.extra else name: values for name, values in arrays.items()}
    rewritten(model, older)
    read = Model.load(model)
    assert read.extra.keys() == today.extra.keys()
    assert all(np.array_equal(read.extra[name], today.extra[name], equal_nan=True) for name in today.extra)
    assert coremargin.verify(model, store).ok
    rewritten(model, {("ledger_w" if name == "w" else name): values for name, values in arrays.items()})
    with pytest.raises(DataError, match="missing or unknown: ledger_w, w"):
        Model.load(model)
    rewritten(model, older | arrays)
    with pytest.raises(DataError, match="missing or unknown: ledger_"):
        Model.load(model)
