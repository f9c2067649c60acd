"""Models of kernels on fewer rows: what is claimed of them holds, and they are models as any other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris

import coremargin
from coremargin.data.writer import StoreWriter
from coremargin.problems.kernel.reduce import reduce
from coremargin.problems.report import write_report


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of irises with weights, and models of it."""
    place, (X, y) = tmp_path_factory.mktemp("reduce"), load_iris(return_X_y=True)
    for name, labels, weights in (("rows", y > 1, 1.0 + np.arange(len(y)) % 3), ("three", y, None)):
        with StoreWriter.create(place / f"{name}.zarr", features=4, chunk_rows=64, weighted=weights is not None) as to:
            to.write(X.astype(np.float32), labels, weights)
    asked: dict[str, dict[str, Any]] = {
        "hinge": {"loss": "hinge", "scaling": "standard"}, "squared": {"loss": "squared_hinge", "C": 3.0},
        "hard": {"gamma": 20.0},
    }  # fmt: skip
    for name, how in asked.items():
        coremargin.train(place / "rows.zarr", out=place / name, kernel="rbf", epsilon=1e-4, **how)
    coremargin.train(place / "three.zarr", out=place / "three", kernel="rbf", loss="hinge", classes="ovr")
    return place


def _rows_of(name: str) -> str:
    return "three.zarr" if name == "three" else "rows.zarr"


@pytest.mark.parametrize("name", ["hinge", "squared", "hard", "three"])
def test_what_is_claimed_holds(folder: Path, tmp_path: Path, name: str) -> None:
    """By what the two models say of all rows; verify finds the same; it is read, predicts and is exported as others."""
    X = load_iris().data.astype(np.float32)
    whole = coremargin.load(folder / name)
    made = reduce(folder / name, folder / _rows_of(name), tmp_path / "m", rows=12, report=write_report)
    said = made.record["reduced"]
    before, now = (np.asarray(model.decision_function(X)) for model in (whole, made))
    apart = np.abs(before - now).max()
    assert said["rows"] == 12
    assert apart <= said["distance"] <= apart + 1e-7
    assert said["changed"] == (whole.predict(X) != made.predict(X)).sum()
    assert coremargin.verify(tmp_path / "m", folder / _rows_of(name)).ok
    again = coremargin.load(tmp_path / "m")
    np.testing.assert_array_equal(again.decision_function(X), now)
    wide = X.astype(np.float64)
    np.testing.assert_allclose(made.to_sklearn().decision_function(wide), made.decision_function(wide), atol=1e-9)
    assert len(made.expansion.rows) == 12
    assert "rows, which carry the function" in (tmp_path / "m" / "report.html").read_text()


def test_with_enough_rows_nothing_changes(folder: Path, tmp_path: Path) -> None:
    """And what was certified stays so; the same bits come again, from a reduced model too."""
    most = len(coremargin.load(folder / "hinge").coreset_ids) - 1  # type: ignore[attr-defined]
    made = reduce(folder / "hinge", folder / "rows.zarr", tmp_path / "a", rows=most)
    assert made.status == "certified"
    assert made.record["reduced"]["changed"] == 0
    reduce(tmp_path / "a", folder / "rows.zarr", tmp_path / "b", rows=most)
    for name in ("model.json", "arrays.npz"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_bounds_are_those_of_fewer_rows(folder: Path, tmp_path: Path) -> None:
    """A machine of three rows is worse, and says so: its value is higher, and it is not certified any more."""
    whole = coremargin.load(folder / "squared").certificate
    made = reduce(folder / "squared", folder / "rows.zarr", tmp_path / "m", rows=3)
    assert made.status == "stopped"
    assert made.certificate.upper > whole.upper * 1.01
    assert made.certificate.lower == pytest.approx(whole.lower, rel=1e-9)


def test_what_cannot_be_is_refused(folder: Path, tmp_path: Path) -> None:
    """Other models, numbers and rows, and places where something is."""
    X, y = load_iris(return_X_y=True)
    plane = coremargin.train(X, y == 0)
    for model, rows, store, word in (
        (plane, 5, "rows.zarr", "model of a kernel"), (folder / "hinge", 0, "rows.zarr", "expected a number from 1"),
        (folder / "hinge", 10_000, "rows.zarr", "expected a number from 1"),
        (folder / "hinge", 5, "three.zarr", "sha256"), (folder / "nothing", 5, "rows.zarr", "nothing"),
    ):  # fmt: skip
        with pytest.raises(coremargin.CoremarginError, match=word):
            reduce(model, folder / store, tmp_path / "m", rows=rows)
    with pytest.raises(coremargin.CoremarginError, match="a model is there already"):
        reduce(folder / "hinge", folder / "rows.zarr", folder / "hard", rows=5)
    assert list(tmp_path.iterdir()) == []


def test_whoever_interrupts_it_finds_nothing_half_made(folder: Path, tmp_path: Path) -> None:
    """Neither a folder nor a lock; the next one makes it."""

    def stop(done: int, rows: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reduce(folder / "hinge", folder / "rows.zarr", tmp_path / "m", rows=5, on_progress=stop)
    assert list(tmp_path.iterdir()) == []
    reduce(folder / "hinge", folder / "rows.zarr", tmp_path / "m", rows=5)
    assert coremargin.verify(tmp_path / "m", folder / "rows.zarr").ok
