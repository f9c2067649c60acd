"""``OneClassBall``: a ball around rows as a detector of outliers, with a certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from coremargin.argument_names import named_arguments
from coremargin.data.rows import refuse_rounded
from coremargin.errors import UsageError
from coremargin.estimators.inputs import DTYPES
from coremargin.estimators.support import refuse_several, warn_unproven
from coremargin.learn.api import train

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sklearn.utils import Tags

    from coremargin.models.ball import BallModel


class OneClassBall(OutlierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Detect outliers by a ball around the rows, with a certificate.

    Minimises r + 1 / (nu sum_i s_i) sum_i s_i max(0, ||x_i - c||^2 - r) over centres c and squares r of radii (support
    vector data description [1]_). For rows of one length this is ``OneClassSVM(kernel="linear")``. Without ``nu`` the
    ball is the smallest one that contains all rows. With a kernel distances are those in its feature space: "rbf" is
    ``OneClassSVM(kernel="rbf")``.

    Parameters
    ----------
    nu : float or None, default 0.5
        The share of the rows that may lie outside, above 0 and below 1; at least 1/n. None: none may.
    epsilon : float, default 1e-3
        Relative gap between the bounds of the objective or, without ``nu``, of the radius.
    scaling : {"standard", "minmax", "maxabs", "rownorm", "ellipsoid"}, optional
        Scale rows, with statistics of all rows.
    memory : str or int, optional
        For rows that are solved, with a kernel for their kernel matrix; None: a quarter of the available memory.
    kernel : {"linear", "poly", "rbf"}, optional
        Kernel of two rows: x.z, (gamma x.z + coef0)^degree or exp(-gamma ||x - z||^2); None: distances are those of the
        rows themselves.
    degree : int, default 3
        Degree of the polynomial kernel; other kernels ignore it.
    gamma : {"scale"} or float, default "scale"
        Of the kernels rbf and poly; "scale": 1 / (n_features X.var()).
    coef0 : float, default 0.0
        Constant of the polynomial kernel; other kernels ignore it.

    Attributes
    ----------
    center_ : ndarray of shape (d,)
        The centre, of scaled rows if rows are scaled; only without a kernel.
    support_ : ndarray of shape (m,)
        Positions of the rows that carry the centre; only with a kernel.
    dual_coef_ : ndarray of shape (m,)
        Weights of these rows in the centre; only with a kernel.
    radius_ : float
        The radius, not below 0.
    offset_ : float
        ``decision_function`` is ``score_samples`` less this number, which is ``-radius_``.
    n_features_in_ : int
        Columns of the input.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of these columns, for tables.
    n_iter_ : int
        Scans of all rows.
    certificate_ : Certificate
        Bounds and their ratio.
    model_ : BallModel, SoftBallModel or KernelBallModel
        The trained model, with ``save``; ``coremargin verify`` checks it.

    References
    ----------
    .. [1] D. M. J. Tax, R. P. W. Duin, "Support Vector Data Description", Machine Learning 54, 2004.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).standard_normal((200, 2))
    >>> detector = OneClassBall(nu=0.1).fit(X)
    >>> detector.predict([[0.0, 0.0], [9.0, 9.0]])
    array([ 1, -1])
    >>> detector.certificate_.ratio > 0.999
    True
    """

    def __init__(  # noqa: PLR0913 - all have a default
        self,
        *,
        nu: float | None = 0.5,
        epsilon: float = 1e-3,
        scaling: str | None = None,
        memory: str | int | None = None,
        kernel: str | None = None,
        degree: int = 3,
        gamma: float | str = "scale",
        coef0: float = 0.0,
    ) -> None:
        self.nu = nu
        self.epsilon = epsilon
        self.scaling = scaling
        self.memory = memory
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0

    @named_arguments()
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Enclose rows.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            Rows in memory; for stores use ``coremargin.train``.
        y : ignored
            Rows need no labels.
        sample_weight : array_like of shape (n,), optional
            Factors of the weight of each row; 0 excludes it. Without ``nu`` others do not matter.

        Returns
        -------
        Self
            The estimator.

        Raises
        ------
        ValueError
            Rows or parameters cannot be used: fewer rows than 1 / nu, equal rows.

        Warns
        -----
        ConvergenceWarning
            If epsilon is not reached.
        """
        refuse_several(nu=self.nu, epsilon=self.epsilon, gamma=self.gamma)
        refuse_rounded(X, "X")
        X = validate_data(self, X, accept_sparse="csr", dtype=DTYPES)
        if self.nu is not None and 0 < self.nu < 1 and self.nu * X.shape[0] < 1:
            raise UsageError(
                f"nu: expected at least 1 / n_samples with n_samples = {X.shape[0]}, found {self.nu!r}: no row may lie "
                f"outside; take nu=None"
            )
        if self.kernel is not None and X.shape[0] < 2:
            raise UsageError("X: expected at least 2 rows with a kernel, found n_samples = 1")
        rounds: list[dict[str, Any]] = []
        found = train(
            X,
            weights=sample_weight,
            one_class="ball",
            nu=self.nu,
            epsilon=self.epsilon,
            scaling=cast("Any", self.scaling),
            memory=self.memory,
            on_round=rounds.append,
            **self._kernel_parameters(),
        )
        warn_unproven([found], self.epsilon)
        model = cast("BallModel", found)
        self.model_, self.certificate_, self.n_iter_ = model, model.certificate, max(1, rounds[-1]["round"])
        self.radius_, self.offset_ = model.radius, -model.radius
        if self.kernel is None:
            self.center_ = model.centre
        else:
            self.support_, self.dual_coef_ = model.coreset_ids, model.row_duals
        return self

    def _kernel_parameters(self) -> dict[str, Any]:
        """The kernel, and what it has of its parameters."""
        if self.kernel is None:
            return {}
        polynomial = {"degree": self.degree, "coef0": self.coef0} if self.kernel == "poly" else {}
        gamma = {} if self.kernel == "linear" else {"gamma": self.gamma}
        return {"kernel": self.kernel, **gamma, **polynomial}

    def score_samples(self, X: Any) -> NDArray[np.float64]:
        """Negated distances of rows from the centre: the larger, the more ordinary.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            Rows, scaled as in training.

        Returns
        -------
        ndarray of shape (n,)
            Float64.
        """
        check_is_fitted(self)
        refuse_rounded(X, "X")
        X = validate_data(self, X, accept_sparse="csr", dtype=DTYPES, reset=False)
        return np.asarray(-self.model_.distances(X))

    def decision_function(self, X: Any) -> NDArray[np.float64]:
        """The radius less the distance of rows from the centre.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            Rows, scaled as in training.

        Returns
        -------
        ndarray of shape (n,)
            Negative outside of the ball.
        """
        return np.asarray(self.score_samples(X) - self.offset_)

    def predict(self, X: Any) -> NDArray[np.int64]:
        """Whether rows are inside of the ball.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            Rows, scaled as in training.

        Returns
        -------
        ndarray of shape (n,)
            1 inside, -1 outside.
        """
        return np.where(self.decision_function(X) >= 0, 1, -1)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
