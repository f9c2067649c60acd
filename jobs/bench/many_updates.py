"""(m) Two hundred updates of a store that changes at random: the reads of all retrainings, and checks of the models."""

from __future__ import annotations

import shutil
import statistics
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from changing import Changing
from measure import timed
from table import Group, Row

import coremargin
from coremargin.data.difference import difference, earlier
from coremargin.data.store import Store
from coremargin.engine.executors import InProcess
from coremargin.learn.retrain import prepare_retraining, retrain_job_of
from coremargin.learn.train import train_job
from coremargin.problems.registry import new_job
from coremargin.verify.examine import examine

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from stores import Settings

#: The store is compacted in the middle of them; in so many updates the model is held against one made from scratch.
#: Bytes that a model may keep, which is more than it needs.
KEPT = 1 << 30
UPDATES, HELD_EVERY = 200, 10
WRONG = 0.1
#: What is trained; a fleet of two values of C shares its reads.
JOBS: dict[str, dict[str, Any]] = {
    "hard margin": {},
    "hinge": {"loss": "hinge", "C": 0.1},
    "squared hinge": {"loss": "squared_hinge", "C": 0.1},
    "a fleet of hinges": {"loss": "hinge", "C": [0.03, 0.1]},
}


def many_updates(settings: Settings) -> Iterator[Group]:
    """One store for each job."""
    for name, options in JOBS.items():
        yield _group(settings, name, options)


def _group(settings: Settings, name: str, options: dict[str, Any]) -> Group:
    folder = settings.work / "many-updates"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rows, features = 2 * settings.rows // 5, max(2, settings.features // 2)
    path, wrong = folder / "rows.zarr", WRONG if options else 0.0
    changing = Changing(path, features, max(50, rows // 400), rows, rows // 200, wrong)
    updates = Updates(changing, {"epsilon": settings.epsilon, **options})
    group = Group("m", f"{name}: {UPDATES} updates of a store that changes at random, {rows:,} x {features} at first")
    for update in range(1, UPDATES + 1):
        updates.next(compacted=2 * update == UPDATES)
        if update % HELD_EVERY == 0 or update == UPDATES:
            updates.hold()
    group.rows, group.notes = updates.rows(), updates.notes()
    shutil.rmtree(folder)
    return group


@dataclass
class Updates:
    """A store, its models update after update, and what they cost; options: of the first training.

    read: bytes that retrainings read, those after a compaction from scratch; compared: of them, labels and weights that
    were compared; appended, scratch: bytes of rows that came, and of trainings from scratch. faults: what must not be.
    """

    changing: Changing
    options: dict[str, Any]
    update: int = 0
    read: int = 0
    compared: int = 0
    appended: int = 0
    scratch: int = 0
    seconds: list[float] = field(default_factory=list)
    from_nothing: list[float] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Train on the first commit."""
        self._train()

    @property
    def path(self) -> Path:
        """The store."""
        return self.changing.path

    @property
    def out(self) -> Path:
        """The newest model."""
        return self.path.with_name(str(self.update))

    def next(self, *, compacted: bool = False) -> None:
        """The store changes, and the model is made again: from scratch where row ids are others."""
        self.changing.update(self.update + 1, _rests_on(self._model))
        before, digest = self.out, _members(self._model)[0].store_digest
        self.update += 1
        if compacted:
            self.changing.compact()
        self._train(None if compacted else before)
        run = self._run
        self.read += run["bytes_read"]
        reason = "compacted" if compacted else run["retrained"].get("from_scratch")
        if reason:
            self.scratch += run["bytes_read"]
            self.reasons.append(reason)
        if not compacted:
            self._tell(digest)
        shutil.rmtree(before)
        self.faults += [
            f"update {self.update}: {own.status}" for own in _members(self._model) if own.status != "certified"
        ]

    def _train(self, before: Path | None = None) -> None:
        if before is None:
            job, beginning = new_job(store=self.path, out=self.out, keep_for_retraining=KEPT, **self.options), None
        else:
            again = prepare_retraining(
                retrain_job_of({"model": before, "store": self.path, "out": self.out}, where="bench")
            )
            job, beginning = again.job, again
        executor = InProcess(2)

        def work() -> dict[str, Any]:
            outcome = train_job(job, Store.open(self.path), executor, retraining=beginning)
            self._model, self._run = outcome.model, outcome.run
            return {}

        sample = timed(work)
        if self.update:
            self.seconds.append(sample.seconds)

    def _tell(self, digest: str) -> None:
        """What of the update's reading was inevitable, and what was comparing."""
        store = Store.open(self.path)
        found = difference(earlier(store, digest), store)
        self.compared += found.nbytes
        self.appended += found.appended * store.nbytes // store.rows

    def hold(self) -> None:
        """The model against the verifier, and against one made from scratch."""
        if not examine(self.out, self.path).ok:
            self.faults.append(f"update {self.update}: refuted")
        sample = timed(lambda: {"model": coremargin.train(self.path, **self.options)})
        self.from_nothing.append(sample.seconds)
        for own, other in zip(_members(self._model), _members(sample.answer["model"]), strict=True):
            if not (_lower(own) <= _upper(other) and _lower(other) <= _upper(own)):
                self.faults.append(f"update {self.update}: apart from a training from scratch")

    def rows(self) -> list[Row]:
        """An update's cost, on the median, and that of a training from scratch."""
        final = Store.open(self.path).nbytes
        update, scratch = statistics.median(self.seconds), statistics.median(self.from_nothing)
        return [
            Row("an update: retrain", update, ratio=update / scratch, read=self.read / final / self.update),
            Row("an update: train from scratch", scratch, ratio=1.0),
            Row("all updates", sum(self.seconds), read=self.read / final, note="; ".join(self.faults)),
        ]

    def notes(self) -> list[str]:
        """What was read for what, and what happened."""
        store = Store.open(self.path)
        shares = {"rows that came": self.appended, "labels and weights": self.compared, "from scratch": self.scratch}
        told = ", ".join(f"{name} {nbytes / store.nbytes:.2f}" for name, nbytes in shares.items())
        happened = ", ".join(f"{what} {count}" for what, count in sorted(self.changing.happened.items()))
        why = {reason: self.reasons.count(reason) for reason in self.reasons}
        return [
            f"of {self.read / store.nbytes:.2f} reads of the last {store.rows:,} rows: {told}",
            f"updates on which this happened: {happened}",
            f"trained from scratch: {', '.join(f'{reason} ({count})' for reason, count in why.items()) or 'never'}",
        ]


def _members(model: Any) -> list[Any]:
    """A model, or those of a fleet."""
    return list(model.members.values()) if hasattr(model, "members") else [model]


def _rests_on(model: Any) -> list[int]:
    """Rows of a coreset; none with a loss, where nearly all rows near the margin count."""
    return [] if (ids := getattr(model, "coreset_ids", None)) is None else list(ids)


def _lower(model: Any) -> float:
    claim = model.record["certificate"]
    return float(claim["lower"] if "lower" in claim else claim["dual"])


def _upper(model: Any) -> float:
    claim = model.record["certificate"]
    return float(claim["upper"] if "upper" in claim else claim["primal"])
