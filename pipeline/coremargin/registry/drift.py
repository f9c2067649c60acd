"""How rows that came differ from those that were there, and what that did to the model.

Means and spreads come from the statistics of chunks: what a commit has less what an earlier one had. Shares of classes
are of the rows that count, by labels and weights. Only the share of new rows within the old margin is read from rows,
from the new ones alone.
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

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coremargin.data.store import Store
    from coremargin.models.fleet import AnyModel

SHOWN = 20  #: features that a report names


@dataclass(frozen=True)
class FeatureDrift:
    """moved: of its mean, in standard deviations that it had; spread: its standard deviation over what it was.

    Infinite, as JSON null, where it did not vary before and does now.
    """

    feature: str
    moved: float
    spread: float


@dataclass(frozen=True)
class ClassDrift:
    """The share of a class among rows that counted then, that came (None: no labelled row came), and that count now."""

    label: Any
    before: float
    new: float | None
    now: float


@dataclass(frozen=True)
class Moved:
    """What moved in a model: the angle between its hyperplanes in degrees, and weights by how much they changed."""

    degrees: float
    weights: tuple[tuple[str, float, float], ...]  #: feature, before, now


@dataclass(frozen=True)
class Drift:
    """From the rows of one version to those of a later one.

    moved: of the features, the largest first; the first of them decides. class_shift: the largest change of a class's
    share in the store. within: share of the new rows that lie within the old margin, None where there is none to tell.
    """

    before: int
    appended: int
    largest: float
    class_shift: float
    features: tuple[FeatureDrift, ...]
    classes: tuple[ClassDrift, ...]
    within: float | None
    moved: Moved | None


def drift(old: Store, new: Store, model: AnyModel, later: AnyModel | None = None, *, read: bool = True) -> Drift:
    """What happened between an earlier commit of a store and a later one.

    model: that of the earlier one, whose margin is meant; later: that of the later one. read: look at the new rows.
    Raises DataError (rows that cannot be read), UsageError (fewer rows than before).
    """
    appended = new.rows - old.rows
    if appended < 0:
        raise UsageError(f"{new.name}: has {new.rows:,} rows, {old.rows:,} before: it is no later commit of the same")
    features = _features(old, new, _names(model, new))
    classes = _classes(old, new)
    return Drift(
        before=old.rows,
        appended=appended,
        largest=max((abs(one.moved) for one in features), default=0.0),
        class_shift=max((abs(one.now - one.before) for one in classes), default=0.0),
        features=features[:SHOWN],
        classes=classes,
        within=_within(model, new, old.rows) if read and appended else None,
        moved=None if later is None else _moved(model, later),
    )


def _features(old: Store, new: Store, names: Sequence[str]) -> tuple[FeatureDrift, ...]:
    """Of the rows that came: what all rows have less what those before had (Chan, Golub, LeVeque 1979, backwards)."""
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
    return tuple(FeatureDrift(names[j], _known(by), _known(wide)) for j, by, wide in found)


def _known(value: float) -> float:
    return math.inf if math.isnan(value) else value


def _classes(old: Store, new: Store) -> tuple[ClassDrift, ...]:
    none = np.zeros(len(new.classes) - len(old.classes), np.int64)
    came = new.scalars().counts.sum(axis=0) - np.append(old.scalars().counts.sum(axis=0), none)
    count = np.append(count_weighted_rows(old), none), count_weighted_rows(new)
    shares = [part / max(1, part.sum()) for part in count]
    fresh = came / came.sum() if came.sum() > 0 and (came >= 0).all() else None
    return tuple(
        ClassDrift(label, float(then), None if fresh is None else float(fresh[k]), float(now))
        for k, (label, then, now) in enumerate(zip(new.classes, *shares, strict=True))
    )


def _within(model: AnyModel, new: Store, start: int) -> float | None:
    """The share of the rows from ``start`` on that the model's margin does not hold away."""
    if not isinstance(model, Model):
        return None
    reach = model.certificate.lower if model.certificate.is_margin else 1.0
    if reach is None or reach <= 0:
        return None
    scorer, inside, seen = scorer_for(model, new), 0, 0
    for chunk in range(start // new.chunk_rows, new.chunks):
        first, _ = new.span(chunk)
        rows = new.read(chunk)[0][max(0, start - first) :]
        inside += int((np.abs(scorer.values(rows)) < reach).sum())
        seen += rows.shape[0]
    return inside / seen if seen else None


def _moved(model: AnyModel, later: AnyModel) -> Moved | None:
    """How hyperplanes turned, for rows as they are; None where there are none, or of other features."""
    try:
        planes = [one.linear().folded()[0] for one in (model, later)]
    except (UsageError, DataError):
        return None
    if planes[0].shape != planes[1].shape or model.classes != later.classes:
        return None
    before, now = (part / (np.linalg.norm(part) or 1.0) for part in planes)
    cosine = float(np.clip((before * now).sum(), -1.0, 1.0))
    change = np.abs(now - before).max(axis=0)
    names = _names(later, None)
    order = np.argsort(-change, kind="stable")[:SHOWN].tolist()
    largest = np.abs(now - before).argmax(axis=0)
    weights = tuple((names[j], float(before[largest[j], j]), float(now[largest[j], j])) for j in order)
    return Moved(math.degrees(math.acos(cosine)), weights)


def _names(model: AnyModel, store: Store | None) -> Sequence[str]:
    names = model.feature_names
    return names if names is not None else [f"feature {j}" for j in range(store.features if store else model.features)]
