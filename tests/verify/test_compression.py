"""Compression schemes: the kept rows alone give the hyperplane, by code that shares nothing with the solver."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import coremargin
from coremargin.data.writer import StoreWriter
from coremargin.estimators import MarginCoresetClassifier
from coremargin.maths.published_bounds import compression
from coremargin.verify.compression import error_bound
from coremargin.verify.examine import examine

Record = dict[str, Any]


def rows(seed: int, count: int = 600, features: int = 5) -> tuple[np.ndarray, np.ndarray]:
    """Normal rows apart by a hyperplane with an offset."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, features))
    y = np.where(X[:, 0] + 0.5 * X[:, 1] > 0.3, 1, -1)
    return X + 0.2 * y[:, None] * np.eye(1, features), y


def store_of(place: Path, X: Any, y: np.ndarray) -> Path:
    """A store of 100 rows a chunk."""
    sparse = not isinstance(X, np.ndarray)
    with StoreWriter.create(place, dtype="float64", features=X.shape[1], chunk_rows=100, sparse=sparse) as writer:
        writer.write(X, y.tolist())
    return place


def found_in(model: Path, store: Path) -> str | None:
    """What `verify` finds about the compression: "" if it holds, None if nothing is claimed."""
    found = examine(model, store)
    return next(("" if one.ok else one.text for one in found.checks if one.name == "compression"), None)


@pytest.mark.parametrize(
    "options",
    [{}, {"intercept": False}, {"strategy": "smo"}, {"scaling": "rownorm"}],
    ids=lambda one: "-".join(map(str, one)) or "fast",
)
@pytest.mark.parametrize("sparse", [False, True])
def test_kept_rows_alone_give_the_hyperplane(tmp_path: Path, options: Record, *, sparse: bool) -> None:
    """Claimed, verified, and so: trained again on these rows, w is the same; the bound is that of the formula."""
    X, y = rows(1)
    if options.get("intercept") is False:
        y = np.where(X[:, 0] > 0, 1, -1)
        X = X + 0.2 * y[:, None] * np.eye(1, 5)
    store = store_of(tmp_path / "s.zarr", csr_array(X) if sparse else X, y)
    model = coremargin.train(store, out=tmp_path / "m", **options)
    claimed, kept = model.record["compression"], model.coreset_ids[model.alpha > 0]
    assert claimed["kept"] == len(kept)
    assert claimed["rows"] == 600
    assert found_in(tmp_path / "m", store) == ""
    again = coremargin.train(X[kept], y[kept], epsilon=1e-9, **options)
    assert np.linalg.norm(again.w - model.w) < 1e-7
    assert again.b == pytest.approx(model.b, abs=1e-7)
    assert claimed["error"] == pytest.approx(compression(600, len(kept), 1 - claimed["confidence"]))


def test_nothing_is_claimed_where_other_rows_count(tmp_path: Path) -> None:
    """Scaling by statistics and maps depend on all rows."""
    X, y = rows(2)
    store = store_of(tmp_path / "s.zarr", X, y)
    for name, options in (("a", {"scaling": "standard"}), ("b", {"map": "polynomial", "degree": 1, "coef0": 1.0})):
        model = coremargin.train(store, out=tmp_path / name, **options)
        assert "compression" not in model.record
        assert found_in(tmp_path / name, store) is None
        path = tmp_path / name / "model.json"
        record = json.loads(path.read_text())
        record["compression"] = {"kept": 3, "rows": 600, "confidence": 0.95, "error": error_bound(600, 3, 0.05)}
        path.write_text(json.dumps(record))
        assert "depend" in (found_in(tmp_path / name, store) or "")


def test_models_of_batches_claim_none(tmp_path: Path) -> None:
    """Their hyperplane may be another one than that of their coreset."""
    X, y = rows(5)
    batches = MarginCoresetClassifier(loss=None, memory="20 KiB")
    for part in np.array_split(np.arange(600), 3):
        batches.partial_fit(X[part], y[part], classes=[-1, 1])
    assert "compression" not in batches.model_.record


