"""Retraining: a model of the newest commit of a store, from a model of an earlier one.

The certificate is that of a model trained from scratch, over all rows. The problem starts from the warm-start state
of the earlier model (models/kept.py) and reads rows that changed, and those of which the change leaves too
little proven. Where that is impossible, the model is trained from scratch, and the run says why.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from msgspec import Meta
from msgspec.structs import replace

from coremargin import spec as specs
from coremargin.data.difference import difference, earlier
from coremargin.data.scaled import scaling_of
from coremargin.data.store import Store
from coremargin.data.view import root
from coremargin.engine.checkpoint import identity_then
from coremargin.engine.problem import CannotWarmStart, WarmStarts
from coremargin.errors import CoremarginError, DataError, SpecError, UsageError
from coremargin.formats.plain_file import read_plain
from coremargin.formats.run_record import RUN
from coremargin.formats.strict_json import LARGEST, read_object
from coremargin.formats.versions import resolve_model
from coremargin.learn.start import Beginning
from coremargin.models.kept import model_digest, read_kept
from coremargin.models.registry import load
from coremargin.problems.registry import job_of, kind_of, kind_of_model, trained
from coremargin.problems.resuming import option_words
from coremargin.spec import Seconds, Size, Spec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coremargin.data.difference import Difference
    from coremargin.data.source import Source
    from coremargin.engine.problem import AnyProblem
    from coremargin.learn.train import Begin
    from coremargin.maths.mapping import FeatureMap
    from coremargin.models.fleet import AnyModel
    from coremargin.problems.job import TrainJob

#: What a retraining may say otherwise than the training before it.
_FREE = ("epsilon", "memory", "keep_for_retraining", "block", "max_scans", "time_limit", "cluster")
#: What it does not take from there: what was spent then, and where.
_OF_THAT_RUN = ("memory", "max_scans", "time_limit", "cluster")


class RetrainJob(Spec, tag_field="job", tag="retrain", frozen=True, kw_only=True):
    """Make a model again for the newest commit of its store, by the parameters that it was trained with.

    model: the folder of the model to go on from. epsilon: None: as before; memory: as of ``TrainJob``, whatever there
    was before.
    """

    model: Annotated[Path, Meta(description="Folder of the model to go on from.")]
    store: Path
    out: Annotated[Path, Meta(description="Folder of the new model.")]
    kernel: Annotated[
        str | None, Meta(description="MODULE:FUNCTION that is the kernel of the model, where it is one.")
    ] = None
    epsilon: Annotated[
        float | None, Meta(description="Share of the best that may be missed; as before if not said.")
    ] = None
    memory: Annotated[
        Size | None,
        Meta(description="For the rows kept in the driver.  [default: a quarter of the memory that there is]"),
    ] = None
    keep_for_retraining: Annotated[
        Size | None, Meta(description="Most bytes kept for the next retraining, 0: none; as before if not given.")
    ] = None
    block: Annotated[Size | None, Meta(description="Bytes that one task reads; as before if not said.")] = None
    max_scans: Annotated[
        Annotated[int, Meta(ge=1)] | None, Meta(description="Stop after so many scans, with what is proven.")
    ] = None
    time_limit: Annotated[
        Seconds | None, Meta(description='Stop after so long, such as "2 h", with what is proven.')
    ] = None
    cluster: Path | None = None


def retrain_job_of(options: Mapping[str, Any], *, where: str, base: Path | None = None) -> RetrainJob:
    """The retraining of plain values, None being what is not said. Raises SpecError: parameters of trainings, too."""
    given = {name: os.fspath(v) if isinstance(v, os.PathLike) else v for name, v in options.items() if v is not None}
    known = {*RetrainJob.__struct_fields__, "job"}
    for name in given:
        if name not in known and name in _parameters_of_jobs():
            raise SpecError(
                f"{where}: {name}: a retrained model has that of the model before it; to change it, train a new one "
                f"with `coremargin train` (a retraining may change {', '.join(_FREE)})"
            )
    return specs.convert({"job": "retrain", **given}, RetrainJob, where=where, base=base)


def _parameters_of_jobs() -> set[str]:
    """What trainings may say."""
    return {name for kind in trained() for name in kind.job.__struct_fields__}


@dataclass(frozen=True, kw_only=True)
class Retraining(Beginning):
    """How a retraining begins; job: that of the new model; path, model: of the one before it; resume: how to go on."""

    job: TrainJob
    path: Path
    model: AnyModel
    resume: tuple[str, ...]

    @property
    def retrains(self) -> bool:
        """Yes."""
        return True

    @property
    def kept_maps(self) -> Sequence[FeatureMap]:
        """Those of the model before: what is appended is mapped as the rows were that it knows."""
        return _maps_of(self.model)

    def start(self, problem: AnyProblem) -> tuple[Any, dict[str, Any]]:
        """The state to go on from, or the usual first one; and which, for ``run.json``. Raises StoreError."""
        store = root(problem.source)
        assert isinstance(store, Store)  # noqa: S101 - for the type checker: a job is about a store
        changes = difference(earlier(store, self.model.store_digest), store)
        about: dict[str, Any] = {
            "model": str(self.path),
            **self.identity,
            "store": self.model.store_digest,
            "rows": changes.before,
            "rows_appended": changes.appended,
            "rows_changed": changes.changed,
        }
        try:
            state = self._onward(problem, changes)
        except CannotWarmStart as reason:
            state, about["from_nothing"] = problem.start(), str(reason)
        return state, {"resume": list(self.resume), "retrained": about}

    def _onward(self, problem: AnyProblem, changes: Difference) -> Any:
        """The state to go on from. Raises CannotWarmStart."""
        if not isinstance(problem, WarmStarts):
            raise CannotWarmStart(f"{kind_of(self.job).title} is always trained from scratch")
        try:
            kept = read_kept(self.path)
        except DataError as error:
            raise CannotWarmStart(str(error)) from error
        if kept is None:
            raise CannotWarmStart(f"{self.path} keeps nothing to go on from")
        if model_digest(self.path) != self.identity["parent"]:
            raise CannotWarmStart(f"{self.path} was replaced meanwhile")
        if not _same_scaling(problem.source, self.model):
            raise CannotWarmStart(f"with the rows the {self.job.scaling!r} scaling of all of them has changed")
        codes = getattr(problem, "codes", None)
        if codes is not None and {problem.source.classes[code] for code in codes} != set(self.model.classes):
            raise CannotWarmStart("the rows are of other classes than before")
        try:
            return problem.warm_start(kept, changes)
        except (CoremarginError, CannotWarmStart):  # what is wrong with the store is for a person to repair
            raise
        except (LookupError, ValueError, TypeError, AttributeError, ArithmeticError, AssertionError) as error:
            text = f"{self.path} keeps what this version cannot go on from ({type(error).__name__}: {error})"
            raise CannotWarmStart(text) from error


def _same_scaling(source: Source, model: AnyModel) -> bool:
    """Whether rows are scaled by the very numbers that a model has."""
    now = scaling_of(source)
    if now is None or now.shift is None:
        return True
    then = [getattr(model, name, None) for name in ("shift", "factor")]
    return all(
        one is not None and other is not None and np.array_equal(one, other)
        for one, other in zip((now.shift, now.factor), then, strict=True)
    )


def prepared(asked: RetrainJob, begin: Begin = "new") -> Retraining:
    """What a retraining is about, once it is known that it can be made.

    Raises DataError (no model, a damaged one), StoreError (another store, a commit that is gone), UsageError (a model
    that is not made by training).
    """
    asked = replace(asked, model=resolve_model(asked.model))
    model, place = load(asked.model), Path(os.path.abspath(asked.model))
    store = Store.open(asked.store)
    earlier(store, model.store_digest)
    then = _job_of(place, model, asked)
    own = {name: getattr(asked, name) for name in _FREE if getattr(asked, name) is not None}
    own |= _gamma_of(then, model) if then.map is not None else {}
    try:
        job = replace(then, **own)
    except ValueError as error:
        raise UsageError(f"coremargin retrain: {error}") from error
    parent: Any = model_digest(place)
    if begin == "resume" and place == Path(os.path.abspath(asked.out)) and model.store_digest == store.digest:
        parent = identity_then(asked.out).get("parent", parent)  # killed after it had replaced its parent
    words = ["coremargin", "retrain", str(asked.model), str(asked.store), "--out", str(asked.out)]
    resume = (*words, *option_words(asked), "--resume")
    return Retraining(identity={"parent": parent}, job=job, path=place, model=model, resume=resume)


def _maps_of(model: Any) -> list[FeatureMap]:
    """The maps of what a training made, one model or a fleet of such: from small to large gamma, where it is known."""
    return sorted(model.row_maps, key=lambda made: getattr(made, "gamma", 0.0))


def _gamma_of(then: TrainJob, model: AnyModel) -> dict[str, Any]:
    """The gamma of each map that is kept: "scale" is that of the rows of then, and no longer of all.

    Random frequencies have none that could be told from them.
    """
    found = tuple(made.gamma for made in _maps_of(model) if hasattr(made, "gamma"))
    if not found:
        return {}
    return {"gamma": found if isinstance(then.gamma, tuple) else found[0]}


def _job_of(place: Path, model: AnyModel, asked: RetrainJob) -> TrainJob:
    """The job of a model, for another place, as its run tells or, where that is gone, its record. Raises UsageError."""
    try:
        run = read_object(read_plain(place / RUN, LARGEST), str(place / RUN), names=True)
        options = specs.parse_toml(str(run["job"]), where=f"{place}/{RUN}")
    except (OSError, DataError, SpecError, KeyError):
        options = {"job": "train", **model.parameters}
    options = {name: value for name, value in options.items() if name not in _OF_THAT_RUN}
    options = kind_of_model(model).retraining_options(options, asked.kernel)
    try:
        job = job_of({**options, "store": str(asked.store), "out": str(asked.out)}, where=f"{place}/{RUN}")
    except SpecError as error:
        raise UsageError(f"{place}: how this model was trained cannot be told ({error}); train a new one") from error
    kind = kind_of(job)
    if kind.job.__struct_config__.tag != "train" or not kind.is_model_of(job, model):
        raise UsageError(
            f"{place}: expected a model that `coremargin train` or `coremargin retrain` made, found one of "
            f"{kind_of_model(model).title}; only these can be made again from a store alone"
        )
    return job


def load_retrain_job(path: Path) -> RetrainJob | None:
    """The retraining that a job file describes; None where it describes something else. Raises SpecError."""
    options = specs.read_toml(path)
    return retrain_job_of(options, where=str(path), base=path.parent) if options.get("job") == "retrain" else None
