"""Training jobs: the same bits wherever they run, what they record, and how they end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partialmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest

from coremargin.engine.clusters.embedded import start_embedded
from coremargin.engine.executors import InProcess
from coremargin.errors import LabelError
from coremargin.learn.record import summary_of
from coremargin.learn.train import Progress, train_job
from coremargin.models.model import Model
from coremargin.problems.hard import forecast
from coremargin.problems.hard.hard_margin import HardMargin
from coremargin.problems.registry import new_job
from coremargin.spec import Size
from coremargin.verify import verify

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.data.store import Store
    from coremargin.engine.protocols import Block, BlockResult, Executor, Probe


def exact(model: Path) -> dict[str, bytes]:
    """What must be equal to the bit."""
    return {name: (model / name).read_bytes() for name in ("model.json", "arrays.npz")}


@pytest.fixture
def store(make_separable: Callable[..., Any], make_store: Callable[..., Store]) -> Store:
    """1,000 rows of 5 features in 16 chunks, with a small margin."""
    return make_store(*make_separable(1000, 5, margin=0.01))


@pytest.fixture
def _small_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HardMargin, "__init__", partialmethod(HardMargin.__init__, sample_bytes=3_000))


class Shuffled(InProcess):
    """Blocks in random order."""

    def run(self, source: Source, probe: Probe, blocks: Sequence[Block]) -> Iterator[BlockResult]:
        order = np.random.default_rng(len(blocks)).permutation(len(blocks))
        return super().run(source, probe, [blocks[k] for k in order])


@pytest.mark.specimens(1)
@pytest.mark.usefixtures("_small_sample")
@pytest.mark.parametrize("strategy", ["fast", "paper", pytest.param("any-violator", marks=pytest.mark.slow)])
def test_the_same_bits_everywhere(tmp_path: Path, store: Store, embedded: Executor, strategy: str) -> None:
    """One thread, two threads, blocks in random order, worker processes: one model, to the bit, for each strategy."""
    scans = set()
    with start_embedded(workers=1, threads=2, processes=False) as in_driver:
        executors: dict[str, Executor] = {
            "one": InProcess(1), "two": InProcess(2), "shuffled": Shuffled(1), "2x1": embedded, "in-driver": in_driver,
        }  # fmt: skip
        for name, executor in executors.items():
            job = new_job(store=store.path, out=tmp_path / name, epsilon=1e-6, memory=20_000, strategy=strategy)  # type: ignore[arg-type]
            scans.add(train_job(job, store, executor).run["scans"])
    first = exact(tmp_path / "one")
    for name in executors:
        assert exact(tmp_path / name) == first, name
    assert len(scans) == 1
    assert scans.pop() > (strategy != "fast")


@pytest.mark.usefixtures("_small_sample")
@pytest.mark.slow
def test_the_same_bits_on_one_worker_of_two_threads(tmp_path: Path, store: Store) -> None:
    """A worker process of two threads gives the bits of one thread in this process."""
    for name, start in (("one", lambda: InProcess(1)), ("1x2", lambda: start_embedded(workers=1, threads=2))):
        with start() as executor:
            train_job(new_job(store=store.path, out=tmp_path / name, epsilon=1e-6, memory=20_000), store, executor)
    assert exact(tmp_path / "one") == exact(tmp_path / "1x2")


@pytest.mark.usefixtures("_small_sample")
def test_what_is_recorded(tmp_path: Path, store: Store) -> None:
    """rounds.jsonl has a line per round, with monotone bounds; run.json adds them up; the model names its store."""
    job = new_job(store=store.path, out=tmp_path / "m", epsilon=1e-6, memory=20_000)
    heard: list[dict[str, Any]] = []
    outcome = train_job(job, store, InProcess(1), progress=Progress(on_round=heard.append))
    rounds = [json.loads(line) for line in (tmp_path / "m" / "rounds.jsonl").read_text().splitlines()]
    assert rounds == heard == outcome.rounds
    stages = rounds[0]["stages"]
    assert stages > 1
    told = [(entry["round"], entry["kind"], entry.get("stage")) for entry in rounds]
    assert told[:stages] == [(1, "stage", k + 1) for k in range(stages)]
    assert told[stages:] == [(k + 2, "scan", None) for k in range(len(rounds) - stages)]
    assert sum(entry["chunks_read"] for entry in rounds[:stages]) == store.chunks
    lower = [entry["lower"] for entry in rounds if entry["lower"] is not None]
    upper = [entry["upper"] for entry in rounds]
    assert lower == sorted(lower)
    assert upper == sorted(upper, reverse=True)
    for entry in rounds:
        assert entry["chunks_read"] + entry["chunks_skipped"] == entry["chunks"] == store.chunks
    run = json.loads((tmp_path / "m" / "run.json").read_text())
    assert run["scans"] == len(rounds) - stages + 1
    assert run["bytes_read"] == sum(entry["bytes_read"] for entry in rounds)
    assert run["store_bytes"] == store.nbytes
    assert run["peak_rss_bytes"] > 10 << 20
    assert run["seconds"] > 0
    assert sum(run["histogram"]["positive"]) + sum(run["histogram"]["negative"]) <= store.rows
    model = Model.load(tmp_path / "m")
    assert (model.rows, model.features, model.certificate.store_digest) == (store.rows, store.features, store.digest)
    assert model.certificate.lower == lower[-1]
    assert verify(tmp_path / "m", store.path).ok


@pytest.mark.usefixtures("_small_sample")
def test_max_scans(tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that may not scan on ends as stopped, with what is proven; with a larger limit, resuming ends it."""
    monkeypatch.setattr(forecast, "SAFETY", 0.0)  # too little comes home in the first read
    monkeypatch.setattr(forecast, "LEAST", 0.0)
    job = new_job(store=store.path, out=tmp_path / "m", epsilon=1e-6, max_scans=1, memory=20_000)
    outcome = train_job(job, store, InProcess(1))
    assert (outcome.model.status, outcome.run["scans"], outcome.run["reason"]) == ("stopped", 1, "a limit was reached")
    assert outcome.run["resumable"]
    assert summary_of(outcome)["lower"] < summary_of(outcome)["upper"]
    assert verify(tmp_path / "m", store.path).ok
    again = train_job(job, store, InProcess(1), begin="resume")
    assert (again.model.status, again.run["scans"]) == ("stopped", 1)
    more = msgspec.structs.replace(job, max_scans=None)
    ended = train_job(more, store, InProcess(1), begin="resume")
    whole = train_job(msgspec.structs.replace(more, out=tmp_path / "whole"), store, InProcess(1))
    assert not ended.run["resumable"]
    assert ended.model.status == whole.model.status == "certified"
    assert exact(tmp_path / "m") == exact(tmp_path / "whole")
    assert not (tmp_path / ".m.checkpoint").exists()


