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
from coremargin.models.chunk_scores import ChunkLabels, ChunkScore, chunk_scores
from coremargin.models.decided_groups import decide_groups
from coremargin.models.decision import Scorer, decided, leads
from coremargin.models.executor import probe_in_order
from coremargin.models.matching import scorer_for
from coremargin.models.predict import check_threshold, opened_model
from coremargin.models.rank_evaluation import RankEvaluation, rank_evaluation
from coremargin.models.ranks import AtPrecision, Bounded, Ranks
from coremargin.models.rows import rows_for

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.data.sources.base import OnProgress as OnIngest
    from coremargin.engine.clusters.specs import Cluster
    from coremargin.engine.protocols import Block
    from coremargin.maths.kernel.functions import KernelFunction
    from coremargin.models.decided_groups import DecidedGroups
    from coremargin.models.fleet import AnyModel

EXACT_ROWS = 10_000_000  #: most rows whose decision values are held (90 MB, 170 with weights) for exact ranks

CONFIDENCE = 0.99  #: of intervals for a precision

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
class GroupScores:
    """Groups of which all rows have labels: how many, and of how many all are predicted.

    incomplete: other groups, which are not counted. chunks: of rows, in all and by type, where labels are those of
    chunks, such as "B-NP", "I-NP" and "O" (chunk_scores.py).
    """

    groups: int
    incomplete: int
    correct: int
    accuracy: float  #: correct / groups; 0 without groups
    chunks: tuple[ChunkScore, ...]


