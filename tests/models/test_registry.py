"""What models of different problems answer alike, so that nobody asks which they are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import coremargin
from coremargin.errors import DataError
from coremargin.models.fleet import FleetModel
from coremargin.models.kernel import KernelModel
from coremargin.models.model import Model
from model_kit import store_of


@pytest.fixture
def several(tmp_path: Path, rng: np.random.Generator) -> Path:
    """A store of three classes around three corners."""
    y = np.arange(30) % 3
    X = 3.0 * np.eye(3)[y] + 0.2 * rng.standard_normal((30, 3))
    return store_of(tmp_path / "s.zarr", X.astype(np.float32), (y + 1).tolist(), 16)


def test_row_duals_are_those_of_all_rivals(several: Path, tmp_path: Path) -> None:
    """Of several classes a row's dual weights are summed, and none of the rows of the coreset is without."""
    model = coremargin.train(several, out=tmp_path / "m", classes="crammer-singer")
    with np.load(tmp_path / "m" / "arrays.npz") as found:
        duals = found["duals"]
    np.testing.assert_allclose(model.row_duals, [sum(row) for row in duals.tolist()], rtol=1e-15)
    assert (model.row_duals > 0).all()
    assert not (duals > 0).all(axis=0).any(), "no rival is that of every row"


def test_other_deciders_take_the_place_of_those_there_are(several: Path, tmp_path: Path) -> None:
    """A model gives way to another; a fleet is told anew by its members, and what they did together is forgotten."""
    fleet = coremargin.train(several, out=tmp_path / "m", classes="ovr")
    assert isinstance(fleet, FleetModel)
    members = fleet.deciders()
    assert members[0].deciders() == [members[0]]
    assert members[0].with_deciders([members[1]]) is members[1]
    same = fleet.with_deciders(members)
    assert same.deciders() == members
    assert [entry["lower"] for entry in same.record["members"]] == [one.certificate.lower for one in members]
    assert (fleet.record["evaluations"] != [], same.record["evaluations"]) == (True, [])


def test_a_folder_is_read_as_what_its_record_says(several: Path, tmp_path: Path) -> None:
    """One function opens all models; a class opens its own, and says what it found instead."""
    for name, classes, kind in (("a", "crammer-singer", Model), ("b", "ovr", FleetModel)):
        coremargin.train(several, out=tmp_path / name, classes=classes)
        assert type(coremargin.load(tmp_path / name)) is kind
    member = next((tmp_path / "b" / "members").iterdir())
    assert type(coremargin.load(member)) is Model
    assert Model.load(tmp_path / "a").problem == "crammer_singer"
    with pytest.raises(DataError, match="expected a model of a kernel, found one of problem 'hard_margin'"):
        KernelModel.load(member)