@pytest.mark.usefixtures("_small_sample")
@pytest.mark.parametrize("keep", [0, 1 << 20])
def test_a_resumed_run_may_keep_more_or_less(tmp_path: Path, store: Store, keep: int) -> None:
    """What stays for retraining is no part of the question: the model is that of a run that was not stopped."""
    job: Any = new_job(store=store.path, out=tmp_path / "m", epsilon=1e-6, time_limit=1e-6, memory=20_000)
    assert train_job(job, store, InProcess(1)).model.status == "stopped"
    more = msgspec.structs.replace(job, time_limit=None, keep_for_retraining=Size(keep))
    assert train_job(more, store, InProcess(1), begin="resume").model.status == "certified"
    train_job(msgspec.structs.replace(more, out=tmp_path / "whole", keep_for_retraining=None), store, InProcess(1))
    assert exact(tmp_path / "m") == exact(tmp_path / "whole")


@pytest.mark.usefixtures("_small_sample")
def test_scans_that_end_early_are_scans(tmp_path: Path, store: Store) -> None:
    """A scan that need not read all chunks counts as one, before a stop and after it."""
    job = new_job(store=store.path, out=tmp_path / "m", epsilon=1e-6, max_scans=2, strategy="any-violator", block=1)  # type: ignore[arg-type]
    assert train_job(job, store, InProcess(1)).run["scans"] == 2
    more = msgspec.structs.replace(job, max_scans=3)
    outcome = train_job(more, store, InProcess(1), begin="resume")
    assert outcome.run["scans"] == 3
    assert any(r["chunks_read"] < r["chunks"] for r in outcome.rounds[1:])


