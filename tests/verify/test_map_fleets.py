"""Fleets of several gammas of a map under attack: members, maps and figures that change places, tables, the choice."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import coremargin
from coremargin.verify.examine import examine

Record = dict[str, Any]
Change = Callable[[Path], None]
FIRST, SECOND = "gamma-0.3", "gamma-3"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a store s, and fleets of two gammas and two folds of it by landmarks (n) and frequencies (f)."""
    place = tmp_path_factory.mktemp("map-fleets")
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (200, 2)).astype(np.float32)
    y = np.hypot(*X.T) + 0.3 * rng.standard_normal(200) > 1.3
    coremargin.ingest(X, place / "s", labels=y.tolist(), chunk_bytes=400)
    for name, asked in (("n", {"map": "nystroem", "components": 8}), ("f", {"map": "fourier", "components": 120})):
        said = {"loss": "hinge", "C": 2.0, "gamma": [0.3, 3.0], "folds": 2, "epsilon": 1e-3}
        coremargin.train(place / "s", out=place / name, **said, **asked)
    return place


def _json(path: Path, change: Callable[[Record], None]) -> None:
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def _folder(place: Path, gamma: str, fold: int | None = None) -> Path:
    return place / "members" / (f"C-2_{gamma}" + ("" if fold is None else f"_fold-{fold}"))


def _exchanged(place: Path) -> None:
    """The folders of two members."""
    one, other, aside = _folder(place, FIRST), _folder(place, SECOND), place / "aside"
    one.rename(aside)
    other.rename(one)
    aside.rename(other)


def _with_figures(place: Path) -> None:
    """The same, and each is said to have the other's gamma, in its record, in its arrays and in the fleet's figures."""
    _exchanged(place)
    lines: list[Record] = []
    for gamma, number in ((FIRST, 0.3), (SECOND, 3.0)):
        folder = _folder(place, gamma)
        _json(folder / "model.json", lambda record, number=number: record["parameters"].update(gamma=number))  # type: ignore[misc]
        with np.load(folder / "arrays.npz") as found:
            arrays = dict(found)
        if "map_gamma" in arrays:
            arrays["map_gamma"] = np.array([number])
        np.savez(folder / "arrays.npz", **arrays)
        record = json.loads((folder / "model.json").read_text())
        own = {name: record["certificate"][name] for name in ("lower", "upper", "ratio", "coreset_rows")}
        lines.append(own | {"status": record["status"]})

    def told(fleet: Record) -> None:
        for line, own in zip([entry for entry in fleet["members"] if entry["fold"] is None], lines, strict=True):
            line.update(own)

    _json(place / "fleet.json", told)


def _maps(place: Path) -> None:
    """The arrays of the maps alone, with gamma's number as it was."""
    found = []
    for gamma in (FIRST, SECOND):
        with np.load(_folder(place, gamma) / "arrays.npz") as own:
            found.append(dict(own))
    for gamma, own, other in zip((FIRST, SECOND), found, found[::-1], strict=True):
        taken = {name: other[name] for name in other if name.startswith("map_") and name != "map_gamma"}
        np.savez(_folder(place, gamma) / "arrays.npz", **(own | taken))


def _one_map(place: Path) -> None:
    """One member of a fold has a map that is the least bit another one."""
    folder = _folder(place, FIRST, 1)
    with np.load(folder / "arrays.npz") as own:
        arrays = dict(own)
    name = next(name for name in ("map_landmarks", "map_weights") if name in arrays)
    arrays[name][0, 0] = np.nextafter(arrays[name][0, 0], np.inf)
    np.savez(folder / "arrays.npz", **arrays)


def _tables(place: Path) -> None:
    """How members do together, of one gamma as of the other."""

    def change(fleet: Record) -> None:
        one, other = (entry for entry in fleet["evaluations"] if entry["fold"] is None)
        for name in ("rows", "accuracy", "confusion"):
            one[name], other[name] = other[name], one[name]

    _json(place / "fleet.json", change)


def _choice(place: Path) -> None:
    """The other gamma."""

    def change(fleet: Record) -> None:
        fleet["chosen"]["gamma"] = 3.3 - fleet["chosen"]["gamma"]

    _json(place / "fleet.json", change)


def _figures(place: Path) -> None:
    """What is asked for is said to be another gamma."""
    _json(place / "fleet.json", lambda fleet: fleet["parameters"].update(gamma=[0.31, 3.0]))


def _same(place: Path) -> None:
    """All are said to have one gamma."""
    _json(place / "fleet.json", lambda fleet: fleet["parameters"].update(gamma=0.3))


def _twice(place: Path) -> None:
    """One gamma is there twice."""

    def change(fleet: Record) -> None:
        fleet["parameters"]["gamma"] = [3.0, 3.0]
        for lines in (fleet["members"], fleet["evaluations"], fleet["validation"]):
            for line in lines:
                line["gamma"] = 3.0

    _json(place / "fleet.json", change)


ATTACKS = [_exchanged, _with_figures, _maps, _one_map, _tables, _choice, _figures, _same, _twice]


@pytest.mark.parametrize("kind", ["n", "f"])
def test_what_training_claims_holds(made: Path, kind: str) -> None:
    """Of every member, on the rows that its own map makes."""
    found = examine(made / kind, made / "s")
    assert found.ok, found.failures
    assert [name for name, _ in found.members][:2] == [f"C-2_{FIRST}", f"C-2_{SECOND}"]


@pytest.mark.parametrize("kind", ["n", "f"])
@pytest.mark.parametrize("attack", ATTACKS, ids=lambda one: one.__name__)
def test_nothing_changes_places_unseen(made: Path, tmp_path: Path, kind: str, attack: Change) -> None:
    """Refuted by the rows, or refused as what does not fit together."""
    shutil.copytree(made / kind, tmp_path / "m")
    attack(tmp_path / "m")
    try:
        failed = {check.name for check in examine(tmp_path / "m", made / "s").failures}
    except coremargin.CoremarginError:
        failed = {"refused"}
    assert failed


def test_frequencies_are_those_of_their_gamma(made: Path, tmp_path: Path) -> None:
    """A gamma that is said to be another one in all records, and in nothing else, is told by their lengths."""
    shutil.copytree(made / "f", tmp_path / "m")
    place = tmp_path / "m"
    text = (place / "fleet.json").read_text()
    (place / "fleet.json").write_text(text.replace("3.0", "0.9"))
    for path in place.glob("members/*gamma-3*/model.json"):
        path.write_text(path.read_text().replace('"gamma": 3.0', '"gamma": 0.9'))
    failed = {check.name for check in examine(place, made / "s").failures}
    assert failed == {f"C-2_{SECOND}{fold}: gamma" for fold in ("", "_fold-0", "_fold-1")}
