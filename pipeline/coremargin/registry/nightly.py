"""Options of the nightly job, as in its job file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import UNSET, Meta

from coremargin import spec as specs
from coremargin.data.inbox import DONE, QUARANTINE, SETTLE_S, Inbox
from coremargin.engine.clusters.specs import ClusterChoice
from coremargin.errors import SpecError
from coremargin.formats.function import refuse_function
from coremargin.formats.location import Location, is_remote
from coremargin.formats.versions import WORK
from coremargin.registry.aliases import KEEP
from coremargin.spec import Seconds, Spec

if TYPE_CHECKING:
    from coremargin.formats.versions import VersionRecord
    from coremargin.problems.job import TrainJob

Names = str | list[str]
Share = Annotated[float, Meta(ge=0, le=1)]
SCORES = ("accuracy", "f1", "balanced_accuracy")
#: Keys that ``[train]`` must not have: the nightly job sets them.
_RESERVED = ("job", "store", "out", "cluster")


class IngestStep(Spec, frozen=True, kw_only=True):
    """Ingest the files of an inbox; columns are described as for ``coremargin ingest``.

    inbox: a folder, or the address of a prefix in a bucket, of which nothing is moved. done, quarantine: folders for
    files that were ingested, and that could not be; default: in the inbox. settle: wait so long after the last change
    of a file. keep: remove rows whose commit is older.
    """

    inbox: Location
    done: Path | None = None
    quarantine: Path | None = None
    settle: Seconds = Seconds(SETTLE_S)
    keep: Seconds | None = None
    new_labels: bool = False
    label: str | int | None = None
    key: str | int | None = None
    group: str | int | None = None
    weights: str | int | None = None
    drop: Names | None = None
    delimiter: str | None = None
    header: bool | None = None
    categorical: Names | None = None
    dates: Names | None = None
    date_format: str | None = None
    text: Names | None = None
    missing: Names | None = None
    categories: int | None = None
    decimal: str | None = None
    thousands: str | None = None
    na_values: Names | None = None
    keep_default_na: bool | None = None
    unknown: Literal["other", "refuse"] | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for folders of files that are not moved."""
        if is_remote(self.inbox) and (self.done is not None or self.quarantine is not None):
            raise ValueError("done, quarantine: objects of an inbox at an address are not moved; leave them out")

    def open_inbox(self) -> Inbox:
        """The inbox with its default folders."""
        path = Path(self.inbox)
        return Inbox(path, self.done or path / DONE, self.quarantine or path / QUARANTINE, float(self.settle))

    def ingest_options(self) -> dict[str, Any]:
        """The options about columns that are set."""
        others = {"inbox", "done", "quarantine", "settle", "keep", "new_labels"}
        names = [name for name in self.__struct_fields__ if name not in others]
        return {name: value for name in names if (value := getattr(self, name)) is not None}


