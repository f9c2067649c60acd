"""SHA-256 of stores against forgers: chunks with the right CRC-32C, recorded hashes, stores without any."""

from __future__ import annotations

import hashlib
import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from click.testing import CliRunner

import coremargin
from coremargin.cli import main
from coremargin.data.amend import remove_rows, write_labels
from coremargin.data.check import check_store
from coremargin.data.compact import compact
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.errors import ClaimRefuted, DamagedChunk, StoreError, UsageError
from coremargin.verify import verify
from coremargin.verify.examine import examine
from hashes_kit import edit_commits, edit_hashes, forge_file, renew_commit, strip_hashes

if TYPE_CHECKING:
    from pathlib import Path

ROWS, STEP = 300, 64


def rows_of(seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Two classes, far apart; rows far from the plane may move by a last bit without consequences."""
    rng = np.random.default_rng(seed)
    y = np.arange(ROWS) % 2
    X = rng.normal(size=(ROWS, 3)).astype(np.float32)
    X[:, 0] = (2 * y - 1) * (1 + np.abs(X[:, 0]))
    X[STEP : 2 * STEP, 0] *= 8
    return X, y


def write(path: Path, *, step: int = STEP, sparse: bool = False, weighted: bool = False) -> Path:
    """A store of these rows."""
    X, y = rows_of()
    options: dict[str, Any] = {"sparse": sparse, "weighted": weighted}
    with StoreWriter.create(path, features=3, chunk_rows=step, **options) as writer:
        writer.write(X, y, np.ones(ROWS) if weighted else None)
    return path


def trained(store: Path, place: Path, **job: Any) -> Path:
    """A model of a store."""
    coremargin.train(store, out=place, cluster="threads", **job)
    return place


def forge_rows(store: Path) -> None:
    """Other rows in chunk 1, with the same CRC-32C. None is near the margin: all that is claimed of them stays true."""
    forge_file(store / "X/c.1.0", 3 * STEP, 4)


def record_forged_rows(store: Path) -> str:
    """Let the store say the SHA-256 of its forged rows; the one that it has now."""
    rows = Store.open(store, map_bytes=0).read(1)[0]
    found = np.frombuffer(hashlib.sha256(np.ascontiguousarray(rows)).digest(), np.uint8)
    edit_hashes(store, lambda hashes: hashes.__setitem__((1, 0), found))
    return renew_commit(store)


def content(model: Path, store: Path, **options: Any) -> tuple[bool, str]:
    """What is said of the content."""
    (check,) = [check for check in examine(model, store, **options).checks if check.name == "content"]
    return check.ok, check.text


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_model_names_the_sha256_of_its_rows(tmp_path: Path, *, sparse: bool, weighted: bool) -> None:
    """It is recorded, compared by default, computed on demand, and found in a store whose chunks are others."""
    store = write(tmp_path / "s.zarr", sparse=sparse, weighted=weighted)
    model = trained(store, tmp_path / "m")
    opened = Store.open(store)
    claimed = json.loads((model / "model.json").read_text())["certificate"]["store_sha256"]
    assert claimed == {"chunk_rows": STEP, "digest": opened.sha256}
    assert coremargin.load(model).certificate.store_sha256.digest == opened.sha256
    ok, text = content(model, store)
    assert (ok, "SHA-256 as recorded" in text) == (True, True)
    assert any("SHA-256" in text for text in examine(model, store).unchecked)
    ok, text = content(model, store, sha256=True)
    assert (ok, "SHA-256 computed from all chunks" in text) == (True, True)
    assert not any("SHA-256" in text for text in examine(model, store, sha256=True).unchecked)
    for step in (1, 37, ROWS, 1000):
        other = write(tmp_path / f"{step}.zarr", step=step, sparse=sparse, weighted=weighted)
        assert Store.open(other).sha256 != opened.sha256
        assert verify(model, other).ok
        assert "computed from all chunks" in content(model, other)[1]


def test_forged_rows_are_found_on_demand(tmp_path: Path) -> None:
    """Rows with the right CRC-32C pass a scan; `verify --sha256` and `check` tell that they were replaced."""
    store = write(tmp_path / "s.zarr")
    model = trained(store, tmp_path / "m")
    forge_rows(store)
    assert content(model, store)[0]
    assert verify(model, store).ok  # what is claimed is true of these rows as well
    with pytest.raises(DamagedChunk, match=r"chunk 1 \(rows 64 to 127\): the SHA-256 of its rows is not the recorded"):
        verify(model, store, sha256=True)
    assert "SHA-256 of its rows" in check_store(store).damaged[0].what
    done = CliRunner().invoke(main, ["verify", str(model), str(store), "--sha256"])
    assert (done.exit_code, "the chunk was replaced" in done.output) == (3, True)
    assert CliRunner().invoke(main, ["verify", str(model), str(store)]).exit_code == 0


def test_forged_rows_with_a_forged_record_are_not_the_models(tmp_path: Path) -> None:
    """A forger who also writes their SHA-256 has another store: every verification refuses it, and so does retrain."""
    store = write(tmp_path / "s.zarr")
    model = trained(store, tmp_path / "m", keep_for_retraining="1 MiB")
    before = Store.open(store).sha256
    assert renew_commit(store) == before  # nothing was forged yet: it cannot be told
    assert verify(model, store, sha256=True).ok
    forge_rows(store)
    assert record_forged_rows(store) != before
    assert Store.open(store).digest == json.loads((model / "model.json").read_text())["certificate"]["store_digest"]
    for computed in (False, True):
        with pytest.raises(ClaimRefuted, match="with the same CRC-32C: some were replaced"):
            verify(model, store, sha256=computed)
    with pytest.raises(StoreError, match="some were replaced"):
        coremargin.retrain(model, store, out=tmp_path / "again", cluster="threads")
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("how", ["other chunks", "none"])
def test_a_store_that_cannot_be_compared_is_computed(tmp_path: Path, how: str) -> None:
    """Forged rows in chunks of other sizes, or without SHA-256, do not pass for want of a comparison."""
    store = write(tmp_path / "s.zarr")
    model = trained(store, tmp_path / "m")
    if how == "none":
        strip_hashes(store)
    else:
        store = write(tmp_path / "other.zarr", step=2 * STEP)
    assert "computed from all chunks" in content(model, store)[1]
    assert verify(model, store).ok
    if how == "none":
        forge_rows(store)
    else:
        forge_file(store / "X/c.1.0", 3 * STEP, 4)
        record_forged_rows(store)
    ok, text = content(model, store)
    assert (ok, "some were replaced" in text) == (False, True)


@pytest.mark.parametrize("how", ["swapped", "other", "commit", "absent part"])
def test_recorded_hashes_that_do_not_agree_are_refused(tmp_path: Path, how: str) -> None:
    """Hashes of two chunks swapped, another one, another one of the commit, one of a part that the rows lack."""
    store = write(tmp_path / "s.zarr")
    model = trained(store, tmp_path / "m")
    if how == "commit":
        edit_commits(store, lambda commit: commit.update(sha256="sha256:" + "0" * 64))
    elif how == "swapped":
        edit_hashes(store, lambda found: found.__setitem__([0, 1], found[[1, 0]]))
    else:
        edit_hashes(store, lambda found: found.__setitem__((2, 1 if how == "other" else 3), 7))
    with pytest.raises(StoreError, match="the metadata was altered"):
        verify(model, store)


def test_forged_labels_are_found(tmp_path: Path) -> None:
    """Labels with the same CRC-32C, of rows of either class, in the place where a commit has put them."""
    store = write(tmp_path / "s.zarr")
    write_labels(store, [70, 71], [1, 0])
    write_labels(store, [70, 71], [0, 1])
    remove_rows(store, [5])
    model = trained(store, tmp_path / "m")
    assert verify(model, store, sha256=True).ok
    (place,) = store.glob("changes/000002/y/c.1")
    forge_file(place, STEP, 4)
    with pytest.raises(DamagedChunk, match="SHA-256 of its labels"):
        verify(model, store, sha256=True)
    assert any("SHA-256 of its labels" in damage.what for damage in check_store(store).damaged)


def test_models_and_stores_without_sha256_say_so(tmp_path: Path) -> None:
    """An older store trains and verifies as before, in plain words about CRC-32C, and is compacted to have more."""
    store = write(tmp_path / "s.zarr")
    strip_hashes(store)
    model = trained(store, tmp_path / "m")
    assert "store_sha256" not in (model / "model.json").read_text()
    ok, text = content(model, store)
    assert (ok, "CRC-32C only" in text) == (True, True)
    assert any("names no SHA-256" in text for text in examine(model, store).unchecked)
    with pytest.raises(UsageError, match="coremargin compact"):
        verify(model, store, sha256=True)
    shown = CliRunner().invoke(main, ["info", str(store)]).output
    assert "CRC-32C only" in shown
    assert "coremargin compact" in shown
    known = json.loads(CliRunner().invoke(main, ["info", str(store), "--json"]).output)
    assert (known["digest_kind"], known["sha256"]) == ("crc32c", None)
    compact(store)
    known = json.loads(CliRunner().invoke(main, ["info", str(store), "--json"]).output)
    assert (known["digest_kind"], known["sha256"]) == ("sha256", Store.open(store).sha256)
    assert verify(model, store, sha256=True).ok  # the store's own hashes are computed, the model names none
    assert "store_sha256" in (trained(store, tmp_path / "m2") / "model.json").read_text()


def test_members_of_a_fleet_name_it(tmp_path: Path) -> None:
    """Each member names the SHA-256, and so does the fleet; a member that names another one is refused."""
    store = write(tmp_path / "s.zarr")
    model = trained(store, tmp_path / "m", loss="hinge", C=[0.1, 1.0])
    assert json.loads((model / "fleet.json").read_text())["store_sha256"]["digest"] == Store.open(store).sha256
    assert verify(model, store, sha256=True).ok
    forged = tmp_path / "forged.zarr"
    shutil.copytree(store, forged)
    forge_rows(forged)
    with pytest.raises(DamagedChunk, match="SHA-256"):
        verify(model, forged, sha256=True)
    record_forged_rows(forged)
    with pytest.raises(ClaimRefuted, match="some were replaced"):
        verify(model, forged)


def test_a_finished_job_is_not_resumed_on_forged_rows(tmp_path: Path) -> None:
    """What was trained before the rows were replaced is not taken for the model of what is there now."""
    store = write(tmp_path / "s.zarr")
    trained(store, tmp_path / "m")
    before = (tmp_path / "m" / "model.json").read_bytes()
    trained(store, tmp_path / "m", begin="resume")
    assert (tmp_path / "m" / "model.json").read_bytes() == before
    forge_rows(store)
    record_forged_rows(store)
    with pytest.raises(UsageError):
        trained(store, tmp_path / "m", begin="resume")
