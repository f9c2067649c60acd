"""A trained smallest enclosing ball: its centre, certificate, and the rows that allow no smaller one.

On disk it is a folder as ``Model`` has it, with problem "ball" in ``model.json`` and, in ``arrays.npz``,

    centre              (d,) of scaled and mapped rows, where rows are
    alpha               (m,) dual weights of the rows coreset_ids (m,), which sum to 1; with outliers 0
    outliers_ids        (k,) rows that lie outside, if some may
    proof_...           with outliers: certificates of coreset rows, and the leaves of the search that rest on them
    coreset_x           (m, d) exact copies of these rows, scaled where rows are, before they are mapped
    shift, factor       (d,) where columns are scaled
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np

from coremargin.errors import UsageError
from coremargin.maths.rows import dense
from coremargin.models.decision import Scorer
from coremargin.models.enclosure import EnclosureModel
from coremargin.models.enclosure_graph import enclosure_onnx
from coremargin.models.raw_rows import decision_values

if TYPE_CHECKING:
    from coremargin.maths.mapping import FeatureMap
    from coremargin.maths.scaling import Scaling

_LEAST = float(np.nextafter(0.0, 1.0))
_NO_HYPERPLANE = "a ball is no hyperplane: features have no weights, and scikit-learn has no such model; export to ONNX"


@dataclass(frozen=True)
class BallScorer(Scorer):
    """radius - ||z - centre|| of scaled and mapped rows z.

    columns: of mapped rows whose features come in another order, the place of each (d,).
    """

    scaling: Scaling | None
    centre: np.ndarray
    radius: float
    map: FeatureMap | None = None
    columns: np.ndarray | None = None

    @property
    def features(self) -> int:
        """Of a row."""
        return len(self.centre) if self.map is None else self.map.features

    @property
    def widest(self) -> int:
        """Differences from the centre are dense."""
        return max(self.features, len(self.centre))

    def of_scaled(self, rows: Any) -> np.ndarray:
        """Decision values (1, n)."""
        if self.map is not None:
            rows = self.map.of_rows(rows if self.columns is None else rows[:, self.columns])
        off = dense(rows) - self.centre
        return np.asarray(self.radius - np.sqrt(np.einsum("ij,ij->i", off, off))[None])

    def rearranged(self, order: np.ndarray) -> BallScorer:
        """The same for rows with their features in another order."""
        scaling = self._scaling_of(order)
        if self.map is not None:
            return replace(self, columns=np.argsort(order), scaling=scaling)
        return replace(self, centre=self.centre[order], scaling=scaling)

    def planes(self) -> NoReturn:
        """Refused: a ball has none. Raises UsageError."""
        raise UsageError(_NO_HYPERPLANE)


@dataclass(frozen=True, eq=False, repr=False)
class BallModel(EnclosureModel):
    """The smallest ball around all rows, or around those of one class; arrays are read-only.

    ``predict`` gives 1 for rows inside of the ball and -1 for others. As of scikit-learn's OneClassSVM,
    ``decision_function`` is positive inside: it is the radius less the distance from the centre.

    ``numbers`` are those above but for coreset_x.
    """

    WHAT = "a ball"

    @property
    def radius(self) -> float:
        """The proven radius: no row that counts is farther from the centre."""
        return float(self.record["certificate"]["upper"])

    def scorer(self) -> BallScorer:
        """Distances from the centre against the radius.

        Returns
        -------
        BallScorer
            All that a worker needs.
        """
        # Rows are inside if the value is above 0: a ball of radius 0 contains its centre.
        return BallScorer(self.row_scaling, self.centre, self.radius or _LEAST, self.row_map)

    def distances(self, X: Any) -> np.ndarray:
        """Distances of rows from the centre, scaled and mapped as in training.

        Parameters
        ----------
        X : array_like, sparse matrix or table of n rows
            As for ``decision_function``.

        Returns
        -------
        ndarray of shape (n,)
            Float64.
        """
        return -decision_values(replace(self.scorer(), radius=0.0), X, self.columns)

    def to_sklearn(self) -> NoReturn:
        """Refused: scikit-learn has no such model.

        Raises
        ------
        UsageError
            Always.
        """
        raise UsageError(_NO_HYPERPLANE)

    def to_onnx(self, precision: Literal["float64", "float32"] = "float64") -> Any:
        """An ONNX graph that predicts the same. Needs the extra "onnx".

        Parameters
        ----------
        precision : {"float64", "float32"}, default "float64"
            Of input, centre and decision values.

        Returns
        -------
        onnx.ModelProto
            Input "X" (n, d); outputs "label" (n,), 1 or -1, and "decision" (n,).

        Raises
        ------
        UsageError
            The package onnx is not installed, or graphs have no operations for the map.
        """
        return enclosure_onnx(self, self.centre, self.radius, precision)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.status}: radius {self.radius!r}, {self.rows:,} rows x {self.features:,} "
            f"features, {self.bounds_text()}, {self.certificate.coreset_rows:,} coreset rows)"
        )


MODEL_CLASS = BallModel