class Gates(Spec, frozen=True, kw_only=True):
    """Conditions for a promotion; None: not checked.

    certified: the model has the proof that the job wants. verify: ``coremargin verify`` passes (reads all rows). ratio:
    smallest ratio of the bounds. held_out: a store of rows that no model is trained on. accuracy, f1,
    balanced_accuracy: largest loss on it, compared with the champion. worse: level of the exact paired test (McNemar)
    at which the candidate counts as worse. shrink: largest share of the champion's rows that may be missing, including
    removed and expired ones; 1: any. drift: largest change of a feature's mean, in standard deviations of earlier rows.
    class_shift: largest change of a class share. class_shares: smallest and largest share, by label. outside: largest
    share of the rows appended since the champion's commit that may lie outside of a ball or an ellipsoid: of the model
    in the folder ``ball``, None: of the champion.
    """

    certified: bool = True
    verify: bool = True
    ratio: Share | None = None
    held_out: Location | None = None
    accuracy: Share | None = None
    f1: Share | None = None
    balanced_accuracy: Share | None = None
    worse: Share | None = None
    shrink: Share | None = 0.2
    drift: Annotated[float, Meta(gt=0)] | None = None
    class_shift: Share | None = None
    class_shares: dict[str, tuple[Share, Share]] | None = None
    outside: Share | None = None
    ball: Path | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for a score without held-out rows, and for a ball without a share."""
        if self.ball is not None and self.outside is None:
            raise ValueError("ball: needs outside, the largest share of the new rows that may lie outside of it")
        scores = [name for name in (*SCORES, "worse") if getattr(self, name) is not None]
        if scores and self.held_out is None:
            raise ValueError(f"{scores[0]}: needs held_out, a store that no model is trained on")


class PredictStep(Spec, frozen=True, kw_only=True):
    """Label the rows of a store or of files with the champion."""

    rows: Location
    out: Location
    drop: list[str] = []  # noqa: RUF012 - msgspec gives every spec its own copy of a default


class NightlyJob(Spec, tag_field="job", tag="nightly", frozen=True, kw_only=True):
    """Ingest, retrain, evaluate gates, promote, predict.

    train: as in the job file of a training; if it differs from the newest version's, train from scratch. rewritten:
    whether to refuse a store without the rows of the newest version, as after ``coremargin compact``, or to train from
    scratch. keep: versions to keep.
    """

    store: Location
    registry: Path
    ingest: IngestStep | None = None
    train: dict[str, Any] = {}  # noqa: RUF012 - as above
    gates: Gates = Gates()
    predict: list[PredictStep] | PredictStep | None = None
    rewritten: Literal["refuse", "train"] = "refuse"
    keep: Annotated[int, Meta(ge=1)] = KEEP
    cluster: ClusterChoice | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for a share outside of a champion that is neither ball nor ellipsoid."""
        of_champion = self.gates.outside is not None and self.gates.ball is None
        if of_champion and self.train and self.train.get("one_class") is None:
            raise ValueError(
                "gates: outside: needs ball, the folder of a trained ball or ellipsoid, unless [train] has one_class"
            )

    @property
    def predictions(self) -> list[PredictStep]:
        """``predict`` as a list."""
        steps = self.predict
        return [] if steps is None else steps if isinstance(steps, list) else [steps]

    def has_parameters_of(self, record: VersionRecord, *, epsilon: bool) -> bool:
        """Whether ``train`` has the parameters of a version, except limits; epsilon: compare it, too."""
        from coremargin.problems.registry import job_of

        if not self.train:
            return True
        wanted, where = self.train_job(self.registry / WORK), str(self.registry)
        jobs = record.job if record.first_job is UNSET else record.first_job, record.job
        try:
            first, last = (job_of(specs.parse_toml(text, where=where), where=where) for text in jobs)
        except SpecError:
            return False
        if epsilon and "epsilon" in self.train and wanted.epsilon != last.epsilon:
            return False
        now, before = ({**one.parameters(), "epsilon": None} for one in (wanted, first))
        return type(wanted) is type(first) and now == before

    def train_job(self, out: Path, *, where: str = "train") -> TrainJob:
        """Raises SpecError."""
        from coremargin.problems.registry import job_of

        for name in _RESERVED:
            if name in self.train:
                raise SpecError(f"{where}: {name}: the nightly job sets this itself; remove it here")
        options: dict[str, Any] = {"job": "train", "store": self.store, "out": str(out), **self.train}
        if self.cluster is not None:
            options["cluster"] = str(self.cluster)
        job = job_of(options, where=where)
        refuse_function(job.parameters(), "a version of a registry, which gates and MLflow run on their own,")
        return job


def load_nightly_job(path: Path) -> NightlyJob | None:
    """The nightly job in a file; None for a job of another kind. Raises SpecError."""
    options = specs.read_toml(path)
    if options.get("job") != "nightly":
        return None
    job = specs.convert(options, NightlyJob, where=str(path), base=path.parent)
    if job.train:  # report errors now, not when the first rows arrive
        job.train_job(job.registry / WORK / "model", where=f"{path}, [train]")
    return job
