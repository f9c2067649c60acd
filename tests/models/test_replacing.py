"""What training and predicting may replace or remove: what is theirs in all its parts, and nothing else."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import coremargin
from coremargin.data.arrays import ArraySource
from coremargin.data.files import aside_of
from coremargin.data.folder import previous_of
from coremargin.engine.checkpoint import folder_of
from coremargin.engine.executors import InProcess
from coremargin.errors import CheckpointError, Interrupted, OutputError, UsageError
from coremargin.learn.train import Progress, train_job
from coremargin.models.export import export
from coremargin.models.files import MODEL
from coremargin.models.predict import predict
from coremargin.models.predictions.zarr_group import PREDICTIONS
from coremargin.models.registry import load
from coremargin.problems.registry import new_job

if TYPE_CHECKING:
    from click.testing import Result

    from coremargin.data.store import Store
    from coremargin.engine.problem import NextScan
    from coremargin.problems.job import TrainJob

KINDS: dict[str, dict[str, Any]] = {
    "hard": {},
    "soft": {"loss": "hinge"},
    "outliers": {"outliers": 1},
    "fleet": {"classes": "ovr", "loss": "hinge", "C": [0.1, 1.0]},
    "several": {"classes": "crammer-singer"},
}


@pytest.fixture
def store(rng: np.random.Generator, make_store: Callable[..., Store]) -> Store:
    """90 rows of two or, for those that want them, three classes, far apart."""
    y = np.arange(90) % 2
    return make_store((rng.normal(size=(90, 3)) + 9 * np.eye(3)[y]).astype(np.float32), y, chunk_rows=32)


@pytest.fixture
def model(store: Store, tmp_path: Path) -> Path:
    """A model of the store, trained as people do it, with everything that belongs to one."""
    coremargin.train(store.path, out=tmp_path / "m", cluster="threads")
    return tmp_path / "m"


def leave(place: Path, outside: Path) -> dict[str, Callable[[], object]]:
    """Ways to leave something of one's own at or in the folder ``place``."""
    return {
        "notes.txt": lambda: (place / "notes.txt").write_text("mine"),
        ".hidden": lambda: (place / ".hidden").write_text("mine"),
        "sub/": (place / "sub").mkdir,
        "members": lambda: (place / "members").write_text("mine"),
        "members/x/notes.txt": lambda: ((place / "members" / "x").mkdir(parents=True), outside.rename(
            place / "members" / "x" / "notes.txt")),
        "linked": lambda: (place / "linked").symlink_to(outside.parent),
        "arrays.npz": lambda: ((place / "arrays.npz").unlink(), (place / "arrays.npz").symlink_to(outside)),
        "rounds.jsonl": lambda: ((place / "rounds.jsonl").unlink(), os.mkfifo(place / "rounds.jsonl")),
        "model.json": lambda: (place / "model.json").write_text('{"layers": 12}'),
    }  # fmt: skip


