"""(o) Six updates of new rows, for several kinds of models: what an update reads, and what it costs in CPU time."""

from __future__ import annotations

import shutil
import statistics
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from table import Group, Row

from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter
from coremargin.engine.executors import InProcess
from coremargin.learn.retrain import prepare_retraining, retrain_job_of
from coremargin.learn.train import train_job
from coremargin.models.kept import kept_bytes
from coremargin.problems.registry import new_job
from coremargin.verify.examine import examine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stores import Settings

#: Bytes that a model may keep, which is more than any of these needs.
KEPT = 1 << 30
UPDATES, SHARE, MARGIN, WRONG = 6, 0.05, 0.5, 0.1
#: By how much of their margin new rows come closer in every update.
CLOSER = (0.0, 0.01)
#: What is trained, on so many classes.
KINDS: dict[str, tuple[int, dict[str, Any]]] = {
    "hard margin": (2, {}),
    "hinge": (2, {"loss": "hinge", "C": 0.1}),
    "squared hinge": (2, {"loss": "squared_hinge", "C": 0.1}),
    "100 hinges, by C": (2, {"loss": "hinge", "C": np.geomspace(1e-3, 10, 100).tolist()}),
    "100 squared hinges, by C": (2, {"loss": "squared_hinge", "C": np.geomspace(1e-3, 10, 100).tolist()}),
    "5 hinges, by C": (2, {"loss": "hinge", "C": np.geomspace(1e-2, 1, 5).tolist()}),
    "10 classes x 10 hinges": (10, {"loss": "hinge", "classes": "ovr", "C": np.geomspace(1e-3, 1, 10).tolist()}),
}
#: Rows as a share of those asked for, features, memory, what is trained.
STORES: tuple[tuple[float, int, str | None, tuple[str, ...]], ...] = (
    (0.2, 30, None, tuple(kind for kind in KINDS if not kind.startswith("5"))),
    (0.02, 250, None, ("hinge", "squared hinge")),
    (1.0, 50, "96 MiB", ("hard margin", "hinge", "squared hinge", "5 hinges, by C")),
)


def kinds_of_updates(settings: Settings) -> Iterator[Group]:
    """A store that fits into memory, one of few rows for each feature, and one that does not fit."""
    for share, features, memory, kinds in STORES:
        rows = int(share * settings.rows)
        for closer in CLOSER:
            word = f"come {closer:.0%} closer in every update" if closer else "are of the same source"
            held = f", {memory} of memory" if memory else ", all in memory"
            group = Group("o", f"{UPDATES} updates of {SHARE:.0%} new rows that {word}, {rows:,} x {features}{held}")
            given = {"epsilon": settings.epsilon, **({"memory": memory} if memory else {})}
            for kind in kinds:
                classes, options = KINDS[kind]
                made = Made(settings.work / "kinds", rows, features, classes, closer, WRONG if options else 0.0)
                group.rows.append(_row(kind, made, {**options, **given}))
            group.notes.append(
                "seconds and ratios are of CPU time: an update, on the median, against training from scratch"
            )
            yield group


@dataclass
class Made:
    """A store that grows: rows on either side of a plane, or by the nearest of several, some with wrong labels."""

    folder: Path
    rows: int
    features: int
    classes: int
    closer: float
    wrong: float
    update: int = 0
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))

    def __post_init__(self) -> None:
        """Create it."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        sides = self.rng.standard_normal((self.classes if self.classes > 2 else 1, self.features))
        self.sides = sides / np.linalg.norm(sides, axis=1)[:, None]
        with StoreWriter.create(self.path, features=self.features, chunk_bytes=1 << 18) as writer:
            for _ in range(10):
                self._write(writer, self.rows // 10)

    @property
    def path(self) -> Path:
        """Of the store."""
        return self.folder / "rows.zarr"

    def grow(self) -> None:
        """One update."""
        self.update += 1
        with StoreWriter.append(self.path) as writer:
            self._write(writer, int(SHARE * self.rows))

    def _write(self, writer: StoreWriter, rows: int) -> None:
        X = self.rng.standard_normal((rows, self.features), dtype=np.float32)
        at, away = X @ self.sides.T, MARGIN * (1 - self.closer) ** self.update
        y = at.argmax(axis=1) if self.classes > 2 else np.where(at[:, 0] >= 0, 1, -1)
        X += (away * (self.sides[y] if self.classes > 2 else y[:, None] * self.sides[0])).astype(np.float32)
        others = self.rng.integers(0, self.classes, rows) if self.classes > 2 else -y
        writer.write(X, np.where(self.rng.random(rows) < self.wrong, others, y), origin="updates")


def _row(kind: str, made: Made, options: dict[str, Any]) -> Row:
    """The updates of one kind of model; the last model is held against the verifier."""
    updates, read, kept, near, notes = [], [], [], [], list[str]()
    _train(made, options)
    for update in range(1, UPDATES + 1):
        made.grow()
        words = {"model": made.folder / str(update - 1), "store": made.path, "out": made.folder / str(update)}
        if "memory" in options:
            words["memory"] = options["memory"]
        again = prepare_retraining(retrain_job_of(words, where="bench"))
        seconds, outcome = _timed(partial(_done, again.job, again))
        updates.append(seconds)
        read.append(outcome.run["bytes_read"] / outcome.run["store_bytes"])
        near.append((kept_bytes(words["model"]) or 0) / outcome.run["store_bytes"])
        kept.append((kept_bytes(words["out"]) or 0) / outcome.run["store_bytes"])
        notes += [f"update {update}: {why}" for why in (outcome.run["retrained"].get("from_scratch"),) if why]
        if outcome.model.status != "certified":
            notes.append(f"update {update}: {outcome.model.status}")
    if not examine(made.folder / str(UPDATES), made.path).ok:
        notes.append("refuted")
    scratch, _ = _timed(partial(_train, made, options, "scratch"))
    shutil.rmtree(made.folder)
    update = statistics.median(updates)
    whole = statistics.mean(read) + statistics.mean(near)
    notes.append(f"at most {max(read):.3f} reads; with the reading of what is kept {whole:.3f} on the mean")
    notes.append(f"retraining.npz {kept[-1]:.2f} of the store; scratch {scratch:.1f} s")
    return Row(kind, update, ratio=update / scratch, read=statistics.mean(read), note="; ".join(notes))


def _train(made: Made, options: dict[str, Any], name: str = "0") -> Any:
    return _done(new_job(store=made.path, out=made.folder / name, keep_for_retraining=KEPT, **options))


def _done(job: Any, beginning: Any = None) -> Any:
    return train_job(job, Store.open(job.store), InProcess(2), retraining=beginning)


def _timed(work: Any) -> tuple[float, Any]:
    """CPU seconds of this process, and what came of it."""
    before = time.process_time()
    found = work()
    return time.process_time() - before, found
