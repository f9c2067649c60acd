"""The rows outside of each fold of cross-validation, for problems that have folds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from coremargin.data.folds import Masked, fold_counts
from coremargin.errors import LabelError

if TYPE_CHECKING:
    from coremargin.data.source import Source


def held_out_views(source: Source, codes: Sequence[int], folds: int, seed: int) -> list[Masked]:
    """A view for each fold, whose rows have no label in it.

    Raises LabelError for a class that has no row of a weight above 0 in a fold.
    """
    counts = fold_counts(source, folds, seed)
    counting = counts if source.weights(0) is None else fold_counts(source, folds, seed, weighed=True)
    for code in codes:
        of_class = counting[:, :, code].sum(axis=1)
        if not of_class.all():
            total = int(of_class.sum())
            raise LabelError(
                f"{source.name}: expected rows of class {source.classes[code]!r} in each of {folds} folds, found none "
                f"in fold {int(np.argmin(of_class))} ({total:,} row{'' if total == 1 else 's'} in all); "
                f"use fewer folds or another fold_seed, or leave the class out"
            )
    left = counts.sum(axis=0) - counts
    return [Masked(source, fold, folds, seed, left[fold]) for fold in range(folds)]
