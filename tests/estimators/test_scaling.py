"""Scaling inside the estimator: what a scaler before it in a pipeline would do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, StandardScaler

from coremargin.estimators import MarginCoresetClassifier

if TYPE_CHECKING:
    from collections.abc import Callable

    from coremargin.data.store import Store

JUDGES: dict[str, Any] = {
    "standard": StandardScaler, "minmax": MinMaxScaler, "maxabs": MaxAbsScaler, "rownorm": Normalizer,
}  # fmt: skip


@pytest.fixture
def data(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Noisy rows with columns of all scales, far from the origin, one of them constant."""
    Z = rng.standard_normal((300, 5))
    y = np.where(Z @ [1.0, -2.0, 0.5, 1.0, 0.0] + 0.5 * rng.standard_normal(300) > 0, "yes", "no")
    return Z * [1e-4, 1.0, 1e3, 1e6, 0.0] + [1e-3, 3.0, -1e4, 1e6, 7.0], y


@pytest.mark.parametrize("loss", ["squared_hinge", "hinge"])
@pytest.mark.parametrize("kind", JUDGES)
def test_the_same_as_a_pipeline(
    data: tuple[np.ndarray, np.ndarray], make_store: Callable[..., Store], kind: str, loss: str
) -> None:
    """Coefficients after folding, decision values and support rows are those of scaler and estimator in a pipeline."""
    X, y = data
    machine = MarginCoresetClassifier(scaling=kind, loss=loss, epsilon=1e-7).fit(X, y)
    pipeline = make_pipeline(JUDGES[kind](), MarginCoresetClassifier(loss=loss, epsilon=1e-7)).fit(X, y)
    inner = pipeline[-1]
    np.testing.assert_allclose(machine.certificate_.upper, inner.certificate_.upper, rtol=1e-6)
    values = pipeline.decision_function(X)
    np.testing.assert_allclose(machine.decision_function(X), values, atol=1e-3 * np.abs(values).max())
    if kind == "rownorm":
        np.testing.assert_allclose(machine.coef_, inner.coef_, atol=1e-3 * np.abs(inner.coef_).max())
    else:
        scale = pipeline[0].transform(np.eye(5)) - pipeline[0].transform(np.zeros((5, 5)))
        folded = inner.coef_ * np.diag(scale)
        np.testing.assert_allclose(machine.coef_, folded, atol=1e-12, rtol=1e-2)
        np.testing.assert_allclose(X @ machine.coef_[0] + machine.intercept_, machine.decision_function(X))
    assert (machine.predict(X) == pipeline.predict(X)).mean() > 0.99
    exported = machine.to_sklearn().decision_function(X)
    np.testing.assert_allclose(exported, machine.decision_function(X), atol=1e-9 * np.abs(values).max())
    common = np.intersect1d(machine.support_, inner.support_)
    assert len(common) >= 0.95 * max(len(machine.support_), len(inner.support_))
    np.testing.assert_array_equal(machine.coreset_, X[machine.support_])
    stored = MarginCoresetClassifier(scaling=kind, loss=loss, epsilon=1e-7).fit(make_store(X, y))
    np.testing.assert_allclose(stored.decision_function(X), machine.decision_function(X), atol=1e-5)


def test_parameters_and_batches(data: tuple[np.ndarray, np.ndarray]) -> None:
    """A clone keeps the scaling; what scikit-learn would search over is refused by name; batches have no statistics."""
    X, y = data
    machine = clone(MarginCoresetClassifier(scaling="maxabs"))
    assert machine.get_params()["scaling"] == "maxabs"
    with pytest.raises(ValueError, match="scaling"):
        machine.set_params(scaling="log").fit(X, y)
    assert not hasattr(machine, "partial_fit")
