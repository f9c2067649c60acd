"""Stores, outputs and disks that are not as they should be: clear errors, exit codes, nothing lost."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from functools import partialmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.engine.checkpoint import folder_of
from coremargin.engine.executors import InProcess
from coremargin.errors import ClaimRefuted, DamagedChunk, OutputError, StoreError
from coremargin.learn import train as train_module
from coremargin.learn.train import Progress, train_job
from coremargin.problems.hard.hard_margin import HardMargin
from coremargin.problems.registry import new_job
from coremargin.verify import verify

if TYPE_CHECKING:
    from click.testing import Result

pytestmark = pytest.mark.faults

Cli = Callable[..., "Result"]


def exact(model: Path) -> dict[str, bytes]:
    """All of a model but how its run went."""
    return {name: (model / name).read_bytes() for name in ("model.json", "arrays.npz", "report.html")}


@pytest.fixture
def store(make_separable: Callable[..., Any], make_store: Callable[..., Store]) -> Store:
    """1,000 separable rows of 4 features in 16 chunks."""
    return make_store(*make_separable(1000, 4))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of 1 MiB, where this user may mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a file system needs root")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def chunk_file(store: Store, chunk: int) -> Path:
    """The file of a chunk of rows."""
    return store.path / "X" / f"c.{chunk}.0"


# the store


@pytest.mark.parametrize("harm", ["truncated", "flipped", "missing"])
@pytest.mark.parametrize("cluster", ["threads", pytest.param("embedded", marks=pytest.mark.slow)])
def test_a_damaged_chunk(tmp_path: Path, store: Store, run_cli: Cli, harm: str, cluster: str) -> None:
    """A damaged chunk ends training with exit code 3 and its number; repaired, the job goes on or starts again."""
    path = chunk_file(store, 11)
    whole = path.read_bytes()
    if harm == "missing":
        path.unlink()
    elif harm == "truncated":
        path.write_bytes(whole[:-30])
    else:
        path.write_bytes(whole[:100] + bytes([whole[100] ^ 4]) + whole[101:])
    words = ["train", store.path, "--out", tmp_path / "m", "--strategy", "paper", "--cluster", cluster, "-q"]
    result = run_cli(*words, exit_code=3)
    assert "X/c.11.0" in result.stderr
    assert not (tmp_path / "m").exists()
    path.write_bytes(whole)
    run_cli(*words, "--resume")
    assert verify(tmp_path / "m", store.path).ok


def test_a_damaged_chunk_found_in_the_middle(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was scanned before the damaged chunk is kept, with a word on how to go on; no block is done twice."""
    monkeypatch.setattr("coremargin.data.resident.PART", 1 << 40)  # no chunk stays in memory
    job = new_job(store=store.path, out=tmp_path / "m", strategy="paper")
    alone = train_job(new_job(store=store.path, out=tmp_path / "alone", strategy="paper"), store, InProcess(1))
    path = chunk_file(store, 11)
    whole = path.read_bytes()
    blocks: list[int] = []

    def damage(result: Any) -> None:
        blocks.append(result.block.index)
        if len(blocks) == 20:
            path.write_bytes(whole[:100] + bytes([whole[100] ^ 4]) + whole[101:])

    with pytest.raises(DamagedChunk, match="X/c.11.0") as caught:
        train_job(job, store, InProcess(1), progress=Progress(on_block=damage))
    assert caught.value.__notes__[-1].endswith("continue with the same command and --resume")
    path.write_bytes(whole)
    count = Progress(on_block=lambda result: blocks.append(result.block.index))
    train_job(job, Store.open(store.path), InProcess(1), begin="resume", progress=count)
    assert len(blocks) == alone.run["scans"] * store.chunks
    assert (tmp_path / "m/arrays.npz").read_bytes() == (tmp_path / "alone/arrays.npz").read_bytes()


def test_a_store_of_a_newer_format(tmp_path: Path, store: Store, run_cli: Cli) -> None:
    """A store of a newer format is refused with both versions."""
    path = store.path / "zarr.json"
    record = json.loads(path.read_text())
    attributes = record["attributes"]
    place = attributes if "version" in attributes else next(v for v in attributes.values() if "version" in v)
    place["version"] = 99
    path.write_text(json.dumps(record))
    result = run_cli("train", store.path, "--out", tmp_path / "m", exit_code=3)
    assert "99" in result.stderr