def test_the_bound_is_the_root_of_its_equation() -> None:
    """(1 - p)^(N - k) C(N, k) N is delta."""
    for n, k, delta in ((50, 3, 0.05), (400, 20, 0.01)):
        p = error_bound(n, k, delta)
        assert (1 - p) ** (n - k) * math.comb(n, k) * n == pytest.approx(delta)
    assert error_bound(10, 10, 0.05) == 1.0


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A model and its store."""
    folder = tmp_path_factory.mktemp("compression")
    store = store_of(folder / "s.zarr", *rows(3))
    coremargin.train(store, out=folder / "m", epsilon=0.05)
    return folder / "m", store


FORGERIES: list[Callable[[Record], Any]] = [
    lambda claim: claim.update(kept=claim["kept"] - 1),
    lambda claim: claim.update(kept=claim["kept"] - 1, error=error_bound(600, claim["kept"] - 1, 0.05)),
    lambda claim: claim.update(rows=1200, error=error_bound(1200, claim["kept"], 0.05)),
    lambda claim: claim.update(error=claim["error"] * (1 - 1e-6)),
    lambda claim: claim.update(confidence=0.999),
]


@pytest.mark.parametrize("number", range(len(FORGERIES)))
def test_other_numbers_are_refused(tmp_path: Path, trained: tuple[Path, Path], number: int) -> None:
    """Fewer rows, more rows, a smaller error, more confidence."""
    shutil.copytree(trained[0], tmp_path / "m")
    record = json.loads((tmp_path / "m" / "model.json").read_text())
    FORGERIES[number](record["compression"])
    (tmp_path / "m" / "model.json").write_text(json.dumps(record))
    assert found_in(tmp_path / "m", trained[1])


def test_a_hyperplane_of_other_rows_is_refused(tmp_path: Path, trained: tuple[Path, Path]) -> None:
    """It may have nearly the best margin, be certified, and yet depend on rows that are not kept."""
    shutil.copytree(trained[0], tmp_path / "m")
    path = tmp_path / "m"
    X, y = rows(3)
    with np.load(path / "arrays.npz") as found:
        arrays = dict(found)
    w = arrays["w"] + 1e-4 * np.arange(5)
    arrays["w"] = w / np.linalg.norm(w)
    margins = y * (X @ arrays["w"] + arrays["b"][0])
    np.savez(path / "arrays.npz", **arrays)
    record = json.loads((path / "model.json").read_text())
    lower = float(margins.min()) * (1 - 1e-9)
    record["certificate"] |= {"lower": lower, "ratio": lower / record["certificate"]["upper"]}
    (path / "model.json").write_text(json.dumps(record))
    found = examine(path, trained[1])
    assert {check.name for check in found.failures} == {"compression"}
    del record["compression"]
    (path / "model.json").write_text(json.dumps(record))
    assert examine(path, trained[1]).ok


@pytest.mark.parametrize(("w", "b"), [(0.0, 0.0), (1e200, 0.0), (1e-200, 1e300)])
def test_numbers_that_overflow_are_refused(tmp_path: Path, trained: tuple[Path, Path], w: float, b: float) -> None:
    """Not with a traceback."""
    shutil.copytree(trained[0], tmp_path / "m")
    with np.load(tmp_path / "m" / "arrays.npz") as found:
        arrays = dict(found)
    np.savez(tmp_path / "m" / "arrays.npz", **(arrays | {"w": arrays["w"] * w, "b": np.array([b])}))
    assert found_in(tmp_path / "m", trained[1])


def test_rows_may_be_too_long_for_hyperplanes_that_are_close(tmp_path: Path) -> None:
    """Two kept rows give nearly the model's hyperplane, which others, 1e5 margins away, decide."""
    rng = np.random.default_rng(1)
    y, special = rng.choice([-1, 1], 120), rng.random(120) < 0.2
    X = np.zeros((120, 161))
    X[:, 0] = np.where(special, y, rng.choice([-1, 1], 120))
    X[:, 1:] = rng.choice([-1, 1], (120, 160)) * 1e5 * ~special[:, None]
    store = store_of(tmp_path / "s.zarr", X, y)
    model = coremargin.train(store, out=tmp_path / "m")
    kept = np.sort([np.flatnonzero(special & (y == side))[0] for side in (-1, 1)])
    assert (np.sign(X[:, 0]) != y).any(), "the hyperplane of these two rows is wrong about others"
    with np.load(tmp_path / "m" / "arrays.npz") as found:
        arrays = {name: values for name, values in found.items() if not name.startswith("block_bounds")}
    arrays |= {"alpha": np.ones(2), "coreset_ids": kept, "coreset_x": X[kept], "coreset_y": y[kept].astype(np.int8)}
    np.savez(tmp_path / "m" / "arrays.npz", **arrays)
    record = json.loads((tmp_path / "m" / "model.json").read_text())
    record["certificate"] |= {"coreset_rows": 2, "upper": 1 + 1e-10, "ratio": model.certificate.lower / (1 + 1e-10)}
    record["compression"] = {"kept": 2, "rows": 120, "confidence": 0.95, "error": error_bound(120, 2, 0.05)}
    (tmp_path / "m" / "model.json").write_text(json.dumps(record))
    checks = examine(tmp_path / "m", store).checks
    assert [one.name for one in checks if not one.ok] == ["compression"]