def everything(folder: Path) -> dict[str, Any]:
    """What lies below a folder: bytes of files, where links lead."""
    return {
        path.relative_to(folder).as_posix():
            path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_everything_that_training_writes_is_ours(store: Store, tmp_path: Path, kind: str) -> None:
    """Each kind of model is replaced by each: nothing in it is a stranger, in the folder or beside it."""
    out = tmp_path / "m"
    for _ in range(2):
        coremargin.train(store.path, out=out, cluster="threads", overwrite=True, **KINDS[kind])
        assert MODEL.foreign_files(out) == []
        assert (out / "report.html").is_file()
    coremargin.train(store.path, out=out, cluster="threads", overwrite=True)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["m", "rows.zarr"]


@pytest.mark.parametrize("stranger", list(leave(Path(), Path())))
def test_a_model_with_anything_else_in_it_is_not_replaced(
    store: Store, model: Path, tmp_path: Path, run_cli: Callable[..., Result], stranger: str
) -> None:
    """Whatever somebody left in a model's folder keeps it from being replaced, before any work; all of it stays."""
    outside = tmp_path / "outside" / "kept"
    outside.parent.mkdir()
    outside.write_text("mine")
    leave(model, outside)[stranger]()
    before = everything(tmp_path)
    for word in ("--overwrite", "--restart", "--resume"):
        found = run_cli("train", store.path, "--out", model, word, "--epsilon", "0.5", exit_code=2)
        assert f"expected a model or nothing, found something else: {stranger}" in found.stderr
        assert word == "--resume" or "running" not in found.stderr  # what is there may be the answer
    assert everything(tmp_path) == before


def test_a_folder_of_other_things_is_not_replaced(store: Store, tmp_path: Path) -> None:
    """A file called model.json is not enough: somebody's checkpoint of another kind, or a project, stays whole."""
    precious = tmp_path / "precious"
    precious.mkdir()
    for name in ("model.json", "thesis.tex", "photo.jpg"):
        (precious / name).write_text("{}")
    (precious / "data").mkdir()
    (precious / "data" / "raw.csv").write_text("1,2")
    before = everything(precious)
    with pytest.raises(UsageError, match="data/, photo.jpg, thesis.tex|data/, model.json of another format") as found:
        coremargin.train(store.path, out=precious, overwrite=True)
    assert "and 1 more; move that away" in str(found.value)
    assert everything(precious) == before
    for name in ("thesis.tex", "photo.jpg"):
        (precious / name).unlink()
    shutil.rmtree(precious / "data")
    for text in ("{}", "", "[", '{"format": "coremargin-fleet"}', '{"format": null}'):
        (precious / "model.json").write_text(text)
        with pytest.raises(UsageError, match="found something else: model.json of another format"):
            coremargin.train(store.path, out=precious, overwrite=True)
    (precious / "model.json").rename(precious / "arrays.npz")
    with pytest.raises(UsageError, match="found something else: no model.json or fleet.json"):
        coremargin.train(store.path, out=precious, overwrite=True)


def test_a_damaged_model_is_replaced(store: Store, model: Path) -> None:
    """A folder that says it is a model, and holds nothing else, is trained anew whatever became of its arrays."""
    for harm in (b"", None):
        (model / "arrays.npz").unlink()
        if harm is not None:
            (model / "arrays.npz").write_bytes(harm)
        with pytest.raises(UsageError, match="a model is there already"):
            coremargin.train(store.path, out=model)
        coremargin.train(store.path, out=model, cluster="threads", overwrite=True)
        assert load(model).status == "certified"


def test_other_names_of_a_models_files_keep_their_bytes(store: Store, model: Path, tmp_path: Path) -> None:
    """A copy by hard links, as backups make them, is as it was when the model is replaced."""
    shutil.copytree(model, tmp_path / "backup", copy_function=os.link)
    before = everything(tmp_path / "backup")
    coremargin.train(store.path, out=model, cluster="threads", overwrite=True, epsilon=0.5)
    assert everything(tmp_path / "backup") == before
    assert load(tmp_path / "backup").parameters["epsilon"] == 1e-3


def test_what_comes_in_while_training_is_noticed(store: Store, model: Path) -> None:
    """What somebody puts into the old model's folder meanwhile is found before that is replaced; all of it stays."""
    job = new_job(store=store.path, out=model)
    late = Progress(on_round=lambda _: (model / "notes.txt").write_text("mine"))
    before = everything(model)
    with pytest.raises(UsageError, match="found something else: notes.txt"):
        train_job(job, store, InProcess(1), overwrite=True, progress=late)
    assert everything(model) == before | {"notes.txt": b"mine"}


@pytest.mark.parametrize("place", [aside_of, previous_of])
@pytest.mark.parametrize("harm", ["notes", "file", "link"])
def test_what_only_has_the_name_of_a_leftover_stays(
    store: Store, model: Path, tmp_path: Path, place: Callable[[Path], Path], harm: str
) -> None:
    """The folders beside a model that a killed save leaves are removed only if they hold what it leaves."""
    leftover, outside = place(model), tmp_path / "outside"
    shutil.copytree(model, outside)
    if harm == "notes":
        shutil.copytree(model, leftover)
        (leftover / "notes.txt").write_text("mine")
    elif harm == "file":
        leftover.write_text("mine")
    else:
        leftover.symlink_to(outside)
    before = everything(tmp_path)
    for out, overwrite in ((model, True), (model, False), (tmp_path / "gone", True)):
        if out != model:
            model.rename(tmp_path / "moved")  # now a leftover is all there is
        with pytest.raises(OutputError, match="what an unfinished save of a model left, found something else"):
            coremargin.train(store.path, out=model, overwrite=overwrite)
    (tmp_path / "moved").rename(model)
    assert everything(tmp_path) == before
    shutil.rmtree(leftover) if harm == "notes" else leftover.unlink()
    coremargin.train(store.path, out=model, cluster="threads", overwrite=True)


def test_a_link_keeps_leading_to_what_is_replaced(store: Store, model: Path, tmp_path: Path) -> None:
    """Models and predictions, of any form, are replaced where a link leads; the link stays."""
    pytest.importorskip("pyarrow")
    (tmp_path / "to_model").symlink_to("m")
    coremargin.train(store.path, out=tmp_path / "to_model", cluster="threads", overwrite=True, epsilon=0.5)
    assert load(model).parameters["epsilon"] == 0.5
    outputs = ["p.csv", "p.jsonl", "p.parquet", "p.zarr"]
    for name in outputs:
        (tmp_path / f"to_{name}").symlink_to(name)
        for overwrite in (False, True, True):
            told = predict(model, store, tmp_path / f"to_{name}", overwrite=overwrite)
            assert told.path == tmp_path / f"to_{name}"
        assert not (tmp_path / name).is_symlink()
    names = ["m", *outputs, "rows.zarr", "to_model", *(f"to_{name}" for name in outputs)]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == names
    assert all((tmp_path / name).is_symlink() for name in names if name.startswith("to_"))


@pytest.mark.parametrize("stranger", ["notes.txt", "code/notes.txt", "mine/", "label", "zarr.json"])
def test_predictions_with_anything_else_in_them_are_not_replaced(
    store: Store, model: Path, tmp_path: Path, stranger: str
) -> None:
    """A group of predictions to which somebody has added something, and a group of another kind, stay."""
    out = predict(model, store, tmp_path / "p.zarr").path
    assert PREDICTIONS.foreign_files(out) == []
    if stranger == "mine/":
        (out / "mine").mkdir()
    elif stranger == "label":
        shutil.rmtree(out / "label")
        (out / "label").symlink_to(out / "code")
    else:
        (out / stranger).write_text(json.dumps({"attributes": {"format": "theirs"}}))
    before = everything(out)
    with pytest.raises(UsageError, match=f"group of predictions or nothing, found something else: {stranger}"):
        predict(model, store, out, overwrite=True)
    assert everything(out) == before


def test_tables_that_are_not_only_predictions_are_not_replaced(store: Store, model: Path, tmp_path: Path) -> None:
    """A table that somebody made of ours, by one column more, and a pipe of that name, stay."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    out = predict(model, store, tmp_path / "p.parquet").path
    table = pq.read_table(out)
    more = table.append_column("mine", pa.array(range(90)))
    assert more.schema.metadata == table.schema.metadata  # it says that it is ours
    other = table.replace_schema_metadata({"coremargin": '"coremargin-predictions"'})
    for theirs in (more, other, table.replace_schema_metadata({"coremargin": "["})):
        pq.write_table(theirs, out)
        before = out.read_bytes()
        with pytest.raises(UsageError, match="a file of predictions or nothing, found something else: other data"):
            predict(model, store, out, overwrite=True)
        assert out.read_bytes() == before
    out.unlink()
    os.mkfifo(out)
    with pytest.raises(UsageError, match="other data"):
        predict(model, store, out, overwrite=True)
    pq.write_table(table, tmp_path / "again.parquet")
    predict(model, store, tmp_path / "again.parquet", overwrite=True)


@pytest.mark.parametrize("name", ["p.zarr", "p.parquet", "p.csv", "p.jsonl"])
def test_what_comes_in_while_predicting_is_noticed(model: Path, tmp_path: Path, name: str) -> None:
    """What somebody puts there while rows are read is found before it is replaced."""
    pytest.importorskip("pyarrow")
    source, out = ArraySource(np.zeros((9, 3))), tmp_path / name

    def meanwhile(done: int, rows: int) -> None:
        (out / "x").parent.mkdir()
        (out / "x").write_text("mine")

    with pytest.raises(UsageError, match="found something else"):
        predict(model, source, out, overwrite=True, on_progress=meanwhile)
    assert (out / "x").read_text() == "mine"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == sorted(["m", "rows.zarr", name])


def test_nothing_is_written_into_a_store_or_a_model(store: Store, model: Path, tmp_path: Path) -> None:
    """No command writes its output into a model or a store, whosever, at any depth and by any name."""
    fleet = tmp_path / "fleet"
    coremargin.train(store.path, out=fleet, cluster="threads", loss="hinge", C=[0.1, 1.0])
    (tmp_path / "link").symlink_to(fleet / "members")
    before = everything(tmp_path)
    for place in (
        model / "p.zarr",
        fleet / "members" / "x" / "p.parquet",
        tmp_path / "link" / "p",
        store.path / "X" / "p",
    ):
        for write in (
            lambda out: predict(model, store, out, overwrite=True),
            lambda out: export(model, out, overwrite=True),
            lambda out: coremargin.train(store.path, out=out, overwrite=True),
        ):
            with pytest.raises(UsageError, match="lies in a (store|model), "):
                write(place)
    with pytest.raises(UsageError, match="lies in a store"):
        coremargin.train(store.path, out=store.path, overwrite=True)
    for write in (coremargin.train, partial(predict, model), lambda _, out, **options: export(model, out, **options)):
        with pytest.raises(UsageError, match="found the root of all folders"):
            write(store.path, out="/..", overwrite=True)
    assert everything(tmp_path) == before


def stopped(job: TrainJob, store: Store) -> Path:
    """The checkpoint of a run that was interrupted."""

    def stop(which: NextScan, _: object) -> None:
        if which.stage == 2 or which.number == 2:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted):
        train_job(job, store, InProcess(1), progress=Progress(on_scan=stop))
    return folder_of(job.out)


def test_a_checkpoint_is_removed_without_what_is_not_of_it(store: Store, tmp_path: Path) -> None:
    """Files that somebody left in a checkpoint's folder stay in it, whatever their names end in."""
    job = new_job(store=store.path, out=tmp_path / "m", strategy="paper", sample=0.01)
    folder = stopped(job, store)
    theirs = {"precious.npz", "state-0.npz.bak", "notes.txt", "blocks-7.npz"}
    for name in theirs:
        (folder / name).write_text("mine")
    train_job(job, store, InProcess(1), begin="resume")
    assert {path.name for path in folder.iterdir()} == theirs
    train_job(job, store, InProcess(1), begin="restart", overwrite=True)
    assert {path.name for path in folder.iterdir()} == theirs


@pytest.mark.parametrize("harm", ["file", "link"])
def test_what_only_has_the_name_of_a_checkpoint_stays(store: Store, tmp_path: Path, harm: str) -> None:
    """A file or link where checkpoints go is refused at once; a job.json that it leads to is nobody's checkpoint."""
    outside, job = tmp_path / "outside", new_job(store=store.path, out=tmp_path / "m")
    outside.mkdir()
    (outside / "job.json").write_text("mine")
    folder_of(job.out).symlink_to(outside) if harm == "link" else folder_of(job.out).write_text("mine")
    before = everything(tmp_path)
    for begin in ("new", "resume", "restart"):
        with pytest.raises(CheckpointError, match="expected a checkpoint's folder, found a file or link"):
            coremargin.train(store.path, out=job.out, begin=begin)  # type: ignore[arg-type]
        with pytest.raises(CheckpointError, match="expected a checkpoint's folder, found a file or link"):
            train_job(job, store, InProcess(1), begin=begin)  # type: ignore[arg-type]
    assert everything(tmp_path) == before


@pytest.mark.parametrize("harm", ["text", "pipe", "link", "folder"])
def test_what_only_has_the_name_of_a_lock_stays(store: Store, model: Path, tmp_path: Path, harm: str) -> None:
    """A lock file is empty: anything else by its name is refused, and is there afterwards."""
    for name, write in (
        (".n.lock", lambda: coremargin.train(store.path, out=tmp_path / "n")),
        (".p.zarr.lock", lambda: predict(model, store, tmp_path / "p.zarr")),
    ):
        lock = tmp_path / name
        {
            "text": lambda lock=lock: lock.write_text("mine"), "pipe": lambda lock=lock: os.mkfifo(lock),
            "link": lambda lock=lock: lock.symlink_to(model / "model.json"), "folder": lambda lock=lock: lock.mkdir(),
        }[harm]()  # fmt: skip
        before = everything(tmp_path)
        with pytest.raises(OutputError):
            write()
        assert everything(tmp_path) == before
        assert os.path.lexists(lock)


def test_resuming_takes_a_finished_model_whatever_lies_in_it(store: Store, model: Path) -> None:
    """Nothing is replaced when the model is the answer already, so that a note in its folder is no matter."""
    (model / "notes.txt").write_text("mine")
    before = everything(model)
    found = coremargin.train(store.path, out=model, begin="resume", cluster="threads")
    assert found.status == "certified"
    assert everything(model) == before
