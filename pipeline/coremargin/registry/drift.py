"""Drift between two commits of a store: feature means, class shares, and the change of the model.

Means and standard deviations of the new rows follow from the statistics of both commits, without reading rows. Class
shares count rows with a positive weight. Only the share of new rows within the old margin requires reading, of the new
rows alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.moments import moments
from coremargin.errors import DataError, UsageError
from coremargin.models.matching import scorer_for
from coremargin.models.model import Model
from coremargin.problems.common.classes import count_weighted_rows
from coremargin.problems.one_class.rows import EnclosedRows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coremargin.data.store import Store
    from coremargin.models.ball import BallModel
    from coremargin.models.ellipsoid import EllipsoidModel
    from coremargin.models.fleet import AnyModel

MOST_FEATURES = 20  #: that a report lists


@dataclass(frozen=True)
class FeatureDrift:
    """mean_shift: in earlier standard deviations; spread: ratio of the standard deviations, new to earlier.

    Infinite (null in JSON) if the feature was constant before.
    """

    feature: str
    mean_shift: float
    spread: float


@dataclass(frozen=True)
class ClassDrift:
    """Share of a class among the rows before, the new rows (None: no labelled ones) and all rows now."""

    label: Any
    before: float
    new: float | None
    now: float


@dataclass(frozen=True)
class HyperplaneChange:
    """degrees: angle between the hyperplanes; weights: feature, weight before and now, largest change first."""

    degrees: float
    weights: tuple[tuple[str, float, float], ...]


@dataclass(frozen=True)
class Drift:
    """Drift from the rows of a version to those of a later one.

    before, appended: numbers of rows. largest: largest shift of a feature's mean. class_shift: largest change of a
    class share. features: largest shift first. within_margin: share of the new rows within the old margin, if known.
    """

    before: int
    appended: int
    largest: float
    class_shift: float
    features: tuple[FeatureDrift, ...]
    classes: tuple[ClassDrift, ...]
    within_margin: float | None
    hyperplane: HyperplaneChange | None


def drift(old: Store, new: Store, model: AnyModel, later: AnyModel | None = None, *, read: bool = True) -> Drift:
    """Compare an earlier commit of a store with a later one.

    model, later: models of the two commits. read: whether to read the new rows for ``within_margin``.
    Raises DataError (unreadable rows), UsageError (fewer rows than before).
    """
    appended = new.rows - old.rows
    if appended < 0:
        raise UsageError(
            f"{new.name}: has {new.rows:,} rows, {old.rows:,} before: not a later commit of the same store"
        )
    features = _feature_drift(old, new, _feature_names(model, new))
    classes = _class_drift(old, new)
    return Drift(
        before=old.rows,
        appended=appended,
        largest=max((abs(one.mean_shift) for one in features), default=0.0),
        class_shift=max((abs(one.now - one.before) for one in classes), default=0.0),
        features=features[:MOST_FEATURES],
        classes=classes,
        within_margin=_share_within_margin(model, new, old.rows) if read and appended else None,
        hyperplane=None if later is None else _compare_hyperplanes(model, later),
    )


def _feature_drift(old: Store, new: Store, names: Sequence[str]) -> tuple[FeatureDrift, ...]:
    """Moments of the new rows: those of all rows less the earlier ones (Chan, Golub, LeVeque 1979, reversed)."""
    n, m = old.rows, new.rows - old.rows
    if not m:
        return ()
    then, both = moments(old), moments(new)
    mean = both.mean + (both.mean - then.mean) * (n / m)
    between = (mean - then.mean) ** 2 * (n * m / (n + m))
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        variance = np.maximum(0.0, ((n + m) * both.variance - n * then.variance - between) / m)
        deviation = np.sqrt(then.variance)
        same = both.constant | ((deviation == 0) & (mean == then.mean))
        moved = np.where(same, 0.0, (mean - then.mean) / deviation)
        spread = np.where(same & (deviation == 0), 1.0, np.sqrt(variance) / deviation)
    order = np.argsort(-np.nan_to_num(np.abs(moved), nan=np.inf), kind="stable")
    found = zip(order.tolist(), moved[order].tolist(), spread[order].tolist(), strict=True)
    return tuple(FeatureDrift(names[j], *(math.inf if math.isnan(x) else x for x in (a, b))) for j, a, b in found)


def _class_drift(old: Store, new: Store) -> tuple[ClassDrift, ...]:
    none = np.zeros(len(new.classes) - len(old.classes), np.int64)
    came = new.scalars().counts.sum(axis=0) - np.append(old.scalars().counts.sum(axis=0), none)
    count = np.append(count_weighted_rows(old), none), count_weighted_rows(new)
    shares = [part / max(1, part.sum()) for part in count]
    fresh = came / came.sum() if came.sum() > 0 and (came >= 0).all() else None
    return tuple(
        ClassDrift(label, float(then), None if fresh is None else float(fresh[k]), float(now))
        for k, (label, then, now) in enumerate(zip(new.classes, *shares, strict=True))
    )


def _share_within_margin(model: AnyModel, new: Store, start: int) -> float | None:
    """Share of the rows from ``start`` on."""
    if not isinstance(model, Model) or len(model.planes[0]) > 1:
        return None
    margin = model.certificate.lower if model.certificate.is_margin else 1.0
    if margin is None or margin <= 0:
        return None
    scorer, inside, total = scorer_for(model, new), 0, 0
    for chunk in range(start // new.chunk_rows, new.chunks):
        first, _ = new.span(chunk)
        rows = new.read(chunk)[0][max(0, start - first) :]
        inside += int((np.abs(scorer.values(rows)) < margin).sum())
        total += rows.shape[0]
    return inside / total if total else None


def count_outside(ball: BallModel | EllipsoidModel, new: Store, start: int) -> tuple[int, int]:
    """How many rows from ``start`` on lie outside of a ball or ellipsoid, and how many count as for its training.

    Raises DataError for rows of other columns, LabelError for a store without the model's class.
    """
    scorer, outside, total = scorer_for(ball, new), 0, 0
    enclosed = EnclosedRows(new, ball.only)
    for chunk in range(start // new.chunk_rows, new.chunks):
        first, _ = new.span(chunk)
        mine = enclosed.mask(chunk)
        mine[: max(0, start - first)] = False
        if mine.any():
            outside += int((scorer.values(new.read(chunk)[0][mine]) < 0).sum())
            total += int(mine.sum())
    return outside, total


def _compare_hyperplanes(model: AnyModel, later: AnyModel) -> HyperplaneChange | None:
    """Of hyperplanes for unscaled rows; None for kernels and for different features or classes."""
    try:
        planes = [one.linear().folded()[0] for one in (model, later)]
    except (UsageError, DataError):
        return None
    if planes[0].shape != planes[1].shape or model.classes != later.classes:
        return None
    before, now = (part / (np.linalg.norm(part) or 1.0) for part in planes)
    cosine = float(np.clip((before * now).sum(), -1.0, 1.0))
    change = np.abs(now - before).max(axis=0)
    names = _feature_names(later, None)
    order = np.argsort(-change, kind="stable")[:MOST_FEATURES].tolist()
    largest = np.abs(now - before).argmax(axis=0)
    weights = tuple((names[j], float(before[largest[j], j]), float(now[largest[j], j])) for j in order)
    return HyperplaneChange(math.degrees(math.acos(cosine)), weights)


def _feature_names(model: AnyModel, store: Store | None) -> Sequence[str]:
    names = model.feature_names
    return names if names is not None else [f"feature {j}" for j in range(store.features if store else model.features)]
