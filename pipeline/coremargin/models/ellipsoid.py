"""A trained ellipsoid of least volume: its centre and axes, certificate, and the rows that allow no smaller one.

On disk it is a folder as ``Model`` has it, with problem "ellipsoid" in ``model.json`` and, in ``arrays.npz``,

    centre              (r,) of scaled rows, where rows are
    axes                (r, r) lower triangular: the level of a row x is ||axes (x - centre)||
    alpha               (m,) weights of the rows coreset_ids (m,), which sum to 1
    coreset_x           (m, d) exact copies of these rows, scaled where rows are
    shift, factor       (d,) where columns are scaled

r = d unless the rows lie in a flat. Then centre and axes are about the columns span_columns (r,), and the others are
span_slopes (d - r, r) x[span_columns] + span_offsets (d - r,), give or take span_residuals (d - r,).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NoReturn

import numpy as np

from coremargin.errors import UsageError
from coremargin.maths.enclosing_ellipsoid import Ellipsoid
from coremargin.maths.rows import dense
from coremargin.models.decision import Scorer
from coremargin.models.enclosure import EnclosureModel
from coremargin.models.enclosure_graph import enclosure_onnx
from coremargin.models.raw_rows import decision_values

if TYPE_CHECKING:
    from coremargin.maths.scaling import Scaling

#: Rows off the span by more than so many residuals are all equally far outside.
_FARTHEST = 1e100


@dataclass(frozen=True)
class EllipsoidScorer(Scorer):
    """radius - distance of scaled rows; the distance is that of ``EllipsoidModel.distances``.

    span: columns (r,), slopes (d - r, r), offsets (d - r,) and residuals (d - r,) of a flat; None: there is none.
    columns: of rows whose features come in another order, the place of each (d,).
    """

    scaling: Scaling | None
    centre: np.ndarray
    axes: np.ndarray
    radius: float
    width: int
    span: tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray] | None = None
    columns: np.ndarray | None = None

    @property
    def features(self) -> int:
        """Of a row."""
        return self.width

    def of_scaled(self, rows: Any) -> np.ndarray:
        """Decision values (1, n)."""
        x = dense(rows if self.columns is None else rows[:, self.columns])
        return np.asarray(self.radius - self._distances(x)[None])

    def _distances(self, x: np.ndarray) -> np.ndarray:
        """Distances (n,) of dense rows (n, d)."""
        z = self.coordinates(x)
        distances = np.asarray(np.sqrt(np.einsum("ij,ij->i", z, z)))
        if self.span is None:
            return distances
        columns, slopes, offsets, residuals = self.span
        away = np.abs(np.delete(x, columns, axis=1) - (x[:, columns] @ slopes.T + offsets))
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(away <= residuals, 0.0, np.minimum(away / residuals, _FARTHEST)).max(axis=1)
        return np.asarray(np.maximum(distances, share * self.radius))

    def coordinates(self, x: np.ndarray) -> np.ndarray:
        """axes (x - centre) (n, r) of dense rows (n, d), in which distances from the centre are lengths."""
        return np.asarray(((x if self.span is None else x[:, self.span[0]]) - self.centre) @ self.axes.T)

    def rearranged(self, order: np.ndarray) -> EllipsoidScorer:
        """The same for rows with their features in another order."""
        return replace(self, columns=np.argsort(order), scaling=self._scaling_of(order))

    def planes(self) -> NoReturn:
        """Refused: an ellipsoid has none. Raises UsageError."""
        raise UsageError("an ellipsoid is no hyperplane: features have no weights")


class EllipsoidCoordinates(EllipsoidScorer):
    """The coordinates of scaled rows instead of decision values."""

    def of_scaled(self, rows: Any) -> np.ndarray:
        """Coordinates (r, n)."""
        return self.coordinates(dense(rows if self.columns is None else rows[:, self.columns])).T


@dataclass(frozen=True, eq=False, repr=False)
class EllipsoidModel(EnclosureModel):
    """The ellipsoid of least volume around all rows, or around those of one class; arrays are read-only.

    ``predict`` gives 1 for rows inside of the ellipsoid and -1 for others. ``decision_function`` is positive inside: it
    is the radius less the Mahalanobis distance from the centre.

    ``numbers`` are those above but for coreset_x.
    """

    WHAT = "an ellipsoid"

    @property
    def axes(self) -> np.ndarray:
        """Lower triangular (r, r); its inverse is the Cholesky factor of the weighted covariance of the coreset."""
        return self.array("axes")

    @property
    def span_columns(self) -> np.ndarray | None:
        """Of rows in a flat, the columns (r,) of centre and axes; None where the rows lie in none."""
        return self.numbers.get("span_columns")

    @property
    def rank(self) -> int:
        """The dimension of the rows' span."""
        return len(self.centre)

    @property
    def radius(self) -> float:
        """The proven Mahalanobis radius: no row that counts is farther from the centre; about the root of the rank."""
        upper = self.certificate.upper
        return 0.0 if upper is None else upper / Ellipsoid(self.centre, self.axes).volume_radius

    @property
    def covariance(self) -> np.ndarray:
        """The weighted covariance (r, r) of the coreset, which makes distances Mahalanobis distances."""
        inverse = np.linalg.inv(self.axes)
        return np.asarray(inverse @ inverse.T)

    def scorer(self) -> EllipsoidScorer:
        """Distances from the centre against the radius.

        Returns
        -------
        EllipsoidScorer
            All that a worker needs.
        """
        span = None
        if self.span_columns is not None:
            slopes, offsets, residuals = (self.array(f"span_{name}") for name in ("slopes", "offsets", "residuals"))
            span = self.span_columns, slopes, offsets, residuals
        return EllipsoidScorer(self.row_scaling, self.centre, self.axes, self.radius, self.features, span)

    def distances(self, X: Any) -> np.ndarray:
        """Mahalanobis distances of rows from the centre, scaled as in training.

        If the rows of the training lie in a flat, a row that is off it by so many times what they are has at least so
        many times the radius.

        Parameters
        ----------
        X : array_like, sparse matrix or table of n rows
            As for ``decision_function``.

        Returns
        -------
        ndarray of shape (n,)
            Float64.
        """
        return self.radius - decision_values(self.scorer(), X, self.columns)

    def transform(self, X: Any) -> np.ndarray:
        """Rows in the metric of the ellipsoid, axes (x - centre): Mahalanobis distances become Euclidean ones.

        A linear classifier of these rows is an ellipsoidal machine [1]_. It does not depend on the scales of columns,
        nor on any other invertible affine map of the rows.

        Parameters
        ----------
        X : array_like, sparse matrix or table of n rows
            As for ``decision_function``.

        Returns
        -------
        ndarray of shape (n, r)
            Float64. The mean square of a column is 1 over the coreset, by its weights.

        References
        ----------
        .. [1] Shivaswamy, P., Jebara, T., *Ellipsoidal Kernel Machines*, AISTATS 2007.
        """
        coordinates = EllipsoidCoordinates(**vars(self.scorer()))
        return decision_values(coordinates, X, self.columns).reshape(-1, self.rank)

    def to_sklearn(self) -> Any:
        """A fitted EllipticEnvelope that predicts the same; nothing of coremargin is needed to use it.

        Its ``decision_function`` is the difference of squares, radius^2 - distance^2.

        Returns
        -------
        EllipticEnvelope or Pipeline
            Of scaled rows a pipeline, whose first step scales them.

        Raises
        ------
        UsageError
            The rows lie in a flat.
        """
        from sklearn.covariance import EllipticEnvelope

        from coremargin.models.sklearn_objects import in_pipeline

        self._refuse_flat()
        made = EllipticEnvelope(support_fraction=1.0)
        made.location_, made.covariance_, made.precision_ = self.centre.copy(), self.covariance, self.axes.T @ self.axes
        made.offset_, made.n_features_in_ = -(self.radius**2), self.features
        return in_pipeline(self.row_scaling, self.features, self.feature_names, made)

    def to_onnx(self, precision: Literal["float64", "float32"] = "float64") -> Any:
        """An ONNX graph that predicts the same. Needs the extra "onnx".

        Parameters
        ----------
        precision : {"float64", "float32"}, default "float64"
            Of input, centre, axes and decision values.

        Returns
        -------
        onnx.ModelProto
            Input "X" (n, d); outputs "label" (n,), 1 or -1, and "decision" (n,).

        Raises
        ------
        UsageError
            The package onnx is not installed, or the rows lie in a flat.
        """
        self._refuse_flat()
        return enclosure_onnx(self, self.centre, self.radius, precision, self.axes)

    def _refuse_flat(self) -> None:
        if self.span_columns is not None:
            raise UsageError(
                f"the rows span {self.rank} of {self.features} dimensions: neither scikit-learn nor ONNX has such a "
                f"model; predict with coremargin, or train on the columns {self.span_columns.tolist()} alone"
            )

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.status}: {self.rows:,} rows x {self.features:,} features, "
            f"rank {self.rank}, {self.bounds_text()}, {self.certificate.coreset_rows:,} coreset rows)"
        )


MODEL_CLASS = EllipsoidModel
