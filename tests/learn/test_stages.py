"""Bad luck while a store is read in stages: damage, growth, limits, little memory. Nothing is lost, all is said."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.engine.executors import InProcess
from coremargin.engine.loop import Engine, OutOfTime
from coremargin.errors import ClaimRefuted, DamagedChunk, Interrupted
from coremargin.learn.train import Progress, open_store, train_job
from coremargin.problems.fleet.report import page_of
from coremargin.problems.hard.hard_margin import HardMargin
from coremargin.problems.outliers.outlier_margin import OutlierMargin
from coremargin.problems.registry import kind_of, new_job
from coremargin.problems.soft.near_margin import SoftMargin
from coremargin.verify import verify

if TYPE_CHECKING:
    from collections.abc import Callable

    from coremargin.engine.protocols import BlockResult

KINDS: dict[str, dict[str, Any]] = {
    "hard": {},
    "outliers": {"outliers": 2},
    "hinge": {"loss": "hinge", "C": 10},
    "squared": {"loss": "squared_hinge", "C": 10},
    "fleet": {"loss": "hinge", "C": [3, 10]},
}
CHUNKS, ROWS = 250, 50


@pytest.fixture(autouse=True)
def _small_first_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first stage of one chunk, so that there are six."""
    small: dict[str, Any] = {"sample_bytes": 1000, "sample_share": 0.001}
    for problem in (HardMargin, OutlierMargin, SoftMargin):
        monkeypatch.setattr(problem, "__init__", _with(problem.__init__, small))


def _with(begin: Callable[..., None], options: dict[str, Any]) -> Callable[..., None]:
    return lambda *args, **given: begin(*args, **(given | options))


@pytest.fixture
def store(tmp_path: Path, make_separable: Callable[..., Any]) -> Store:
    """12,500 rows of 4 features in 250 chunks."""
    X, y = make_separable(ROWS * CHUNKS, 4, margin=0.2)
    return stored(tmp_path / "rows.zarr", X, y)


def stored(path: Path, X: np.ndarray, y: Any) -> Store:
    """Rows, 50 a chunk."""
    with StoreWriter.create(path, features=X.shape[1], dtype=str(X.dtype), chunk_rows=ROWS) as writer:
        writer.write(X, y, origin="test")
    return Store.open(path)


def job_of(store: Store, out: Path, kind: str, **options: Any) -> Any:
    """A job of this kind."""
    return new_job(store=store.path, out=out, block=1, **KINDS[kind], **options)


def exact(model: Path) -> dict[str, bytes]:
    """What must be equal to the bit."""
    names = ("fleet.json", "model.json", "arrays.npz")
    return {str(path.relative_to(model)): path.read_bytes() for path in Path(model).rglob("*") if path.name in names}


def stages_of(job: Any, store: Store) -> Any:
    """Which chunk is read in which stage."""
    problem: Any = kind_of(job).problem(job, store)
    return (problem.plan.members[0].problem if hasattr(problem, "plan") else problem).stages


def models_of(model: Any) -> list[Any]:
    """Itself, or its members."""
    return list(model.members.values()) if hasattr(model, "members") else [model]


def files_of(store: Store, chunk: int) -> list[Path]:
    """The files of a chunk's rows."""
    return [path for path in (store.path / "X").rglob("*") if path.is_file() and path.name == f"c.{chunk}.0"]


def after(blocks: int, what: Callable[[], None]) -> Progress:
    """What happens after so many blocks."""
    left = [blocks]

    def count(_: BlockResult) -> None:
        left[0] -= 1
        if left[0] == 0:
            what()

    return Progress(on_block=count)


def stop() -> None:
    """Ctrl-C."""
    raise KeyboardInterrupt


