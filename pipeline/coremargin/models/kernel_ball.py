"""A trained ball in a kernel's feature space: the rows that carry its centre, certificate, what checks it again.

On disk it is a folder as ``Model`` has it, with problem "kernel_ball" in ``model.json``, which names the kernel and its
numbers, and in ``arrays.npz``

    coreset_x           (m, d) exact copies of the rows coreset_ids (m,), scaled where rows are
    alpha               (m,) their weights in the centre sum_i alpha_i phi(x_i), none below 0
    square              (1,) the square of the radius, if a share nu of the rows may lie outside
    shift, factor       (d,) where columns are scaled
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np

from coremargin.errors import UsageError
from coremargin.maths.kernel.expansion import Expansion
from coremargin.maths.kernel.functions import Kernel
from coremargin.maths.rows import dense
from coremargin.models.ball import BallModel
from coremargin.models.decision import KernelScorer, Scorer, label_array
from coremargin.models.onnx_graph import (
    VALUES,
    Step,
    finished,
    kernel_graph,
    scaling_constants,
    scaling_nodes,
    with_constants,
)
from coremargin.models.sklearn_objects import as_one_class_svm
from coremargin.models.user_kernel import describe_kernel

if TYPE_CHECKING:
    from coremargin.maths.scaling import Scaling


@dataclass(frozen=True)
class KernelBallScorer(Scorer):
    """radius - ||phi(z) - p|| of scaled rows z; functions: of <p, phi(z)>; norm: ||p||^2."""

    scaling: Scaling | None
    functions: KernelScorer
    norm: float
    radius: float

    @property
    def features(self) -> int:
        """Of a row."""
        return self.functions.features

    def of_scaled(self, rows: Any) -> np.ndarray:
        """Decision values (1, n)."""
        kernel = self.functions.functions.kernel
        squares = kernel.diagonal(kernel.points(rows)) - 2.0 * self.functions.of_scaled(rows)[0] + self.norm
        return np.asarray(self.radius - np.sqrt(np.maximum(squares, 0.0))[None])

    def rearranged(self, order: np.ndarray) -> KernelBallScorer:
        """The same for rows with their features in another order."""
        moved = self.functions.rearranged(order)
        return replace(self, functions=moved, scaling=moved.scaling)

    def planes(self) -> NoReturn:
        """Refused: there are none. Raises UsageError."""
        raise UsageError("a ball is no hyperplane: features have no weights")


class KernelBallModel(BallModel):
    """A ball in a kernel's feature space around all rows, those of one class, or all but a share nu of them.

    ``predict``, ``decision_function`` and ``distances`` are those of ``BallModel`` in that space. There is no
    ``centre`` in the rows' own space: ``expansion`` is its product with a row.
    """

    WHAT = "a ball of a kernel"

    @property
    def nu(self) -> float | None:
        """The share of the rows that may lie outside; None: none may."""
        nu: float | None = self.record["parameters"].get("nu")
        return nu

    @property
    def radius(self) -> float:
        """The distance from the centre at which ``predict`` changes: without nu the proven radius."""
        return super().radius if self.nu is None else math.sqrt(float(self.array("square")[0]))

    @cached_property
    def kernel(self) -> Kernel:
        """The kernel, with its numbers."""
        numbers = dict(self.record["kernel"])
        centred = numbers["name"] == "rbf" and isinstance(self.coreset_x, np.ndarray) and len(self.coreset_x) > 0
        return Kernel(**numbers, centre=self.coreset_x.mean(axis=0) if centred else None)

    @property
    def kernel_text(self) -> str:
        """The kernel, for people."""
        return describe_kernel(self.record["kernel"])

    @cached_property
    def expansion(self) -> Expansion:
        """The product of the centre with scaled rows."""
        return Expansion(self.kernel, self.coreset_x, self.row_duals[:, None], np.zeros(1))

    @cached_property
    def norm(self) -> float:
        """The squared length of the centre."""
        points = self.expansion.points
        return max(0.0, float(self.row_duals @ self.kernel.sums(points, points, self.expansion.weights)[:, 0]))

    def scorer(self) -> KernelBallScorer:  # type: ignore[override]
        """Distances from the centre against the radius.

        Returns
        -------
        KernelBallScorer
            All that a worker needs.
        """
        scaling = self.row_scaling
        radius = self.radius or float(np.nextafter(0.0, 1.0))
        return KernelBallScorer(scaling, KernelScorer(scaling, self.expansion), self.norm, radius)

    def to_sklearn(self) -> Any:
        """A fitted ``sklearn.svm.OneClassSVM`` that predicts the same, of a kernel whose k(x, x) is the same for all.

        Its decision values are half of the difference between the squares of the radius and of the distance, times nu
        and the number of rows, by which its dual weights are at most 1.

        Returns
        -------
        OneClassSVM or Pipeline
            Of scaled rows a pipeline.

        Raises
        ------
        UsageError
            The kernel is not rbf.
        """
        if self.kernel.name != "rbf":
            raise UsageError(
                f"scikit-learn has no ball of the kernel {self.kernel.name!r}, whose rows have several lengths in "
                f"feature space; export to ONNX"
            )
        threshold, unit = 0.5 * (1.0 + self.norm - self.radius**2), (self.nu or 1.0 / self.rows) * self.rows
        return as_one_class_svm(
            self.expansion, threshold, unit, self.nu or 1.0 / self.rows, self.row_scaling, self.feature_names
        )

    def to_onnx(self, precision: Literal["float64", "float32"] = "float64") -> Any:
        """An ONNX graph that predicts the same. Needs the extra "onnx".

        Parameters
        ----------
        precision : {"float64", "float32"}, default "float64"
            Of input, rows, weights and decision values.

        Returns
        -------
        onnx.ModelProto
            Input "X" (n, d); outputs "label" (n,), 1 or -1, and "decision" (n,).

        Raises
        ------
        UsageError
            The package onnx is not installed.
        """
        rows, nodes = scaling_nodes(self.row_scaling, precision)
        steps, arrays = kernel_graph(self.kernel, dense(self.coreset_x), rows)
        own, more = _own_values(self.kernel, rows)
        distance: list[Step] = [
            ("MatMul", ["kernel", "weights"], ["sums"]),
            ("Sub", [own, "sums"], ["less"]),
            ("Add", ["less", "norm"], ["about"]),
            ("Max", ["about", "nothing"], ["square"]),
            ("Sqrt", ["square"], ["distance"]),
            ("Sub", ["radius", "distance"], [VALUES]),
        ]
        arrays |= {
            "weights": 2.0 * self.expansion.weights,
            "norm": np.array(self.norm),
            "radius": np.array(self.radius),
            "one": np.array(1.0),
        }
        made, constants = with_constants([*steps, *more, *distance], arrays, precision)
        constants += scaling_constants(self.row_scaling, precision)
        about = {
            "problem": self.problem,
            "status": self.status,
            "certificate": json.dumps(self.record["certificate"], sort_keys=True),
        }
        labels = label_array(self.labels)
        return finished([*nodes, *made], constants, (self.features, 1), labels, precision, about, self.feature_names)

    def __repr__(self) -> str:
        nu = "" if self.nu is None else f", nu {self.nu!r}"
        return (
            f"{type(self).__name__}({self.status}: kernel {self.kernel_text}, radius {self.radius!r}{nu}, "
            f"{self.rows:,} rows x {self.features:,} features, {self.bounds_text()}, "
            f"{self.certificate.coreset_rows:,} coreset rows)"
        )


def _own_values(kernel: Kernel, rows: str) -> tuple[str, list[Step]]:
    """The name of k(x, x) (n, 1) in a graph, and the steps to it from ``rows``."""
    if kernel.name == "rbf":
        return "one", []
    steps: list[Step] = [("Mul", [rows, rows], ["own_each"]), ("ReduceSum", ["own_each", "across"], ["own_length"])]
    if kernel.name == "linear":
        return "own_length", steps
    steps += [
        ("Mul", ["own_length", "gamma"], ["own_times"]),
        ("Add", ["own_times", "coef0"], ["own_base"]),
        ("Pow", ["own_base", "degree"], ["own_kernel"]),
    ]
    return "own_kernel", steps


MODEL_CLASS = KernelBallModel
