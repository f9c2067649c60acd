"""Models of kernels on fewer rows: what is claimed of them holds, and they are models as any other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris

import coremargin
from coremargin.data.writer import StoreWriter
from coremargin.problems.kernel.reduce import reduce
from coremargin.problems.registry import write_report


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of irises with weights, and models of it."""
    place, (X, y) = tmp_path_factory.mktemp("reduce"), load_iris(return_X_y=True)
    for name, labels, weights in (("rows", y > 1, 1.0 + np.arange(len(y)) % 3), ("three", y, None)):
        with StoreWriter.create(place / f"{name}.zarr", features=4, chunk_rows=64, weighted=weights is not None) as to:
            to.write(X.astype(np.float32), labels, weights)
    asked: dict[str, dict[str, Any]] = {
        "hinge": {"loss": "hinge", "scaling": "standard"},
        "squared": {"loss": "squared_hinge", "C": 3.0},
        "hard": {"gamma": 20.0},
    }
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


@pytest.fixture(scope="module")
def fleet(folder: Path) -> Path:
    """Two values of C and of gamma of the store with weights, the best of which two folds choose; gaps 1e-4."""
    grid: dict[str, Any] = {"C": [0.1, 10.0], "gamma": [0.5, 5.0], "folds": 2, "scaling": "standard", "epsilon": 1e-4}
    coremargin.train(folder / "rows.zarr", out=folder / "fleet", kernel="rbf", loss="hinge", **grid)
    return folder / "fleet"


def test_of_a_fleet_the_chosen_machine_is_made_smaller(folder: Path, fleet: Path, tmp_path: Path) -> None:
    """Or the one that is named: a model by itself, of all rows, near the member that it came from."""
    X, chosen = load_iris().data.astype(np.float32), coremargin.load(fleet)
    other = {"C": 10.0 if chosen.C == 0.1 else 0.1, "gamma": 5.0}  # type: ignore[attr-defined]
    for number, asked in enumerate(({}, other)):
        whole = chosen.at(**asked) if asked else chosen  # type: ignore[attr-defined]
        made = reduce(fleet, folder / "rows.zarr", tmp_path / str(number), rows=10, **asked)
        assert made.parameters["C"] == whole.C
        assert made.record["kernel"]["gamma"] == whole.gamma
        assert len(made.expansion.rows) == 10
        apart = np.abs(np.ravel(whole.decision_function(X)) - made.decision_function(X)).max()
        assert apart <= made.record["reduced"]["distance"] <= apart + 1e-7
        assert coremargin.verify(tmp_path / str(number), folder / "rows.zarr").ok


def test_of_a_fleet_not_every_machine_can_be(folder: Path, fleet: Path, tmp_path: Path) -> None:
    """Not one that a fold was held out of, nor one that nobody chose."""
    members = coremargin.load(fleet).members.values()  # type: ignore[attr-defined]
    held = next(member for member in members if "view" in member.record)
    with pytest.raises(coremargin.CoremarginError, match="holds out a fold"):
        reduce(held, folder / "rows.zarr", tmp_path / "m", rows=5)
    both = coremargin.train(load_iris().data, load_iris().target > 1, kernel="rbf", loss="hinge", C=[0.1, 1.0])
    with pytest.raises(coremargin.CoremarginError, match="no C is chosen"):
        reduce(both, folder / "rows.zarr", tmp_path / "m", rows=5)
    with pytest.raises(coremargin.CoremarginError, match="expected one of those"):
        reduce(fleet, folder / "rows.zarr", tmp_path / "m", rows=5, C=7.0, gamma=5.0)
    assert list(tmp_path.iterdir()) == []


def test_the_command_makes_them_smaller(folder: Path, fleet: Path, tmp_path: Path, run_cli: Any) -> None:
    """With a report; for people in words, for machines as one line; what is there is replaced when that is said."""
    store, out = folder / "rows.zarr", tmp_path / "small"
    words = ("reduce", folder / "hinge", store, "--out", out, "--rows", 9)
    text = run_cli(*words).stdout
    said = coremargin.load(out).record["reduced"]
    assert f"{out}: 9 of " in text
    assert "it is stopped: " in text or "it is certified: " in text
    assert (out / "report.html").exists()
    assert "already" in run_cli(*words, exit_code=2).stderr
    printed = json.loads(run_cli(*words, "--overwrite", "--json", "--quiet").stdout)
    assert {name: printed[name] for name in said} == said
    assert printed["status"] == coremargin.load(out).status
    assert "9 rows decide" in run_cli("verify", out, store).stdout
    named = ("reduce", fleet, store, "--out", tmp_path / "of", "--rows", 9, "--C", 10, "--gamma", 5)
    assert json.loads(run_cli(*named, "--json").stdout)["rows"] == 9
    assert coremargin.load(tmp_path / "of").parameters["C"] == 10.0
    assert "gamma" in run_cli(*named[:-2], "--overwrite", exit_code=2).stderr


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
        (plane, 5, "rows.zarr", "model of a kernel"),
        (folder / "hinge", 0, "rows.zarr", "expected a number from 1"),
        (folder / "hinge", 10_000, "rows.zarr", "expected a number from 1"),
        (folder / "hinge", 5, "three.zarr", "sha256"),
        (folder / "nothing", 5, "rows.zarr", "nothing"),
    ):
        with pytest.raises(coremargin.CoremarginError, match=word):
            reduce(model, folder / store, tmp_path / "m", rows=rows)
    with pytest.raises(coremargin.CoremarginError, match="a model is there already"):
        reduce(folder / "hinge", folder / "rows.zarr", folder / "hard", rows=5)
    assert list(tmp_path.iterdir()) == []


def test_the_larger_model_is_not_replaced(folder: Path, tmp_path: Path) -> None:
    """Not by its own name, nor by another one for it, whatever is said of replacing."""
    other = tmp_path / "other"
    other.symlink_to(folder / "hinge")
    before = sorted(one.name for one in (folder / "hinge").iterdir())
    for out in (folder / "hinge", other):
        with pytest.raises(coremargin.CoremarginError, match="the model to reduce, which would be lost"):
            reduce(folder / "hinge", folder / "rows.zarr", out, rows=2, overwrite=True)
    assert sorted(one.name for one in (folder / "hinge").iterdir()) == before


def test_whoever_interrupts_it_finds_nothing_half_made(folder: Path, tmp_path: Path) -> None:
    """Neither a folder nor a lock; the next one makes it."""

    def stop(done: int, rows: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reduce(folder / "hinge", folder / "rows.zarr", tmp_path / "m", rows=5, on_progress=stop)
    assert list(tmp_path.iterdir()) == []
    reduce(folder / "hinge", folder / "rows.zarr", tmp_path / "m", rows=5)
    assert coremargin.verify(tmp_path / "m", folder / "rows.zarr").ok