@pytest.mark.usefixtures("_small_sample")
def test_time_limit(tmp_path: Path, store: Store) -> None:
    """A job whose time is over stops within its scan, keeps the blocks that are done, and can be resumed."""
    job = new_job(store=store.path, out=tmp_path / "m", epsilon=1e-6, time_limit=1e-6, memory=20_000)  # type: ignore[arg-type]
    stopped = train_job(job, store, InProcess(1))
    assert (stopped.model.status, stopped.run["scans"], summary_of(stopped)["lower"]) == ("stopped", 0, None)
    assert verify(tmp_path / "m", store.path).ok
    more = msgspec.structs.replace(job, time_limit=None)
    ended = train_job(more, store, InProcess(1), begin="resume")
    train_job(msgspec.structs.replace(more, out=tmp_path / "whole"), store, InProcess(1))
    assert ended.model.status == "certified"
    assert exact(tmp_path / "m") == exact(tmp_path / "whole")


def test_not_separable(tmp_path: Path, make_store: Callable[..., Store], rng: np.random.Generator) -> None:
    """Rows that no hyperplane separates end with the rows whose hulls meet, which verify as a proof."""
    X = rng.standard_normal((500, 4)).astype(np.float32)
    store = make_store(X, rng.integers(0, 2, 500))
    outcome = train_job(new_job(store=store.path, out=tmp_path / "m"), store, InProcess(1))
    assert outcome.model.status == "not_separable"
    assert summary_of(outcome)["lower"] is None
    assert len(outcome.model.coreset_ids) <= 4 + 2
    assert verify(tmp_path / "m", store.path).ok


def test_unlabelled_rows_are_no_part_of_the_question(
    tmp_path: Path, make_separable: Callable[..., Any], make_store: Callable[..., Store]
) -> None:
    """Rows without a label neither move the margin nor break the proof."""
    X, y = make_separable(400, 3)
    stray = np.zeros((50, 3), np.float32)
    store = make_store(np.vstack([X, stray]), [*y.tolist(), *[None] * 50])
    alone = make_store(X, y, name="alone.zarr")
    with_stray = train_job(new_job(store=store.path, out=tmp_path / "m"), store, InProcess(1))
    without = train_job(new_job(store=alone.path, out=tmp_path / "n"), alone, InProcess(1))
    assert summary_of(with_stray)["upper"] == summary_of(without)["upper"]
    assert verify(tmp_path / "m", store.path).ok


def test_nothing_is_begun_for_labels_that_cannot_be_trained(
    tmp_path: Path, make_separable: Callable[..., Any], make_store: Callable[..., Store]
) -> None:
    """Three classes are refused before a lock is taken or a row is read."""
    X, _ = make_separable(90, 3)
    store = make_store(X, np.arange(90) % 3)
    with pytest.raises(LabelError, match="expected two classes, found 3 \\(0, 1, 2\\).*--only 0,1"):
        train_job(new_job(store=store.path, out=tmp_path / "new" / "m"), store, InProcess(1))
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("_small_sample")
def test_an_error_in_a_listener_ends_the_job_and_keeps_the_model(tmp_path: Path, store: Store) -> None:
    """What a callback raises passes through; an older model and the lock are as before."""
    job = new_job(store=store.path, out=tmp_path / "m")
    train_job(job, store, InProcess(1))
    bits = exact(Path(job.out))

    def fail(_: object) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train_job(job, store, InProcess(1), overwrite=True, progress=Progress(on_block=fail))
    assert exact(Path(job.out)) == bits
    assert train_job(job, store, InProcess(1), overwrite=True, begin="resume").model.status == "certified"


def test_the_histogram_is_that_of_the_model(tmp_path: Path, store: Store) -> None:
    """When the last scan proved the model, its histogram of margins is the model's own, and says so."""
    outcome = train_job(new_job(store=store.path, out=tmp_path / "m"), store, InProcess(1))
    assert outcome.run["histogram"]["hypothesis"] == "final"
    found, at = outcome.run["histogram"], Model.load(tmp_path / "m")
    X, codes = store.rows_at(np.arange(store.rows))[:2]
    for code, side in ((0, "negative"), (1, "positive")):
        margins = at.decision_function(X[codes == code]) * (2 * code - 1) / np.linalg.norm(at.coef)
        assert np.histogram(margins, found["edges"])[0].tolist() == found[side]
