"""Rows that were taken out, or weighed anew, as the verifier finds them: by the bytes, whatever the metadata say."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import zarr

import coremargin
from coremargin.data.amend import remove_rows, set_weights, write_labels
from coremargin.errors import DamagedChunk, StoreError
from coremargin.models.model import Model
from coremargin.verify.examine import examine
from store_kit import edit_json, write_store


@pytest.fixture
def store(tmp_path: Path, rng: np.random.Generator) -> Path:
    """200 rows in chunks of 64 of two classes with a margin, but for two near rows that were taken out."""
    X = rng.normal(size=(200, 3)).astype(np.float32)
    side = np.where(rng.random(200) < 0.5, 1.0, -1.0)
    X[:, 0] = side * (0.5 + np.abs(X[:, 0]))
    X[[5, 150], 0] = side[[5, 150]] * 0.1
    path = write_store(tmp_path / "s.zarr", X, np.where(side > 0, "yes", "no")).path
    remove_rows(path, [5, 150])
    return path


def edited(store: Path, name: str, values: list[int]) -> None:
    """Other entries in a column of the commit's group."""
    array = zarr.open_array(store / "blocks" / "000001" / name, mode="r+")
    array[:] = np.array(values).astype(array.dtype)


def without(store: Path) -> None:
    """As if no commit had changed weights."""

    def drop(root: dict[str, dict[str, list[dict[str, object]]]]) -> None:
        for commit in root["attributes"]["commits"]:
            commit.pop("weights", None)

    edit_json(store / "zarr.json", drop)


FORGERIES: dict[str, Callable[[Path], object]] = {
    "no weights": without,
    "they lie nowhere": lambda store: edited(store, "weights_array", [0, 0]),
    "one lies nowhere": lambda store: edited(store, "weights_array", [1, 0]),
    "they lie in a later commit": lambda store: edited(store, "weights_array", [9, 9]),
    "other checksums": lambda store: edited(store, "weights", [1, 2]),
    "other chunks": lambda store: edited(store, "chunk", [0, 1]),
    "a file of another chunk": lambda store: shutil.copy(
        store / "changes/000001/weights/c.0", store / "changes/000001/weights/c.2"
    ),
    "a file that is gone": lambda store: (store / "changes/000001/weights/c.2").unlink(),
}


@pytest.mark.parametrize("how", FORGERIES)
def test_weights_are_what_the_bytes_say(store: Path, tmp_path: Path, how: str) -> None:
    """A margin that needs rows to be out is confirmed while they are, and refused by whatever makes them come back."""
    coremargin.train(store, out=tmp_path / "m")
    assert examine(tmp_path / "m", store).ok
    FORGERIES[how](store)
    with pytest.raises((StoreError, DamagedChunk)):
        examine(tmp_path / "m", store)


def name_content(model: Path, digest: str) -> None:
    """Let a model be about rows of this digest, by CRC-32C alone."""
    edit_json(model / "model.json", lambda record: record["certificate"].update(store_digest=digest))
    edit_json(model / "model.json", lambda record: record["certificate"].pop("store_sha256", None))


def test_rows_that_come_back_end_a_claim_about_the_newest_rows(store: Path, tmp_path: Path) -> None:
    """A model is about the weights of its commit; whoever says that it is about later ones is refuted by a row."""
    model = coremargin.train(store, out=tmp_path / "m")
    assert isinstance(model, Model)
    later = set_weights(store, [5], [1.0]).digest
    found = examine(tmp_path / "m", store)
    assert found.ok
    assert "changed since are not checked" in {check.name: check.text for check in found.checks}["rows"]
    name_content(tmp_path / "m", later)
    failed = {check.name: check.text for check in examine(tmp_path / "m", store).failures}
    assert "row 5 " in failed["lower bound"]


def test_rows_of_a_third_class_that_count_are_no_part_of_a_claim(store: Path, tmp_path: Path) -> None:
    """A class none of whose rows counts is none; one of which a row counts refutes a model of the two others."""
    coremargin.train(store, out=tmp_path / "m")
    digest = write_labels(store, [5], ["perhaps"]).digest
    name_content(tmp_path / "m", digest)
    assert examine(tmp_path / "m", store).ok  # the row is out
    last = set_weights(store, [5], [1.0]).digest
    name_content(tmp_path / "m", last)
    failed = {check.name: check.text for check in examine(tmp_path / "m", store).failures}
    assert failed["classes"].startswith("1 rows of other classes count")
