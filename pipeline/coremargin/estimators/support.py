"""Which rows decide the answer, those that scikit-learn calls support vectors, and whether it is proven."""

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

#: Duals of the hinge come from an interior point: those that should be zero are smaller than the largest by ten digits.
_VANISHED = 1e-6
#: Why a proof is not complete, where all rows were there.
NO_MORE = "more scans would not raise it; choose a larger epsilon or more memory"


def deciders(model: AnyModel) -> list[Any]:
    """The models that decide: one, or of two classes one against the rest for each class."""
    return list(model.deciders())


def refuse_several(**values: Any) -> None:
    """Raises UsageError for several values of a parameter of which an estimator has one."""
    for name, found in values.items():
        if np.ndim(found):
            raise UsageError(
                f"{name}: expected one value, found {found!r}: an estimator is one model; search for the best of "
                f"several as scikit-learn does, with GridSearchCV, or take coremargin.train, which trains one of each"
            )


def present(source: Source) -> list[int]:
    """Codes of the classes that have rows, in the order of their labels."""
    codes = np.flatnonzero(source.scalars().counts.sum(axis=0)).tolist()
    return sorted(codes, key=source.classes.__getitem__)


def positives(codes: Sequence[int]) -> list[int]:
    """Codes of the positive class of each problem: of two classes the second, of more each one; codes in order."""
    return list(codes) if len(codes) > 2 else list(codes[-1:])


def support_of(models: Sequence[Any], source: Source) -> NDArray[np.int64]:
    """Ids (m,), increasing, of the rows with a dual weight, or a loss at a model's hypothesis: all others could go.

    With a loss one more pass over ``source``: meant for rows in memory.
    """
    found = [_with_dual(model) for model in models]
    most = np.inf if models[0].parameters.get("loss") == "logistic" else 1.0  # rows with a margin below it have a loss
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
                own = labels == sides[k] if len(models) > 1 else places[labels]  # its class against the rest, or all
                loses |= leads(model.decision_function(rows), own) < most
            found.append(np.flatnonzero(loses & here) + source.span(chunk)[0])
    return np.unique(np.concatenate(found))


def _with_dual(model: Any) -> NDArray[np.int64]:
    duals = model.row_duals
    return np.asarray(model.coreset_ids[duals > _VANISHED * duals.max(initial=0.0)])


def check_separable(models: Sequence[Any]) -> None:
    """Raise NotCertified where a hard margin was asked for and there is none."""
    for model in models:
        if model.status == "not_separable":
            raise NotCertified(kind_of_model(model).inseparable(model))


def warn_unproven(models: Sequence[Any], epsilon: float, why: str = NO_MORE) -> None:
    """Warn where the proof that was asked for is not there; why: and what would help."""
    for model in models:
        if model.status == "stopped":
            known = model.certificate.ratio
            found = f"the ratio of the bounds is {'not known' if known is None else known}"
            warnings.warn(f"not certified to epsilon = {epsilon}: {found}, and {why}", ConvergenceWarning, stacklevel=3)
