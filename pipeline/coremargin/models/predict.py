"""Labels and decision values for every row of a store, computed where scans run, written by the driver in row order."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.folder import refuse
from coremargin.data.locked import Locked
from coremargin.data.source import Source, is_source
from coremargin.data.sources.paths import resolve_paths
from coremargin.data.store_paths import is_store
from coremargin.engine.clusters.specs import local_cluster
from coremargin.errors import UsageError
from coremargin.formats.local_path import local_path
from coremargin.formats.location import Location, is_remote, last_name, location
from coremargin.models.decided_groups import decide_groups
from coremargin.models.decision import Scorer, decided, leads
from coremargin.models.executor import probe_in_order
from coremargin.models.files import check_outside
from coremargin.models.matching import scorer_for
from coremargin.models.output_file import is_written
from coremargin.models.predictions.common import Subject
from coremargin.models.predictions.lines import csv_file, jsonl_file
from coremargin.models.predictions.parquet import parquet
from coremargin.models.predictions.zarr_group import zarr_group
from coremargin.models.registry import load
from coremargin.models.rows import rows_for

if TYPE_CHECKING:
    from coremargin.data.sources.base import OnProgress as OnIngest
    from coremargin.engine.clusters.specs import Cluster
    from coremargin.engine.protocols import Block
    from coremargin.maths.kernel.functions import KernelFunction
    from coremargin.models.fleet import AnyModel
    from coremargin.models.predictions.common import Sink

FORMATS: dict[str, Callable[..., AbstractContextManager[Sink]]] = {
    ".parquet": parquet,
    ".csv": csv_file,
    ".jsonl": jsonl_file,
    ".zarr": zarr_group,
    "": zarr_group,
}
_BATCH_ROWS = 1 << 17  # rows of a row group in Parquet, at least

OnProgress = Callable[[int, int], object]


@dataclass(frozen=True)
class Prediction:
    """What was written where."""

    path: Path | Location
    source: str  #: the rows, as messages name them
    rows: int
    counts: dict[Any, int]  #: rows given each label
    least: float  #: smallest |decision value|, or lead over the second class: how near a row is to another label

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        classes = [{"label": label, "rows": rows} for label, rows in self.counts.items()]
        return {
            "out": str(self.path),
            "source": self.source,
            "rows": self.rows,
            "classes": classes,
            "least_distance": self.least,
        }


@dataclass(frozen=True)
class _Given:
    """What rows are given: codes (n,) int32, decision values (n,) of these classes, the least lead.

    Of rows that are labelled together the values are leads: of the best labelling over the best with another label.
    """

    codes: np.ndarray
    decisions: np.ndarray
    least: float


@dataclass(frozen=True)
class _Label:
    """The probe: decision values of each chunk of a block, or of the groups that begin there."""

    scorer: Scorer
    threshold: float
    ranks: bool = False

    def __call__(self, source: Source, block: Block) -> list[_Given]:
        if self.scorer.grouped:
            found = decide_groups(self.scorer, source, block.chunks)
            return [self._of_groups(groups.places, groups.values) for groups in found]
        return [self._of(source, chunk) for chunk in block.chunks]

    def _of_groups(self, places: np.ndarray, values: np.ndarray) -> _Given:
        ahead = leads(values, places)
        return _Given(places.astype(np.int32), ahead, float(ahead.min()))

    def _of(self, source: Source, chunk: int) -> _Given:
        first = source.span(chunk)[0]
        decisions = self.scorer.values(source.read(chunk)[0], lambda row: f"{source.name}, row {first + row}")
        if self.ranks:
            return _Given(np.zeros(len(decisions), np.int32), decisions, float(np.abs(decisions).min()))
        above = decisions - self.threshold  # the sign of a difference is exact
        codes = decided(above).astype(np.int32)
        own = decisions if decisions.ndim == 1 else decisions[np.arange(len(codes)), codes]
        return _Given(codes, own, float(np.abs(leads(above, codes)).min()))


def predict(  # noqa: PLR0913 - one word for each decision, all but three with a default
    model: AnyModel | str | os.PathLike[str],
    source: Source | str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    C: float | None = None,
    gamma: str | float | None = None,
    kernel: KernelFunction | None = None,
    structure: Any = None,
    cluster: Cluster = None,
    overwrite: bool = False,
    on_progress: OnProgress | None = None,
    drop: Sequence[str] = (),
    on_ingest: OnIngest | None = None,
    threshold: float = 0.0,
) -> Prediction:
    """Write label and decision value of every row of ``source`` to ``out``.

    The suffix of its name selects the format: ``.parquet``, ``.csv``, ``.jsonl``, ``.zarr`` or none for a Zarr group.

    model, source: opened, or paths; the source may be files that ``ingest`` takes, with the model's columns and
    those to ``drop``. C, gamma: of a fleet, whose members decide. kernel: of a model in a folder whose kernel is a
    function. structure: of one of yours. A ranking gives every row a score, the decision value, and the label "score".
    cluster: where to compute, as for ``train``; None: on the threads of this process. The output is the same to the
    bit, however many there are.
    on_progress(rows done, rows in all) is called after each chunk, in order; on_ingest as of ``ingest``, of files.
    threshold: of two classes, the second is given to rows whose decision value is above it.
    Raises DataError (other columns or features, damaged store), OutputError (cannot be written), Busy (another job is
    writing there), UsageError (something is there; another ending; a fleet with several values of C, none of them
    chosen; a place in a store or a model; rows without groups, of a model that labels sequences).
    """
    path = location(out) if is_remote(out) else Path(os.path.abspath(local_path(out)))
    source = resolve_paths(source)
    model, cluster = opened_model(model, C, gamma, kernel, structure), local_cluster(cluster)
    check_threshold(model, threshold)
    check_outside(path)
    if not is_source(source) and not is_store(source):
        refuse_output(path, overwrite=overwrite)  # before files are read for hours
    with rows_for(model, source, labelled=False, drop=drop, next_to=_folder(path), on_progress=on_ingest) as rows:
        return _predicted(Subject(model, rows, threshold), path, cluster, overwrite=overwrite, on_progress=on_progress)


def _folder(path: Path | Location) -> Path | None:
    """The folder for rows of files meanwhile: on the disk of the output."""
    if isinstance(path, Location):
        return None
    return path.parent if path.parent.is_dir() and os.access(path.parent, os.W_OK) else None


def _predicted(
    about: Subject, path: Path | Location, cluster: Cluster, *, overwrite: bool, on_progress: OnProgress | None
) -> Prediction:
    model, source = about.model, about.source
    probe = _Label(scorer_for(model, source), about.threshold, model.ranks)
    counts, least = np.zeros(len(model.labels), np.int64), np.inf
    writing = open_predictions(path, about, overwrite=overwrite)  # before a lock makes folders
    with Locked(path, "these predictions"), writing as sink, probe_in_order(source, probe, cluster) as found:
        for batch in _batches(found, source, on_progress):
            codes = np.concatenate([given.codes for given in batch])
            sink.write(codes, np.concatenate([given.decisions for given in batch]))
            counts += np.bincount(codes, minlength=len(counts))
            least = min(least, *(given.least for given in batch))
    return Prediction(path, source.name, source.rows, dict(zip(model.labels, counts.tolist(), strict=True)), least)


def _batches(found: Iterator[list[_Given]], source: Source, on_progress: OnProgress | None) -> Iterator[list[_Given]]:
    """What all rows are given, in order, a few chunks at a time."""
    batch: list[_Given] = []
    done = 0
    for given in (part for block in found for part in block):
        batch.append(given)
        done += len(given.codes)
        if on_progress is not None:
            on_progress(done, source.rows)
        if sum(len(part.codes) for part in batch) >= _BATCH_ROWS or done == source.rows:
            yield batch
            batch = []


def open_predictions(path: Path | Location, about: Subject, *, overwrite: bool) -> AbstractContextManager[Sink]:
    """A sink that takes all rows in order; the suffix of the name selects the format. Links are followed.

    The output appears under its name when all of it is on disk; memory does not grow with the rows.
    Raises UsageError (an ending of no format) at once; as it is entered UsageError (something is there),
    OutputError (cannot be written).
    """
    make = format_of(path)
    return make(path if isinstance(path, Location) else Path(os.path.realpath(path)), about, overwrite=overwrite)


def refuse_output(path: Path | Location, *, overwrite: bool) -> None:
    """Raises UsageError for an output of which it is plain, before a row is read, that it will not be written."""
    format_of(path)
    if not overwrite and is_written(path):
        refuse(path, "another file or folder", [], overwrite=False)


def format_of(path: Path | Location) -> Callable[..., AbstractContextManager[Sink]]:
    """The writer for the suffix of a name. Raises UsageError for an unknown one."""
    suffix = PurePath(last_name(path)).suffix
    make = FORMATS.get(suffix.lower())
    if make is zarr_group and isinstance(path, Location):  # readers of Zarr know no generations
        raise UsageError(
            f"{path}: expected a name that ends with .parquet, .csv or .jsonl: the objects of a Zarr group would not "
            "appear at once"
        )
    if make is None:
        known = ", ".join(f"NAME{ending}" for ending in FORMATS if ending)
        raise UsageError(
            f"{path}: expected {known}, or a name without an ending for Zarr, found the ending {suffix!r}; "
            f"choose one of them"
        )
    return make


def check_threshold(model: AnyModel, threshold: float) -> None:
    """Raises UsageError for a threshold that is not finite, or that the model has no use for."""
    if not math.isfinite(threshold):
        raise UsageError(f"threshold: expected a finite number, found {threshold}")
    if threshold and len(model.labels) != 2:
        raise UsageError(f"a threshold is between two classes, the model has {len(model.labels):,}; leave it out")
    if threshold and model.grouped:
        raise UsageError("a threshold is for rows that are labelled one by one, the model labels groups; leave it out")


def opened_model(
    model: AnyModel | str | os.PathLike[str],
    C: float | None = None,
    gamma: str | float | None = None,
    kernel: KernelFunction | None = None,
    structure: Any = None,
) -> AnyModel:
    """The model, loaded if it is a path; C, gamma: of a fleet, whose members decide; kernel, structure: of ``load``.

    Raises UsageError for none.
    """
    found = load(model) if isinstance(model, str | os.PathLike) else model
    found = found if kernel is None else found.with_kernel(kernel)
    found = found if structure is None else found.with_structure(structure)
    found = found if C is None and gamma is None else found.at(C, gamma)
    found.deciders()
    return found
