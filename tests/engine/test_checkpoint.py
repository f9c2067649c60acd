"""Checkpoints: what they keep, whose they are, and what a damaged or foreign one says."""

from __future__ import annotations

import json
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.engine.checkpoint import VERSION, Checkpoint, folder_of, identity_then
from coremargin.engine.executors import InProcess
from coremargin.errors import BadRow, Busy, CheckpointError, Interrupted, LabelError, UsageError
from coremargin.learn import train as train_module
from coremargin.learn.record import summary_of
from coremargin.learn.train import Progress, open_store, set_default_memory, train_job
from coremargin.problems.registry import new_job
from coremargin.spec import Size
from coremargin.units import exact_size
from coremargin.verify import verify

if TYPE_CHECKING:
    from coremargin.engine.protocols import BlockResult
    from coremargin.problems.job import TrainJob
    from coremargin.problems.kind import Outcome

EXACT = ("model.json", "arrays.npz")


def exact(model: Path) -> dict[str, bytes]:
    """What must be equal to the bit."""
    return {name: Path(model, name).read_bytes() for name in EXACT}


def stop_after(blocks: int) -> Progress:
    """Ctrl-C after so many blocks."""
    left = [blocks]

    def count(_: object) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt

    return Progress(on_block=count)


@pytest.fixture
def store(make_separable: Callable[..., Any], make_store: Callable[..., Store]) -> Store:
    """800 rows of 5 features in 13 chunks."""
    return make_store(*make_separable(800, 5, margin=0.05))


@pytest.fixture
def job(store: Store, tmp_path: Path) -> TrainJob:
    """A job of some ten scans."""
    return new_job(store=store.path, out=tmp_path / "m", strategy="paper")


@pytest.fixture
def interrupted(job: TrainJob, store: Store) -> Iterator[Path]:
    """The checkpoint of a job that was interrupted in the middle of its third scan."""
    with pytest.raises(Interrupted, match="continue with the same command and --resume"):
        train_job(job, store, InProcess(1), progress=stop_after(30))
    return folder_of(job.out)


def resume(job: TrainJob) -> Outcome:
    """Go on."""
    return train_job(job, open_store(job, "resume"), InProcess(1), begin="resume")


def test_resume_reads_what_is_missing_only(job: TrainJob, store: Store, interrupted: Path) -> None:
    """A resumed job starts in the middle of the scan and counts the rounds, scans and bytes of the whole job."""
    blocks: list[int] = []
    progress = Progress(on_block=lambda result: blocks.append(result.block.index))
    done = train_job(job, store, InProcess(1), begin="resume", progress=progress)
    alone = train_job(replace_out(job, "alone"), store, InProcess(1))
    assert len(blocks) == alone.run["scans"] * store.chunks - 30
    assert done.run["resumed"] == 1
    assert [record["round"] for record in done.rounds] == [record["round"] for record in alone.rounds]
    for key in ("scans", "bytes_read", "working_set_rows"):
        assert done.run[key] == alone.run[key]
    assert exact(job.out) == exact(Path(job.out).with_name("alone"))
    assert not interrupted.exists()


def replace_out(job: TrainJob, name: str) -> TrainJob:
    """The same job for another output."""
    return new_job(
        **{field: getattr(job, field) for field in job.__struct_fields__} | {"out": Path(job.out).with_name(name)}
    )


