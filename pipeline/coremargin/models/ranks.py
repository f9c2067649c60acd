"""The area under the ROC curve of any number of rows, in bounded memory, with and without weights of rows."""

from __future__ import annotations

import numpy as np

_BITS = 22  # of a decision value that select its bin: 2^22 bins, each about 0.1 % wide


class Ranks:
    """Decision values of both classes: stored while they are few, then counted in bins that preserve their order.

    Kept are 9 bytes a row, 17 with weights; the bins take 64 MiB, with weights 128.
    """

    def __init__(self, exact_rows: int, *, weighted: bool) -> None:
        """exact_rows: how many values are stored; weighted: ``add`` gets weights."""
        self._exact_rows, self._weighted = exact_rows, weighted
        self._kept: list[tuple[np.ndarray, np.ndarray, np.ndarray | None]] = []
        self._rows = 0
        self._bins: np.ndarray | None = None  # (2, bins): negative, positive
        self._weights: np.ndarray | None = None  # the same, sums of weights

    def add(self, decisions: np.ndarray, positive: np.ndarray, weights: np.ndarray | None) -> None:
        """Take decision values (n,) float64, whether each row is positive (n,), and their weights (n,), if any."""
        self._rows += len(decisions)
        self._kept.append((decisions, positive, weights))
        if self._rows <= self._exact_rows:
            return
        if self._bins is None:
            self._bins = np.zeros((2, 1 << _BITS), dtype=np.int64)
            self._weights = np.zeros((2, 1 << _BITS)) if self._weighted else None
        for values, sides, given in self._kept:
            places = sides.astype(np.intp), _bins(values)
            np.add.at(self._bins, places, 1)
            if self._weights is not None and given is not None:
                np.add.at(self._weights, places, given)
        self._kept.clear()

    def areas(self) -> tuple[tuple[float | None, float], tuple[float | None, float]]:
        """(area, error bound) of the rows and of the rows by their weights; (None, 0) with one class only."""
        if self._bins is not None:
            found = _area(*self._bins, exact=False)
            return found, (None, 0.0) if self._weights is None else _area(*self._weights, exact=False)
        values, sides = (np.concatenate([part[k] for part in self._kept]) for k in range(2))
        unique, place = np.unique(values, return_inverse=True)

        def both(weights: np.ndarray | None) -> tuple[float | None, float]:
            pair = [
                np.bincount(place[mine], None if weights is None else weights[mine], minlength=len(unique))
                for mine in (~sides, sides)
            ]
            return _area(*pair, exact=True)

        given = [part[2] for part in self._kept if part[2] is not None]
        return both(None), both(np.concatenate(given)) if self._weighted else (None, 0.0)


def _area(negative: np.ndarray, positive: np.ndarray, *, exact: bool) -> tuple[float | None, float]:
    """Of the rows, or sums of weights, at increasing decision values; not exact: values of one bin may differ."""
    pairs = float(negative.sum()) * float(positive.sum())
    if pairs == 0:
        return None, 0.0
    below = np.cumsum(negative) - negative  # negative rows with smaller values
    tied = float((positive * negative.astype(np.float64)).sum()) / pairs
    area = float((positive * below.astype(np.float64)).sum()) / pairs + tied / 2
    return area, 0.0 if exact else tied / 2


def _bins(decisions: np.ndarray) -> np.ndarray:
    """The bin of each decision value (n,): the leading bits of the float, in the order of the floats."""
    bits = (decisions + 0.0).view(np.int64)  # -0.0 becomes 0.0
    # The bits of positive floats have the order of the floats, those of negative ones the reverse.
    ordered = np.where(bits < 0, ~bits, bits | np.int64(-(2**63))).view(np.uint64)
    return (ordered >> np.uint64(64 - _BITS)).astype(np.intp)
