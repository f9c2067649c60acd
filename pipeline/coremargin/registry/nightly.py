"""The job of every night: what a file says of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import UNSET, Meta

from coremargin import spec as specs
from coremargin.data.inbox import DONE, QUARANTINE, SETTLE_S, Inbox
from coremargin.errors import SpecError
from coremargin.formats.function import refuse_function
from coremargin.formats.versions import WORK
from coremargin.registry.aliases import KEEP
from coremargin.registry.gate_options import Gates
from coremargin.spec import Seconds, Spec

if TYPE_CHECKING:
    from coremargin.formats.versions import VersionRecord
    from coremargin.problems.job import TrainJob

Words = str | list[str]
#: What a training's table may not say: the job says it.
_OURS = ("job", "store", "out", "cluster")


class IngestStep(Spec, frozen=True, kw_only=True):
    """Files of an inbox become rows; words about columns are those of ``coremargin ingest``.

    done, quarantine: where files go that were taken in, and that could not be; folders in the inbox if not said.
    settle: a file that changed so lately may still be written, and waits. keep: rows that came longer ago are taken
    out.
    """

    inbox: Path
    done: Path | None = None
    quarantine: Path | None = None
    settle: Seconds = Seconds(SETTLE_S)
    keep: Seconds | None = None
    new_labels: bool = False
    label: str | int | None = None
    key: str | int | None = None
    weights: str | int | None = None
    drop: Words | None = None
    delimiter: str | None = None
    header: bool | None = None
    categorical: Words | None = None
    dates: Words | None = None
    date_format: str | None = None
    text: Words | None = None
    missing: Words | None = None
    categories: int | None = None
    decimal: str | None = None
    thousands: str | None = None
    na_values: Words | None = None
    keep_default_na: bool | None = None
    unknown: Literal["other", "refuse"] | None = None

    @property
    def box(self) -> Inbox:
        """The inbox."""
        done, quarantine = self.done or self.inbox / DONE, self.quarantine or self.inbox / QUARANTINE
        return Inbox(self.inbox, done, quarantine, float(self.settle))

    def words(self) -> dict[str, Any]:
        """What is said of columns."""
        others = {"inbox", "done", "quarantine", "settle", "keep", "new_labels"}
        named = [name for name in self.__struct_fields__ if name not in others]
        return {name: value for name in named if (value := getattr(self, name)) is not None}


class PredictStep(Spec, frozen=True, kw_only=True):
    """The champion labels rows, a store's or those of files, anew when it or they have changed."""

    rows: Path
    out: Path
    drop: list[str] = []  # noqa: RUF012 - msgspec gives every spec its own copy of a default


class NightlyJob(Spec, tag_field="job", tag="nightly", frozen=True, kw_only=True):
    """Ingest, retrain, hold against gates, promote, predict: what is new, and nothing where nothing is.

    train: parameters of the training, as of a job file of one; where they are others than those of the newest version,
    all is trained from scratch, whether rows have come or not. rewritten: what becomes of a store that no longer has
    the newest version's rows, as after ``coremargin compact``: it is refused, or trained on from scratch. keep:
    versions that stay. cluster: where to run.
    """

    store: Path
    registry: Path
    ingest: IngestStep | None = None
    train: dict[str, Any] = {}  # noqa: RUF012 - as above
    gates: Gates = Gates()
    predict: list[PredictStep] | PredictStep | None = None
    rewritten: Literal["refuse", "train"] = "refuse"
    keep: Annotated[int, Meta(ge=1)] = KEEP
    cluster: Path | None = None

    @property
    def predictions(self) -> list[PredictStep]:
        """All that is to be labelled."""
        asked = self.predict
        return [] if asked is None else asked if isinstance(asked, list) else [asked]

    def is_asked_of(self, record: VersionRecord, *, epsilon: bool) -> bool:
        """Whether the training asks for what a version was made by, limits aside; epsilon: for its precision, too."""
        from coremargin.problems.registry import job_of

        if not self.train:
            return True
        wanted, where = self.training(self.registry / WORK), str(self.registry)
        jobs = record.job if record.first_job is UNSET else record.first_job, record.job
        try:
            first, last = (job_of(specs.parse_toml(text, where=where), where=where) for text in jobs)
        except SpecError:
            return False
        if epsilon and "epsilon" in self.train and wanted.epsilon != last.epsilon:
            return False
        asked, then = ({**one.parameters(), "epsilon": None} for one in (wanted, first))
        return type(wanted) is type(first) and asked == then

    def training(self, out: Path, *, where: str = "train") -> TrainJob:
        """The training, into a folder. Raises SpecError."""
        from coremargin.problems.registry import job_of

        for name in _OURS:
            if name in self.train:
                raise SpecError(f"{where}: {name}: the nightly job itself says this; leave it out here")
        options: dict[str, Any] = {"job": "train", "store": str(self.store), "out": str(out), **self.train}
        if self.cluster is not None:
            options["cluster"] = os.fspath(self.cluster)
        job = job_of(options, where=where)
        refuse_function(job.parameters(), "a version of a registry, which gates and MLflow are to run by itself,")
        return job


def load_nightly_job(path: Path) -> NightlyJob | None:
    """The nightly job that a file describes; None where it describes something else. Raises SpecError."""
    options = specs.read_toml(path)
    if options.get("job") != "nightly":
        return None
    job = specs.convert(options, NightlyJob, where=str(path), base=path.parent)
    if job.train:  # what is wrong with it is told tonight, not when the first rows come
        job.training(job.registry / WORK / "model", where=f"{path}, [train]")
    return job