def test_interrupted_again_and_again(job: TrainJob, store: Store) -> None:
    """A job that is interrupted every seven blocks comes to the same end, and does no block twice."""
    alone = train_job(replace_out(job, "alone"), store, InProcess(1))
    begin: train_module.Begin = "new"
    for _ in range(alone.run["scans"] * store.chunks // 7):
        with pytest.raises(Interrupted):
            train_job(job, store, InProcess(1), begin=begin, progress=stop_after(7))
        begin = "resume"
    done = train_job(job, store, InProcess(1), begin="resume", progress=stop_after(7))
    assert done.run["resumed"] == alone.run["scans"] * store.chunks // 7
    assert exact(job.out) == exact(Path(job.out).with_name("alone"))


def test_resume_announces_what_it_will_read(job: TrainJob, store: Store, interrupted: Path) -> None:
    """Of a scan that was interrupted only the rest is announced, which is what is then read."""
    announced: list[tuple[int, int]] = []
    read: list[BlockResult] = []
    progress = Progress(on_scan=lambda which, size: announced.append((which.number, size)), on_block=read.append)
    train_job(job, store, InProcess(1), begin="resume", progress=progress)
    assert announced[0][0] == 3
    assert sum(size for _, size in announced) == sum(result.bytes_read for result in read)


@pytest.mark.specimens(1)
@pytest.mark.parametrize("error", [KeyboardInterrupt, BrokenPipeError])
def test_ended_while_a_round_is_told(job: TrainJob, store: Store, error: type[BaseException]) -> None:
    """A job that ends while somebody is told of a scan has it behind it: it is counted once, and not repeated."""

    def tell(record: dict[str, Any]) -> None:
        if record["round"] == 3:
            raise error

    alone = train_job(replace_out(job, "alone"), store, InProcess(1))
    with pytest.raises((Interrupted, BrokenPipeError)):
        train_job(job, store, InProcess(1), progress=Progress(on_round=tell))
    done = resume(job)
    assert [record["round"] for record in done.rounds] == [record["round"] for record in alone.rounds]
    for key in ("scans", "bytes_read"):
        assert done.run[key] == alone.run[key]
    assert exact(job.out) == exact(Path(job.out).with_name("alone"))


def test_a_second_job_on_one_output_is_refused_at_once(job: TrainJob, store: Store) -> None:
    """While a job runs, another one on its output ends with Busy, under any name of the folder, before it reads."""
    link = Path(job.out).with_name("link")
    link.symlink_to(job.out)
    inside, go_on = threading.Event(), threading.Event()

    def wait(_: object) -> None:
        inside.set()
        assert go_on.wait(60)

    first = threading.Thread(
        target=train_job, args=(job, store, InProcess(1)), kwargs={"progress": Progress(on_round=wait)}
    )
    first.start()
    try:
        assert inside.wait(60)
        for out in ("m", "link"):
            with pytest.raises(Busy, match="another job is writing this model"):
                train_job(replace_out(job, out), store, InProcess(1), progress=stop_after(1))
            with pytest.raises(Busy):
                train_module.check_output(replace_out(job, out), "new")
    finally:
        go_on.set()
        first.join(60)
    assert Path(job.out).is_dir()


def test_new_refuses_a_checkpoint_and_restart_throws_it_away(job: TrainJob, store: Store, interrupted: Path) -> None:
    """Without a word a checkpoint is neither used nor lost; --restart begins again."""
    before = sorted(path.name for path in interrupted.iterdir())
    with pytest.raises(UsageError, match="continue with --resume, or start again with --restart"):
        train_job(job, store, InProcess(1))
    assert sorted(path.name for path in interrupted.iterdir()) == before
    assert train_job(job, store, InProcess(1), begin="restart").run["resumed"] == 0
    assert not interrupted.exists()


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ({"epsilon": 0.01}, "epsilon was 0.001, is 0.01"),
        ({"strategy": "fast"}, "strategy was 'paper', is 'fast'"),
        ({"intercept": False, "block": 1 << 20}, "intercept was True, is False; block was 134217728, is 1048576"),
    ],
)
def test_another_job(job: TrainJob, store: Store, interrupted: Path, change: dict[str, Any], names: str) -> None:
    """A checkpoint of another job is refused with all that differs, and stays."""
    fields = {field: getattr(job, field) for field in job.__struct_fields__}
    with pytest.raises(CheckpointError, match=f"{names}; resume with the earlier values, or start again"):
        train_job(new_job(**fields | change), store, InProcess(1), begin="resume")
    assert interrupted.exists()


@pytest.mark.specimens(1)
@pytest.mark.parametrize(
    ("written", "whose"),
    [
        ({"version": 1}, "an earlier one wrote"),
        ({"version": 2}, "an earlier one wrote"),
        ({"version": 99}, "another wrote"),
        ({"software": "0.0.1"}, rf"another wrote \(0.0.1, format {VERSION}\)"),
    ],
)
def test_a_checkpoint_of_another_coremargin(
    job: TrainJob, store: Store, interrupted: Path, written: dict[str, Any], whose: str
) -> None:
    """It is refused as what it is, not as one of another job, with how to start again, which then works."""
    path = interrupted / "job.json"
    record = json.loads(path.read_text())
    record["identity"] |= written
    if written.get("version", 3) < 3:  # it numbered no states
        del record["state"]
    path.write_text(json.dumps(record))
    with pytest.raises(
        CheckpointError, match=f"{whose}.*; resume with that one, or start again with --restart"
    ) as found:
        train_job(job, store, InProcess(1), begin="resume")
    assert "another job" not in str(found.value)
    assert train_job(job, store, InProcess(1), begin="restart").run["resumed"] == 0


