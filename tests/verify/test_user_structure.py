"""Verification of structures of the user: true claims hold, forged ones and wrong structures fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import own_structures
import pytest
from own_structures import as_chain
from structured_kit import exact_bounds, sequences, write_sequences

import coremargin
from coremargin.errors import CoremarginError, UsageError
from coremargin.verify.examine import examine

Arrays = dict[str, np.ndarray]


class Case:
    """A trained model, its store, and a judge that enumerates."""

    def __init__(self, folder: Path) -> None:
        self.X, y, self.groups = sequences(1, examples=14)
        self.labels: list[Any] = [["a", "b", "c"][k] for k in y]
        for row in np.flatnonzero(self.groups == 3):
            self.labels[row] = None
        self.weights = np.random.default_rng(1).choice([0.0, 0.5, 1.0, 3.0], 14)[self.groups]
        self.store = write_sequences(folder / "s.zarr", self.X, self.labels, self.groups, self.weights)
        given: dict[str, Any] = {"structure": own_structures.Chain, "loss": "hinge", "C": 0.3, "cluster": "threads"}
        coremargin.train(self.store, out=folder / "m", **given)
        self.record: dict[str, Any] = json.loads((folder / "m" / "model.json").read_bytes())
        with np.load(folder / "m" / "arrays.npz") as found:
            self.arrays = dict(found)

    def accepts(self, folder: Path, record: dict[str, Any], arrays: Arrays, structure: Any = None) -> bool:
        """Whether the verifier confirms this model; one that it cannot read is not confirmed."""
        folder.mkdir(exist_ok=True)
        (folder / "model.json").write_text(json.dumps(record))
        np.savez(folder / "arrays.npz", **arrays)
        try:
            return examine(folder, self.store, structure=structure or own_structures.Chain, threads=1).ok
        except CoremarginError:
            return False

    def is_true(self, record: dict[str, Any], arrays: Arrays) -> bool:
        """Whether the bounds hold, by enumeration; up to the rounding of that."""
        value, dual = exact_bounds(*as_chain(record, arrays), self.X, self.labels, self.groups, self.weights)
        claims, slack = record["certificate"], 1e-12 * abs(value)
        ok = claims["upper"] >= value - slack and claims["lower"] <= dual + slack
        return bool(ok and claims["lower"] >= (1 - claims["epsilon"]) * claims["upper"])

    def copy(self) -> tuple[dict[str, Any], Arrays]:
        """Record and arrays that may be changed."""
        return json.loads(json.dumps(self.record)), {name: values.copy() for name, values in self.arrays.items()}


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """Groups with weights, one of them without labels."""
    return Case(tmp_path_factory.mktemp("case"))


def test_what_was_trained_is_confirmed_and_true(case: Case, tmp_path: Path) -> None:
    """As it is, and a claim of a little less."""
    record, arrays = case.copy()
    assert case.is_true(record, arrays)
    assert case.accepts(tmp_path / "m", record, arrays)
    record["certificate"]["lower"] *= 1 - 1e-12
    assert case.accepts(tmp_path / "m", record, arrays)


FORGERIES: dict[str, Callable[[dict[str, Any], Arrays], object]] = {
    "more than the labellings prove": lambda r, a: r["certificate"].update(lower=r["certificate"]["lower"] * 1.0001),
    "less than the value": lambda r, a: r["certificate"].update(upper=r["certificate"]["upper"] * 0.99999),
    "another C": lambda r, a: r["parameters"].update(C=0.2),
    "other weights": lambda r, a: a.update(weights=-a["weights"]),
    "fewer weights": lambda r, a: a.update(weights=a["weights"][:-1]),
    "a weight below 0": lambda r, a: a["duals_weight"].__setitem__(0, -a["duals_weight"][0]),
    "weights above C": lambda r, a: a.update(duals_weight=a["duals_weight"] * 1.3),
    "a labelling of another example": lambda r, a: a["duals_row"].__setitem__(0, a["duals_row"][-1]),
    "another labelling": lambda r, a: a["duals_labels"].__setitem__(slice(0, 3), 2 - a["duals_labels"][:3]),
    "other classes": lambda r, a: r.update(classes=["b", "a", "c"]),
    "single rows": lambda r, a: r.update(grouped=False),
    "another epsilon": lambda r, a: r["certificate"].update(epsilon=1e-6),
    "another structure in name": lambda r, a: r["parameters"].update(structure="chain"),
}


@pytest.mark.parametrize("name", list(FORGERIES))
def test_forgeries_are_rejected(case: Case, tmp_path: Path, name: str) -> None:
    """Each changes one thing."""
    record, arrays = case.copy()
    FORGERIES[name](record, arrays)
    assert not case.accepts(tmp_path / "m", record, arrays)


def test_random_changes_are_confirmed_only_if_true(case: Case, tmp_path: Path) -> None:
    """The verifier accepts no claim that the judge finds false."""
    rng, confirmed = np.random.default_rng(0), 0
    for _ in range(30):
        record, arrays = case.copy()
        name = rng.choice(["weights", "duals_weight", "duals_labels"])
        place = rng.integers(len(arrays[name]))
        change = 1 if name == "duals_labels" else arrays[name][place] * rng.choice([1e-14, 1e-7, 1e-3, 0.5])
        arrays[name][place] = (
            (arrays[name][place] + change) % 3 if name == "duals_labels" else arrays[name][place] + change
        )
        record["certificate"]["lower"] *= 1 - rng.choice([0, 1e-9, 1e-6])
        record["certificate"]["ratio"] = record["certificate"]["lower"] / record["certificate"]["upper"]
        accepted = case.accepts(tmp_path / "m", record, arrays)
        assert not accepted or case.is_true(record, arrays)
        confirmed += accepted
    assert confirmed


def test_a_value_of_a_wrong_argmax_is_refuted(case: Case, tmp_path: Path) -> None:
    """With each wrong structure the claim is not confirmed, whatever the record says."""
    for name in ("Greedy", "Restless", "Beyond", "Endless", "Outside", "Free", "Failing"):
        assert not case.accepts(tmp_path / "m", *case.copy(), structure=getattr(own_structures, name)), name


class Lazy(own_structures.Chain):
    """Proves too much: where labels are passed it returns them."""

    def argmax(self, w: np.ndarray, X: np.ndarray, y: np.ndarray | None = None) -> np.ndarray:
        """The true ones."""
        return super().argmax(w, X) if y is None else y


def test_a_value_that_only_a_wrong_argmax_has_is_refuted(case: Case, tmp_path: Path) -> None:
    """All losses are 0 by its argmax: single flips and labellings of the dual point show more."""
    record, arrays = case.copy()
    half = 0.5 * float(arrays["weights"] @ arrays["weights"])
    record["certificate"].update(lower=half * 0.9999, upper=half * 1.0001, ratio=0.9999 / 1.0001)
    assert not case.accepts(tmp_path / "m", record, arrays, structure=Lazy)


def test_names_in_models_are_never_run(case: Case, tmp_path: Path) -> None:
    """Without a structure there is no verdict; another name is shown, not imported."""
    record, arrays = case.copy()
    record["function"] = "antigravity:Chain"
    assert case.accepts(tmp_path / "m", record, arrays)
    checks = examine(tmp_path / "m", case.store, structure=own_structures.Chain(), threads=1).checks
    assert any("'antigravity:Chain', which was not run" in check.text for check in checks)
    with pytest.raises(UsageError, match="--structure MODULE:NAME"):
        examine(tmp_path / "m", case.store)
    with pytest.raises(UsageError, match="not all of these methods"):
        examine(tmp_path / "m", case.store, structure=dict)


class Sums(own_structures.Chain):
    """The chain, with ``large`` before and -``large`` after each value of a place."""

    large = 1e3

    def joint(self, X: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
        """Of the largest, values are lost."""
        places, values = super().joint(X, y)
        large = np.full(len(values), self.large)
        return np.tile(places, 3), np.concatenate([large, values, -large])


class LossySums(Sums):
    """Its sums are 0 in float64, which those of the chain are not."""

    large = 2.0**90


class EndlessSums(Sums):
    """Its sizes overflow."""

    large = 1e308


def test_sums_that_cancel_prove_no_bound(case: Case, tmp_path: Path) -> None:
    """Wrong labels whose sum of psi is 0 in float64 only: they seem to prove the value of the weights 0."""
    rows = [np.flatnonzero(case.groups == group) for group in np.unique(case.groups)]
    rows = [some for some in rows if case.labels[some[0]] is not None and case.weights[some[0]] > 0]
    record, arrays = case.copy()
    arrays["weights"][:] = 0.0
    arrays["duals_row"] = np.array([some[0] for some in rows])
    arrays["duals_weight"] = 0.3 * case.weights[arrays["duals_row"]]
    arrays["duals_ends"] = np.cumsum([len(some) for some in rows])
    wrong = [("abc".index(case.labels[row]) + 1) % 3 for some in rows for row in some]
    arrays["duals_labels"] = np.array(wrong, arrays["duals_labels"].dtype)
    claimed = float(sum(0.3 * case.weights[some[0]] * len(some) for some in rows))
    record["certificate"].update(lower=claimed * 0.9999, upper=claimed * 1.0001, ratio=0.9999 / 1.0001)
    assert not case.is_true(record, arrays)
    assert not case.accepts(tmp_path / "m", record, arrays, structure=LossySums)
    checks = examine(tmp_path / "m", case.store, structure=LossySums, threads=1).checks
    assert [check.name for check in checks if not check.ok] == ["dual bound"]


def test_scores_that_overflow_bound_no_value(case: Case, tmp_path: Path) -> None:
    """They are NaN, which is no loss of 0."""
    record, arrays = case.copy()
    assert not case.accepts(tmp_path / "m", record, arrays, structure=EndlessSums)
    checks = examine(tmp_path / "m", case.store, structure=EndlessSums, threads=1).checks
    assert "value" in [check.name for check in checks if not check.ok]


def test_sums_that_cancel_a_little_are_confirmed(case: Case, tmp_path: Path) -> None:
    """The trainer counts the same rounding."""
    options: dict[str, Any] = {"loss": "hinge", "C": 0.3, "cluster": "threads", "out": tmp_path / "sums"}
    assert coremargin.train(case.store, structure=Sums, **options).status == "certified"
    assert examine(tmp_path / "sums", case.store, structure=Sums, threads=1).ok
