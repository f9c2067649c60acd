"""``MarginCoresetClassifier``: a linear support vector machine with a certificate."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from coremargin.argument_names import named_arguments
from coremargin.data.arrays import ArraySource
from coremargin.data.external_arrays import LazySource
from coremargin.engine.default_memory import memory_of
from coremargin.errors import UsageError
from coremargin.estimators.class_weights import weighs_rows
from coremargin.estimators.client import ClientMixin
from coremargin.estimators.history import rows_that_fit
from coremargin.estimators.inputs import source_of
from coremargin.estimators.partial_fit import PartialFitMixin
from coremargin.estimators.prediction import LOWEST, PredictMixin
from coremargin.estimators.support import check_separable, deciders, present, refuse_several, support_of, warn_unproven
from coremargin.learn.api import train
from coremargin.models.decision import label_array
from coremargin.models.onnx_graph import as_onnx
from coremargin.models.sklearn_objects import Linear, as_sklearn

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.models.fleet import AnyModel


class MarginCoresetClassifier(ClientMixin, PartialFitMixin, PredictMixin, ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Linear support vector machine with a certificate of its duality gap.

    Minimises 1/2 ||w||^2 + C sum_i s_i loss(y_i (w.x_i + b)) with an unpenalised intercept, the problem of
    ``SVC(kernel="linear")``, or maximises the margin (``loss=None``). More than two classes are trained one against the
    rest, in the same scans, or as one problem (``multi_class``).

    Parameters
    ----------
    loss : {"squared_hinge", "hinge", "auto", "logistic"} or None, default "squared_hinge"
        None: hard margin (the default of ``coremargin.train``). "auto": hard margin or, once it is proven that none
        exists, the squared hinge; two classes, no ``partial_fit``. "logistic": the problem of ``LogisticRegression``
        with an unpenalised intercept; two classes, no ``partial_fit``.
    C : float, default 1.0
        Factor of the loss; ignored by hard margins.
    epsilon : float, default 1e-3
        Relative gap between the bounds of the objective or, for hard margins, of the margin.
    fit_intercept : bool, default True
        False for a hyperplane through the origin (of the scaled rows).
    class_weight : dict or "balanced", optional
        Factors of C, {label: factor} or "balanced": n / (k n_class); ignored by hard margins. As in scikit-learn, a
        label without rows is refused if a class has no factor; otherwise it is ignored with a warning.
    relative_margin : float, optional
        With loss "hinge", a bound above 1 of the decision values of all rows: the margin is large relative to the
        spread of the rows [3]_. Two classes, no ``partial_fit``. None: no bound.
    multi_class : {"ovr", "crammer_singer"}, default "ovr"
        One class against the rest, or one problem for all classes (with the hinge or as a hard margin; no
        ``partial_fit``).
    scaling : {"standard", "minmax", "maxabs", "rownorm", "ellipsoid"}, optional
        Scale rows as they are read, with statistics of all rows, as a scaler in a pipeline would. ``coef_`` and
        ``intercept_`` are for raw rows, up to rounding ("rownorm": for normalised rows). "ellipsoid": in the metric of
        the ellipsoid of least volume around the rows. No ``partial_fit``.
    map : {"nystroem", "fourier", "polynomial"}, optional
        Feature map that approximates a kernel, applied to rows as they are read, after scaling, as scikit-learn's
        ``Nystroem``, ``RBFSampler`` or ``PolynomialCountSketch`` in a pipeline would, for rows that do not fit in
        memory. The certificate is about mapped rows. No ``partial_fit``.
    n_components : int, optional
        Features of a mapped row. "polynomial": None for the exact map, fewer features for a sketch of it.
    gamma : "scale" or float, default "scale"
        Of exp(-gamma ||x - z||^2) or (gamma x.z + coef0)^degree; only with ``map``.
    degree : int, default 3
        Of "polynomial".
    coef0 : float, default 0.0
        Of "polynomial", not negative.
    random_state : int, default 0
        Seed of landmarks, frequencies or sketches.
    columns : mapping, optional
        Column options of ``coremargin.ingest`` for tables: categorical, dates, text, missing, unknown, categories,
        date_format, drop; for instance {"categorical": "auto", "missing": "median"}, or {} for the defaults. None: data
        frames of numbers are arrays; for others, and for files, columns that need an option raise an error.
    cluster : str, optional
        For scans of a store: a file of ``cluster/``, the address of a scheduler, "embedded" or "threads"; None: chosen
        by the size of the store.
    memory : str or int, optional
        For rows in this process. None: a quarter of the available memory.

    Attributes
    ----------
    coef_ : ndarray of shape (1, d) or (k, d)
        Weights of the features, which ``get_feature_names_out`` names; a row for each of more than two classes. With
        ``map`` (1, m) or (k, m), weights of the m features of mapped rows, which have no names.
    intercept_ : ndarray of shape (1,) or (k,)
        Intercepts.
    classes_ : ndarray of shape (k,)
        Labels in order.
    n_features_in_ : int
        Columns of the input without labels and weights; a column of a table may be encoded as several of the d
        features.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of these columns, for tables.
    dropped_columns_ : tuple of str or int
        Columns that were dropped (``columns``: drop); they may be missing in rows to predict.
    n_iter_ : int
        Scans of all rows.
    certificate_ : Certificate or list of Certificate
        Bounds and their ratio; a list with one for each class if several are trained with "ovr".
    model_ : Model or FleetModel
        The trained model, with ``save``; ``coremargin verify`` checks it.
    support_ : ndarray of shape (m,)
        Positions of the support vectors: for a hard margin the rows that carry the proof; with a loss all rows with a
        loss, on the margin or at the bound of a relative margin ("logistic": all rows), for rows in memory only.
    coreset_ : ndarray or csr_array of shape (m, d)
        The support vectors, if ``memory`` holds them.

    References
    ----------
    .. [1] S. Har-Peled, D. Roth, D. Zimak, "Maximum Margin Coresets for Active and Noise Tolerant Learning", 2006.
    .. [2] K. Crammer, Y. Singer, "On the Algorithmic Implementation of Multiclass Kernel-based Vector Machines", 2001.
    .. [3] P. K. Shivaswamy, T. Jebara, "Maximum Relative Margin and Data-Dependent Regularization", 2010.

    Examples
    --------
    >>> import pyarrow
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> machine = make_pipeline(StandardScaler(), MarginCoresetClassifier(C=0.1)).fit(X, y)
    >>> machine[-1].certificate_.ratio > 0.999
    True

    A table with several kinds of columns:

    >>> table = pyarrow.table({"age": [31, None, 52, 47], "job": ["baker", "miner", "nurse", "nurse"]})
    >>> options = {"categorical": "auto", "missing": "median"}
    >>> machine = MarginCoresetClassifier(columns=options).fit(table, ["no", "no", "yes", "yes"])
    >>> machine.predict(table.select(["job", "age"])).tolist()
    ['no', 'no', 'yes', 'yes']
    >>> machine.get_feature_names_out().tolist()
    ['age', 'job=baker', 'job=miner', 'job=nurse']
    """

    def __init__(  # noqa: PLR0913 - all have a default
        self,
        *,
        loss: str | None = "squared_hinge",
        C: float = 1.0,
        epsilon: float = 1e-3,
        fit_intercept: bool = True,
        class_weight: Mapping[Any, float] | str | None = None,
        relative_margin: float | None = None,
        multi_class: str = "ovr",
        scaling: str | None = None,
        map: str | None = None,  # noqa: A002 - as in jobs
        n_components: int | None = None,
        gamma: str | float = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        random_state: int = 0,
        columns: Mapping[str, Any] | None = None,
        cluster: str | None = None,
        memory: str | int | None = None,
    ) -> None:
        self.loss = loss
        self.C = C
        self.epsilon = epsilon
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.relative_margin = relative_margin
        self.multi_class = multi_class
        self.scaling = scaling
        self.map = map
        self.n_components = n_components
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.random_state = random_state
        self.columns = columns
        self.cluster = cluster
        self.memory = memory

    @named_arguments()
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Train on rows with labels, or on a store.

        Tables, files and batches are ingested as by ``coremargin.train``: values are float32, and the model is that of
        the store that ``coremargin.ingest`` writes with the same options, which ``coremargin.verify`` can check.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d), table, path-like, Store or batches
            An array, sparse matrix, data frame, or Dask or Zarr array; the last two are read block by block, once for
            statistics and in every scan. Tables are data frames of pandas, polars or Dask, Arrow tables and Hugging
            Face datasets. Files are a path or a list of paths; batches an iterator or list of tables, sparse matrices
            or pairs (X, y). A store, or its path, has its own labels.
        y : array_like of shape (n,) or str, optional
            Labels, or the name or number of the column with labels; None for a store, and for files and batches whose
            labels ``ingest`` finds.
        sample_weight : array_like of shape (n,) or str, optional
            Factors of C, or the name of their column; 0 excludes a row, hard margins ignore other values. A class whose
            rows all have weight 0 is not in ``classes_``. Scaling, maps, "scale" and the constant feature of
            "crammer_singer" are computed from all rows, as for a store.

        Returns
        -------
        Self
            The estimator.

        Raises
        ------
        ValueError
            Rows, labels or parameters cannot be used.
        NotCertified
            For hard margins, if no hyperplane separates the rows.

        Warns
        -----
        ConvergenceWarning
            If epsilon is not reached.
        """
        if self.multi_class not in ("ovr", "crammer_singer"):
            raise UsageError(f"multi_class: expected 'ovr' or 'crammer_singer', found {self.multi_class!r}")
        with source_of(self, X, y, sample_weight) as source:
            model, scans = self._train(source)
            check_separable(deciders(model))
            warn_unproven(deciders(model), self.epsilon)
            self._set_attributes(model, scans)
            self._delete_attributes("support_", "coreset_", "_partial_fit_state")
            self._set_support(source, deciders(model))
        return self

    def _set_support(self, source: Source, models: list[Any]) -> None:
        """Set the support vectors, if they are known, and save the rows for ``partial_fit``."""
        arrays = source if isinstance(source, ArraySource) and not isinstance(source, LazySource) else None
        if self.loss is None or arrays is not None:
            self.support_ = support_of(models, source)
            most = rows_that_fit(source, memory_of(self.memory))
            if len(self.support_) <= most:
                self.coreset_ = source.rows_at(self.support_)[0]
            if arrays is not None and arrays.rows <= most and hasattr(self, "partial_fit"):
                self._save_history(arrays, models, 2 * len(self.support_))

    def _train(self, source: Source, declared: int | None = None) -> tuple[AnyModel, int]:
        """Train on a source; returns the model and its number of scans.

        declared: number of classes, if more are declared than the source has.
        """
        refuse_several(C=self.C, gamma=self.gamma)
        parameters: dict[str, Any] = {}
        found = len(present(source))
        two, weighted = found == 2 and self.multi_class == "ovr", weighs_rows(self, declared or found)
        if self.loss == "logistic" and not two:
            raise UsageError(
                f"loss: 'logistic' is for two classes and multi_class 'ovr', found {found} classes and "
                f"{self.multi_class!r}; use another loss, or this estimator in scikit-learn's OneVsRestClassifier"
            )
        if self.relative_margin is not None:
            if not two:
                raise UsageError(
                    f"relative_margin: is for two classes and multi_class 'ovr', found {found} classes and "
                    f"{self.multi_class!r}; use KernelCoresetClassifier(kernel='linear'), or this estimator in "
                    f"scikit-learn's OneVsRestClassifier"
                )
            parameters["relative_margin"] = self.relative_margin
        if not two:
            parameters["classes"] = self.multi_class.replace("_", "-")
        if self.loss is not None:
            parameters["C"] = self.C
            if self.class_weight is not None and not weighted:  # with several classes they multiply weights of rows
                parameters["class_weight"] = self._class_factors(source.classes)
        rounds: list[dict[str, Any]] = []
        model = train(
            source,
            cluster=self.cluster,
            loss=cast("Any", self.loss),
            epsilon=self.epsilon,
            intercept=bool(self.fit_intercept),
            memory=self.memory,
            scaling=cast("Any", self.scaling),
            on_round=rounds.append,
            **parameters,
            **self._map_parameters(),
        )
        return model, max(1, rounds[-1]["round"])

    def _map_parameters(self) -> dict[str, Any]:
        """Parameters of the map for ``coremargin.train``, which refuses others."""
        if self.map is None:
            return {}
        parameters: dict[str, Any] = {"map": self.map, "components": self.n_components, "gamma": self.gamma}
        parameters["map_seed"] = self.random_state
        return parameters | ({"degree": self.degree, "coef0": self.coef0} if self.map == "polynomial" else {})

    def _set_attributes(self, model: AnyModel, scans: int, declared: tuple[Any, ...] = ()) -> None:
        """Set the fitted attributes; declared: all labels, if some classes may have no rows."""
        model = self._with_columns(model)
        linear = model.linear()
        self.model_, self.n_iter_ = model, scans
        self.classes_, (self.coef_, self.intercept_) = linear.classes, linear.folded()
        self._delete_attributes("_places")
        if len(declared) > len(self.classes_):
            self._places = [declared.index(label) for label in self.classes_.tolist()]
            self.classes_ = label_array(declared)
            coef, intercept = self.coef_, self.intercept_
            if len(self._places) == 2:
                coef, intercept = np.vstack([-coef, coef]), np.append(-intercept, intercept)
            self.coef_, self.intercept_ = np.zeros((len(declared), coef.shape[1])), np.full(len(declared), LOWEST)
            self.coef_[self._places], self.intercept_[self._places] = coef, intercept
        certificates = [one.certificate for one in deciders(model)]
        self.certificate_ = certificates[0] if len(certificates) == 1 else certificates

    def to_sklearn(self) -> Any:
        """Convert to a fitted ``LinearSVC`` with the same decision values, which does not need coremargin.

        For a table, its input are the features (``get_feature_names_out``).

        Returns
        -------
        LinearSVC or Pipeline
            With "rownorm" a pipeline that first normalises rows.
        """
        return as_sklearn(self._linear())

    def to_onnx(self, precision: Literal["float64", "float32"] = "float64") -> Any:
        """Convert to an ONNX graph with the same predictions; see ``coremargin.models.onnx_graph.as_onnx``.

        For a table, its input are the features (``get_feature_names_out``).

        Parameters
        ----------
        precision : {"float64", "float32"}, default "float64"
            Type of input, coefficients and decision values.

        Returns
        -------
        onnx.ModelProto
            Input "X" (n, d); outputs "label" (n,) and "decision", (n,) for two classes, else (n, k).
        """
        return as_onnx(self._linear(), precision)

    def _linear(self) -> Linear:
        check_is_fitted(self)
        model: AnyModel = self.model_
        names = None if model.columns is not None else getattr(self, "feature_names_in_", None)
        return model.linear() if names is None else replace(model.linear(), names=names.tolist())
