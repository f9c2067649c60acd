"""Support vectors, and warnings about models that are not certified."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from coremargin.errors import NotCertified, UsageError
from coremargin.models.decision import leads
from coremargin.problems.registry import kind_of_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from coremargin.data.source import Source
    from coremargin.models.fleet import AnyModel

#: Relative to the largest dual: interior-point solutions of the hinge have zeros of about 1e-10.
_NEGLIGIBLE_DUAL = 1e-6
#: For models trained on all rows.
ADVICE = "more scans would not raise it; choose a larger epsilon or more memory"


def deciders(model: AnyModel) -> list[Any]:
    """The binary models whose signs decide: one, or one per class against the rest."""
    return list(model.deciders())


def refuse_several(**values: Any) -> None:
    """Raises UsageError for sequences: an estimator has one value of a parameter."""
    for name, found in values.items():
        if np.ndim(found):
            raise UsageError(
                f"{name}: expected one value, found {found!r}; search among several values with GridSearchCV, or "
                "train a model for each with coremargin.train"
            )


def present(source: Source) -> list[int]:
    """Codes of classes with rows, in the order of their labels."""
    codes = np.flatnonzero(source.scalars().counts.sum(axis=0)).tolist()
    return sorted(codes, key=source.classes.__getitem__)


def positives(codes: Sequence[int]) -> list[int]:
    """Codes of the positive class of each problem: the second of two classes, or every class of more."""
    return list(codes) if len(codes) > 2 else list(codes[-1:])


def support_of(models: Sequence[Any], source: Source) -> NDArray[np.int64]:
    """Sorted ids (m,) of rows with a dual weight or a loss: without the others the model would be the same.

    With a loss this reads ``source`` once more.
    """
    found = [_ids_with_duals(model) for model in models]
    most = np.inf if models[0].parameters.get("loss") == "logistic" else 1.0  # rows with smaller margins have a loss
    if models[0].certificate.is_value:
        codes = present(source)
        sides, places = positives(codes), np.zeros(len(source.classes), np.intp)
        places[codes] = np.arange(len(codes))
        for chunk in range(source.chunks):
            rows, labels = source.read(chunk)
            weights = source.weights(chunk)
            here = labels >= 0 if weights is None else (labels >= 0) & (weights > 0)
            loses = np.zeros(len(labels), bool)
            for k, model in enumerate(models):
                own = (
                    labels == sides[k] if len(models) > 1 else places[labels]
                )  # one class against the rest, or two classes
                loses |= leads(model.decision_function(rows), own) < most
            found.append(np.flatnonzero(loses & here) + source.span(chunk)[0])
    return np.unique(np.concatenate(found))


def _ids_with_duals(model: Any) -> NDArray[np.int64]:
    duals = np.abs(model.row_duals)  # below 0 of rows at the bound of a relative margin
    return np.asarray(model.coreset_ids[duals > _NEGLIGIBLE_DUAL * duals.max(initial=0.0)])


def check_separable(models: Sequence[Any]) -> None:
    """Raise NotCertified for a hard margin of rows that are not separable."""
    for model in models:
        if model.status == "not_separable":
            raise NotCertified(kind_of_model(model).inseparable(model))


def warn_unproven(models: Sequence[Any], epsilon: float, advice: str = ADVICE) -> None:
    """Warn about models that do not reach epsilon."""
    for model in models:
        if model.status == "stopped":
            known = model.certificate.ratio
            found = f"the ratio of the bounds is {'not known' if known is None else known}"
            warnings.warn(
                f"not certified to epsilon = {epsilon}: {found}, and {advice}", ConvergenceWarning, stacklevel=3
            )
