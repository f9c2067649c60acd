"""Feature maps in the formats of others: fitted transforms of scikit-learn, steps of an ONNX graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.errors import UsageError
from coremargin.maths.feature_map import Fourier, Nystroem, Polynomial
from coremargin.maths.kernel.functions import Kernel
from coremargin.models.onnx_graph import Step, kernel_graph

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from coremargin.maths.mapping import FeatureMap


def map_step(made: FeatureMap) -> Any:
    """The map as a fitted transform of scikit-learn; of an exact polynomial its monomials (``weights_of_step``)."""
    from sklearn import kernel_approximation as sk
    from sklearn.preprocessing import PolynomialFeatures

    if isinstance(made, Nystroem):
        step: Any = sk.Nystroem(kernel="rbf", gamma=made.gamma, n_components=made.width)
        own: dict[str, Any] = {"components_": made.landmarks, "normalization_": made.normalization}
        own["component_indices_"] = np.arange(made.width)
    elif isinstance(made, Fourier):
        step = sk.RBFSampler(n_components=made.width)
        own = {"random_weights_": made.weights, "random_offset_": made.offsets}
    elif isinstance(made, Polynomial) and made.index is not None and made.sign is not None:
        asked = {"gamma": made.gamma, "degree": made.degree, "coef0": made.coef0}
        step = sk.PolynomialCountSketch(**asked, n_components=made.width)
        own = {"indexHash_": made.index, "bitHash_": made.sign.astype(np.float64)}
    else:
        degrees, bias = _degrees(made)
        return PolynomialFeatures(degrees, include_bias=bias).fit(np.zeros((1, made.features)))
    fitted = {name: values.copy() for name, values in own.items()}
    vars(step).update(fitted, n_features_in_=made.features, _n_features_out=made.width)
    return step


def weights_of_step(made: FeatureMap, coef: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights (k, M) of what ``map_step`` makes of rows, from those of mapped rows.

    They differ for exact polynomials: scikit-learn's monomials come in another order, and without their factors.
    """
    if not isinstance(made, Polynomial) or made.index is not None:
        return coef.copy()
    places, factors = made.monomials
    powers = np.zeros((made.width, made.features + 1), np.intp)
    for place in places:
        powers[np.arange(made.width), place] += 1
    own = powers[:, : made.features]
    factors = factors * made.gamma ** (own.sum(axis=1) / 2) * made.coef0 ** (powers[:, -1] / 2)
    at = {tuple(entry): k for k, entry in enumerate(own.tolist())}
    order = [at[tuple(entry)] for entry in map_step(made).powers_.tolist()]
    return np.asarray((coef * factors)[:, order])


def _degrees(made: FeatureMap) -> tuple[int | tuple[int, int], bool]:
    """Of the monomials of an exact polynomial, and whether 1 is one of them."""
    assert isinstance(made, Polynomial)  # noqa: S101 - for the type checker: there is no other map
    return (made.degree, True) if made.coef0 > 0 else ((made.degree, made.degree), False)


def map_graph(made: FeatureMap, rows: str) -> tuple[list[Step], dict[str, NDArray[Any]]]:
    """Steps of a graph from ``rows`` (n, d) to "mapped" (n, M), and the arrays that they name.

    Raises UsageError for a sketch, and for a kernel so narrow that the graph would lose its digits.
    """
    if isinstance(made, Nystroem):
        if made.cancels:
            raise UsageError("export to ONNX: gamma is so large that distances of rows lose their digits in a graph")
        steps, arrays = kernel_graph(Kernel("rbf", made.gamma), made.landmarks, rows)
        last: Step = ("MatMul", ["kernel", "normalization"], ["mapped"])
        return [*steps, last], arrays | {"normalization": made.normalization.T}
    if isinstance(made, Fourier):
        steps = [
            ("MatMul", [rows, "frequencies"], ["projected"]),
            ("Add", ["projected", "phases"], ["turned"]),
            ("Cos", ["turned"], ["waves"]),
            ("Mul", ["waves", "size"], ["mapped"]),
        ]
        size = np.array(np.sqrt(2.0 / made.width))
        return steps, {"frequencies": made.weights, "phases": made.offsets, "size": size}
    assert isinstance(made, Polynomial)  # noqa: S101 - for the type checker: there is no other map
    if made.index is not None:
        raise UsageError(
            "export to ONNX: graphs have no operation for a sketch; train with an exact polynomial (without "
            "components), nystroem or fourier, or export for scikit-learn"
        )
    return _products(made, rows)


def _products(made: Polynomial, rows: str) -> tuple[list[Step], dict[str, NDArray[Any]]]:
    """Of an exact polynomial: products of entries of (sqrt(gamma) x, sqrt(coef0))."""
    places, factors = made.monomials
    spread = np.sqrt(made.gamma) * np.eye(made.features, made.features + 1)
    last = np.append(np.zeros(made.features), np.sqrt(made.coef0))
    steps: list[Step] = [("MatMul", [rows, "spread"], ["across"]), ("Add", ["across", "constant"], ["u"])]
    arrays: dict[str, NDArray[Any]] = {"spread": spread, "constant": last, "factors": factors}
    for k, place in enumerate(places):
        arrays[f"entries_{k}"] = place.astype(np.int64)
        steps.append(("Gather", ["u", f"entries_{k}"], [f"factor_{k}"]))
    product = "factor_0"
    for k in range(1, len(places)):
        steps.append(("Mul", [product, f"factor_{k}"], [f"product_{k}"]))
        product = f"product_{k}"
    return [*steps, ("Mul", [product, "factors"], ["mapped"])], arrays