def test_rows_appended_meanwhile_wait_for_the_next_job(
    job: TrainJob, store: Store, interrupted: Path, make_separable: Callable[..., Any]
) -> None:
    """A resumed job finishes on the rows that it began with, to the bit; verify says that rows were appended since."""
    train_job(replace_out(job, "alone"), store, InProcess(1))
    X, y = make_separable(100, 5)
    with StoreWriter.append(store.path) as writer:
        writer.write(X, y)
        writer.commit()
    with pytest.raises(CheckpointError, match="store was 'sha256:.*', is 'sha256:.*'; rows was 800, is 900"):
        train_job(job, Store.open(store.path), InProcess(1), begin="resume")
    assert identity_then(job.out)["store"] == store.digest
    assert resume(job).model.rows == 800
    assert exact(job.out) == exact(Path(job.out).with_name("alone"))
    with pytest.raises(Exception, match="rows were appended after training: run `coremargin retrain`"):
        verify(job.out, store.path)


def test_memory_is_that_of_the_run_before(
    job: TrainJob, store: Store, interrupted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a job does not say a number, it goes on with the one that it began with, whatever the machine has now."""
    began = identity_then(job.out)["memory"]
    assert job.memory is None
    monkeypatch.setattr("coremargin.problems.job.default_memory", lambda: 3 * began)
    assert set_default_memory(job).memory_bytes == 3 * began
    assert f'memory = "{exact_size(Size(began))}"' in resume(job).run["job"]


def test_a_store_made_anew_meanwhile(job: TrainJob, store: Store, interrupted: Path) -> None:
    """A store with other rows than the checkpoint's is refused, however many rows it has."""
    X, y = store.read(0)
    for rows in (np.tile(X, (13, 1))[:800], X):
        with StoreWriter.create(store.path, features=5, chunk_bytes=64 * 20, overwrite=True) as writer:
            writer.write(rows, np.resize(y, len(rows)))
            writer.commit()
        with pytest.raises(CheckpointError, match="store was 'sha256:"):
            resume(job)


@pytest.mark.parametrize("harm", ["truncate", "flip", "missing", "garbage", "keys", "history", "folder"])
def test_a_damaged_checkpoint(job: TrainJob, store: Store, interrupted: Path, harm: str) -> None:
    """A checkpoint with any damage is refused in one line that says how to start again, which then works."""
    state = next(interrupted.glob("state-*.npz"))
    record = interrupted / "job.json"
    if harm == "truncate":
        state.write_bytes(state.read_bytes()[:-100])
    elif harm == "flip":
        content = bytearray(state.read_bytes())
        content[content.index(b"\x93NUMPY") + 10] ^= 1  # in an array, not where a zip file says things twice
        state.write_bytes(content)
    elif harm == "missing":
        state.unlink()
    elif harm == "garbage":
        record.write_text("[1, 2")
    elif harm == "keys":
        record.write_text(json.dumps({"identity": 3}))
    elif harm == "history":
        content = json.loads(record.read_text())
        record.write_text(json.dumps(content | {"history": {"fuel": 3}}))
    else:
        record.unlink()
        record.mkdir()
    with pytest.raises(CheckpointError, match="the checkpoint cannot be read .*; start again with --restart") as caught:
        train_job(job, store, InProcess(1), begin="resume")
    assert str(interrupted) in str(caught.value)
    assert "\n" not in str(caught.value)
    if harm != "folder":
        assert train_job(job, store, InProcess(1), begin="restart").model.status == "certified"


def test_a_damaged_part_costs_its_blocks_only_when_it_is_gone(job: TrainJob, store: Store, interrupted: Path) -> None:
    """Without a file of finished blocks those blocks are done again; the bits stay."""
    for path in interrupted.glob("blocks-*.npz"):
        path.unlink()
    assert resume(job).run["resumed"] == 1
    train_job(replace_out(job, "alone"), store, InProcess(1))
    assert exact(job.out) == exact(Path(job.out).with_name("alone"))


def test_what_a_kill_left_without_a_record_is_no_checkpoint(job: TrainJob, store: Store, interrupted: Path) -> None:
    """A folder without its record is swept, and the job starts from the beginning."""
    (interrupted / "job.json").unlink()
    assert train_job(job, store, InProcess(1)).run["resumed"] == 0
    assert not interrupted.exists()


def test_resume_without_a_checkpoint_starts_from_the_beginning(job: TrainJob) -> None:
    """--resume may always be given: a script need not know whether there is something to go on with."""
    assert resume(job).run["resumed"] == 0


def test_resume_of_a_finished_job_takes_its_model(job: TrainJob, store: Store, tmp_path: Path) -> None:
    """A job that was killed between its model and the end of its checkpoint is finished without a read."""
    first = train_job(job, store, InProcess(1))
    bits = exact(job.out)
    again = train_job(job, store, InProcess(1), begin="resume", progress=stop_after(1))
    assert summary_of(again) == summary_of(first)
    assert exact(job.out) == bits
    changed = replace_out(job, "m")
    changed = new_job(**{field: getattr(job, field) for field in job.__struct_fields__} | {"epsilon": 0.5})
    with pytest.raises(UsageError, match="a model is there already"):
        train_job(changed, store, InProcess(1), begin="resume", progress=stop_after(1))


def test_a_checkpoint_is_written_as_often_as_asked(
    job: TrainJob, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no time between checkpoints every block is on disk at once; the folder holds one state and its blocks."""
    monkeypatch.setattr(train_module, "EVERY_S", 0.0)
    folder = folder_of(job.out)
    seen: list[tuple[int, set[str]]] = []

    def look(_: object) -> None:
        names = {path.name for path in folder.iterdir()}
        seen.append((sum(name.startswith("blocks-") for name in names), names))

    train_job(job, store, InProcess(1), progress=Progress(on_block=look))
    assert [count for count, _ in seen[: store.chunks]] == list(range(1, store.chunks + 1))
    for _, names in seen:
        rounds = {name.split("-")[1].split(".")[0] for name in names if name != "job.json"}
        assert len(rounds) == 1
    assert not folder.exists()


@dataclass
class Numbers:
    """A state that is two numbers."""

    round: int
    value: float
    status = "running"
    sample_bytes = 0

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Its value."""
        return {"value": np.array(self.value)}


def test_only_the_newest_state_is_held_and_each_is_written(tmp_path: Path) -> None:
    """No state before the newest stays in memory, and that is what is found again, be it of the same round or not."""
    with Checkpoint(tmp_path / "m", {}) as checkpoint:
        for number, value in ((0, 1.0), (0, 2.0), (1, 3.0)):
            state = Numbers(number, value)
            checkpoint.scan_begins(state)
            checkpoint.save()
            assert checkpoint.load(lambda arrays: float(arrays["value"])) == value
        before = weakref.ref(state)
        state = Numbers(1, 4.0)
        checkpoint.scan_begins(state)
        assert before() is None
        checkpoint.save()
        checkpoint.scan_begins(state)
        assert checkpoint.load(lambda arrays: float(arrays["value"])) == 4.0
        checkpoint.discard()


def test_a_state_and_its_history_change_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill between a new state and the record that names it leaves the old state with the old history."""
    with Checkpoint(tmp_path / "m", {}) as checkpoint:
        checkpoint.scan_begins(Numbers(0, 1.0), {"answers": 1})
        checkpoint.save()
        checkpoint.scan_begins(Numbers(0, 2.0), {"answers": 2})
        with monkeypatch.context() as patch:
            patch.setattr(Checkpoint, "_point_at", killed)
            with pytest.raises(KeyboardInterrupt):
                checkpoint.save()
        assert len(list(checkpoint.folder.glob("state-*.npz"))) == 2
        again = Checkpoint(tmp_path / "m", {})
        assert (again.load(lambda arrays: float(arrays["value"])), again.history) == (1.0, {"answers": 1})
        again.scan_begins(Numbers(0, 3.0), {"answers": 3})
        again.save()
        assert again.load(lambda arrays: float(arrays["value"])) == 3.0
        assert len(list(checkpoint.folder.glob("state-*.npz"))) == 1
        checkpoint.discard()


def killed(*_: object) -> None:
    """The end of a process."""
    raise KeyboardInterrupt


def test_the_lock_leaves_no_trace(tmp_path: Path) -> None:
    """After a job its lock is gone, and the next job gets it; another job's error passes through."""
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), Checkpoint(tmp_path / "m", {}):
            raise ZeroDivisionError
        assert list(tmp_path.iterdir()) == []


def test_half_a_file_that_a_kill_left_goes_with_the_checkpoint(job: TrainJob, interrupted: Path) -> None:
    """A checkpoint's file that was never finished is ours: when the job is done, nothing of the checkpoint is left."""
    state = next(interrupted.glob("state-*.npz"))
    (interrupted / f".{state.name}.aside").write_bytes(b"half")
    assert resume(job).model.status == "certified"
    assert not interrupted.exists()


def test_a_checkpoint_that_is_gone_on_with_is_swept(job: TrainJob, store: Store, interrupted: Path) -> None:
    """Files that two kills never finished are gone once the job goes on, long before it is done."""
    for name in ("state-70.npz", "blocks-3-000001.npz"):
        (interrupted / f".{name}.aside").write_bytes(b"half")
    with pytest.raises(Interrupted):
        train_job(job, store, InProcess(1), begin="resume", progress=stop_after(1))
    assert not list(interrupted.glob(".*"))
    assert resume(job).model.status == "certified"


def refused_ellipsoid() -> tuple[Any, dict[str, Any]]:
    """Rows that are equal, which the first scan finds out."""
    return (np.full((60, 2), 3.0), np.arange(60) % 2), {"one_class": "ellipsoid"}


def refused_kernel_ball() -> tuple[Any, dict[str, Any]]:
    """A gamma that makes every row a support row, which the first solve finds out."""
    rows = np.random.default_rng(0).standard_normal((300, 3))
    return (rows, np.arange(300) % 2), {"one_class": "ball", "kernel": "rbf", "gamma": 50.0}


def refused_kernel_margin() -> tuple[Any, dict[str, Any]]:
    """Two equal rows of different classes."""
    return (np.repeat(np.arange(30.0), 2)[:, None], np.arange(60) % 2), {"kernel": "rbf", "gamma": 1.0}


def refused_perceptron() -> tuple[Any, dict[str, Any]]:
    """A row of zeros."""
    rows = np.arange(60.0)[:, None] - 30.0
    return (rows, np.sign(rows[:, 0] + 0.5)), {"strategy": "perceptron", "intercept": False}


@pytest.mark.parametrize("every_s", [0.0, 1e9])
@pytest.mark.parametrize("refused", [refused_ellipsoid, refused_kernel_ball, refused_kernel_margin, refused_perceptron])
def test_a_refused_job_leaves_no_checkpoint(
    tmp_path: Path,
    make_store: Callable[..., Store],
    monkeypatch: pytest.MonkeyPatch,
    refused: Callable[[], tuple[Any, dict[str, Any]]],
    every_s: float,
) -> None:
    """Whether one was written during the scan or not: no run was interrupted, and none can be resumed."""
    monkeypatch.setattr(train_module, "EVERY_S", every_s)
    rows, options = refused()
    store = make_store(*rows)
    job: TrainJob = new_job(store=store.path, out=tmp_path / "m", **options)
    written = list[bool]()
    found = list[str]()
    progress = Progress(on_block=lambda _: written.append(folder_of(job.out).exists()))
    for _ in range(2):
        with pytest.raises((BadRow, LabelError, UsageError)) as error:
            train_job(job, store, InProcess(1), progress=progress)
        assert not folder_of(job.out).exists()
        assert "--resume" not in " ".join(getattr(error.value, "__notes__", []))
        found.append(str(error.value))
    assert found[0] == found[1]
    assert "interrupted" not in found[0]
    assert any(written) == (every_s == 0.0 and len(written) > 0)


def test_a_refused_job_that_was_interrupted_before_leaves_no_checkpoint(
    tmp_path: Path, make_store: Callable[..., Store]
) -> None:
    """Resumed, it is refused, and so would be another run."""
    rows, options = refused_ellipsoid()
    store = make_store(*rows, chunk_rows=8)
    job: TrainJob = new_job(store=store.path, out=tmp_path / "m", block=Size(1), **options)
    with pytest.raises(Interrupted):
        train_job(job, store, InProcess(1), progress=stop_after(2))
    assert folder_of(job.out).exists()
    with pytest.raises(BadRow, match="all rows are equal"):
        resume(job)
    assert not folder_of(job.out).exists()
