"""Retraining: a model of the newest commit of a store, starting from a model of an earlier one.

The certificate is that of a model trained from scratch, over all rows. The problem starts from the warm-start state of
the earlier model (models/kept.py), and reads rows that changed and those for which the change leaves too little proven.
If that is impossible, the model is trained from scratch, and ``run.json`` has the reason.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import numpy as np
from msgspec import Meta
from msgspec.structs import replace

from coremargin import spec as specs
from coremargin.data.difference import difference, earlier
from coremargin.data.scaled import scaling_of
from coremargin.data.storages import open_storage
from coremargin.data.store import Store
from coremargin.data.view import root
from coremargin.engine.checkpoint import identity_then
from coremargin.engine.clusters.specs import ClusterChoice
from coremargin.engine.problem import CannotWarmStart, WarmStarts
from coremargin.errors import CoremarginError, DataError, SpecError, UsageError
from coremargin.formats.location import Location, is_remote, location, storage_words
from coremargin.formats.run_record import RUN, read_run_record
from coremargin.formats.versions import resolve_model
from coremargin.models.kept import model_digest, read_kept
from coremargin.models.registry import load
from coremargin.problems.registry import job_of, kind_of, kind_of_model, trained
from coremargin.problems.resuming import option_words
from coremargin.spec import Seconds, Size, Spec

if TYPE_CHECKING:
    from coremargin.data.difference import Difference
    from coremargin.data.source import Source
    from coremargin.engine.checkpoint import Begin
    from coremargin.engine.problem import AnyProblem
    from coremargin.maths.mapping import FeatureMap
    from coremargin.models.fleet import AnyModel
    from coremargin.problems.job import TrainJob

#: Parameters that a retraining may change.
CHANGEABLE = ("epsilon", "memory", "keep_for_retraining", "block", "max_scans", "time_limit", "cluster")
#: Parameters of the earlier run only.
_OF_THE_RUN = ("memory", "max_scans", "time_limit", "cluster")


class RetrainJob(Spec, tag_field="job", tag="retrain", frozen=True, kw_only=True):
    """Retrain a model on the newest commit of its store, with the parameters that it was trained with.

    None: as before, except for memory, max_scans, time_limit and cluster, whose defaults are those of ``TrainJob``.
    """

    model: Annotated[Location, Meta(description="Folder or address of the earlier model.")]
    store: Location
    out: Annotated[Location, Meta(description="Folder or address of the new model.")]
    kernel: Annotated[str | None, Meta(description="MODULE:FUNCTION of a user-defined kernel.")] = None
    epsilon: Annotated[float | None, Meta(description="Relative gap between the bounds.  [default: as before]")] = None
    memory: Annotated[
        Size | None,
        Meta(description="Memory for rows in the driver.  [default: a quarter of the available memory]"),
    ] = None
    keep_for_retraining: Annotated[
        Size | None, Meta(description="Most bytes of warm-start state, 0: none.  [default: as before]")
    ] = None
    block: Annotated[Size | None, Meta(description="Bytes that a task reads.  [default: as before]")] = None
    max_scans: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="Stop after so many scans, with the bounds reached.")
    ] = None
    time_limit: Annotated[
        Seconds | None, Meta(description='Stop after so long, such as "2 h", with the bounds reached.')
    ] = None
    cluster: ClusterChoice | None = None


def retrain_job_of(options: Mapping[str, Any], *, where: str, base: Path | None = None) -> RetrainJob:
    """From plain values; None: not set. Raises SpecError, also for parameters that a retraining cannot change."""
    values = {name: os.fspath(v) if isinstance(v, os.PathLike) else v for name, v in options.items() if v is not None}
    known = {*RetrainJob.__struct_fields__, "job"}
    for name in values:
        if name not in known and any(name in kind.job.__struct_fields__ for kind in trained()):
            raise SpecError(
                f"{where}: {name}: a retraining keeps the value of the earlier model; to change it, train a new model "
                f"with `coremargin train` (a retraining may change {', '.join(CHANGEABLE)})"
            )
    return specs.convert({"job": "retrain", **values}, RetrainJob, where=where, base=base)


@dataclass(frozen=True, kw_only=True)
class Retraining:
    """A retraining that can start.

    job: of the new model. path, model, digest: of the earlier one. resume: words of the command that resumes the run.
    """

    job: TrainJob
    path: Location
    model: AnyModel
    digest: str
    resume: tuple[str, ...]

    @property
    def identity(self) -> dict[str, Any]:
        """What a checkpoint must agree with, besides the job."""
        return {"parent": self.digest}

    @property
    def maps(self) -> list[FeatureMap]:
        """The maps of the earlier model, by gamma: new rows are mapped in the same way."""
        model: Any = self.model  # a job that trains makes models with maps
        return sorted(model.row_maps, key=lambda feature_map: getattr(feature_map, "gamma", 0.0))

    def start(self, problem: AnyProblem) -> tuple[Any, dict[str, Any]]:
        """The first state, warm or from scratch, and entries of ``run.json``. Raises StoreError."""
        store = root(problem.source)
        assert isinstance(store, Store)  # noqa: S101 - for the type checker: a job is about a store
        changes = difference(earlier(store, self.model.store_digest, self.model.store_sha256), store)
        about: dict[str, Any] = {
            "model": str(self.path),
            **self.identity,
            "store": self.model.store_digest,
            "rows": changes.before,
            "rows_appended": changes.appended,
            "rows_changed": changes.changed,
        }
        try:
            state = self._warm_start(problem, changes)
        except CannotWarmStart as reason:
            state, about["from_scratch"] = problem.start(), str(reason)
        return state, {"resume": list(self.resume), "retrained": about}

    def _warm_start(self, problem: AnyProblem, changes: Difference) -> Any:
        """Raises CannotWarmStart."""
        if not isinstance(problem, WarmStarts):
            raise CannotWarmStart(f"{kind_of(self.job).title} is always trained from scratch")
        try:
            saved = read_kept(self.path)
        except DataError as error:
            raise CannotWarmStart(str(error)) from error
        if saved is None:
            raise CannotWarmStart(f"{self.path} has no warm-start state")
        if model_digest(self.path) != self.digest:
            raise CannotWarmStart(f"{self.path} was replaced meanwhile")
        if not _same_scaling(problem.source, self.model):
            raise CannotWarmStart(f"the {self.job.scaling!r} scaling has changed with the rows")
        codes = getattr(problem, "codes", None)
        if codes is not None and {problem.source.classes[code] for code in codes} != set(self.model.classes):
            raise CannotWarmStart("the rows have other classes than before")
        try:
            return problem.warm_start(saved, changes)
        except (CoremarginError, CannotWarmStart):  # errors of the store are not the state's
            raise
        except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, AssertionError) as error:
            text = f"{self.path} has warm-start state that this version cannot use ({type(error).__name__}: {error})"
            raise CannotWarmStart(text) from error


def _same_scaling(source: Source, model: AnyModel) -> bool:
    """Whether rows are scaled with exactly the numbers of a model."""
    now = scaling_of(source)
    if now is None or now.kind == "rownorm":
        return True
    if now.metric is not None:
        return now.same(getattr(model, "row_scaling", None))
    then = [getattr(model, name, None) for name in ("shift", "factor")]
    return all(
        one is not None and other is not None and np.array_equal(one, other)
        for one, other in zip((now.shift, now.factor), then, strict=True)
    )


def prepare_retraining(retrain: RetrainJob, begin: Begin = "new") -> Retraining:
    """Check that a retraining is possible.

    Raises DataError (no model, or a damaged one), StoreError (another store, or a missing commit), UsageError (a model
    that was not trained from a store).
    """
    retrain = replace(retrain, model=location(resolve_model(retrain.model)))
    model, folder = load(retrain.model), _absolute(retrain.model)
    store = Store.open(retrain.store)
    earlier(store, model.store_digest, model.store_sha256)
    then = _job_of_model(folder, model, retrain)
    changes = {name: getattr(retrain, name) for name in CHANGEABLE if getattr(retrain, name) is not None}
    if then.map is not None:  # "scale" was that of the rows then; random frequencies have no gamma
        row_maps = cast("Any", model).row_maps
        gammas = tuple(sorted(one.gamma for one in row_maps if hasattr(one, "gamma")))
        if gammas:
            changes["gamma"] = gammas if isinstance(then.gamma, tuple) else gammas[0]
    try:
        job = replace(then, **changes)
    except ValueError as error:
        raise UsageError(f"coremargin retrain: {error}") from error
    digest: Any = model_digest(folder)
    if begin == "resume" and folder == _absolute(retrain.out) and model.store_digest == store.digest:
        digest = identity_then(retrain.out).get("parent", digest)  # killed after it had replaced its parent
    words = ["coremargin", "retrain", str(retrain.model), str(retrain.store), "--out", str(retrain.out)]
    words += storage_words(retrain.store, retrain.model, retrain.out)
    resume = (*words, *option_words(retrain), "--resume")
    return Retraining(job=job, path=folder, model=model, digest=digest, resume=resume)


def _absolute(place: Location) -> Location:
    """The same place, whatever the working directory."""
    return place if is_remote(place) else location(os.path.abspath(place))


def _job_of_model(folder: Location, model: AnyModel, retrain: RetrainJob) -> TrainJob:
    """The job in the model's ``run.json`` or else its parameters, with a new store and output. Raises UsageError."""
    try:
        run = open_storage(folder).read_whole(read_run_record)
        options = specs.parse_toml(str(run["job"]), where=f"{folder}/{RUN}")
    except (OSError, DataError, SpecError, KeyError):
        options = {"job": "train", **model.parameters}
    options = {name: value for name, value in options.items() if name not in _OF_THE_RUN}
    options = kind_of_model(model).retraining_options(options, retrain.kernel)
    try:
        job = job_of({**options, "store": retrain.store, "out": retrain.out}, where=f"{folder}/{RUN}")
    except SpecError as error:
        raise UsageError(f"{folder}: the parameters of this model are not known ({error}); train a new one") from error
    kind = kind_of(job)
    if kind.job.__struct_config__.tag != "train" or not kind.is_model_of(job, model):
        raise UsageError(
            f"{folder}: expected a model that `coremargin train` or `coremargin retrain` made, found one of "
            f"{kind_of_model(model).title}; only these can be trained again from a store alone"
        )
    return job


def load_retrain_job(path: Path) -> RetrainJob | None:
    """The retraining in a job file; None for a job of another kind. Raises SpecError."""
    options = specs.read_toml(path)
    return retrain_job_of(options, where=str(path), base=path.parent) if options.get("job") == "retrain" else None
