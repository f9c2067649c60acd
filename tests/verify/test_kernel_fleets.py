"""Fleets of machines with kernels under attack: one column of one member, the tables, and the choice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from coremargin.verify.examine import examine
from forge_specimens import KERNEL_FLEETS, Arrays, Record, Specimens, edited, refused


@pytest.mark.parametrize("name", KERNEL_FLEETS)
def test_what_training_claims_holds(specimens: Specimens, name: str) -> None:
    """Of every member, and of all together."""
    specimen = specimens[name]
    assert examine(specimen.model, specimen.store).ok
    assert specimen.record["status"] == "certified"


def _doubled(arrays: Arrays) -> None:
    arrays["duals"][:, -1] *= 2.0


def _moved(arrays: Arrays) -> None:
    arrays["offsets"][-1] += 0.05


def _better(arrays: Arrays) -> None:
    arrays["lowers"][-1] *= 1 + 1e-4


def _cheaper(arrays: Arrays) -> None:
    arrays["uppers"][-1] *= 1 - 1e-4


@pytest.mark.parametrize(
    ("name", "member"),
    [
        ("kernel-grid", "C-5_gamma-0.3"), ("kernel-grid", "C-0.5_gamma-1_fold-1"),
        ("kernel-classes-grid", "C-1_gamma-scale_fold-0"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("change", [_doubled, _moved, _better, _cheaper], ids=lambda one: one.__name__)
def test_one_column_of_one_member_is_not_hidden_by_others(
    specimens: Specimens, tmp_path: Path, name: str, member: str, change: Callable[[Arrays], None]
) -> None:
    """Its last column only: what is told names the member."""
    failed = refused(specimens[name], tmp_path / "m", None, change, f"members/{member}" if member else "")
    assert any(check.startswith(f"{member}: ") for check in failed)


def test_a_member_may_not_rest_on_rows_of_its_own_fold(specimens: Specimens, tmp_path: Path) -> None:
    """One that is not counted: its weight would prove what is not so."""
    specimen = specimens["kernel-grid"]
    whole, part = "C-5_gamma-0.3", "C-5_gamma-0.3_fold-0"
    edited(specimen, tmp_path / "m")
    for file in ("arrays.npz", "model.json"):
        content = (tmp_path / "m" / "members" / whole / file).read_bytes()
        (tmp_path / "m" / "members" / part / file).write_bytes(content)
    record = json.loads((tmp_path / "m" / "members" / part / "model.json").read_text())
    record["view"] = {"class": None, "fold": 0, "folds": 2, "fold_seed": 0}
    (tmp_path / "m" / "members" / part / "model.json").write_text(json.dumps(record))
    fleet = json.loads((tmp_path / "m" / "fleet.json").read_text())
    entries = {entry["name"]: entry for entry in fleet["members"]}
    entries[part] |= {key: entries[whole][key] for key in ("lower", "upper", "ratio", "coreset_rows")}
    (tmp_path / "m" / "fleet.json").write_text(json.dumps(fleet))
    failed = {check.name for check in examine(tmp_path / "m", specimen.store).failures}
    assert f"{part}: coreset" in failed


def _rows_moved(record: Record) -> None:
    entry = record["evaluations"][-1]
    entry["confusion"] = [[sum(line), 0] if k == 0 else [0, sum(line)] for k, line in enumerate(entry["confusion"])]
    entry["accuracy"] = 1.0


def _mean(record: Record) -> None:
    record["validation"][0]["mean"] = 1.0


def _other_choice(record: Record) -> None:
    known = [(line["C"], line["gamma"]) for line in record["validation"]]
    chosen = record["chosen"]["C"], record["chosen"]["gamma"]
    record["chosen"]["C"], record["chosen"]["gamma"] = next(one for one in known if one != chosen)


def _no_choice(record: Record) -> None:
    record["chosen"] = None


def _gamma_of_another(record: Record) -> None:
    first, second = record["members"][0], record["members"][2]
    first["gamma"], second["gamma"] = second["gamma"], first["gamma"]


def _gamma_asked(record: Record) -> None:
    record["parameters"]["gamma"] = [0.31, 1.0]


def _gamma_unsaid(record: Record) -> None:
    for entry in record["members"]:
        del entry["gamma"]


def _other_seed(record: Record) -> None:
    record["parameters"]["fold_seed"] = 1


def _members_swapped(record: Record) -> None:
    first, second = record["members"][0], record["members"][1]
    first["name"], second["name"] = second["name"], first["name"]


def _with_a_class(record: Record) -> None:
    record["members"][0]["class"] = record["classes"][0]


TABLES = [
    _rows_moved, _mean, _other_choice, _no_choice, _gamma_of_another, _gamma_asked, _gamma_unsaid, _other_seed,
    _members_swapped, _with_a_class,
]  # fmt: skip


@pytest.mark.parametrize("change", TABLES, ids=lambda one: one.__name__)
def test_no_other_table_is_taken(specimens: Specimens, tmp_path: Path, change: Callable[[Record], None]) -> None:
    """Of ``fleet.json``."""
    assert refused(specimens["kernel-grid"], tmp_path / "m", change)


def test_a_gamma_that_is_called_scale_is_in_each_member(specimens: Specimens, tmp_path: Path) -> None:
    """That of all rows, whatever is held out."""
    specimen = specimens["kernel-classes-grid"]

    def change(record: Record) -> None:
        record["kernel"]["gamma"] *= 1 + 1e-3

    failed = refused(specimen, tmp_path / "m", change, None, "members/C-1_gamma-scale_fold-1")
    assert "C-1_gamma-scale_fold-1: gamma" in failed


def test_rows_of_a_fold_count_for_nothing_in_its_members(specimens: Specimens) -> None:
    """Their numbers of rows are those of the store; the rest says how many are apart."""
    specimen = specimens["kernel-grid"]
    found = dict(examine(specimen.model, specimen.store).members)
    assert found["C-5_gamma-0.3"].unlabelled < found["C-5_gamma-0.3_fold-0"].unlabelled
    assert found["C-5_gamma-0.3_fold-0"].part == "the rows outside of fold 0 of 2"
    folds = [found[f"C-5_gamma-0.3_fold-{k}"] for k in range(2)]
    every = found["C-5_gamma-0.3"]
    assert sum(one.rows - one.unlabelled for one in folds) == every.rows - every.unlabelled
    assert np.isfinite([one.lower or np.nan for one in folds]).all()
