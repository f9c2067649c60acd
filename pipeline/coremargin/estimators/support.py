"""Which rows decide a soft margin: those that scikit-learn calls support vectors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from coremargin.data.source import Source
    from coremargin.learn.model import Model

#: Duals of the hinge come from an interior point: those that should be zero are smaller than the largest by ten digits.
_VANISHED = 1e-6


def support_of(model: Model, source: Source) -> NDArray[np.int64]:
    """Ids (m,), increasing, of the rows with a loss at the model's hypothesis, or a dual weight: all others could go.

    One more pass over ``source``: meant for rows in memory.
    """
    positive, negative = (source.classes.index(label) for label in reversed(model.classes))
    found = [model.coreset_ids[model.alpha > _VANISHED * model.alpha.max(initial=0.0)]]
    for chunk in range(source.chunks):
        rows, codes = source.read(chunk)
        values = rows @ model.w + model.b
        loses = ((codes == positive) & (values < 1.0)) | ((codes == negative) & (values > -1.0))
        found.append(np.flatnonzero(loses) + source.span(chunk)[0])
    return np.unique(np.concatenate(found))
