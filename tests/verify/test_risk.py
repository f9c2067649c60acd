"""The guaranteed risk that chooses C and gamma: what training claims holds, what does not follow is refused."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coremargin
from coremargin.data.writer import StoreWriter
from coremargin.errors import CoremarginError, UsageError
from coremargin.maths.published_bounds import guaranteed_risk, margin_risk
from coremargin.verify.examine import examine

Record = dict[str, Any]
LINEAR: Record = {"loss": "hinge", "C": [1e-4, 1e-2, 1.0]}
MAPPED: Record = {"loss": "squared_hinge", "C": [0.01, 1.0], "map": "fourier", "components": 20, "gamma": [0.1, 1.0]}
KERNEL: Record = {"loss": "hinge", "C": [0.1, 2.0], "kernel": "rbf", "gamma": [0.1, 1.0], "intercept": False}
FOLDED: Record = {"loss": "squared_hinge", "C": [0.01, 0.1], "kernel": "poly", "gamma": 0.1, "degree": 2, "folds": 2}


def rows(seed: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Three features, one of which decides, with noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 3))
    return X, np.where(X[:, 0] + 0.4 * rng.normal(size=count) > 0, 1, -1)


def store_of(place: Path, X: np.ndarray, y: np.ndarray, weights: np.ndarray | None = None) -> Path:
    """A store of 500 rows a chunk."""
    with StoreWriter.create(place, dtype="float64", features=3, chunk_rows=500, weighted=weights is not None) as writer:
        writer.write(X, y.tolist(), **({} if weights is None else {"weights": weights}))
    return place


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """900 rows."""
    return store_of(tmp_path_factory.mktemp("risk") / "s.zarr", *rows(0, 900))


@pytest.mark.parametrize("options", [LINEAR, MAPPED, KERNEL, FOLDED])
def test_the_least_risk_chooses_and_is_verified(tmp_path: Path, store: Path, options: Record) -> None:
    """Of ties the smallest C, then the first gamma; the model predicts with it."""
    model = coremargin.train(store, out=tmp_path / "m", choose="risk", **options)
    risks = model.record["risk"]
    least = min(risks, key=lambda entry: (entry["risk"], entry["C"]))
    assert model.record["chosen"] == {**{k: v for k, v in least.items() if k != "risk"}, "by": "risk"}
    assert least["C"] == model.C
    found = examine(tmp_path / "m", store)
    assert found.ok, [check for check in found.tables if not check.ok]
    assert "risk" in {check.name for check in found.tables}
    page = (tmp_path / "m" / "report.html").read_text(encoding="utf-8")
    assert "Guaranteed risk" in page


@pytest.mark.parametrize("loss", ["hinge", "squared_hinge"])
def test_the_risk_is_that_of_the_formulas(loss: str) -> None:
    """From w, b and the rows, with the sums done here."""
    X, y = rows(3, 1500)
    model = coremargin.train(X, y, loss=loss, C=[1e-3, 1e-1], epsilon=1e-9, choose="risk")
    for entry in model.record["risk"]:
        own = model.at(entry["C"]).deciders()[0]
        slack = np.maximum(0.0, 1.0 - y * (X @ own.w + own.b))
        losses = (slack if loss == "hinge" else slack**2).mean()
        A, B = (2 ** (math.ceil(4 * math.log2(size)) / 4) for size in (np.linalg.norm(own.w), abs(own.b)))
        p, q = (1 / 2.3 / (1 + abs(round(4 * math.log2(size)))) ** 2 for size in (A, B))
        slope = 1 if loss == "hinge" else 2
        by_margin = losses + 2 * slope * (A * np.linalg.norm(X, axis=1).max() + B) / math.sqrt(1500)
        by_margin += 3 * math.sqrt(math.log(2 / (0.025 * p * q)) / 3000)
        by_errors = guaranteed_risk(1500, 4, 0.025, float((model.at(entry["C"]).predict(X) != y).mean()))
        assert entry["risk"] == pytest.approx(min(by_margin, by_errors), rel=1e-5)


def test_the_bound_holds_on_new_rows() -> None:
    """Of the chosen models of 8 draws, none is above its bound: it is at 95 %, and far from sharp."""
    new, truth = rows(99, 20_000)
    for seed in range(8):
        X, y = rows(100 + seed, 400)
        model = coremargin.train(X, y, loss="hinge", C=[0.001, 0.01, 0.1, 1.0], choose="risk")
        assert (model.predict(new) != truth).mean() <= min(entry["risk"] for entry in model.record["risk"])


def test_shares_of_confidence_sum_to_less_than_one() -> None:
    """Levels of ||w|| cover every number above 0; a larger one gives no smaller bound."""
    assert sum(1 / (2.3 * (1 + abs(j)) ** 2) for j in range(-200, 10**6)) < 1
    sizes = np.geomspace(1e-30, 1e12, 500)
    found = [margin_risk(10_000, 0.1, float(size), 1.0, 0.05) for size in sizes if size >= 1]
    assert found == sorted(found)
    assert margin_risk(10_000, 0.1, 0.0, 1.0, 0.05, offset=0.0) > 0.1


def _lower(record: Record) -> None:
    record["risk"][0]["risk"] *= 0.99


def _least(record: Record) -> None:
    last = record["risk"][-1]
    last["risk"] = 0.0
    record["chosen"] |= {name: value for name, value in last.items() if name != "risk"}


def _other_choice(record: Record) -> None:
    other = next(entry for entry in record["risk"] if entry["C"] != record["chosen"]["C"])
    record["chosen"]["C"] = other["C"]


def _by_validation(record: Record) -> None:
    record["chosen"]["by"] = "validation"


def _no_risks(record: Record) -> None:
    record["risk"] = []


def _no_errors(record: Record) -> None:
    record["evaluations"] = []


def _fewer_errors(record: Record) -> None:
    for entry in record["evaluations"]:
        entry["confusion"][0][0] += entry["confusion"][0][1]
        entry["confusion"][0][1] = 0


def _not_by_risk(record: Record) -> None:
    del record["parameters"]["choose"]


def _swapped(record: Record) -> None:
    first, *_, last = record["risk"]
    first["risk"], last["risk"] = last["risk"], first["risk"]


def _missing(record: Record) -> None:
    record["risk"].pop()


def _lower_value(record: Record) -> None:
    for member in record["members"]:
        member["upper"] = member["lower"]


FORGERIES = [
    _lower, _least, _other_choice, _by_validation, _no_risks, _no_errors, _fewer_errors, _not_by_risk, _swapped,
    _missing, _lower_value,
]  # fmt: skip


@pytest.fixture(scope="module", params=[LINEAR, KERNEL], ids=["linear", "kernel"])
def trained(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, store: Path) -> Path:
    """A model of the store, chosen by risk."""
    folder = tmp_path_factory.mktemp("model") / "m"
    coremargin.train(store, out=folder, choose="risk", **request.param)
    return folder


@pytest.mark.parametrize("change", FORGERIES, ids=lambda one: one.__name__)
def test_forgeries_are_refused(tmp_path: Path, store: Path, trained: Path, change: Callable[[Record], None]) -> None:
    """In ``fleet.json``: a bound that does not follow, another choice, errors that nobody counted."""
    shutil.copytree(trained, tmp_path / "m")
    record = json.loads((tmp_path / "m" / "fleet.json").read_text())
    change(record)
    (tmp_path / "m" / "fleet.json").write_text(json.dumps(record))
    with contextlib.suppress(CoremarginError):
        assert not examine(tmp_path / "m", store).ok


def test_a_space_that_depends_on_the_rows_is_refused(tmp_path: Path, store: Path) -> None:
    """A record whose members are scaled by the rows, or weigh classes, may claim no risk."""
    for name, options in [("scaled", {"scaling": "standard"}), ("weighed", {"class_weight": [1.0, 1.0]})]:
        model = coremargin.train(store, out=tmp_path / name, loss="hinge", C=[0.01, 1.0], folds=2, **options)
        record = json.loads((tmp_path / name / "fleet.json").read_text())
        record["parameters"]["choose"] = "risk"
        record["risk"] = [{"C": cost, "risk": 0.4} for cost in model.costs]
        record["chosen"] = {"C": 0.01, "by": "risk"}
        (tmp_path / name / "fleet.json").write_text(json.dumps(record))
        failed = {check.name: check.text for check in examine(tmp_path / name, store).tables if not check.ok}
        assert "depend" in failed["risk"]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"C": [0.1, 1.0]}, "give loss too"),
        ({"loss": "hinge", "C": [0.1, 1.0], "scaling": "minmax"}, "'minmax' depends on the rows"),
        ({"loss": "hinge", "C": [0.1, 1.0], "class_weight": "balanced"}, "class_weight"),
        ({"loss": "hinge", "kernel": "rbf"}, "gamma 'scale' depends on the rows"),
        ({"loss": "hinge", "map": "nystroem", "components": 5, "gamma": 1.0}, "landmarks"),
        ({"loss": "hinge", "kernel": "linear", "classes": "ovr"}, "two classes"),
    ],
)
def test_what_would_not_hold_is_refused_before_rows_are_read(store: Path, options: Record, text: str) -> None:
    """With what to do instead."""
    with pytest.raises(UsageError, match=text):
        coremargin.train(store, choose="risk", **options)


def test_weighted_rows_and_several_classes_are_refused(tmp_path: Path) -> None:
    """The bound counts rows alike, and tells two classes apart."""
    X, y = rows(0, 300)
    weighted = store_of(tmp_path / "w.zarr", X, y, np.linspace(0.5, 2.0, 300))
    several = store_of(tmp_path / "k.zarr", X, np.arange(300) % 3)
    for place, text in ((weighted, "without weights"), (several, "two classes")):
        for options in ({"classes": "ovr"}, {"kernel": "rbf", "gamma": 1.0}):
            with pytest.raises((UsageError, coremargin.errors.LabelError), match=text):
                coremargin.train(place, loss="hinge", C=[0.1, 1.0], choose="risk", **options)


def test_a_stopped_run_and_a_retrained_model_choose_too(tmp_path: Path, run_cli: Callable[..., Any]) -> None:
    """Once it is resumed; and by the rows as they are after an append, when most are not read again."""
    X, y = rows(1, 3000)
    store = store_of(tmp_path / "s.zarr", X[:2800], y[:2800])
    stopped = coremargin.train(store, out=tmp_path / "m", choose="risk", max_scans=1, sample=0.05, **KERNEL)
    assert stopped.record["risk"] == []
    assert "resume the training, which then chooses one" in stopped.choice
    whole = coremargin.train(store, out=tmp_path / "m", choose="risk", begin="resume", sample=0.05, **KERNEL)
    assert whole.record["chosen"]["by"] == "risk"
    coremargin.train(store, out=tmp_path / "a", choose="risk", **LINEAR)
    np.savez(tmp_path / "more.npz", X=X[2800:], y=y[2800:])
    run_cli("ingest", tmp_path / "more.npz", store, "--append")
    run_cli("retrain", tmp_path / "a", store, "--out", tmp_path / "b")
    again = coremargin.load(tmp_path / "b")
    assert again.record["chosen"]["by"] == "risk"
    assert examine(tmp_path / "b", store).ok


@pytest.mark.parametrize(("w", "b"), [(0.0, 0.0), (1e200, 0.0), (1.0, 1.7e308)])
def test_numbers_that_overflow_are_refused(tmp_path: Path, store: Path, w: float, b: float) -> None:
    """Not with a traceback."""
    coremargin.train(store, out=tmp_path / "m", choose="risk", **LINEAR)
    path = tmp_path / "m" / "members" / "C-0.01" / "arrays.npz"
    with np.load(path) as found:
        arrays = dict(found)
    np.savez(path, **(arrays | {"w": arrays["w"] * w, "b": np.array([b])}))
    assert not examine(tmp_path / "m", store).ok
