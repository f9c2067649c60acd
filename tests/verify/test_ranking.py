"""Verification of rankings: true claims hold, forged ones fail, by a judge that writes out all pairs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ranking_kit import Ranked

import coremargin
from coremargin.data.store import Store
from coremargin.errors import CoremarginError
from coremargin.verify.examine import examine

Arrays = dict[str, np.ndarray]
C = 0.3


class Case:
    """A trained model, its store, and its pairs."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.ranked = Ranked(seed, weighted=seed % 2 == 1)
        self.store = self.ranked.write(folder / "s.zarr", sparse=seed % 2 == 0)
        coremargin.train(self.store, structure="ranking", loss="hinge", C=C, out=folder / "m", cluster="threads")
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
        """Whether the bounds hold, up to the rounding of the judge."""
        claims, cost = record["certificate"], record["parameters"]["C"]
        value = self.ranked.value(arrays["w"], cost)
        dual = max(0.0, self.ranked.dual(arrays, cost))
        ok = claims["upper"] >= value * (1 - 1e-12) and claims["lower"] <= dual * (1 + 1e-12)
        return bool(ok and claims["lower"] >= (1 - claims["epsilon"]) * claims["upper"])


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    """Dense rows with weights, and sparse rows without."""
    return [Case(tmp_path_factory.mktemp(f"case{seed}"), seed) for seed in (1, 2, 3)]


def test_what_was_trained_is_confirmed_and_true(cases: list[Case], tmp_path: Path) -> None:
    """Each case as it is; a claim of a little less is confirmed, too."""
    for case in cases:
        assert case.is_true(case.record, case.arrays)
        assert case.accepts(tmp_path / "m", case.record, case.arrays)
        less = json.loads(json.dumps(case.record))
        less["certificate"]["lower"] *= 1 - 1e-12
        assert case.accepts(tmp_path / "m", less, case.arrays)


FORGERIES: dict[str, Callable[[dict[str, Any], Arrays], object]] = {
    "more than the cuts prove": lambda r, a: r["certificate"].update(lower=r["certificate"]["lower"] * (1 + 1e-7)),
    "less than the value": lambda r, a: r["certificate"].update(upper=r["certificate"]["upper"] * (1 - 1e-7)),
    "another C": lambda r, a: r["parameters"].update(C=0.2),
    "a larger C": lambda r, a: r["parameters"].update(C=0.4),
    "another hypothesis": lambda r, a: a.update(w=-a["w"]),
    "weights above C": lambda r, a: a["cuts_weight"].__setitem__(0, a["cuts_weight"][0] + C),
    "a weight below 0": lambda r, a: a["cuts_weight"].__setitem__(0, -a["cuts_weight"][0]),
    "another point": lambda r, a: a["cuts_point"].__setitem__(-1, a["cuts_point"][-1] * 2),
    "no cuts": lambda r, a: a.update(cuts_weight=a["cuts_weight"][:0], cuts_point=a["cuts_point"][:0]),
    "points that overflow": lambda r, a: a.update(cuts_point=a["cuts_point"] * 1e300),
    "points of NaN": lambda r, a: a.update(cuts_point=a["cuts_point"] * np.nan),
    "a hypothesis of NaN": lambda r, a: a.update(w=a["w"] * np.nan),
    "another epsilon": lambda r, a: r["certificate"].update(epsilon=1e-6),
    "a longer radius": lambda r, a: r["certificate"].update(radius=r["certificate"]["radius"] * 2),
    "other rows": lambda r, a: r["certificate"].update(store_digest="sha256:" + "0" * 64),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forgeries_fail(cases: list[Case], tmp_path: Path, name: str) -> None:
    """Each of them, in all cases, with the ratio that its bounds have."""
    for case in cases:
        record, arrays = json.loads(json.dumps(case.record)), {key: one.copy() for key, one in case.arrays.items()}
        FORGERIES[name](record, arrays)
        claims = record["certificate"]
        claims["ratio"] = claims["lower"] / claims["upper"]
        assert not case.accepts(tmp_path / "m", record, arrays)


@pytest.mark.parametrize("seed", range(40))
def test_no_random_forgery_is_confirmed(cases: list[Case], tmp_path: Path, seed: int) -> None:
    """Numbers of the model are changed at random and the bounds are moved; what is confirmed is true."""
    rng = np.random.default_rng(seed)
    case = cases[seed % len(cases)]
    record, arrays = json.loads(json.dumps(case.record)), {key: one.copy() for key, one in case.arrays.items()}
    name = ("w", "cuts_point", "cuts_weight")[seed % 3]
    flat = arrays[name].reshape(-1)
    flat[rng.integers(len(flat))] *= 1 + rng.choice([-1, 1]) * 10.0 ** -rng.integers(1, 14)
    claims = record["certificate"]
    move = 10.0 ** -rng.integers(4, 15)
    claims["lower"] *= 1 + rng.choice([-1, 0, 1]) * move
    claims["upper"] *= 1 + rng.choice([-1, 0, 1]) * move
    claims["ratio"] = claims["lower"] / claims["upper"]
    if case.accepts(tmp_path / "m", record, arrays):
        assert case.is_true(record, arrays)


def test_a_store_with_other_groups_or_labels_fails(cases: list[Case], tmp_path: Path) -> None:
    """The same rows without groups, in other groups and with labels in the reverse order."""
    case = cases[1]
    ranked, kept = case.ranked, case.ranked.groups
    ranked.groups = kept // 2
    other = ranked.write(tmp_path / "groups.zarr", sparse=True)
    ranked.groups = kept
    labels, ranked.labels = ranked.labels, [None if label is None else 3 - label for label in ranked.labels]
    reverse = ranked.write(tmp_path / "labels.zarr", sparse=True)
    ranked.labels = labels
    (tmp_path / "m").mkdir()
    for store in (other, reverse):
        record = json.loads(json.dumps(case.record))
        record["certificate"]["store_digest"] = Store.open(store).digest
        record["certificate"].pop("store_sha256", None)
        (tmp_path / "m" / "model.json").write_text(json.dumps(record))
        np.savez(tmp_path / "m" / "arrays.npz", **case.arrays)
        assert not examine(tmp_path / "m", store, threads=1).ok
