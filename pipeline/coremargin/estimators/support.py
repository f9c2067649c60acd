"""Which rows decide the answer, those that scikit-learn calls support vectors, and whether it is proven."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from coremargin.data.scaled import scaled
from coremargin.errors import NotCertified

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from coremargin.data.source import Source
    from coremargin.learn.model import Model

#: Duals of the hinge come from an interior point: those that should be zero are smaller than the largest by ten digits.
_VANISHED = 1e-6


def support_of(models: Sequence[Model], source: Source) -> NDArray[np.int64]:
    """Ids (m,), increasing, of the rows with a dual weight, or a loss at a model's hypothesis: all others could go.

    With a loss one more pass over ``source`` for each model: meant for rows in memory.
    """
    return np.unique(np.concatenate([_support(model, source) for model in models]))


def _support(model: Model, source: Source) -> NDArray[np.int64]:
    if model.certificate.kind != "duality_gap":
        return np.asarray(model.coreset_ids)
    source = scaled(source, model.scaling)
    positive, negative = (source.classes.index(label) for label in reversed(model.classes))
    found = [model.coreset_ids[model.alpha > _VANISHED * model.alpha.max(initial=0.0)]]
    for chunk in range(source.chunks):
        rows, codes = source.read(chunk)
        values = rows @ model.w + model.b
        loses = ((codes == positive) & (values < 1.0)) | ((codes == negative) & (values > -1.0))
        found.append(np.flatnonzero(loses) + source.span(chunk)[0])
    return np.concatenate(found)


def check_proof(models: Sequence[Model], epsilon: float, *, batches: bool = False) -> None:
    """Raise NotCertified, or warn, where the proof that was asked for is not there; batches: the rows came in them."""
    for model in models:
        if model.status == "not_separable":
            raise NotCertified(
                f"no hyperplane separates the rows: the hulls of rows {model.coreset_ids[:8].tolist()} meet; "
                f"choose loss='hinge' or loss='squared_hinge'"
            )
        if model.status == "stopped":
            remedy = "more scans would not raise it; choose a larger epsilon or more memory"
            if batches:
                remedy = "rows of earlier batches were let go; give more memory, or fit a store of all rows"
            found = f"not certified to epsilon = {epsilon}: the ratio of the bounds is {model.certificate.ratio}"
            warnings.warn(f"{found}, and {remedy}", ConvergenceWarning, stacklevel=3)