def test_no_store(tmp_path: Path, run_cli: Cli) -> None:
    """Nothing, and a folder of something else, are no store: exit code 3; a store without rows cannot be made."""
    for name in ("nothing.zarr", "."):
        result = run_cli("train", tmp_path / name, "--out", tmp_path / "new" / "m", exit_code=3)
        assert str(tmp_path) in result.stderr
    assert list(tmp_path.iterdir()) == []
    with (
        pytest.raises(StoreError, match="at least one row"),
        StoreWriter.create(tmp_path / "s.zarr", features=3) as writer,
    ):
        writer.commit()
    with pytest.raises(StoreError, match="at least one feature"):
        StoreWriter.create(tmp_path / "s.zarr", features=0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([7] * 30, "expected two classes, found only 7; a margin needs rows of both"),
        (
            [1, 2, 3] * 10,
            "found 3 (1, 2, 3); a model separates two classes: train each against the rest",
        ),
        ([None] * 30, "found no labelled row; ingest with --labels or --label"),
    ],
)
def test_classes(
    tmp_path: Path, make_store: Callable[..., Store], run_cli: Cli, labels: list[Any], message: str
) -> None:
    """One class, three classes and no labels at all are refused with what to do; exit code 3."""
    store = make_store(np.eye(30, 3, dtype=np.float32), labels)
    result = run_cli("train", store.path, "--out", tmp_path / "m", exit_code=3)
    assert message in result.stderr


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_store_cannot_hold_what_is_not_finite(tmp_path: Path, value: float) -> None:
    """NaN and infinity are refused when a store is written, so that no scan can meet them."""
    X = np.ones((5, 2), np.float32)
    X[3, 1] = value
    with pytest.raises(ValueError, match="row 3"), StoreWriter.create(tmp_path / "s.zarr", features=2) as writer:
        writer.write(X, np.arange(5) % 2)


