"""(l) Six updates of new rows: what retraining reads, against training from scratch; one update of a large store."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from measure import Sample, timed
from pure_pass import one_pass
from table import Group, Row

from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.engine.executors import InProcess
from coremargin.learn.retrain import prepare_retraining, retrain_job_of
from coremargin.learn.train import train_job
from coremargin.models.kept import kept_bytes
from coremargin.problems.registry import new_job, write_report
from coremargin.spec import format_size

if TYPE_CHECKING:
    from pathlib import Path

    from stores import Settings

UPDATES, SHARE, MARGIN = 6, 0.05, 0.5
#: By how much of their margin new rows come closer in every update.
CLOSER = (0.0, 0.01)
#: A large store: new rows of an update as a share of the first ones, rows written at a time, and what is trained on it.
FEW, PART = 0.01, 250_000
LARGE: dict[str, tuple[float, dict[str, Any]]] = {
    "hard margin": (0.0, {}),
    "hinge": (0.1, {"loss": "hinge", "C": 0.1}),
    "squared hinge": (0.1, {"loss": "squared_hinge", "C": 0.1}),
}


def updates(settings: Settings) -> Iterator[Group]:
    """Rows of the same source, and rows that come closer; few new rows of a large store, where one is asked for."""
    for closer in CLOSER:
        yield _updates(settings, closer)
    if settings.large_rows:
        for kind, (wrong, options) in LARGE.items():
            yield _large(settings, kind, wrong, {"epsilon": settings.epsilon, **options})


def _large(settings: Settings, kind: str, wrong: float, options: dict[str, Any]) -> Group:
    """Two updates of few new rows, and a training from scratch on the same rows; float64."""
    folder = settings.work / "large-updates"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    store, rng, features = folder / "rows.zarr", np.random.default_rng(2), settings.large_features
    plane = rng.standard_normal(features)
    plane /= np.linalg.norm(plane)
    with StoreWriter.create(store, features=features, dtype="float64") as writer:
        for first in range(0, settings.large_rows, PART):
            _write(writer, rng, plane, min(PART, settings.large_rows - first), MARGIN, wrong)
    size = format_size(Store.open(store).nbytes)
    group = Group("l", f"{kind}: {FEW:.0%} new rows, {settings.large_rows:,} x {features} float64, {size}")
    first = _cpu_timed(partial(_train, store, folder / "0", **options))
    group.rows.append(_row("the first training", first))
    every = []
    for update in (1, 2):
        with StoreWriter.append(store) as writer:
            _write(writer, rng, plane, int(FEW * settings.large_rows), MARGIN, wrong)
        every.append(_cpu_timed(partial(_retrain, store, folder / str(update - 1), folder / str(update))))
        group.rows.append(_row(f"update {update}: retrain", every[-1]))
    fresh = _cpu_timed(partial(_train, store, folder / "fresh", **options))
    group.rows.append(_row("after the last: train from scratch", fresh))
    wall, cpu, read = (
        statistics.mean(of(sample) for sample in every) / of(fresh)
        for of in (lambda one: one.seconds, lambda one: one.answer["cpu"], lambda one: one.answer["read"])
    )
    group.notes.append(f"an update over a training from scratch: wall {wall:.3f}, CPU {cpu:.3f}, bytes {read:.3f}")
    share = (kept_bytes(folder / "2") or 0) / Store.open(store).nbytes
    group.notes.append(f"kept beside the model: {share:.4f} of the store")
    shutil.rmtree(folder)
    return group


def _cpu_timed(work: Callable[[], dict[str, Any]]) -> Sample:
    """With CPU seconds of this process beside those of the wall."""
    before = time.process_time()
    sample = timed(work)
    sample.answer["cpu"] = time.process_time() - before
    return sample


def _updates(settings: Settings, closer: float) -> Group:
    folder = settings.work / "updates"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    store, rng = folder / "rows.zarr", np.random.default_rng(1)
    plane = rng.standard_normal(settings.features)
    plane /= np.linalg.norm(plane)
    with StoreWriter.create(store, features=settings.features, chunk_bytes=1 << 20) as writer:
        for _ in range(10):
            _write(writer, rng, plane, settings.rows // 10, MARGIN)
    word = f"come {closer:.0%} closer in every update" if closer else "are of the same source"
    group = Group(
        "l", f"{UPDATES} updates of {SHARE:.0%} new rows that {word}, {settings.rows:,} x {settings.features}"
    )
    _train(store, folder / "0", epsilon=settings.epsilon)
    every = []
    for update in range(1, UPDATES + 1):
        with StoreWriter.append(store) as writer:
            _write(writer, rng, plane, int(SHARE * settings.rows), MARGIN * (1 - closer) ** update)
        every.append(timed(partial(_retrain, store, folder / str(update - 1), folder / str(update))))
        group.rows.append(_row(f"update {update}: retrain", every[-1]))
    fresh = timed(partial(_train, store, folder / "fresh", epsilon=settings.epsilon))
    group.rows.append(_row("after the last: train from scratch", fresh))
    passed = timed(lambda: vars(one_pass(Store.open(store), InProcess(2))))
    group.rows.append(Row("after the last: one pure pass", passed.seconds, read=1.0))
    mean = sum(sample.answer["read"] for sample in every) / UPDATES
    group.notes.append(f"an update reads {mean:.3f} times the store on the mean; warm, in process, each once")
    shutil.rmtree(folder)
    return group


def _write(
    writer: StoreWriter, rng: np.random.Generator, plane: np.ndarray, rows: int, margin: float, wrong: float = 0.0
) -> None:
    X = rng.standard_normal((rows, len(plane)), dtype=np.float32)
    y = np.where(X @ plane >= 0, 1, -1)
    X = (X + (margin * y)[:, None] * plane).astype(np.float32)
    writer.write(X, np.where(rng.random(rows) < wrong, -y, y) if wrong else y, origin="updates")


def _train(store: Path, out: Path, **options: Any) -> dict[str, Any]:
    job = new_job(store=store, out=out, **options)
    return _answer(train_job(job, Store.open(store), InProcess(2), report=partial(write_report, name=out.name)))


def _retrain(store: Path, model: Path, out: Path) -> dict[str, Any]:
    again = prepare_retraining(retrain_job_of({"model": model, "store": store, "out": out}, where="bench"))
    report = partial(write_report, name=out.name)
    return _answer(train_job(again.job, Store.open(store), InProcess(2), report=report, retraining=again))


def _answer(outcome: Any) -> dict[str, Any]:
    run, model = outcome.run, outcome.model
    read = run["bytes_read"] / run["store_bytes"]
    return {"read": read, "scans": run["scans"], "ratio": model.certificate.ratio, "status": model.status}


def _row(what: str, sample: Sample) -> Row:
    answer = sample.answer
    note = "" if answer["status"] == "certified" else answer["status"]
    note += f"CPU {answer['cpu']:.1f} s" if "cpu" in answer else ""
    return Row(
        what, sample.seconds, read=answer["read"], scans=answer["scans"], margin=answer["ratio"], note=note
    )  # fmt: skip
