"""How well decision values rank rows of two classes: any number of rows, in bounded memory, with and without weights.

A row is predicted positive if its decision value is above a threshold. Over all thresholds t, with P(t) and N(t) the
positive and negative rows above t, P and N those of all:

    ROC AUC                 share of the P N pairs whose positive row has the larger value; ties count half
    average precision       sum over the distinct values, downwards, of (P_k - P_(k-1)) / P * precision_k
    recall at a precision   largest P(t) / P with P(t) / (P(t) + N(t)) at least the wanted precision

The conventions are those of scikit-learn. Up to a number of rows these are exact. Beyond it values are counted in bins,
and each number is given with the largest error that any order of the values within the bins could make.

A precision on the rows by which a threshold was chosen is too good. An assured threshold is chosen among the thresholds
t_m at which the row of rank m + 1 lies, for numbers m that are fixed beforehand. Given t_m, the rows above it are
independent draws from all that lie above t_m, so that the positive ones among them are binomial, and the interval of
Clopper and Pearson holds for each; it is taken at confidence 1 - delta / K for each of K thresholds, so that all hold
at once, also for the one that is chosen (Angelopoulos, Bates, Candes, Jordan, Lei 2021, "Learn then Test").
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

_BITS = 22  # of a decision value that select its bin: 2^22 bins, each about 0.1 % wide
_STEP = 1.1  # from one number of rows above a threshold to the next


@dataclass(frozen=True)
class Bounded:
    """A number that is true within ``error``; None where it is not defined."""

    value: float | None
    error: float = 0.0


@dataclass(frozen=True)
class Threshold:
    """Rows with decision values above a threshold, and how many of them are positive, as counted on these rows."""

    threshold: float
    predicted: int  #: rows above
    precision: float
    recall: float


@dataclass(frozen=True)
class AssuredThreshold(Threshold):
    """A threshold, and the interval in which its precision on further rows of the same source lies."""

    lower: float
    upper: float


@dataclass(frozen=True)
class AtPrecision:
    """Thresholds for a wanted precision of the positive class.

    best: the one of the largest recall on these rows whose precision is at least the wanted one, None where there is
    none; another may have a recall larger by at most ``recall_error``. assured: the one of the largest recall whose
    interval lies above the wanted precision, None where these rows show it of none. trained_on: the model was trained
    on these rows, so that they show nothing about others.
    """

    precision: float
    confidence: float
    best: Threshold | None
    recall_error: float
    assured: AssuredThreshold | None
    trained_on: bool


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

    def rankings(self) -> tuple[Ranking, Ranking | None]:
        """The rows, and the rows by their weights, if there are any."""
        if self._bins is not None:
            used = np.flatnonzero(self._bins.any(axis=0))
            values = np.concatenate([_tops(used[:1] - 1), _tops(used)])
            weights = None if self._weights is None else Ranking(values, *self._weights[:, used], exact=False)
            return Ranking(values, *self._bins[:, used], exact=False), weights
        if not self._rows:
            nothing = Ranking(np.zeros(1), *np.zeros((2, 0), np.int64), exact=True)
            return nothing, nothing if self._weighted else None
        values, place = np.unique(np.concatenate([part[0] for part in self._kept]), return_inverse=True)
        sides = np.concatenate([part[1] for part in self._kept])
        values = np.concatenate([np.nextafter(values[:1], -np.inf), values])

        def ranked(weights: np.ndarray | None) -> Ranking:
            pair = (
                np.bincount(place[mine], None if weights is None else weights[mine], minlength=len(values) - 1)
                for mine in (~sides, sides)
            )
            return Ranking(values, *pair, exact=True)

        given = [part[2] for part in self._kept if part[2] is not None]
        return ranked(None), ranked(np.concatenate(given)) if self._weighted else None


class Ranking:
    """Numbers of negative and positive rows, or sums of their weights, in groups of similar decision values.

    values (n + 1,): increasing; the rows of group k, of n, lie above values[k] and up to values[k + 1]; if exact, they
    are equal to that. negative, positive (n,).
    """

    def __init__(self, values: np.ndarray, negative: np.ndarray, positive: np.ndarray, *, exact: bool) -> None:
        self._exact = exact
        self._below = values[-2::-1]  # downwards, as all that follows: the largest value below each group
        self._negative, self._positive = negative[::-1], positive[::-1]
        self._negatives_to = np.cumsum(self._negative)  # of each group and all above
        self._positives_to = np.cumsum(self._positive)

    @property
    def _totals(self) -> tuple[float, float]:
        """Of both classes; a class without rows leaves nothing to rank."""
        return float(self._negative.sum()), float(self._positive.sum())

    def roc_auc(self) -> Bounded:
        """The area under the ROC curve; None with one class only."""
        negative, positive = self._totals
        if negative * positive == 0:
            return Bounded(None)
        pairs = negative * positive
        below = (self._negatives_to[-1] - self._negatives_to).astype(np.float64)  # negative rows of smaller values
        tied = float((self._positive * self._negative.astype(np.float64)).sum()) / pairs
        area = float((self._positive * below).sum()) / pairs + tied / 2
        return Bounded(area, 0.0 if self._exact else tied / 2)

    def average_precision(self) -> Bounded:
        """The average precision of the positive class; None without rows of both classes.

        At most, the positive rows of a bin are tied above its negative ones. At least, they follow these one by one:
        the sum of their precisions is no less than the integral of t / (t + N) from the positive rows above the bin to
        those of its end, N being the negative rows to its end.
        """
        negative, positive = self._totals
        if negative * positive == 0:
            return Bounded(None)
        some = np.flatnonzero(self._positive)
        here, tp, fp = self._positive[some], self._positives_to[some], self._negatives_to[some]
        if self._exact:
            return Bounded(float((here * (tp / (tp + fp))).sum()) / positive)
        most = float((here * (tp / (tp + np.maximum(fp - self._negative[some], 0)))).sum()) / positive
        with np.errstate(invalid="ignore", divide="ignore"):
            sums = here - np.where(fp > 0, fp * np.log1p(here / (tp - here + fp)), 0.0)
        least = float(np.maximum(sums, 0.0).sum()) / positive
        return Bounded((least + most) / 2, (most - least) / 2)

    def at_precision(self, precision: float, confidence: float, *, trained_on: bool) -> AtPrecision:
        """The thresholds for a wanted precision, of rows without weights."""
        best, error = self._recall_at(precision)
        assured = None if trained_on else self._assured(precision, confidence)
        return AtPrecision(precision, confidence, best, error, assured, trained_on)

    def _recall_at(self, precision: float) -> tuple[Threshold | None, float]:
        """The threshold of the largest recall, and by how much the recall may be larger: none lies within a bin."""
        negative, positive = self._totals
        if negative * positive == 0:
            return None, 0.0
        tp, fp = self._positives_to, self._negatives_to
        reached = np.flatnonzero(tp / (tp + fp) >= precision)
        best = int(tp[reached].max(initial=0))
        possible = best
        if not self._exact:  # at best, the positive rows of a bin come first
            first = tp / np.maximum(tp + fp - self._negative, 1)
            possible = int(tp[first >= precision].max(initial=0))
        error = (possible - best) / positive
        if not best:
            return None, error
        return self._threshold(int(reached[np.argmax(tp[reached])])), error  # of equal recalls the most precise

    def _assured(self, precision: float, confidence: float) -> AssuredThreshold | None:
        from scipy.special import betaincinv

        negative, positive = self._totals
        if negative * positive == 0:
            return None
        to = self._positives_to + self._negatives_to
        numbers = _numbers(int(to[-1]), precision, confidence)
        groups = np.unique(np.searchsorted(to, numbers, side="right") - 1)  # above the value of the row of rank m + 1
        groups = groups[groups >= 0]
        if not len(groups):
            return None
        hits, misses = self._positives_to[groups], self._negatives_to[groups]
        share = (1.0 - confidence) / (2 * len(numbers))  # each interval may fail at either end
        lower = np.where(hits > 0, betaincinv(np.maximum(hits, 1), misses + 1, share), 0.0)
        upper = np.where(misses > 0, betaincinv(hits + 1, np.maximum(misses, 1), 1.0 - share), 1.0)
        shown = np.flatnonzero(lower >= precision)
        if not len(shown):
            return None
        best = shown[np.argmax(hits[shown])]
        return AssuredThreshold(
            **asdict(self._threshold(int(groups[best]))), lower=float(lower[best]), upper=float(upper[best])
        )

    def _threshold(self, group: int) -> Threshold:
        """The threshold below a group."""
        tp, fp = int(self._positives_to[group]), int(self._negatives_to[group])
        return Threshold(float(self._below[group]), tp + fp, tp / (tp + fp), tp / int(self._positives_to[-1]))


def _numbers(rows: int, precision: float, confidence: float) -> NDArray[np.int64]:
    """Numbers of rows above a threshold, about 10 % apart: from as many as show the precision if all are positive."""
    least = min(rows, np.log1p(-confidence) / np.log(precision) if precision < 1 else rows)
    steps = np.arange(int(np.log(rows / least) / np.log(_STEP)) + 1)
    numbers = np.unique(np.ceil(least * _STEP**steps).astype(np.int64))
    return numbers[numbers < rows]


def _bins(decisions: np.ndarray) -> np.ndarray:
    """The bin of each decision value (n,): the leading bits of the float, in the order of the floats."""
    bits = (decisions + 0.0).view(np.int64)  # -0.0 becomes 0.0
    # The bits of positive floats have the order of the floats, those of negative ones the reverse.
    ordered = np.where(bits < 0, ~bits, bits | np.int64(-(2**63))).view(np.uint64)
    return (ordered >> np.uint64(64 - _BITS)).astype(np.intp)


def _tops(bins: np.ndarray) -> NDArray[np.float64]:
    """The largest float of each bin (n,); -0.0 is in none."""
    ordered = (bins.astype(np.uint64) + np.uint64(1) << np.uint64(64 - _BITS)) - np.uint64(1)
    bits = np.where(ordered >> np.uint64(63), ordered ^ np.uint64(1 << 63), ~ordered)
    tops = bits.view(np.float64)
    return np.where(tops == 0, np.nextafter(0.0, -1.0), tops)
