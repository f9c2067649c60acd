"""Verification of structured output: true claims hold, forged ones fail, by a judge that enumerates all labellings."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from structured_kit import exact_bounds, sequences, write_sequences

import coremargin
from coremargin.errors import CoremarginError
from coremargin.verify.examine import examine

Arrays = dict[str, np.ndarray]


class Case:
    """A trained model, its store, and what a judge needs."""

    def __init__(self, folder: Path, structure: str, seed: int, *, hard: bool = False) -> None:
        self.X, y, groups = sequences(seed, examples=14)
        if hard:  # so that labels are separable
            self.X[:] = 0.1 * self.X + np.eye(4, dtype=np.float32)[y]
        self.labels: list[Any] = [["a", "b", "c"][k] for k in y]
        for row in np.flatnonzero(groups == 3):
            self.labels[row] = None
        chained = structure == "chain"
        self.groups = groups if chained else np.arange(len(y))
        self.weights = np.random.default_rng(seed).choice([0.0, 0.5, 1.0, 3.0], 14)[groups]
        self.store = write_sequences(
            folder / "s.zarr", self.X, self.labels, groups if chained else None, self.weights, sparse=seed % 2 == 0
        )
        loss: dict[str, Any] = {} if hard else {"loss": "hinge", "C": 0.3}
        coremargin.train(self.store, structure=structure, out=folder / "m", cluster="threads", epsilon=1e-3, **loss)
        self.record: dict[str, Any] = json.loads((folder / "m" / "model.json").read_bytes())
        with np.load(folder / "m" / "arrays.npz") as found:
            self.arrays = dict(found)

    def accepts(self, folder: Path, record: dict[str, Any], arrays: Arrays) -> bool:
        """Whether the verifier confirms this model; one that it cannot read is not confirmed."""
        folder.mkdir(exist_ok=True)
        (folder / "model.json").write_text(json.dumps(record))
        np.savez(folder / "arrays.npz", **arrays)
        try:
            return examine(folder, self.store, threads=1).ok
        except CoremarginError:
            return False

    def is_true(self, record: dict[str, Any], arrays: Arrays) -> bool:
        """Whether the bounds hold, by enumeration; up to the rounding of that."""
        value, dual = exact_bounds(record, arrays, self.X, self.labels, self.groups, self.weights)
        claims = record["certificate"]
        slack = 1e-12 * abs(value)
        if "C" not in record["parameters"]:  # the margin, and the bound of the labellings
            ok = claims["lower"] is None or claims["lower"] <= value + slack
            return bool(ok and (claims["upper"] is None or claims["upper"] >= dual - slack))
        ok = (claims["upper"] is None or claims["upper"] >= value - slack) and (claims["lower"] or 0) <= dual + slack
        if record["status"] == "certified":
            ok = ok and claims["lower"] >= (1 - claims["epsilon"]) * claims["upper"]
        return bool(ok)


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    """A chain of dense and one of sparse rows, and single rows; with a loss, and with a hard margin."""
    made = [("chain", 1, False), ("chain", 2, False), ("outputs", 3, False), ("chain", 4, True), ("outputs", 5, True)]
    return [Case(tmp_path_factory.mktemp(f"case{seed}"), word, seed, hard=hard) for word, seed, hard in made]


def test_what_was_trained_is_confirmed_and_true(cases: list[Case], tmp_path: Path) -> None:
    """Each case as it is; a claim of a little less is confirmed, too."""
    for case in cases:
        assert case.is_true(case.record, case.arrays)
        assert case.accepts(tmp_path / "m", case.record, case.arrays)
        less = json.loads(json.dumps(case.record))
        less["certificate"]["lower"] *= 1 - 1e-12
        assert case.accepts(tmp_path / "m", less, case.arrays)


FORGERIES: dict[str, Callable[[dict[str, Any], Arrays], object]] = {
    "more than the labellings prove": lambda r, a: r["certificate"].update(lower=r["certificate"]["lower"] * 1.0001),
    "less than the value": lambda r, a: r["certificate"].update(upper=r["certificate"]["upper"] * 0.99999),
    "another C": lambda r, a: r["parameters"].update(C=0.2),
    "weights of another model": lambda r, a: a.update(hypothesis=-a["hypothesis"]),
    "a weight below 0": lambda r, a: a["duals_weight"].__setitem__(0, -a["duals_weight"][0]),
    "a labelling of another example": lambda r, a: a["duals_row"].__setitem__(0, a["duals_row"][-1]),
    "another labelling": lambda r, a: a["duals_labels"].__setitem__(slice(0, 3), 2 - a["duals_labels"][:3]),
    "other classes": lambda r, a: r.update(classes=["b", "a", "c"]),
    "another constant": lambda r, a: r.update(constant=r["constant"] * 2),
    "another epsilon": lambda r, a: r["certificate"].update(epsilon=1e-6),
}


def true_labels(case: Case, arrays: Arrays) -> np.ndarray:
    """The true labels in the place of all labellings."""
    classes = case.record["classes"]
    found = []
    for first, count in zip(arrays["duals_row"], np.diff(arrays["duals_ends"], prepend=0), strict=True):
        found += [classes.index(case.labels[row]) for row in range(first, first + count)]
    return np.array(found, arrays["duals_labels"].dtype)


def test_weights_of_true_labellings_and_above_c_prove_nothing(cases: list[Case], tmp_path: Path) -> None:
    """A true labelling adds to the weights of a hard margin, not to their sum; with a loss, weights have a limit."""
    for case in cases:
        record, arrays = json.loads(json.dumps(case.record)), {key: one.copy() for key, one in case.arrays.items()}
        if "C" in record["parameters"]:
            arrays["duals_weight"] *= 1.3
        else:
            k = int(arrays["duals_ends"][0])
            arrays["duals_labels"][:k] = true_labels(case, arrays)[:k]
            arrays["duals_weight"][0] *= 1e3
            record["certificate"]["upper"] = record["certificate"]["lower"]
            record["certificate"]["ratio"] = 1.0
        assert not case.accepts(tmp_path / "m", record, arrays)


def test_half_of_the_costs_is_another_loss(cases: list[Case], tmp_path: Path) -> None:
    """A model whose costs differ from 1 has to name them."""
    for case in cases:
        arrays = dict(case.arrays, costs=case.arrays["costs"] / 2)
        assert not case.accepts(tmp_path / "m", case.record, arrays)


@pytest.mark.parametrize("name", FORGERIES)
def test_forgeries_are_rejected(name: str, cases: list[Case], tmp_path: Path) -> None:
    """One thing is changed, the rest is as it was trained."""
    for case in cases:
        record, arrays = json.loads(json.dumps(case.record)), {key: one.copy() for key, one in case.arrays.items()}
        FORGERIES[name](record, arrays)
        assert not case.accepts(tmp_path / "m", record, arrays), name


def mutated(rng: np.random.Generator, case: Case) -> tuple[dict[str, Any], Arrays]:
    """One or two random changes, of sizes from an ulp to everything."""
    record, arrays = json.loads(json.dumps(case.record)), {key: one.copy() for key, one in case.arrays.items()}
    for _ in range(rng.integers(1, 3)):
        size = 10.0 ** -rng.integers(0, 16)
        match rng.integers(0, 8):
            case 0 | 1:
                name = str(rng.choice(["lower", "upper"]))
                record["certificate"][name] *= 1 + size * rng.normal()
            case 2:
                name = str(rng.choice([key for key in ("hypothesis", "transitions", "costs") if key in arrays]))
                place = tuple(rng.integers(0, n) for n in arrays[name].shape)
                arrays[name][place] += size * rng.normal()
            case 3:
                arrays["duals_weight"][rng.integers(len(arrays["duals_weight"]))] *= abs(1 + size * rng.normal())
            case 4:
                arrays["duals_weight"] *= abs(1 + size * rng.normal())
            case 5:
                arrays["duals_labels"][rng.integers(len(arrays["duals_labels"]))] = rng.integers(3)
            case 6:
                arrays["duals_row"][rng.integers(len(arrays["duals_row"]))] += rng.integers(-2, 3)
            case 7 if "C" in record["parameters"]:
                record["parameters"]["C"] *= 1 + size * rng.normal()
    certificate = record["certificate"]
    lower, upper = certificate["lower"], certificate["upper"]
    certificate["ratio"] = min(1.0, lower / upper) if lower > 0 and upper > 0 else 0.0
    return record, arrays


def attack(cases: list[Case], folder: Path, numbers: range) -> Counter[str]:
    """Mutated models: what is confirmed is true."""
    counts: Counter[str] = Counter()
    for number in numbers:
        rng = np.random.default_rng([7, number])
        case = cases[number % len(cases)]
        record, arrays = mutated(rng, case)
        accepted = case.accepts(folder / "m", record, arrays)
        counts["accepted" if accepted else "rejected"] += 1
        if accepted:
            assert case.is_true(record, arrays), number
    return counts


def test_what_is_confirmed_of_mutated_models_is_true(cases: list[Case], tmp_path: Path) -> None:
    """Some mutations leave the claims true, most do not."""
    counts = attack(cases, tmp_path, range(150))
    assert min(counts["accepted"], counts["rejected"]) > 5


@pytest.mark.slow
def test_what_is_confirmed_of_many_mutated_models_is_true(cases: list[Case], tmp_path: Path) -> None:
    """The same for more of them."""
    attack(cases, tmp_path, range(150, 800))
