"""Models of a store whose labels were changed after training: each is verified on the labels that it was trained on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from click.testing import CliRunner

from coremargin.cli import main
from coremargin.data.amend import write_labels
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import DamagedChunk
from coremargin.verify import verify
from coremargin.verify.examine import examine
from forge_assert import forged, refused

if TYPE_CHECKING:
    from forge_plans import Draft
    from forge_specimens import Specimen, Specimens

NAMES = [
    "hard", "hard-overlap", "hinge", "squared", "standard", "sparse-hard", "sparse-hinge", "outliers", "classes",
    "classes-hinge", "fleet", "fleet-folds", "fleet-hard", "pair-folds", "changed",
]  # fmt: skip


def relabelled(specimen: Specimen, place: Path) -> Path:
    """A copy of a specimen's store in which the labels of the first rows were changed, and changed again."""
    store = shutil.copytree(specimen.store, place / "later.zarr")
    labels, classes = specimen.rows.labels[:10], specimen.rows.classes
    other = [classes[0] if label != classes[0] else classes[1] for label in labels]
    write_labels(store, np.arange(10), other)
    fourth = "perhaps" if isinstance(classes[0], str) else 99
    write_labels(store, np.arange(5), [fourth, None, *other[2:4], fourth])
    assert Store.open(store).digest != specimen.rows.digest
    assert len(Store.open(store).classes) > len(classes)
    return store


@pytest.mark.specimens(10)
@pytest.mark.parametrize("name", NAMES)
def test_models_of_earlier_labels_are_verified_on_these(specimens: Specimens, tmp_path: Path, name: str) -> None:
    """A model of any kind holds as it did before labels of its store were changed, and people are told of that."""
    specimen = specimens[name]
    before, after = examine(specimen.model, specimen.store), examine(specimen.model, relabelled(specimen, tmp_path))
    assert before.ok
    assert after.ok
    texts = {check.name: check.text for check in after.listed}
    assert texts["rows"].endswith(
        "labels and weights changed since are not checked: the claim is about the earlier ones"
    )
    told = {check.name: check.text for check in before.checks if check.name.rpartition(" ")[2] != "rows"}
    assert {check.name: check.text for check in after.checks if check.name in told} == told


@pytest.mark.parametrize("name", ["hard", "hinge", "classes", "fleet"])
def test_rows_that_were_appended_too_are_looked_at(specimens: Specimens, tmp_path: Path, name: str) -> None:
    """A store that grew is refused as ever, whether labels were changed before or after that."""
    specimen = specimens[name]
    store = relabelled(specimen, tmp_path)
    with StoreWriter.append(store) as writer:
        weights = None if specimen.rows.weights is None else specimen.rows.weights[:3]
        writer.write(specimen.rows.X[:3].astype(specimen.rows.dtype), specimen.rows.labels[:3], weights)
    for ids in ([], [7]):
        write_labels(store, ids, specimen.rows.labels[7:8] * len(ids))
        assert "rows were appended after training: run `coremargin retrain`" in refused(specimen.model, store)


def test_a_false_claim_is_false_of_its_own_labels(specimens: Specimens, tmp_path: Path) -> None:
    """That labels were changed excuses nothing: a bound that is too high is refused, and so is a model whose labels no
    commit of the store ever had.
    """  # fmt: skip
    specimen = specimens["hard"]
    store = shutil.copytree(specimen.store, tmp_path / "later.zarr")
    later = write_labels(store, [0, 1], specimen.rows.labels[1::-1]).digest

    def higher(draft: Draft) -> None:
        draft.bound(draft.claims["lower"] * 1.01, draft.claims["upper"] * 1.01)

    def named(digest: str) -> Path:
        return forged(specimen, tmp_path / digest[-9:], lambda draft: draft.claims.update(store_digest=digest))

    assert "has margin" in refused(forged(specimen, tmp_path / "high", higher), store)
    assert "it is not what was trained on" in refused(named("sha256:" + "0" * 64), store)
    assert "lower bound" in {check.name for check in examine(named(later), store).failures}


def test_labels_of_the_models_commit_that_are_damaged(specimens: Specimens, tmp_path: Path) -> None:
    """Where labels that a model was trained on are gone, that is damage, however whole those of today are."""
    specimen = specimens["hard"]
    store = relabelled(specimen, tmp_path)
    (store / "y" / "c.0").unlink()
    with pytest.raises(DamagedChunk, match="chunk 0"):
        verify(specimen.model, store)


@pytest.mark.parametrize("name", ["hard", "fleet"])
def test_the_command_says_it(specimens: Specimens, tmp_path: Path, name: str) -> None:
    """``verify`` of the command line confirms a model, or a fleet, and names the labels that it did not look at."""
    specimen = specimens[name]
    shown = CliRunner().invoke(main, ["verify", str(specimen.model), str(relabelled(specimen, tmp_path))])
    assert (shown.exit_code, "labels and weights changed since are not checked" in shown.output) == (
        0,
        True,
    )
