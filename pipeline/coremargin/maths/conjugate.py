"""Conjugate gradients for linear systems given by products, to the accuracy that a Newton step needs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from coremargin.maths.stopping import may_stop

Array = NDArray[np.float64]


def conjugate_gradients(
    product: Callable[[Array], Array],
    right: Array,
    share: float,
    turns: int,
    *,
    diagonal: Array | None = None,
    scaled: bool = True,
) -> tuple[Array, bool]:
    """Solve product(x) = ``right`` until the squared residual is ``share`` of that at x = 0; at most ``turns``
    iterations.

    Returns x, and whether the residual got there. right: a vector or a matrix. diagonal: about that of the system, for
    preconditioning; None: no preconditioner. scaled: residuals are measured in the norm of 1 / diagonal.
    """
    x, residual = np.zeros_like(right), right
    turned = residual if diagonal is None else residual / diagonal
    along, size = turned, _inner(residual, turned)
    enough = share * (size if scaled else _inner(right, right))
    for _ in range(turns):
        may_stop()
        image = product(along)
        bend = _inner(along, image)
        if not bend > 0:  # the residual is zero, or below the precision of float64
            break
        x = x + (size / bend) * along
        residual = residual - (size / bend) * image
        turned = residual if diagonal is None else residual / diagonal
        new = _inner(residual, turned)
        if (new if scaled else _inner(residual, residual)) <= enough:
            return x, True
        along, size = turned + (new / size) * along, new
    return x, False


def _inner(one: Array, other: Array) -> float:
    """The inner product; of matrices entry by entry."""
    return float(one @ other) if one.ndim == 1 else float((one * other).sum())