def test_a_store_that_grows_while_it_is_scanned(
    tmp_path: Path, store: Store, make_separable: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job finishes on the rows that it began with; verify says that rows were appended since."""
    monkeypatch.setattr(HardMargin, "__init__", partialmethod(HardMargin.__init__, sample_bytes=2000))
    X, y = make_separable(300, 4)
    shutil.copytree(store.path, tmp_path / "before.zarr")
    grown = []

    def grow(_: object) -> None:
        if not grown:
            with StoreWriter.append(store.path) as writer:
                writer.write(X, y)
            grown.append(True)

    job = new_job(store=store.path, out=tmp_path / "m")
    outcome = train_job(job, store, InProcess(1), progress=Progress(on_block=grow))
    assert (outcome.model.status, outcome.model.rows, Store.open(store.path).rows) == ("certified", 1000, 1300)
    assert verify(tmp_path / "m", tmp_path / "before.zarr").ok
    with pytest.raises(ClaimRefuted, match="rows were appended after training: run `coremargin retrain`"):
        verify(tmp_path / "m", store.path)


def test_a_store_that_is_replaced_while_it_is_scanned(
    tmp_path: Path, store: Store, make_separable: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store that was made anew under a running job is noticed: no model of a mixture of both."""
    monkeypatch.setattr(HardMargin, "__init__", partialmethod(HardMargin.__init__, sample_bytes=2000))
    X, y = make_separable(1000, 4)
    done = []

    def replace(_: object) -> None:
        if not done:
            with StoreWriter.create(store.path, features=4, chunk_bytes=64 * 16, overwrite=True) as writer:
                writer.write(X, y)
            done.append(True)

    job = new_job(store=store.path, out=tmp_path / "m")
    with pytest.raises(DamagedChunk):
        train_job(job, store, InProcess(1), progress=Progress(on_block=replace))
    assert not (tmp_path / "m").exists()


# the output


def test_an_existing_model_is_refused_before_anything_is_read(
    tmp_path: Path, store: Store, run_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --overwrite a model that is there ends the job at once; with it the new model replaces the old one."""
    words = ["train", store.path, "--out", tmp_path / "m", "-q"]
    run_cli(*words)
    old = exact(tmp_path / "m")
    with monkeypatch.context() as patch:
        patch.setattr(Store, "read", lambda *_: pytest.fail("it reads"))
        result = run_cli(*words, "--epsilon", "0.5", exit_code=2)
    assert "a model is there already; choose another place, or give --overwrite" in result.stderr
    assert exact(tmp_path / "m") == old
    run_cli(*words, "--epsilon", "0.5", "--overwrite")
    assert json.loads((tmp_path / "m/model.json").read_text())["parameters"]["epsilon"] == 0.5


def test_something_else_is_never_overwritten(tmp_path: Path, store: Store, run_cli: Cli) -> None:
    """A folder or file that is not a model stays, --overwrite or not."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/letter.txt").write_text("dear")
    (tmp_path / "file").write_text("dear")
    for name in ("folder", "file"):
        result = run_cli("train", store.path, "--out", tmp_path / name, "--overwrite", exit_code=2)
        assert "expected a model or nothing" in result.stderr
    assert (tmp_path / "folder/letter.txt").read_text() == (tmp_path / "file").read_text() == "dear"


@pytest.mark.parametrize("inside", [".", "m", "X/m"])
def test_a_model_in_its_store_is_refused(store: Store, run_cli: Cli, inside: str) -> None:
    """An output that lies in a store is wrong usage, and leaves no trace in the store."""
    before = sorted(path for path in store.path.rglob("*"))
    result = run_cli("train", store.path, "--out", store.path / inside, "--overwrite", exit_code=2)
    assert "lies in a store" in result.stderr
    assert sorted(path for path in store.path.rglob("*")) == before


def test_a_read_only_folder(small_disk: Path, store: Store, run_cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """A read-only output folder ends the job with exit code 5 before anything is read."""
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    monkeypatch.setattr(Store, "read", lambda *_: pytest.fail("it reads"))
    for out in (small_disk / "m", small_disk / "new" / "m"):
        result = run_cli("train", store.path, "--out", out, exit_code=5)
        assert "the file system is read-only" in result.stderr


def fill(folder: Path, leave: int) -> Path:
    """Take all room but so many bytes."""
    path = folder / "fill"
    path.write_bytes(bytes(max(0, shutil.disk_usage(folder).free - leave)))
    return path


@pytest.mark.parametrize("leave", [4096, 20_000, 40_000])
def test_a_full_disk_at_the_model(small_disk: Path, store: Store, run_cli: Cli, leave: int) -> None:
    """Where there is no room for a model the old one stays, with exit code 5 and numbers; with room it goes on."""
    words = ["train", store.path, "--out", small_disk / "m", "-q"]
    run_cli(*words)
    old = exact(small_disk / "m")
    filling = fill(small_disk, leave)
    result = run_cli(*words, "--epsilon", "0.5", "--overwrite", exit_code=5)
    assert re.search("the disk is full|No space left on device", result.stderr)
    assert exact(small_disk / "m") == old
    filling.unlink()
    run_cli(*words, "--epsilon", "0.5", "--overwrite", "--resume")
    assert json.loads((small_disk / "m/model.json").read_text())["parameters"]["epsilon"] == 0.5
    assert {path.name for path in small_disk.iterdir()} <= {"m", ".m.lock"}


@pytest.mark.slow
def test_a_full_disk_at_a_checkpoint(
    small_disk: Path, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that fills up while checkpoints are written ends the job; the last whole checkpoint resumes it."""
    monkeypatch.setattr(train_module, "EVERY_S", 0.0)
    alone = new_job(store=store.path, out=tmp_path / "alone", strategy="paper")
    train_job(alone, store, InProcess(1))
    job = new_job(store=store.path, out=small_disk / "m", strategy="paper")
    blocks, filling = [], []

    def fill_up(result: Any) -> None:
        blocks.append(result.block.index)
        if len(blocks) == 20:
            filling.append(fill(small_disk, 0))

    with pytest.raises(OutputError, match="the disk is full"):
        train_job(job, store, InProcess(1), progress=Progress(on_block=fill_up))
    assert not (small_disk / "m").exists()
    assert not list(folder_of(job.out).glob("*.aside"))
    filling[0].unlink()
    again = Progress(on_block=lambda result: blocks.append(result.block.index))
    outcome = train_job(job, store, InProcess(1), begin="resume", progress=again)
    assert outcome.run["resumed"] == 1
    assert len(blocks) <= outcome.run["scans"] * store.chunks + 2
    assert Path(job.out, "arrays.npz").read_bytes() == Path(alone.out, "arrays.npz").read_bytes()


def test_a_parent_that_is_a_file(tmp_path: Path, store: Store, run_cli: Cli) -> None:
    """An output below a file cannot be written: exit code 5 with the place."""
    (tmp_path / "file").write_text("")
    result = run_cli("train", store.path, "--out", tmp_path / "file" / "m", exit_code=5)
    assert str(tmp_path / "file") in result.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_of_somebody_else(tmp_path: Path, store: Store, run_cli: Cli) -> None:
    """A folder without permission ends the job with exit code 5 before anything is read."""
    (tmp_path / "locked").mkdir(mode=0o500)
    result = run_cli("train", store.path, "--out", tmp_path / "locked" / "m", exit_code=5)
    assert "permission denied" in result.stderr
