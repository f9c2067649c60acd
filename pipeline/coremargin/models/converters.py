"""A model's hypothesis in the formats of others: a plain fitted scikit-learn object, an ONNX graph.

What leaves is the hypothesis alone, w.x + b of each row and the label it means; the certificate stays behind, but for
a few words in the graph's metadata. Nothing of coremargin is needed where the result is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.models.decision import folded_planes
from coremargin.models.map_converters import map_graph, map_step, weights_of_step
from coremargin.models.onnx_graph import VALUES, Precision, finished, scaling_constants, scaling_nodes, with_constants
from coremargin.models.sklearn_steps import in_pipeline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from coremargin.maths.mapping import FeatureMap
    from coremargin.maths.scaling import Scaling


@dataclass(frozen=True)
class Linear:
    """Decision values coef (k, d) z + intercept (k,): one a class, or k = 1 for two, where positive is the second.

    scaling: what makes z of a row x, None: z = x. classes (max(k, 2),): their labels. about: a few words on where it
    comes from, for the metadata. names (d,): of the features, where they have some. map: what comes between, z being
    scaled rows mapped by it; coef is (k, M) then.
    """

    coef: NDArray[np.float64]
    intercept: NDArray[np.float64]
    classes: NDArray[Any]
    about: Mapping[str, str]
    scaling: Scaling | None = None
    names: Sequence[str] | None = None
    map: FeatureMap | None = None

    @property
    def features(self) -> int:
        """Of a row, d."""
        return int(self.coef.shape[1]) if self.map is None else self.map.features

    @property
    def unit(self) -> bool:
        """Rows are divided by their lengths first."""
        return self.scaling is not None and self.scaling.kind == "rownorm"

    def folded(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """coef and intercept for rows as they are (or of length 1): see ``folded_planes``; of a map for mapped rows."""
        if self.map is not None:
            return self.coef, self.intercept
        return folded_planes(self.coef, self.intercept, self.scaling)


def as_sklearn(linear: Linear) -> Any:
    """A fitted ``sklearn.svm.LinearSVC`` with the same decision values and labels, and names of features, if any.

    It predicts, calibrates, sits in pipelines and is saved like any other; ``fit`` would train it again, as LinearSVC
    does. A scaling of columns is folded into the coefficients: the same up to rounding, which is large where shifts are
    large compared with the ranges of their columns. Rows that are divided by their lengths need a pipeline that begins
    with a ``Normalizer``, which has the names. Mapped rows need one as well, of scaler, map and machine. Raises
    DataError for coefficients that overflow.
    """
    from sklearn.svm import LinearSVC

    machine, made = LinearSVC(), linear.map
    if made is None:
        machine.coef_, machine.intercept_ = (values.copy() for values in linear.folded())
    else:
        machine.coef_, machine.intercept_ = weights_of_step(made, linear.coef), linear.intercept.copy()
    machine.classes_, machine.n_features_in_, machine.n_iter_ = linear.classes.copy(), machine.coef_.shape[1], 0
    steps = [machine] if made is None else [map_step(made), machine]
    scaling = linear.scaling if linear.unit or made is not None else None
    return in_pipeline(scaling, linear.features, linear.names, *steps)


def as_onnx(linear: Linear, precision: Precision = "float64") -> Any:
    """An ``onnx.ModelProto``: input "X" (n, d); outputs "label" (n,) and "decision", (n,) for two classes else (n, k).

    precision: of input, coefficients and decision values. "float64" agrees with ``decision_function`` to rounding, both
    of rows in float64;
    "float32" rounds rows and coefficients to 24 bits, which may change labels of rows that near to the plane.
    Rows are scaled, and mapped, in the graph, in ``precision``, by the operations of ``decision_function``.
    Labels are int64, text, float64 or bool. The metadata have ``about``, and the names in ``feature_names``, as JSON.
    Raises UsageError when onnx is not installed, or for labels that would not come back as they are, and for maps that
    graphs have no operations for.
    """
    rows, nodes = scaling_nodes(linear.scaling)
    steps, arrays = ([], {}) if linear.map is None else map_graph(linear.map, rows)
    arrays |= {"coef": linear.coef.T, "intercept": linear.intercept}
    steps += [("Gemm", [rows if linear.map is None else "mapped", "coef", "intercept"], [VALUES])]
    made, constants = with_constants(steps, arrays, precision)
    shape = linear.features, len(linear.intercept)
    constants += scaling_constants(linear.scaling, precision)
    return finished([*nodes, *made], constants, shape, linear.classes, precision, linear.about, linear.names)
