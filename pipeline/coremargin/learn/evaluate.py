"""How well a model's labels and decision values fit a labelled store, in one pass and bounded memory."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.errors import LabelError
from coremargin.learn.predict import leads, opened_model, opened_rows, same_features
from coremargin.learn.trained import decided

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.learn.fleet import AnyModel

EXACT_ROWS = 10_000_000  #: up to so many rows decision values are kept (90 MB) and the ROC AUC is exact
_BITS = 22  # beyond, they are counted in bins: 64 MiB, each about 0.1 % wide

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
class Evaluation:
    """Metrics over the labelled rows; conventions are those of scikit-learn with ``zero_division=0``.

    confusion[i][j]: rows of class i that were given class j. roc_auc: of two classes, how often a positive row has a
    larger decision value than a negative one, ties count half; None with rows of one class only, or of more than two.
    It is true within ``roc_auc_error``: 0 up to ``exact_rows`` rows, beyond that half the share of the pairs whose
    values fall into the same narrow bin.
    """

    rows: int
    unlabelled: int
    accuracy: float
    balanced_accuracy: float  #: mean recall of the classes that have rows
    f1: float  #: mean of the classes
    roc_auc: float | None
    roc_auc_error: float
    classes: tuple[ClassScore, ...]
    confusion: tuple[tuple[int, ...], ...]
    lowest_margin: float  #: smallest lead of a row's own class: negative when a row lies on the wrong side

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def evaluate(
    model: AnyModel | str | os.PathLike[str],
    source: Source | str | os.PathLike[str],
    *,
    C: float | None = None,
    on_progress: OnProgress | None = None,
    exact_rows: int = EXACT_ROWS,
) -> Evaluation:
    """Metrics of a model on the labelled rows of a source; rows without a label are counted and left out.

    model, source: opened, or paths. C: of a fleet, whose members decide. on_progress(rows done, rows in all) is called
    after each chunk.
    Raises LabelError (no labelled rows, a class that the model does not know), DataError (other features, damage).
    """
    model, source = opened_model(model, C), opened_rows(source)
    same_features(model, source)
    sides = _sides(model, source)
    confusion = np.zeros((len(model.classes),) * 2, dtype=np.int64)
    ranks = _Ranks(exact_rows)
    unlabelled, lowest = 0, np.inf
    for chunk in range(source.chunks):
        rows, codes = source.read(chunk)
        side = sides[codes]
        known = side >= 0
        _refuse_strangers(source, codes, side)
        if known.any():
            truth = side[known]
            decisions = model.decision_function(rows if known.all() else rows[known])
            np.add.at(confusion, (truth, decided(decisions)), 1)
            if decisions.ndim == 1:
                ranks.add(decisions, truth == 1)
            lowest = min(lowest, float(leads(decisions, truth).min()))
        unlabelled += int((codes < 0).sum())
        if on_progress is not None:
            on_progress(source.span(chunk)[1], source.rows)
    if not confusion.any():
        raise LabelError(
            f"{source.name}: expected labelled rows, all {unlabelled:,} are without label; nothing to compare"
        )
    return _scores(model, confusion, ranks, unlabelled, lowest)


def _sides(model: AnyModel, source: Source) -> np.ndarray:
    """Code -> index in the model's classes; -2: another class; the last entry is for code -1: unlabelled."""
    sides = [model.classes.index(label) if label in model.classes else -2 for label in source.classes]
    return np.array([*sides, -1], dtype=np.intp)


def _refuse_strangers(source: Source, codes: np.ndarray, side: np.ndarray) -> None:
    if (side == -2).any():
        label = source.classes[int(codes[side == -2][0])]
        raise LabelError(
            f"{source.name}: has rows of class {label!r}, which the model does not know; keep only its classes"
        )


def _scores(model: AnyModel, confusion: np.ndarray, ranks: _Ranks, unlabelled: int, lowest: float) -> Evaluation:
    rows, predicted, hits = confusion.sum(axis=1), confusion.sum(axis=0), np.diag(confusion)
    recall, precision = _share(hits, rows), _share(hits, predicted)
    f1 = _share(2 * hits, rows + predicted)
    scores = tuple(
        ClassScore(label, int(rows[k]), int(predicted[k]), float(precision[k]), float(recall[k]), float(f1[k]))
        for k, label in enumerate(model.classes)
    )
    auc, error = ranks.auc() if len(scores) == 2 else (None, 0.0)
    return Evaluation(
        rows=int(rows.sum()),
        unlabelled=unlabelled,
        accuracy=float(hits.sum() / rows.sum()),
        balanced_accuracy=float(recall[rows > 0].mean()),
        f1=float(f1.mean()),
        roc_auc=auc,
        roc_auc_error=error,
        classes=scores,
        confusion=tuple(tuple(line) for line in confusion.tolist()),
        lowest_margin=lowest,
    )


def _share(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.asarray(np.divide(part, whole, out=np.zeros(len(part)), where=whole > 0))


class _Ranks:
    """Decision values of both classes: kept while they are few, then counted in bins that keep their order."""

    def __init__(self, exact_rows: int) -> None:
        self._exact_rows = exact_rows
        self._kept: list[tuple[np.ndarray, np.ndarray]] = []
        self._rows = 0
        self._bins: np.ndarray | None = None  # (2, bins): negative, positive

    def add(self, decisions: np.ndarray, positive: np.ndarray) -> None:
        """Take decision values (n,) float64 and whether each row is positive (n,)."""
        self._rows += len(decisions)
        if self._bins is None:
            self._kept.append((decisions, positive))
            if self._rows > self._exact_rows:
                self._bins = np.zeros((2, 1 << _BITS), dtype=np.int64)
                for part in self._kept:
                    _count(self._bins, *part)
                self._kept.clear()
        else:
            _count(self._bins, decisions, positive)

    def auc(self) -> tuple[float | None, float]:
        """(area, error bound); (None, 0) with one class only."""
        if self._bins is not None:
            negative, positive = self._bins
        else:
            values = np.concatenate([part[0] for part in self._kept])
            sides = np.concatenate([part[1] for part in self._kept])
            unique, place = np.unique(values, return_inverse=True)
            negative = np.bincount(place[~sides], minlength=len(unique))
            positive = np.bincount(place[sides], minlength=len(unique))
        pairs = float(negative.sum()) * float(positive.sum())
        if pairs == 0:
            return None, 0.0
        below = np.cumsum(negative) - negative  # negative rows with smaller values
        tied = float((positive * negative.astype(np.float64)).sum()) / pairs
        area = float((positive * below.astype(np.float64)).sum()) / pairs + tied / 2
        return area, tied / 2 if self._bins is not None else 0.0


def _count(bins: np.ndarray, decisions: np.ndarray, positive: np.ndarray) -> None:
    """Add decision values (n,) to the bins (2, 2^22) of their class: the leading bits of the float, in its order."""
    bits = (decisions + 0.0).view(np.int64)  # -0.0 becomes 0.0
    # The bits of positive floats have the order of the floats, those of negative ones the reverse.
    ordered = np.where(bits < 0, ~bits, bits | np.int64(-(2**63))).view(np.uint64)
    np.add.at(bins, (positive.astype(np.intp), (ordered >> np.uint64(64 - _BITS)).astype(np.intp)), 1)
