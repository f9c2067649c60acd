"""(l) Six nights of new rows: what retraining reads, against training from nothing."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from measure import Sample, timed
from pure_pass import one_pass
from table import Group, Row

from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.engine.executors import InProcess
from coremargin.learn.retrain import prepared, retrain_job_of
from coremargin.learn.train import train_job
from coremargin.problems.registry import new_job
from coremargin.problems.report import write_report

if TYPE_CHECKING:
    from pathlib import Path

    from stores import Settings

NIGHTS, SHARE, MARGIN = 6, 0.05, 0.5
#: By how much of their margin new rows come closer every night.
CLOSER = (0.0, 0.01)


def nights(settings: Settings) -> Iterator[Group]:
    """Rows of the same source, and rows that come closer."""
    for closer in CLOSER:
        yield _nights(settings, closer)


def _nights(settings: Settings, closer: float) -> Group:
    folder = settings.work / "nights"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    store, rng = folder / "rows.zarr", np.random.default_rng(1)
    plane = rng.standard_normal(settings.features)
    plane /= np.linalg.norm(plane)
    with StoreWriter.create(store, features=settings.features, chunk_bytes=1 << 20) as writer:
        for _ in range(10):
            _write(writer, rng, plane, settings.rows // 10, MARGIN)
    word = f"come {closer:.0%} closer every night" if closer else "are of the same source"
    group = Group("l", f"{NIGHTS} nights of {SHARE:.0%} new rows that {word}, {settings.rows:,} x {settings.features}")
    _train(store, folder / "0", settings.epsilon)
    every = []
    for night in range(1, NIGHTS + 1):
        with StoreWriter.append(store) as writer:
            _write(writer, rng, plane, int(SHARE * settings.rows), MARGIN * (1 - closer) ** night)
        every.append(timed(partial(_retrain, store, folder / str(night - 1), folder / str(night))))
        group.rows.append(_row(f"night {night}: retrain", every[-1]))
    fresh = timed(partial(_train, store, folder / "fresh", settings.epsilon))
    group.rows.append(_row("after the last: train from nothing", fresh))
    passed = timed(lambda: vars(one_pass(Store.open(store), InProcess(2))))
    group.rows.append(Row("after the last: one pure pass", passed.seconds, read=1.0))
    mean = sum(sample.answer["read"] for sample in every) / NIGHTS
    group.notes.append(f"a night reads {mean:.3f} times the store on the mean; warm, in process, each once")
    shutil.rmtree(folder)
    return group


def _write(writer: StoreWriter, rng: np.random.Generator, plane: np.ndarray, rows: int, margin: float) -> None:
    X = rng.standard_normal((rows, len(plane)), dtype=np.float32)
    y = np.where(X @ plane >= 0, 1, -1)
    writer.write((X + (margin * y)[:, None] * plane).astype(np.float32), y, origin="nights")


def _train(store: Path, out: Path, epsilon: float) -> dict[str, Any]:
    job = new_job(store=store, out=out, epsilon=epsilon)
    return _answer(train_job(job, Store.open(store), InProcess(2), report=partial(write_report, name=out.name)))


def _retrain(store: Path, model: Path, out: Path) -> dict[str, Any]:
    again = prepared(retrain_job_of({"model": model, "store": store, "out": out}, where="bench"))
    report = partial(write_report, name=out.name)
    return _answer(train_job(again.job, Store.open(store), InProcess(2), report=report, beginning=again))


def _answer(outcome: Any) -> dict[str, Any]:
    run, model = outcome.run, outcome.model
    read = run["bytes_read"] / run["store_bytes"]
    return {"read": read, "scans": run["scans"], "ratio": model.certificate.ratio, "status": model.status}


def _row(what: str, sample: Sample) -> Row:
    answer = sample.answer
    note = "" if answer["status"] == "certified" else answer["status"]
    return Row(
        what, sample.seconds, read=answer["read"], scans=answer["scans"], margin=answer["ratio"], note=note
    )  # fmt: skip
