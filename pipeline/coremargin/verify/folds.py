"""The folds of cross-validation: which rows a fleet's member holds out.

The fold of row i is x mod folds, x being number i of SplitMix64's sequence, in unsigned 64-bit arithmetic:

    m(z) = z ^ z >> 30, times BF58476D1CE4E5B9;  then z ^ z >> 27, times 94D049BB133111EB;  then z ^ z >> 31
    x = m(m(fold_seed) + (i + 1) * 9E3779B97F4A7C15)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from coremargin.formats.model_record import View

_STEPS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))
_STRIDE = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


def held_out(view: View, start: int, rows: int) -> np.ndarray:
    """Whether a view holds out each of the ``rows`` rows from ``start`` on (rows,)."""
    if view.fold is None or view.folds is None or view.fold_seed is None:
        return np.zeros(rows, dtype=bool)
    return np.asarray(folds_of(start, rows, view.folds, view.fold_seed) == view.fold)


def folds_of(start: int, rows: int, folds: int, seed: int) -> np.ndarray:
    """Folds (rows,) of the rows from ``start`` on."""
    first = seed
    for shift, factor in _STEPS:
        first = ((first ^ (first >> shift)) * factor) & _MASK
    places = np.arange(start + 1, start + rows + 1, dtype=np.uint64)
    z = places * np.uint64(_STRIDE) + np.uint64(first)  # modulo 2^64, as arrays of this kind are
    for shift, factor in _STEPS:
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(z % np.uint64(folds))
