"""The best labelling of each sequence by scores of its rows, and of each row the best labelling with every other label.

For rows x_1 ... x_T with scores S (T, K) and transitions R (K, K) the score of a labelling is

    s(y) = sum_t S[t, y_t] + sum_(t > 1) R[y_(t-1), y_t]

and its max-marginal M[t, k] = max {s(y): y_t = k}, by one pass over the rows in each direction (max-sum).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.jit import jit_together
from coremargin.maths.structures.chain import decode


def decode_sequences(
    scores: NDArray[np.float64], transitions: NDArray[np.float64], offsets: NDArray[np.int64]
) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Places (n,) of the labels of the best labellings, and max-marginals (n, k).

    scores (n, k) of rows, sequences one after the other; transitions (k, k): the score of the label of a column after
    that of a row; offsets (m + 1,): where sequences begin. Of labellings with equal scores the first in lexicographic
    order is taken. Nothing depends on which sequences come together.
    """
    labels, marginals = np.empty(len(scores), np.intp), np.empty_like(scores)
    longest = int(np.diff(offsets).max(initial=1))
    scratch = np.empty((2, longest, scores.shape[1]))
    into = np.ascontiguousarray(transitions.T)
    compiled().decode_all(np.ascontiguousarray(scores), into, offsets, labels, marginals, scratch)
    return labels, marginals


@cache
def compiled() -> Any:
    """The functions below, compiled."""
    return jit_together(decode, decode_all)


def decode_all(scores, into, offsets, labels, marginals, scratch):  # type: ignore[no-untyped-def]
    """See ``decode_sequences``; into[k, j]: the score of label k after label j."""
    classes = scores.shape[1]
    best, before = scratch[0], scratch[1]
    for i in range(len(offsets) - 1):
        first, stop = offsets[i], offsets[i + 1]
        top = decode(scores[first:stop], into, stop - first, best, labels[first:stop])
        for k in range(classes):
            before[0, k] = 0.0
        for t in range(1, stop - first):
            for k in range(classes):
                value = before[t - 1, 0] + scores[first + t - 1, 0] + into[k, 0]
                for j in range(1, classes):
                    other = before[t - 1, j] + scores[first + t - 1, j] + into[k, j]
                    value = max(value, other)
                before[t, k] = value
        for t in range(stop - first):
            for k in range(classes):  # rounding differs from one direction to the other: no value is above the best
                value = before[t, k] + best[t, k]
                marginals[first + t, k] = min(top, value)
            marginals[first + t, labels[first + t]] = top
