"""``KernelCoresetClassifier``: a support vector machine with a kernel whose optimality is proven."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, cast

from sklearn.base import BaseEstimator, ClassifierMixin

from coremargin.argument_names import named_arguments
from coremargin.errors import UsageError
from coremargin.estimators.deciding import Deciding
from coremargin.estimators.inputs import source_of
from coremargin.estimators.support import NO_MORE, present, refuse_several, warn_unproven
from coremargin.learn.api import train
from coremargin.models.decision import label_array
from coremargin.problems.kernel.kernel_margin import REASONS

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.maths.kernel.functions import KernelFunction
    from coremargin.models.kernel import KernelModel


class KernelCoresetClassifier(Deciding, ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Support vector machine with a kernel, trained to a proven gap, from memory or from disk.

    Minimises 1/2 ||f||^2 + C sum_i s_i loss(y_i (f(x_i) + b)) over the functions f of the kernel, as ``SVC`` does,
    or separates with the largest margin (``loss=None``). Of more than two classes each one is set against the rest.

    Parameters
    ----------
    C : float, default 1.0
        Weight of a row's loss; a hard margin does not read it.
    kernel : {"rbf", "poly", "linear"} or callable, default "rbf"
        exp(-gamma ||x - z||^2), (gamma x.z + coef0)^degree, x.z; or a function k(X, Z) -> (n, m), symmetric and
        positive semi-definite, as ``SVC`` takes one. It is asked about blocks of rows, by several threads at once.
    degree : int, default 3
        Of "poly"; others do not read it.
    gamma : "scale" or float, default "scale"
        1 / (d var), var being the variance of all numbers of all rows, or a number; "linear" does not read it.
    coef0 : float, default 0.0
        Of "poly", not below 0: the kernel would not be positive semi-definite.
    kernel_error : float, default 1e-10
        Of a function, what its values may be off by as a share of sqrt(k(x, x) k(z, z)): the proof is about every
        positive semi-definite kernel that near. Others do not read it.
    loss : {"hinge", "squared_hinge"} or None, default "hinge"
        None for the hard margin.
    epsilon : float, default 1e-3
        The value of each column (hard margin: its margin) is proven to be within this share of the best possible.
    fit_intercept : bool, default True
        False for functions of the kernel alone.
    class_weight : dict or "balanced", optional
        Factors of C, {label: factor} or "balanced": n / (k n_class). A hard margin does not read them. A label that no
        row has is refused where a class has no factor, as by scikit-learn; else its factor is ignored, with a warning.
    scaling : {"standard", "minmax", "maxabs", "rownorm"}, optional
        Rows are scaled as they are read, from statistics of all rows.
    columns : mapping, optional
        What becomes of the columns of a table, as for ``MarginCoresetClassifier``.
    cluster : str, optional
        Where to scan a store: a file of ``cluster/``, a scheduler's address, "embedded", "threads", None chooses.
    memory : str or int, optional
        For the kernel values of the rows that carry the machine: 4 GiB hold some 28,000 rows. None: a quarter of the
        memory that there is.

    Attributes
    ----------
    support_ : ndarray of shape (m,)
        Positions of the rows that carry the machine.
    support_vectors_ : ndarray or csr_array of shape (m, d)
        Their values, scaled where rows are.
    dual_coef_ : ndarray of shape (1, m) or (k, m)
        Their weights, with the sign of their side, a row a class of more than two.
    intercept_ : ndarray of shape (1,) or (k,)
        Intercepts.
    classes_ : ndarray of shape (k,)
        Labels in order.
    n_features_in_ : int
        Columns of the rows as they were given.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of these columns, of tables.
    dropped_columns_ : tuple of str or int
        Those of them that became no features.
    n_iter_ : int
        Scans of all rows.
    certificate_ : Certificate
        Both bounds and what they prove; of several classes on the sum of their values.
    model_ : KernelModel
        It has ``save`` and is what ``coremargin verify`` checks.

    References
    ----------
    .. [1] I. W. Tsang, J. T. Kwok, P.-M. Cheung, "Core Vector Machines", Journal of Machine Learning Research 6, 2005.
    .. [2] G. Loosli, S. Canu, "Comments on the Core Vector Machines", 2007.

    Examples
    --------
    >>> from sklearn.datasets import make_circles
    >>> X, y = make_circles(500, noise=0.1, factor=0.5, random_state=0)
    >>> machine = KernelCoresetClassifier(C=10.0).fit(X, y)
    >>> machine.certificate_.ratio > 0.999, machine.score(X, y) > 0.99
    (True, True)
    """

    def __init__(  # noqa: PLR0913 - one word for each decision, all with a default
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
        self.scaling = scaling
        self.columns = columns
        self.cluster = cluster
        self.memory = memory

    @property
    def multi_class(self) -> str:
        """Each class against the rest."""
        return "ovr"

    @named_arguments()
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train on rows with labels, or on a store.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d), table, path-like, Store or batches
            As for ``MarginCoresetClassifier``.
        y : array_like of shape (n,) or str, optional
            Labels, or the name (or number) of the column of a table that holds them; a store has its own.
        sample_weight : array_like of shape (n,) or str, optional
            Factors of C for each row, or the name of their column; 0 leaves a row out. A class whose rows all have
            weight 0 is not in ``classes_``. Scaling and gamma="scale" are of all rows, as SVC's is.

        Returns
        -------
        Self
            The estimator.

        Raises
        ------
        ValueError
            Rows, labels or parameters cannot be used; under a hard margin also two equal rows of different classes.

        Warns
        -----
        ConvergenceWarning
            The proof is not complete: memory holds too few rows, or under a hard margin nothing separates these.
        """
        with source_of(self, X, y, sample_weight) as source:
            rounds: list[dict[str, Any]] = []
            model = cast("KernelModel", train(source, on_round=rounds.append, **self._asked(source)))
        warn_unproven([model], self.epsilon, REASONS.get(rounds[-1]["status"], NO_MORE))
        model = cast("KernelModel", self._with_columns(model))
        self.model_, self.n_iter_, self.certificate_ = model, max(1, rounds[-1]["round"]), model.certificate
        self.classes_ = label_array(model.labels)
        self.support_, self.support_vectors_ = model.coreset_ids, model.coreset_x
        self.dual_coef_, self.intercept_ = model.weights.T, model.offsets
        return self

    def _asked(self, source: Source) -> dict[str, Any]:
        """What ``coremargin.train`` is asked for; a kernel is told what it has. Raises UsageError."""
        if not (isinstance(self.kernel, str) or callable(self.kernel)):
            raise UsageError(f"kernel: expected 'rbf', 'poly', 'linear' or a function k(X, Z), found {self.kernel!r}")
        refuse_several(C=self.C, gamma=self.gamma)
        two = len(present(source)) == 2
        asked: dict[str, Any] = {
            "kernel": self.kernel,
            "loss": self.loss,
            "epsilon": self.epsilon,
            "intercept": bool(self.fit_intercept),
            "scaling": self.scaling,
            "memory": self.memory,
            "cluster": self.cluster,
            "classes": None if two else "ovr",
        }
        if self.kernel in ("rbf", "poly"):
            asked["gamma"] = self.gamma
        if self.kernel == "poly":
            asked |= {"degree": self.degree, "coef0": self.coef0}
        if callable(self.kernel) or ":" in str(self.kernel):
            asked["kernel_error"] = self.kernel_error
        if self.loss is not None:
            asked["C"] = self.C
            if self.class_weight is not None and two:  # of several classes they are weights of the rows
                asked["class_weight"] = self._weights(source.classes)
        return asked
