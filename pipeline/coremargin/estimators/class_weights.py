"""``class_weight`` as weights of rows, for models without such a parameter."""

from __future__ import annotations

import warnings
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.external_arrays import at_once
from coremargin.data.weights import all_weights, as_weights
from coremargin.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def weighs_rows(estimator: Any, classes: int) -> bool:
    """Whether class_weight multiplies weights of rows; models of two classes have a parameter for it."""
    return classes > 2 or estimator.multi_class != "ovr"


def row_weights(estimator: Any, y: Any, weights: Any, classes: Sequence[Any] | None = None) -> Any:
    """Weights (n,) of rows with labels y, times class_weight if necessary; None: all 1.

    classes: all labels, of which a batch may lack some; None: those of y. Raises BadRow, UsageError.
    """
    class_weight, rows = estimator.class_weight, len(y)
    checked = all_weights if classes is None else as_weights
    if isinstance(weights, Real):
        weights = np.full(rows, float(weights))
    if weights is not None:
        weights = checked(at_once(weights), rows, "sample_weight")
    labels, codes = np.unique(np.asarray(y), return_inverse=True)
    if class_weight is None or not weighs_rows(estimator, len(labels if classes is None else classes)):
        return weights
    base = np.ones(rows) if weights is None else weights
    if class_weight == "balanced":
        totals = np.bincount(codes, base)
        present = totals > 0
        factors = np.divide(totals.sum(), present.sum() * totals, out=np.ones(len(labels)), where=present)
    else:
        factors = np.array(factors_of(class_weight, labels.tolist(), classes))
    return factors[codes] * base


def factors_of(
    class_weight: Mapping[Any, float], labels: Sequence[Any], known: Sequence[Any] | None = None
) -> list[float]:
    """The factor of each label, default 1; known: all labels, None: ``labels``.

    As in scikit-learn's ``compute_class_weight``, unknown labels are refused if a known label has no factor, since it
    may be the one that was meant; otherwise they are ignored with a warning. Raises UsageError.
    """
    known = sorted(labels if known is None else known)
    unknown = [label for label in class_weight if label not in known]
    missing = [label for label in known if label not in class_weight]
    names = ", ".join(map(repr, unknown))
    if unknown and missing:
        raise UsageError(
            f"class_weight: expected factors for the labels {known}, found {names}, which no row has, and none for "
            f"{', '.join(map(repr, missing))}"
        )
    if unknown:
        warnings.warn(f"class_weight: no row has the label {names}; the factor is not used", UserWarning, stacklevel=2)
    return [float(class_weight.get(label, 1.0)) for label in labels]
