"""``KernelCoresetClassifier``: a kernel support vector machine with a certificate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, cast

from sklearn.base import BaseEstimator, ClassifierMixin

from coremargin.argument_names import named_arguments
from coremargin.errors import UsageError
from coremargin.estimators.client import ClientMixin
from coremargin.estimators.inputs import source_of
from coremargin.estimators.prediction import PredictMixin
from coremargin.estimators.support import ADVICE, present, refuse_several, warn_unproven
from coremargin.learn.api import train
from coremargin.models.decision import label_array
from coremargin.problems.kernel.kernel_margin import REASONS

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.maths.kernel.functions import KernelFunction
    from coremargin.models.kernel import KernelModel


class KernelCoresetClassifier(ClientMixin, PredictMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Kernel support vector machine with a certificate of its duality gap, trained from memory or from disk.

    Minimises 1/2 ||f||^2 + C sum_i s_i loss(y_i (f(x_i) + b)) over functions f of the kernel, as ``SVC`` does, or
    maximises the margin (``loss=None``). More than two classes are trained one against the rest.

    Parameters
    ----------
    C : float, default 1.0
        Factor of the loss; ignored by hard margins.
    kernel : {"rbf", "poly", "linear"} or callable, default "rbf"
        exp(-gamma ||x - z||^2), (gamma x.z + coef0)^degree, x.z, or a function k(X, Z) -> (n, m) as for ``SVC``,
        symmetric and positive semi-definite. It is called with blocks of rows, from several threads at once.
    degree : int, default 3
        Of "poly".
    gamma : "scale" or float, default "scale"
        Of "rbf" and "poly"; "scale": 1 / (d var), with the variance of all values of all rows.
    coef0 : float, default 0.0
        Of "poly"; not negative, since the kernel would not be positive semi-definite.
    kernel_error : float, default 1e-10
        Largest error of the values of a function, relative to sqrt(k(x, x) k(z, z)). The certificate holds for all
        positive semi-definite kernels within this error.
    loss : {"hinge", "squared_hinge"} or None, default "hinge"
        None: hard margin.
    epsilon : float, default 1e-3
        Relative gap between the bounds of the objective of each class or, for hard margins, of the margin.
    fit_intercept : bool, default True
        False for functions of the kernel alone.
    class_weight : dict or "balanced", optional
        Factors of C, {label: factor} or "balanced": n / (k n_class); ignored by hard margins. As in scikit-learn, a
        label without rows is refused if a class has no factor; otherwise it is ignored with a warning.
    relative_margin : float, optional
        With loss "hinge", a bound above 1 of the decision values of all rows: the margin is large relative to the
        spread of the rows [3]_. None: no bound.
    scaling : {"standard", "minmax", "maxabs", "rownorm", "ellipsoid"}, optional
        Scale rows as they are read, with statistics of all rows.
    columns : mapping, optional
        Column options for tables, as for ``MarginCoresetClassifier``.
    cluster : str, optional
        For scans of a store: a file of ``cluster/``, the address of a scheduler, "embedded" or "threads"; None: chosen
        by the size of the store.
    memory : str or int, optional
        For the kernel matrix of the support vectors: 4 GiB hold some 28,000 rows. None: a quarter of the available
        memory.

    Attributes
    ----------
    support_ : ndarray of shape (m,)
        Positions of the support vectors.
    support_vectors_ : ndarray or csr_array of shape (m, d)
        Their values, scaled if rows are scaled.
    dual_coef_ : ndarray of shape (1, m) or (k, m)
        Their dual weights with signs, a row for each of more than two classes.
    intercept_ : ndarray of shape (1,) or (k,)
        Intercepts.
    classes_ : ndarray of shape (k,)
        Labels in order.
    n_features_in_ : int
        Columns of the input.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of these columns, for tables.
    dropped_columns_ : tuple of str or int
        Columns that were dropped.
    n_iter_ : int
        Scans of all rows.
    certificate_ : Certificate
        Bounds and their ratio; with several classes of the sum of their objectives.
    model_ : KernelModel
        The trained model, with ``save``; ``coremargin verify`` checks it.

    References
    ----------
    .. [1] I. W. Tsang, J. T. Kwok, P.-M. Cheung, "Core Vector Machines", Journal of Machine Learning Research 6, 2005.
    .. [2] G. Loosli, S. Canu, "Comments on the Core Vector Machines", 2007.
    .. [3] P. K. Shivaswamy, T. Jebara, "Maximum Relative Margin and Data-Dependent Regularization", 2010.

    Examples
    --------
    >>> from sklearn.datasets import make_circles
    >>> X, y = make_circles(500, noise=0.1, factor=0.5, random_state=0)
    >>> machine = KernelCoresetClassifier(C=10.0).fit(X, y)
    >>> machine.certificate_.ratio > 0.999, machine.score(X, y) > 0.99
    (True, True)
    """

    def __init__(  # noqa: PLR0913 - all have a default
        self,
        *,
        C: float = 1.0,
        kernel: str | KernelFunction = "rbf",
        degree: int = 3,
        gamma: str | float = "scale",
        coef0: float = 0.0,
        kernel_error: float = 1e-10,
        loss: str | None = "hinge",
        epsilon: float = 1e-3,
        fit_intercept: bool = True,
        class_weight: Mapping[Any, float] | str | None = None,
        relative_margin: float | None = None,
        scaling: str | None = None,
        columns: Mapping[str, Any] | None = None,
        cluster: str | None = None,
        memory: str | int | None = None,
    ) -> None:
        self.C = C
        self.kernel = kernel
        self.degree = degree
        self.gamma = gamma
        self.coef0 = coef0
        self.kernel_error = kernel_error
        self.loss = loss
        self.epsilon = epsilon
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.relative_margin = relative_margin
        self.scaling = scaling
        self.columns = columns
        self.cluster = cluster
        self.memory = memory

    @property
    def multi_class(self) -> str:
        """For ``class_weight``: one class against the rest."""
        return "ovr"

    @named_arguments()
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train on rows with labels, or on a store.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d), table, path-like, Store or batches
            As for ``MarginCoresetClassifier``.
        y : array_like of shape (n,) or str, optional
            Labels, or the name or number of the column with labels; None for a store.
        sample_weight : array_like of shape (n,) or str, optional
            Factors of C, or the name of their column; 0 excludes a row. A class whose rows all have weight 0 is not in
            ``classes_``. Scaling and gamma="scale" are computed from all rows, as in ``SVC``.

        Returns
        -------
        Self
            The estimator.

        Raises
        ------
        ValueError
            Rows, labels or parameters cannot be used; for hard margins also equal rows of different classes.

        Warns
        -----
        ConvergenceWarning
            If epsilon is not reached: too little memory or, for hard margins, rows that are not separable.
        """
        with source_of(self, X, y, sample_weight) as source:
            rounds: list[dict[str, Any]] = []
            model = cast("KernelModel", train(source, on_round=rounds.append, **self._train_parameters(source)))
        warn_unproven([model], self.epsilon, REASONS.get(rounds[-1]["status"], ADVICE))
        model = cast("KernelModel", self._with_columns(model))
        self.model_, self.n_iter_, self.certificate_ = model, max(1, rounds[-1]["round"]), model.certificate
        self.classes_ = label_array(model.labels)
        self.support_, self.support_vectors_ = model.coreset_ids, model.coreset_x
        self.dual_coef_, self.intercept_ = model.weights.T, model.offsets
        return self

    def _train_parameters(self, source: Source) -> dict[str, Any]:
        """Parameters for ``coremargin.train``, which refuses those that a kernel does not have. Raises UsageError."""
        if not (isinstance(self.kernel, str) or callable(self.kernel)):
            raise UsageError(f"kernel: expected 'rbf', 'poly', 'linear' or a function k(X, Z), found {self.kernel!r}")
        refuse_several(C=self.C, gamma=self.gamma)
        two = len(present(source)) == 2
        parameters: dict[str, Any] = {
            "kernel": self.kernel,
            "loss": self.loss,
            "epsilon": self.epsilon,
            "intercept": bool(self.fit_intercept),
            "scaling": self.scaling,
            "memory": self.memory,
            "cluster": self.cluster,
            "classes": None if two else "ovr",
        }
        if self.relative_margin is not None:
            parameters["relative_margin"] = self.relative_margin
        if self.kernel in ("rbf", "poly"):
            parameters["gamma"] = self.gamma
        if self.kernel == "poly":
            parameters |= {"degree": self.degree, "coef0": self.coef0}
        if callable(self.kernel) or ":" in str(self.kernel):
            parameters["kernel_error"] = self.kernel_error
        if self.loss is not None:
            parameters["C"] = self.C
            if self.class_weight is not None and two:  # with several classes they multiply weights of rows
                parameters["class_weight"] = self._class_factors(source.classes)
        return parameters
