"""Reduced models of kernels under attack: nobody decides by fewer rows than are near enough, and calls it proven."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from coremargin.problems.kernel.reduce import reduce
from coremargin.verify.examine import examine
from forge_specimens import Arrays, Record, Specimen, Specimens, entry, files_of, refused

NAMES = ("kernel-hinge", "kernel-hard", "kernel-classes", "kernel-sparse")


@pytest.fixture(scope="module")
def smaller(specimens: Specimens) -> Callable[[str], Specimen]:
    """Specimens on half of their rows."""
    made: dict[str, Specimen] = {}

    def of(name: str) -> Specimen:
        if name not in made:
            whole = specimens[name]
            place, rows = whole.model.with_name(f"{name}-reduced"), len(whole.arrays()["coreset_ids"]) // 2
            reduce(whole.model, whole.store, place, rows=rows, overwrite=True)
            made[name] = Specimen(place.name, place, whole.rows, files_of(place))
        return made[name]

    return of


@pytest.mark.parametrize("name", NAMES)
def test_what_is_claimed_holds_and_no_more(smaller: Callable[[str], Specimen], tmp_path: Path, name: str) -> None:
    """A row nearer, a row less, a better value: all refuted by the check that is about it."""
    specimen = smaller(name)
    assert examine(specimen.model, specimen.store).ok
    nearer = entry("reduced.distance", lambda was: was * (1 - 1e-6))
    assert refused(specimen, tmp_path / "near", nearer) == {"reduced"}
    assert refused(specimen, tmp_path / "rows", entry("reduced.rows", lambda was: was - 1)) == {"DataError"}
    bounds = specimen.record["certificate"]
    side, factor = ("upper", 1 - 1e-5) if "loss" in specimen.record["parameters"] else ("lower", 1 + 1e-5)
    if bounds[side] is not None:
        better = refused(specimen, tmp_path / "value", entry(f"certificate.{side}", bounds[side] * factor))
        assert f"{side} bound" in better


def test_rows_that_change_their_class_are_counted(specimens: Specimens, tmp_path: Path) -> None:
    """A machine of one row gives others another class, and may not say that these are fewer."""
    whole = specimens["kernel-classes"]
    made = reduce(whole.model, whole.store, tmp_path / "one", rows=1)
    assert made.record["reduced"]["changed"] > 0
    specimen = Specimen("one", tmp_path / "one", whole.rows, files_of(tmp_path / "one"))
    assert examine(specimen.model, specimen.store).ok
    assert refused(specimen, tmp_path / "m", entry("reduced.changed", lambda was: was - 1)) == {"reduced"}


def _moved(arrays: Arrays) -> None:
    arrays["reduced_weights"][0, 0] += 0.01


def _other_rows(arrays: Arrays) -> None:
    free = np.setdiff1d(np.arange(len(arrays["coreset_ids"])), arrays["reduced_places"])
    arrays["reduced_places"][-1] = free[-1]
    arrays["reduced_places"].sort()


def _twice(arrays: Arrays) -> None:
    arrays["reduced_places"][1] = arrays["reduced_places"][0]


def _outside(arrays: Arrays) -> None:
    arrays["reduced_places"][-1] = len(arrays["coreset_ids"])


def _duals(arrays: Arrays) -> None:
    arrays["duals"] *= 0.99


def _without_rows(arrays: Arrays) -> None:
    del arrays["reduced_places"]


def _huge(arrays: Arrays) -> None:
    arrays["reduced_weights"] *= 1e300


CHANGES = [_moved, _other_rows, _twice, _outside, _duals, _without_rows, _huge]


@pytest.mark.parametrize("change", CHANGES, ids=lambda one: one.__name__)
@pytest.mark.parametrize("name", ["kernel-hinge", "kernel-hard"])
def test_nor_are_other_numbers_taken(
    smaller: Callable[[str], Specimen], tmp_path: Path, name: str, change: Callable[[Arrays], None]
) -> None:
    """Other weights, other rows, another machine than the one that it is said to be near."""
    assert refused(smaller(name), tmp_path / "m", None, change)


def test_a_reduced_machine_is_not_passed_off_as_a_whole_one(smaller: Callable[[str], Specimen], tmp_path: Path) -> None:
    """Neither by leaving out the word nor the numbers; and where both are, it decides as the whole one does."""
    specimen = smaller("kernel-hinge")

    def silent(record: Record) -> None:
        del record["reduced"]

    def gone(arrays: Arrays) -> None:
        del arrays["reduced_places"], arrays["reduced_weights"]

    assert refused(specimen, tmp_path / "a", silent) == {"DataError"}
    assert refused(specimen, tmp_path / "b", None, gone) == {"DataError"}
    assert not refused(specimen, tmp_path / "c", silent, gone) - {"status"}
