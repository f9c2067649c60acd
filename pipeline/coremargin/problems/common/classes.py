"""The classes of a store and their weights, and checks that need no rows.

Rows without label or of weight 0 do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from coremargin.data.folds import Masked, fold_counts
from coremargin.errors import BadRow, LabelError, StoreError, UsageError
from coremargin.formats.limits import C_LIMITS
from coremargin.maths.breakdown import exact_sum

if TYPE_CHECKING:
    from coremargin.data.source import Source

#: Lengths of the longest row between which squares, and differences down to float64's resolution, keep their digits.
SCALES = (1e-130, 1e130)


# The classes


def two_classes(source: Source, *, one_vs_rest: bool = True) -> tuple[int, int]:
    """Codes of the positive and the negative class: the labels in sorted order, the larger one positive.

    one_vs_rest: whether the message may suggest ``--classes ovr``. Raises StoreError for no rows, LabelError unless
    exactly two classes have rows.
    """
    if source.rows == 0:
        raise StoreError(f"{source.name}: expected rows, found an empty store; ingest some first")
    present = np.flatnonzero(source.scalars().counts.sum(axis=0))
    labels = [source.classes[code] for code in present]
    if len(labels) == 2:
        negative, positive = sorted(present.tolist(), key=lambda code: source.classes[code])
        return positive, negative
    shown = ", ".join(repr(label) for label in labels[:8]) + (", ..." if len(labels) > 8 else "")
    if not labels:
        raise LabelError(f"{source.name}: expected two classes, found no labelled row; ingest with --labels or --label")
    if len(labels) == 1:
        raise LabelError(f"{source.name}: expected two classes, found only {shown}; a margin needs rows of both")
    other = "train each against the rest with --classes ovr, or " if one_vs_rest else ""
    raise LabelError(
        f"{source.name}: expected two classes, found {len(labels)} ({shown}); a model separates two classes: "
        f"{other}ingest the pair you mean with --only {labels[0]},{labels[1]}"
    )


def class_codes(source: Source) -> tuple[int, ...]:
    """Label codes in the order of the labels: class k of a model is ``codes[k]``.

    Raises StoreError for no rows, LabelError for fewer than two classes and for a class that has no rows.
    """
    if source.rows == 0:
        raise StoreError(f"{source.name}: expected rows, found an empty store; ingest some first")
    counts = source.scalars().counts.sum(axis=0)
    if not counts.any():
        raise LabelError(f"{source.name}: expected classes, found no labelled row; ingest with --labels or --label")
    present = [repr(source.classes[code]) for code in np.flatnonzero(counts)]
    if len(present) == 1:
        raise LabelError(
            f"{source.name}: expected at least two classes, found only {present[0]}; a margin needs rows of two"
        )
    if not counts.all():
        absent = source.classes[int(np.argmin(counts))]
        raise LabelError(
            f"{source.name}: expected rows of every class, found none of {absent!r}; leave that class out: ingest with "
            f"--only {','.join(str(source.classes[code]) for code in np.flatnonzero(counts)[:8])}"
        )
    return tuple(sorted(range(len(counts)), key=lambda code: source.classes[code]))


def class_index(codes: tuple[int, ...]) -> NDArray[np.int32]:
    """Class k by label code; the last entry is for code -1: unlabelled, class -1."""
    index = np.full(len(codes) + 1, -1, np.int32)
    index[list(codes)] = np.arange(len(codes))
    return index


def signs_of(codes: NDArray[np.int32], weights: NDArray[np.float64], of: tuple[int, int]) -> NDArray[np.int8]:
    """Signs (m,) of rows by their label codes, the positive class first: 0 for rows that do not count."""
    positive, negative = of
    sides = (codes == positive).astype(np.int8) - (codes == negative)
    return np.where(weights > 0, sides, 0).astype(np.int8)


# Sample weights


def mask_zero_weights(codes: NDArray[np.int32], weights: NDArray[np.float64] | None) -> NDArray[np.int32]:
    """Label codes (n,) with -1, unlabelled, for rows of weight 0."""
    return codes if weights is None or weights.all() else np.where(weights > 0, codes, -1).astype(np.int32)


def zero_weight_error(source: Source, code: int) -> LabelError:
    """The error for a class whose rows all have weight 0."""
    return LabelError(
        f"{source.name}: expected rows of every class, found that all of class {source.classes[code]!r} weigh 0, "
        f"which leaves them out; give some of them a weight above 0"
    )


def check_class_weights(source: Source) -> None:
    """Raise LabelError for a class whose rows all have weight 0.

    Labels and weights are read up to the first row of each class with a weight above 0.
    """
    if source.weights(0) is None:
        return
    missing = set(np.flatnonzero(source.scalars().counts.sum(axis=0)).tolist())
    for chunk in range(source.chunks):
        missing -= set(np.unique(mask_zero_weights(source.labels(chunk), source.weights(chunk))).tolist())
        if not missing:
            return
    raise zero_weight_error(source, min(missing))


def count_weighted_rows(source: Source) -> NDArray[np.int64]:
    """Rows of each class (k,) with a weight above 0; reads labels and weights, if there are weights, but no rows."""
    total = source.scalars().counts.sum(axis=0)
    if source.weights(0) is None:
        return np.asarray(total, np.int64)
    found = np.zeros(len(total), np.int64)
    for chunk in range(source.chunks):
        codes = mask_zero_weights(source.labels(chunk), source.weights(chunk))
        found += np.bincount(codes[codes >= 0], minlength=len(total))
    return found


def class_weights(source: Source, codes: tuple[int, ...]) -> NDArray[np.float64]:
    """Sums of the sample weights (k,) over the rows of these classes, all above 0; reads labels and weights, no rows.

    Raises LabelError for a class whose rows all have weight 0.
    """
    totals = np.zeros(len(codes))
    if source.weights(0) is None:
        return np.asarray(source.scalars().counts.sum(axis=0)[list(codes)], np.float64)
    for chunk in range(source.chunks):
        labels, weights = source.labels(chunk), source.weights(chunk)
        if weights is not None:
            totals += [exact_sum(weights[labels == code]) for code in codes]
    if not totals.all():
        raise zero_weight_error(source, codes[int(totals.argmin())])
    return totals


def c_per_class(
    cost: float, class_weight: Literal["balanced"] | tuple[float, float] | None, totals: NDArray[np.float64]
) -> NDArray[np.float64]:
    """c (K,) of a row of weight 1 of each class; totals (K,): sums of the sample weights of the classes.

    "balanced" is C n / (K n_class), as in scikit-learn. Two numbers are factors of the negative and of the positive
    class; the result has the positive class first.
    """
    if class_weight is None:
        return np.full(len(totals), cost)
    if class_weight == "balanced":
        return np.asarray(cost * totals.sum() / (len(totals) * totals))
    negative, positive = class_weight
    return cost * np.array([positive, negative])


# Folds of cross-validation


def held_out_views(source: Source, codes: Sequence[int], folds: int, seed: int) -> list[Masked]:
    """A view for each fold, in which the rows of the fold have no label.

    Raises LabelError for a class that has no row of a weight above 0 in a fold.
    """
    counts = fold_counts(source, folds, seed)
    weighted = counts if source.weights(0) is None else fold_counts(source, folds, seed, weighed=True)
    for code in codes:
        of_class = weighted[:, :, code].sum(axis=1)
        if not of_class.all():
            total = int(of_class.sum())
            raise LabelError(
                f"{source.name}: expected rows of class {source.classes[code]!r} in each of {folds} folds, found none "
                f"in fold {int(np.argmin(of_class))} ({total:,} row{'' if total == 1 else 's'} in all); "
                f"use fewer folds or another fold_seed, or leave the class out"
            )
    left = counts.sum(axis=0) - counts
    return [Masked(source, fold, folds, seed, left[fold]) for fold in range(folds)]


# Numbers that float64 can handle


def check_scale(
    source: Source, class_c: NDArray[np.float64] | None = None, totals: NDArray[np.float64] | None = None
) -> None:
    """Check that nothing under- or overflows in float64, as no bound could then be trusted.

    With a loss: class_c (k,), C of a row of weight 1, and the sums of weights ``totals`` (k,) of the classes. Raises
    BadRow (squares of all rows), UsageError (C of all rows of a class).
    """
    if class_c is not None and totals is not None:
        check_class_c(source.name, class_c, totals)
    check_longest(source.name, float(source.scalars().max_norm.max()))


def check_longest(name: str, longest: float) -> None:
    """``check_scale`` for the length of the longest row."""
    if longest and not SCALES[0] <= longest <= SCALES[1]:
        raise BadRow(
            f"{name}: expected the longest row to have a length from {SCALES[0]:g} to {SCALES[1]:g}, found "
            f"{longest:g}; rescale the features (a common factor changes nothing but the margin's unit)"
        )


def check_class_c(name: str, class_c: NDArray[np.float64], totals: NDArray[np.float64]) -> None:
    """``check_scale`` for the sum of C over the rows of each class."""
    with np.errstate(over="ignore"):
        sums = class_c * totals
    bad = ~((sums >= C_LIMITS[0]) & (sums <= C_LIMITS[1]))
    if bad.any():
        raise UsageError(
            f"{name}: expected C times the weights of a class, summed up, from {C_LIMITS[0]:g} to "
            f"{C_LIMITS[1]:g}, found {sums[bad][0]:g}; weights t times as large are the same problem with C / t"
        )