@pytest.mark.specimens(1)
@pytest.mark.parametrize("kind", KINDS)
def test_a_chunk_that_is_damaged_in_the_last_stage(tmp_path: Path, store: Store, kind: str) -> None:
    """It is named; when it is there again, the job goes on after the stages that are done, to the same bits."""
    job = job_of(store, tmp_path / "m", kind)
    alone = train_job(job_of(store, tmp_path / "alone", kind), store, InProcess(1))
    assert alone.model.status == "certified"
    stages = stages_of(job, store)
    assert stages.count == (8 if kind == "squared" else 6)
    chunk = int(stages.chunks(stages.count - 1)[-1])
    (path,) = files_of(store, chunk)
    content = path.read_bytes()
    done: list[dict[str, Any]] = []
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DamagedChunk, match=rf"\b{chunk}\b"):
        train_job(job, Store.open(store.path, map_bytes=0), InProcess(1), progress=Progress(on_round=done.append))
    assert [(line["kind"], line["stage"]) for line in done] == [("stage", k) for k in range(1, stages.count)]
    path.write_bytes(content)
    ended = train_job(job, Store.open(store.path), InProcess(1), begin="resume")
    assert ended.run["bytes_read"] == alone.run["bytes_read"]
    assert exact(Path(job.out)) == exact(tmp_path / "alone")
    assert verify(job.out, store.path).ok


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("blocks", [1, 3, 11, 60, 249])
def test_broken_off_in_any_stage(tmp_path: Path, store: Store, kind: str, blocks: int) -> None:
    """By Ctrl-C or a time limit after so many chunks: what is proven by then is told, and --resume ends as without."""
    alone = train_job(job_of(store, tmp_path / "alone", kind), store, InProcess(1))
    job = job_of(store, tmp_path / "m", kind)
    if kind != "outliers":  # outliers have an answer at any time, which Ctrl-C ends them with
        with pytest.raises(Interrupted):
            train_job(job, store, InProcess(1), progress=after(blocks, stop))
        ended = train_job(job, store, InProcess(2), begin="resume")
        assert exact(Path(job.out)) == exact(tmp_path / "alone")
        assert ended.run["bytes_read"] == alone.run["bytes_read"]
    late = job_of(store, tmp_path / "late", kind)

    def over() -> None:
        raise OutOfTime

    stopped = train_job(late, store, InProcess(1), progress=after(blocks, over))
    assert (stopped.model.status, stopped.resumable) == ("stopped", True)
    assert verify(late.out, store.path).ok  # claims what it has, nothing where that is nothing
    ended = train_job(late, store, InProcess(1), begin="resume")
    assert ended.run["bytes_read"] == alone.run["bytes_read"]
    assert exact(late.out) == exact(tmp_path / "alone")


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_store_that_grows_while_it_is_read(
    tmp_path: Path, store: Store, make_separable: Callable[..., Any], kind: str
) -> None:
    """The job is about the commit that it opened, before a break and after it; so is its certificate."""
    shutil.copytree(store.path, tmp_path / "quiet.zarr")
    alone = train_job(
        job_of(Store.open(tmp_path / "quiet.zarr"), tmp_path / "alone", kind), Store.open(tmp_path / "quiet.zarr"),
        InProcess(1),
    )  # fmt: skip
    X, y = make_separable(100, 4, margin=0.0)

    def grow() -> None:
        with StoreWriter.append(store.path) as writer:
            writer.write(X, y, origin="more")

    job = job_of(store, tmp_path / "m", kind)
    done = train_job(job, store, InProcess(1), progress=after(50, grow))
    assert (done.model.status, done.model.rows) == ("certified", alone.model.rows)
    assert done.model.store_digest == store.digest != Store.open(store.path).digest
    for one, other in zip(models_of(done.model), models_of(alone.model), strict=True):
        assert np.array_equal(one.w, other.w)
        assert one.b == other.b
    assert verify(job.out, tmp_path / "quiet.zarr").ok
    with pytest.raises(ClaimRefuted, match="rows were appended after training"):
        verify(job.out, store.path)
    assert open_store(job, "new").rows == store.rows + 100


@pytest.mark.slow
def test_too_little_memory_is_told(tmp_path: Path, store: Store) -> None:
    """With room for few rows more is read, and a word says what would help; the proof is as good."""
    from coremargin.cli.messages import describe_outcome

    job = job_of(store, tmp_path / "m", "hard", memory=1000, epsilon=1e-6)
    done = train_job(job, store, InProcess(1))
    assert done.model.status == "certified"
    assert done.run["bytes_read"] > 1.05 * store.nbytes
    assert "with more --memory less would be read again" in "\n".join(describe_outcome(done, job))
    assert verify(job.out, store.path).ok
    roomy = job_of(store, tmp_path / "roomy", "hard", epsilon=1e-6)
    assert "--memory" not in "\n".join(describe_outcome(train_job(roomy, store, InProcess(1)), roomy))


@pytest.mark.slow
def test_classes_of_a_fleet_are_counted_as_rows_are_read(tmp_path: Path, store: Store) -> None:
    """The fleet claims nothing about them, command and report tell what was counted, and verify what it finds."""
    job = job_of(store, tmp_path / "m", "fleet")
    done = train_job(job, store, InProcess(1))
    assert done.model.record["evaluations"] is None
    assert [entry["rows"] for entry in done.run["as_read"]] == [store.rows, store.rows]
    assert "training accuracy as rows were read" in "\n".join(kind_of(job).verdict(done, job))
    assert "when they were read" in page_of(job.out, "m")
    texts = [check.text for check in verify(job.out, store.path).checks]  # type: ignore[union-attr]
    assert any("nothing is claimed; found on the training rows: accuracy 1.000000 with C 3" in text for text in texts)
    run = json.loads(Path(job.out, "run.json").read_text())
    for other in ([], [{"C": 3}], [{**run["as_read"][0], "confusion": [[1]]}]):
        Path(job.out, "run.json").write_text(json.dumps(run | {"as_read": other}))
        assert "when they were read" not in page_of(job.out, "m")


@pytest.mark.specimens(2)
@pytest.mark.parametrize("kind", list(KINDS))
def test_what_is_said_to_come_next_comes_next(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """All stages but the first are known before, chunk by chunk, and can be fetched while the driver solves."""
    said, read = list[list[int]](), list[list[int]]()
    scan, ahead = Engine.scan, Engine.ahead

    def scanned(engine: Engine, problem: Any, probe: Any, blocks: Any) -> Any:
        read.append([chunk for block in blocks for chunk in block.chunks])
        return scan(engine, problem, probe, blocks)

    def known(engine: Engine, problem: Any, state: Any, held: frozenset[int]) -> list[int]:
        said.append(ahead(engine, problem, state, held))
        return said[-1]

    monkeypatch.setattr(Engine, "scan", scanned)
    monkeypatch.setattr(Engine, "ahead", known)
    job = job_of(store, tmp_path / "m", kind)
    train_job(job, store, InProcess(1))
    came = [(now, then) for now, then in zip(said, read[1:], strict=False) if now]
    assert all(now == then for now, then in came)
    stages = stages_of(job, store)
    first = 2 if kind == "fleet" else 1  # what fleets read first, the start reads
    assert [now for now, _ in came] == [stages.chunks(k).tolist() for k in range(first, stages.count)]
    assert not any(said[len(came) :])