@dataclass(frozen=True)
class Evaluation:
    """Metrics over the labelled rows; conventions are those of scikit-learn with ``zero_division=0``.

    confusion[i][j]: rows of class i that were given class j. roc_auc: of two classes, how often a positive row has a
    larger decision value than a negative one, ties count half; None with rows of one class only, or of more than two.
    It is true within ``roc_auc_error``: 0 up to ``exact_rows`` rows, beyond that half the share of the pairs whose
    values fall into the same narrow bin. average_precision: of the positive class, with its error, likewise.
    at_precision: thresholds for the precision that was asked for. All of this counts rows, those of weight 0 too;
    ``weighted`` counts their weights, None where the store has none or they sum to 0. groups: None where rows are in
    none; with groups, classes that the model does not know are counted after its own.
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
    groups: GroupScores | None = None
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
    """What the rows of one chunk add: rows and sums of weights by label and label given, and what the ranks need.

    groups (3,): those with labels for all rows, others, and those of which all labels are predicted; chunks (3, types).
    """

    confusion: np.ndarray
    weighed: np.ndarray | None
    unlabelled: int
    lowest: float
    decisions: np.ndarray | None  #: (n,) of two classes
    positive: np.ndarray
    weights: np.ndarray | None
    groups: np.ndarray | None = None
    chunks: np.ndarray | None = None


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
        places, unlabelled = decided(decisions - self.threshold), len(codes) - len(truth)  # the sign is exact
        return _tally(truth, places, decisions, weights, unlabelled, self.classes, self.threshold)


@dataclass(frozen=True)
class _CompareGroups:
    """The same for the groups that begin in each chunk; chunks: what labels say of chunks, if they do."""

    scorer: Scorer
    classes: int
    sides: np.ndarray
    threshold: float
    chunks: ChunkLabels | None

    def __call__(self, source: Source, block: Block) -> list[_Tally]:
        return [self._of(found) for found in decide_groups(self.scorer, source, block.chunks)]

    def _of(self, found: DecidedGroups) -> _Tally:
        part = found.part
        known, first = part.codes >= 0, np.zeros(len(part.codes), bool)
        first[part.offsets[:-1]] = True
        truth = np.where(known, self.sides[part.codes], -1)
        places = found.places if self.scorer.grouped else decided(found.values - self.threshold)
        complete = np.logical_and.reduceat(known, part.offsets[:-1])
        correct = np.logical_and.reduceat(truth == places, part.offsets[:-1])
        counted = complete.repeat(np.diff(part.offsets))
        rows = truth[counted], places[counted], first[counted]
        weights = None if part.weights is None else part.weights[known]
        values, unlabelled = found.values[known], int((~known).sum())
        tally = _tally(truth[known], places[known], values, weights, unlabelled, self.classes, self.threshold)
        groups = np.array([complete.sum(), (~complete).sum(), correct.sum()])
        return replace(tally, groups=groups, chunks=None if self.chunks is None else self.chunks.count(*rows))


def _tally(
    truth: np.ndarray,
    places: np.ndarray,
    values: np.ndarray,
    weights: np.ndarray | None,
    unlabelled: int,
    classes: int,
    threshold: float = 0.0,
) -> _Tally:
    """Of labelled rows (n,), the places of their labels and of those they are given, and decision values."""
    cell, own = truth * classes + places, values.shape[1] if values.ndim == 2 else 2
    known = truth < own
    decisions = values if values.ndim == 1 else values[:, 1] - values[:, 0] if own == 2 else None
    return _Tally(
        confusion=np.bincount(cell, minlength=classes**2).reshape(classes, classes),
        weighed=None if weights is None else np.bincount(cell, weights, classes**2).reshape(classes, classes),
        unlabelled=unlabelled,
        lowest=float(leads(values[known] - threshold, truth[known]).min(initial=np.inf)),
        decisions=decisions,
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
    structure: Any = None,
    cluster: Cluster = None,
    on_progress: OnProgress | None = None,
    drop: Sequence[str] = (),
    weights: str | int | None = None,
    on_ingest: OnIngest | None = None,
    exact_rows: int = EXACT_ROWS,
    threshold: float = 0.0,
    precision: float | None = None,
    confidence: float | None = None,
) -> Evaluation | OneClassEvaluation | RankEvaluation:
    """Metrics of a model on the labelled rows of a source; rows without a label are counted and skipped.

    For a model of one class, labels other than its predictions 1 and -1, or none, are no truth to compare with: then
    the rows that lie outside are counted, by label. For a ranking, pairs of rows of a group with different labels are.

    model, source: opened, or paths; the source may be files that ``ingest`` takes, with the model's columns, those to
    ``drop``, and the ``weights`` of rows, a column or a file. C, gamma: of a fleet, whose members decide.
    kernel, structure: of a model with yours, in a folder. cluster: where to compute, as for ``train``; None: on the
    threads of this process. on_progress(rows done, rows in all) is called after each chunk, in order; on_ingest as of
    ``ingest``, of files. threshold: as of ``predict``. precision: of the second class, for which thresholds are wanted;
    confidence: of their intervals (default: 0.99), which hold if rows are independent draws from one source and the
    model was not trained on them.
    Raises LabelError (no labelled rows, a class that the model does not know), DataError (other features, damage),
    UsageError (a precision and a model without exactly two classes).
    """
    if precision is None and confidence is not None:
        raise UsageError("a confidence is that of a precision: give both, or none of them")
    wanted = None if precision is None else _Wanted(precision, CONFIDENCE if confidence is None else confidence)
    source, cluster = resolve_paths(source), local_cluster(cluster)
    model = opened_model(model, C, gamma, kernel, structure)
    check_threshold(model, threshold)
    labelled = bool(model.classes) or model.ranks
    if wanted is not None and len(model.labels) != 2:
        raise UsageError(f"a precision is of two classes, the model has {len(model.labels):,}; leave it out")
    if wanted is not None and model.grouped:
        raise UsageError("a precision is of rows that are labelled one by one, the model labels groups; leave it out")
    with rows_for(model, source, labelled=labelled, drop=drop, weights=weights, on_progress=on_ingest) as rows:
        if model.ranks:
            return rank_evaluation(model, rows, cluster, on_progress)
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
    scorer, (labels, sides) = scorer_for(model, source), _sides(model, source)
    chunks = None if source.groups is None else ChunkLabels.from_labels(labels)
    probe: Callable[[Source, Block], list[_Tally]] = _Compare(scorer, len(labels), sides, threshold)
    if source.groups is not None:
        probe = _CompareGroups(scorer, len(labels), sides, threshold, chunks)
    with probe_in_order(source, probe, cluster) as found:
        tallies = (tally for block in found for tally in block)
        return _put_together(model, labels, chunks, source, tallies, exact_rows, on_progress, wanted)


def _put_together(  # noqa: PLR0913 - what is counted, and how it is shown
    model: AnyModel,
    labels: Sequence[Any],
    chunk_labels: ChunkLabels | None,
    source: Source,
    tallies: Iterator[_Tally],
    exact_rows: int,
    on_progress: OnProgress | None,
    wanted: _Wanted | None,
) -> Evaluation:
    confusion: np.ndarray = np.zeros((len(labels),) * 2, dtype=np.int64)
    weighed, weighted = np.zeros(confusion.shape), source.weights(0) is not None
    ranks = Ranks(exact_rows, weighted=weighted)
    unlabelled, lowest = 0, np.inf
    groups, chunks = np.zeros(3, np.int64), np.zeros((3, 0 if chunk_labels is None else len(chunk_labels.names)), int)
    for tally in tallies:
        confusion += tally.confusion
        weighed += 0.0 if tally.weighed is None else tally.weighed
        unlabelled, lowest = unlabelled + tally.unlabelled, min(lowest, tally.lowest)
        groups += 0 if tally.groups is None else tally.groups
        chunks += 0 if tally.chunks is None else tally.chunks
        if tally.decisions is not None and len(labels) == 2:
            ranks.add(tally.decisions, tally.positive, tally.weights)
        if on_progress is not None:
            on_progress(unlabelled + int(confusion.sum()), source.rows)
    rows, weights = ranks.rankings()  # empty with more than two classes
    areas, at_precision = (rows.roc_auc(), rows.average_precision()), None
    if wanted is not None:
        log = getattr(source, "log", ())  # of a store, which may have grown since the model was trained
        same = model.store_digest in {source.digest, *(entry.commit.digest for entry in log)}
        at_precision = rows.at_precision(wanted.precision, wanted.confidence, trained_on=same)
    scores = _scores(labels, source.name, confusion, areas, unlabelled, lowest)
    weighted_areas = areas if weights is None else (weights.roc_auc(), weights.average_precision())
    found = None if source.groups is None else _group_scores(groups, chunk_labels, chunks)
    return replace(scores, weighted=_weighted(weighed, weighted_areas), at_precision=at_precision, groups=found)


def _group_scores(groups: np.ndarray, labels: ChunkLabels | None, chunks: np.ndarray) -> GroupScores:
    complete, incomplete, correct = groups.tolist()
    scores = () if labels is None else chunk_scores(labels, chunks)
    return GroupScores(complete, incomplete, correct, correct / complete if complete else 0.0, scores)


def _sides(model: AnyModel, source: Source) -> tuple[list[Any], np.ndarray]:
    """The model's classes, and code -> place among these.

    Where rows are in groups, other classes follow: the rows of a sequence cannot be left out. Raises LabelError unless
    the source has labels, all of them the model's or, in groups, some.
    """
    counts = source.scalars().counts.sum(axis=0)
    if not counts.any():
        raise LabelError(
            f"{source.name}: expected labelled rows, all {source.rows:,} are without label; nothing to compare"
        )
    used = [(code, label) for code, label in enumerate(source.classes) if counts[code]]
    unknown = [(code, label) for code, label in used if label not in model.labels]
    if unknown and (source.groups is None or len(unknown) == len(used)):
        code, label = unknown[0]
        raise LabelError(
            f"{source.name}: has rows of class {label!r}, which the model does not know, the first is row "
            f"{_first_of(source, code)}; keep only its classes"
        )
    labels = [*model.labels, *(label for _, label in unknown)]
    places = [labels.index(label) if label in labels else -1 for label in source.classes]
    return labels, np.array(places, dtype=np.intp)


def _first_of(source: Source, code: int) -> int:
    """The first row with a label that some row has, by its code."""
    chunk = int(np.argmax(source.scalars().counts[:, code] > 0))
    return source.span(chunk)[0] + int(np.argmax(source.labels(chunk) == code))


def _scores(
    labels: Sequence[Any],
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
        for k, label in enumerate(labels)
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
