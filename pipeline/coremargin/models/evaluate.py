"""How well a model's labels and decision values fit a labelled store, in one pass and bounded memory.

Rows are scored where scans run; what they add up to is put together in row order, so that it is the same to the bit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.sources.paths import resolve_paths
from coremargin.engine.clusters.specs import local_cluster
from coremargin.errors import LabelError, UsageError
from coremargin.models.decision import Scorer, decided, leads
from coremargin.models.executor import probe_in_order
from coremargin.models.matching import scorer_for
from coremargin.models.predict import check_threshold, opened_model
from coremargin.models.ranks import AtPrecision, Bounded, Ranks
from coremargin.models.rows import rows_for

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.data.sources.base import OnProgress as OnIngest
    from coremargin.engine.clusters.specs import Cluster
    from coremargin.engine.protocols import Block
    from coremargin.maths.kernel.functions import KernelFunction
    from coremargin.models.fleet import AnyModel

EXACT_ROWS = 10_000_000  #: most rows whose decision values are held (90 MB, 170 with weights) for exact ranks

OnProgress = Callable[[int, int], object]


@dataclass(frozen=True)
class ClassScore:
    """One class: rows that have the label, rows that were given it, and the shares in between."""

    label: Any
    rows: int
    predicted: int
    precision: float  #: of the rows that were given the label, those that have it; 0 when none was given it
    recall: float  #: of the rows that have the label, those that were given it; 0 when none has it
    f1: float  #: harmonic mean of the two


@dataclass(frozen=True)
class Weighted:
    """Weighted metrics: those of scikit-learn with ``sample_weight``."""

    weight: float  #: sum of the weights of the labelled rows
    accuracy: float
    balanced_accuracy: float
    f1: float
    roc_auc: float | None
    roc_auc_error: float
    average_precision: float | None
    average_precision_error: float
    confusion: tuple[tuple[float, ...], ...]  #: confusion[i][j]: sum of the weights of these rows


@dataclass(frozen=True)
class Evaluation:
    """Metrics over the labelled rows; conventions are those of scikit-learn with ``zero_division=0``.

    confusion[i][j]: rows of class i that were given class j. roc_auc: of two classes, how often a positive row has a
    larger decision value than a negative one, ties count half; None with rows of one class only, or of more than two.
    It is true within ``roc_auc_error``: 0 up to ``exact_rows`` rows, beyond that half the share of the pairs whose
    values fall into the same narrow bin. average_precision: of the positive class, with its error, likewise.
    at_precision: thresholds for the precision that was asked for. All of this counts rows, those of weight 0 too;
    ``weighted`` counts their weights, None where the store has none or they sum to 0.
    """

    rows: int
    unlabelled: int
    accuracy: float
    balanced_accuracy: float  #: mean recall of the classes that have rows
    f1: float  #: mean of the classes
    roc_auc: float | None
    roc_auc_error: float
    average_precision: float | None
    average_precision_error: float
    classes: tuple[ClassScore, ...]
    confusion: tuple[tuple[int, ...], ...]
    source: str = field(compare=False)  #: the rows, as messages name them
    lowest_margin: float  #: smallest lead of a row's own class, from the threshold on: negative on the wrong side
    weighted: Weighted | None = None
    at_precision: AtPrecision | None = None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class LabelCount:
    """Rows with one label, None for those without, and how many of them lie outside."""

    label: Any
    rows: int
    outside: int


@dataclass(frozen=True)
class OneClassEvaluation:
    """How many rows a model of one class predicts to lie outside, by their labels.

    share: outside / rows; weighted_share: the same of sums of weights, None where the store has none or they sum to 0.
    lowest_decision: the smallest decision value, negative if a row lies outside.
    """

    rows: int
    outside: int
    share: float
    weighted_share: float | None
    classes: tuple[LabelCount, ...]
    lowest_decision: float
    source: str = field(compare=False)  #: the rows, as messages name them

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True)
class _CountOutside:
    """The probe: rows (classes + 1,) of each chunk by label, none last; those outside; sums of weights; the lowest."""

    scorer: Scorer
    classes: int
    threshold: float

    def __call__(self, source: Source, block: Block) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, float]]:
        return [self._of(source, chunk) for chunk in block.chunks]

    def _of(self, source: Source, chunk: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
        rows, codes = source.read(chunk)
        first, weights = source.span(chunk)[0], source.weights(chunk)
        values = self.scorer.values(rows, lambda row: f"{source.name}, row {first + row}")
        outside = decided(values - self.threshold) == 0
        places = np.where(codes >= 0, codes, self.classes)
        rows_of, outside_of = (np.bincount(places[some], minlength=self.classes + 1) for some in (slice(None), outside))
        sums = np.zeros(2) if weights is None else np.array([weights.sum(), weights[outside].sum()])
        return rows_of, outside_of, sums, float(values.min())


@dataclass(frozen=True)
class _Tally:
    """What the rows of one chunk add: rows and sums of weights by label and label given, and what the ranks need."""

    confusion: np.ndarray
    weighed: np.ndarray | None
    unlabelled: int
    lowest: float
    decisions: np.ndarray | None  #: (n,) of two classes
    positive: np.ndarray
    weights: np.ndarray | None


@dataclass(frozen=True)
class _Compare:
    """The probe: compares the labels of each chunk of a block, by their ``sides``, with the decisions."""

    scorer: Scorer
    classes: int
    sides: np.ndarray
    threshold: float

    def __call__(self, source: Source, block: Block) -> list[_Tally]:
        return [self._of(source, chunk) for chunk in block.chunks]

    def _of(self, source: Source, chunk: int) -> _Tally:
        rows, codes = source.read(chunk)
        known, weights = codes >= 0, source.weights(chunk)
        weights = None if weights is None else weights[known]  # a copy: the reader may use its buffer again
        rows = rows if known.all() else rows[known]
        truth, shape = self.sides[codes[known]], (self.classes,) * 2
        if not len(truth):
            nothing = None if weights is None else np.zeros(shape)
            return _Tally(np.zeros(shape, np.int64), nothing, len(codes), np.inf, None, truth == 1, weights)
        ids = source.span(chunk)[0] + np.flatnonzero(known)
        decisions = self.scorer.values(rows, lambda row: f"{source.name}, row {ids[row]}")
        above = decisions - self.threshold  # the sign of a difference is exact
        cell = truth * self.classes + decided(above)
        return _Tally(
            confusion=np.bincount(cell, minlength=self.classes**2).reshape(shape),
            weighed=None if weights is None else np.bincount(cell, weights, self.classes**2).reshape(shape),
            unlabelled=len(codes) - len(truth),
            lowest=float(leads(above, truth).min()),
            decisions=decisions if decisions.ndim == 1 else None,
            positive=truth == 1,
            weights=weights,
        )


def evaluate(  # noqa: PLR0913 - one word for each decision, all but two with a default
    model: AnyModel | str | os.PathLike[str],
    source: Source | str | os.PathLike[str],
    *,
    C: float | None = None,
    gamma: str | float | None = None,
    kernel: KernelFunction | None = None,
    cluster: Cluster = None,
    on_progress: OnProgress | None = None,
    drop: Sequence[str] = (),
    weights: str | int | None = None,
    on_ingest: OnIngest | None = None,
    exact_rows: int = EXACT_ROWS,
    threshold: float = 0.0,
    precision: float | None = None,
    confidence: float = 0.99,
) -> Evaluation | OneClassEvaluation:
    """Metrics of a model on the labelled rows of a source; rows without a label are counted and skipped.

    For a model of one class, labels other than its predictions 1 and -1, or none, are no truth to compare with: then
    the rows that lie outside are counted, by label.

    model, source: opened, or paths; the source may be files that ``ingest`` takes, with the model's columns, those to
    ``drop``, and the ``weights`` of rows, a column or a file. C, gamma: of a fleet, whose members decide.
    kernel: of a model in a folder whose kernel is a function. cluster: where to compute, as for ``train``; None: on the
    threads of this process. on_progress(rows done, rows in all) is called after each chunk, in order; on_ingest as of
    ``ingest``, of files. threshold: as of ``predict``. precision: of the second class, for which thresholds are wanted;
    confidence: of their intervals, which hold if rows are independent draws from one source and the model was not
    trained on them.
    Raises LabelError (no labelled rows, a class that the model does not know), DataError (other features, damage),
    UsageError (a precision and a model without exactly two classes).
    """
    wanted = None if precision is None else _Wanted(precision, confidence)
    source, cluster = resolve_paths(source), local_cluster(cluster)
    model = opened_model(model, C, gamma, kernel)
    check_threshold(model, threshold)
    labelled = bool(model.classes)
    if wanted is not None and len(model.labels) != 2:
        raise UsageError(f"a precision is of two classes, the model has {len(model.labels):,}; leave it out")
    with rows_for(model, source, labelled=labelled, drop=drop, weights=weights, on_progress=on_ingest) as rows:
        if not labelled and not _has_labels(rows, model.labels):
            if wanted is not None:
                raise UsageError(
                    f"{rows.name}: a precision takes rows with the labels -1 and 1, as predicted; found none"
                )
            return _outside(model, rows, cluster, on_progress, threshold)
        return _evaluated(model, rows, cluster, exact_rows, on_progress, wanted, threshold)


@dataclass(frozen=True)
class _Wanted:
    """A precision for which thresholds are wanted, and the confidence of their intervals. Raises UsageError."""

    precision: float
    confidence: float

    def __post_init__(self) -> None:
        if not 0 < self.precision <= 1:
            raise UsageError(f"precision: expected a share above 0 and at most 1; found {self.precision}")
        if not 0 < self.confidence < 1:
            raise UsageError(f"confidence: expected a share between 0 and 1, both excluded; found {self.confidence}")


def _has_labels(source: Source, labels: Sequence[Any]) -> bool:
    """Whether rows have labels, all of them among these."""
    counts = source.scalars().counts.sum(axis=0)
    used = [label for label, rows in zip(source.classes, counts.tolist(), strict=True) if rows]
    return bool(used) and all(label in labels for label in used)


def _outside(
    model: AnyModel, source: Source, cluster: Cluster, on_progress: OnProgress | None, threshold: float
) -> OneClassEvaluation:
    classes = [*source.classes, None]
    rows, outside = np.zeros((2, len(classes)), np.int64)
    sums, lowest = np.zeros(2), np.inf
    probe = _CountOutside(scorer_for(model, source), len(source.classes), threshold)
    with probe_in_order(source, probe, cluster) as found:
        for chunk, tally in enumerate(tally for block in found for tally in block):
            rows, outside, sums, lowest = rows + tally[0], outside + tally[1], sums + tally[2], min(lowest, tally[3])
            if on_progress is not None:
                on_progress(source.span(chunk)[1], source.rows)
    counted = zip(classes, rows.tolist(), outside.tolist(), strict=True)
    return OneClassEvaluation(
        rows=int(rows.sum()),
        outside=int(outside.sum()),
        share=float(outside.sum() / rows.sum()),
        weighted_share=float(sums[1] / sums[0]) if sums[0] > 0 else None,
        classes=tuple(LabelCount(*one) for one in counted if one[1]),
        lowest_decision=lowest,
        source=source.name,
    )


def _evaluated(
    model: AnyModel,
    source: Source,
    cluster: Cluster,
    exact_rows: int,
    on_progress: OnProgress | None,
    wanted: _Wanted | None,
    threshold: float,
) -> Evaluation:
    probe = _Compare(scorer_for(model, source), len(model.labels), _sides(model, source), threshold)
    with probe_in_order(source, probe, cluster) as found:
        tallies = (tally for block in found for tally in block)
        return _put_together(model, source, tallies, exact_rows, on_progress, wanted)


def _put_together(
    model: AnyModel,
    source: Source,
    tallies: Iterator[_Tally],
    exact_rows: int,
    on_progress: OnProgress | None,
    wanted: _Wanted | None,
) -> Evaluation:
    confusion: np.ndarray = np.zeros((len(model.labels),) * 2, dtype=np.int64)
    weighed, weighted = np.zeros(confusion.shape), source.weights(0) is not None
    ranks = Ranks(exact_rows, weighted=weighted)
    unlabelled, lowest = 0, np.inf
    for chunk, tally in enumerate(tallies):
        confusion += tally.confusion
        weighed += 0.0 if tally.weighed is None else tally.weighed
        unlabelled, lowest = unlabelled + tally.unlabelled, min(lowest, tally.lowest)
        if tally.decisions is not None:
            ranks.add(tally.decisions, tally.positive, tally.weights)
        if on_progress is not None:
            on_progress(source.span(chunk)[1], source.rows)
    rows, weights = ranks.rankings()  # empty with more than two classes
    areas, at_precision = (rows.roc_auc(), rows.average_precision()), None
    if wanted is not None:
        same = model.store_digest == source.digest
        at_precision = rows.at_precision(wanted.precision, wanted.confidence, trained_on=same)
    scores = _scores(model, source.name, confusion, areas, unlabelled, lowest)
    weighted_areas = areas if weights is None else (weights.roc_auc(), weights.average_precision())
    return replace(scores, weighted=_weighted(weighed, weighted_areas), at_precision=at_precision)


def _sides(model: AnyModel, source: Source) -> np.ndarray:
    """Code -> index in the model's classes. Raises LabelError unless the source has labels, all of them the model's."""
    counts = source.scalars().counts.sum(axis=0)
    if not counts.any():
        raise LabelError(
            f"{source.name}: expected labelled rows, all {source.rows:,} are without label; nothing to compare"
        )
    for code, (label, rows) in enumerate(zip(source.classes, counts.tolist(), strict=True)):
        if rows and label not in model.labels:
            raise LabelError(
                f"{source.name}: has rows of class {label!r}, which the model does not know, the first is row "
                f"{_first_of(source, code)}; keep only its classes"
            )
    places = [model.labels.index(label) if label in model.labels else -1 for label in source.classes]
    return np.array(places, dtype=np.intp)


def _first_of(source: Source, code: int) -> int:
    """The first row with a label that some row has, by its code."""
    chunk = int(np.argmax(source.scalars().counts[:, code] > 0))
    return source.span(chunk)[0] + int(np.argmax(source.labels(chunk) == code))


def _scores(
    model: AnyModel,
    source: str,
    confusion: np.ndarray,
    areas: tuple[Bounded, Bounded],
    unlabelled: int,
    lowest: float,
) -> Evaluation:
    rows, predicted = confusion.sum(axis=1), confusion.sum(axis=0)
    precision, recall, f1 = shares_of(confusion)
    scores = tuple(
        ClassScore(label, int(rows[k]), int(predicted[k]), float(precision[k]), float(recall[k]), float(f1[k]))
        for k, label in enumerate(model.labels)
    )
    return Evaluation(
        rows=int(rows.sum()),
        unlabelled=unlabelled,
        accuracy=float(np.diag(confusion).sum() / rows.sum()),
        balanced_accuracy=float(recall[rows > 0].mean()),
        f1=float(f1.mean()),
        roc_auc=areas[0].value,
        roc_auc_error=areas[0].error,
        average_precision=areas[1].value,
        average_precision_error=areas[1].error,
        classes=scores,
        confusion=tuple(tuple(line) for line in confusion.tolist()),
        source=source,
        lowest_margin=lowest,
    )


def _weighted(confusion: np.ndarray, areas: tuple[Bounded, Bounded]) -> Weighted | None:
    weight = float(confusion.sum())
    if weight == 0:
        return None
    _, recall, f1 = shares_of(confusion)
    return Weighted(
        weight=weight,
        accuracy=float(np.diag(confusion).sum() / weight),
        balanced_accuracy=float(recall[confusion.sum(axis=1) > 0].mean()),
        f1=float(f1.mean()),
        roc_auc=areas[0].value,
        roc_auc_error=areas[0].error,
        average_precision=areas[1].value,
        average_precision_error=areas[1].error,
        confusion=tuple(tuple(line) for line in confusion.tolist()),
    )


def shares_of(confusion: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Precision, recall and F1 (k,) of a table of rows or of weights."""
    rows, predicted, hits = confusion.sum(axis=1), confusion.sum(axis=0), np.diag(confusion)
    return _share(hits, predicted), _share(hits, rows), _share(2 * hits, rows + predicted)


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.asarray(np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0))
