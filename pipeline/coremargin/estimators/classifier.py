"""``MarginCoresetClassifier``: a linear support vector machine whose optimality is proven."""

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
from coremargin.estimators.batches import InBatches
from coremargin.estimators.class_weights import weighs_rows
from coremargin.estimators.deciding import Deciding
from coremargin.estimators.decisions import LOWEST
from coremargin.estimators.history import room
from coremargin.estimators.inputs import source_of
from coremargin.estimators.support import check_separable, deciders, present, refuse_several, support_of, warn_unproven
from coremargin.learn.api import train
from coremargin.models.converters import Linear, as_onnx, as_sklearn
from coremargin.models.decision import label_array

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.models.fleet import AnyModel


class MarginCoresetClassifier(InBatches, Deciding, ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Linear support vector machine, trained to a proven gap.

    Minimises 1/2 ||w||^2 + C sum_i s_i loss(y_i (w.x_i + b)) with an intercept that is not penalised, the problem of
    ``SVC(kernel="linear")``, or separates with the largest margin (``loss=None``). Of more than two classes each one
    is set against the rest, all of them in the same scans, or all against each other (``multi_class``).

    Parameters
    ----------
    loss : {"squared_hinge", "hinge", "auto", "logistic"} or None, default "squared_hinge"
        None for the hard margin (``coremargin.train``: None unless given); "auto" for that of two classes or, once it
        is proven that there is none, the squared hinge: not for ``partial_fit``. "logistic": the problem of
        ``LogisticRegression`` with an intercept that is not penalised, of two classes; not for ``partial_fit``.
    C : float, default 1.0
        Weight of a row's loss; a hard margin does not read it.
    epsilon : float, default 1e-3
        The value (hard margin: the margin) is proven to be within this share of the best possible.
    fit_intercept : bool, default True
        False for a hyperplane through the origin (of the scaled rows).
    class_weight : dict or "balanced", optional
        Factors of C, {label: factor} or "balanced": n / (k n_class). A hard margin does not read them. A label that no
        row has is refused where a class has no factor, as by scikit-learn; else its factor is ignored, with a warning.
    multi_class : {"ovr", "crammer_singer"}, default "ovr"
        One class against the rest, or one problem about all classes (with the hinge or without a loss; not for
        ``partial_fit``).
    scaling : {"standard", "minmax", "maxabs", "rownorm"}, optional
        Rows are scaled as they are read, from statistics of all rows, as a scaler before this one in a pipeline would;
        ``coef_`` and ``intercept_`` are for rows as they come, up to rounding (of "rownorm": for rows divided by their
        lengths). Not for ``partial_fit``.
    map : {"nystroem", "fourier", "polynomial"}, optional
        Rows are mapped as they are read, after scaling, to features whose products are those of a kernel, about: the
        approximation of scikit-learn's ``Nystroem``, ``RBFSampler``, ``PolynomialCountSketch`` before this one in a
        pipeline, of rows that do not fit into memory. What is proven is about mapped rows. Not for ``partial_fit``.
    n_components : int, optional
        Features of a mapped row. Of "polynomial" None for all its products, else these sketch one that has more.
    gamma : "scale" or float, default "scale"
        Of the kernel: exp(-gamma ||x - z||^2), (gamma x.z + coef0)^degree. Read with ``map`` only.
    degree : int, default 3
        Of "polynomial"; others do not read it.
    coef0 : float, default 0.0
        Of "polynomial", not below 0; others do not read it.
    random_state : int, default 0
        Which landmarks, frequencies or places a map has.
    columns : mapping, optional
        What becomes of the columns of a table, in the words of ``coremargin.ingest``: categorical, dates, text,
        missing, unknown, categories, date_format, drop; for instance {"categorical": "auto", "missing": "median"}. {}
        where there is nothing to say. None: data frames of numbers are arrays; of others, and of files, columns that
        need a word are named.
    cluster : str, optional
        Where to scan a store: a file of ``cluster/``, a scheduler's address, "embedded", "threads", None chooses.
    memory : str or int, optional
        For the rows kept in this process. None: a quarter of the memory that there is.

    Attributes
    ----------
    coef_ : ndarray of shape (1, d) or (k, d)
        Weights of the features, which ``get_feature_names_out`` names; a row a class of more than two. With ``map``
        (1, m) or (k, m): of the m features of mapped rows, which have no names.
    intercept_ : ndarray of shape (1,) or (k,)
        Intercepts.
    classes_ : ndarray of shape (k,)
        Labels in order.
    n_features_in_ : int
        Columns of the rows as they were given, those of label and weights aside; a column of a table may become many
        features, of which there are d.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of these columns, of tables.
    dropped_columns_ : tuple of str or int
        Those of them that became no features (``columns``: drop), which need not be there in rows that are predicted.
    n_iter_ : int
        Scans of all rows.
    certificate_ : Certificate or list of Certificate
        Both bounds and what they prove; of several classes with "ovr" a list, one for each.
    model_ : Model, FleetModel or MulticlassModel
        It has ``save`` and is what ``coremargin verify`` checks.
    support_ : ndarray of shape (m,)
        Positions of the rows that decide the answer: for a hard margin those that carry the proof; with a loss all rows
        that have one or lie on the edge ("logistic": all rows), known for rows in memory only.
    coreset_ : ndarray or csr_array of shape (m, d)
        Their values, if ``memory`` holds them.

    References
    ----------
    .. [1] S. Har-Peled, D. Roth, D. Zimak, "Maximum Margin Coresets for Active and Noise Tolerant Learning", 2006.
    .. [2] K. Crammer, Y. Singer, "On the Algorithmic Implementation of Multiclass Kernel-based Vector Machines", 2001.

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

    A table, by what its columns are:

    >>> table = pyarrow.table({"age": [31, None, 52, 47], "job": ["baker", "miner", "nurse", "nurse"]})
    >>> words = {"categorical": "auto", "missing": "median"}
    >>> machine = MarginCoresetClassifier(columns=words).fit(table, ["no", "no", "yes", "yes"])
    >>> machine.predict(table.select(["job", "age"])).tolist()
    ['no', 'no', 'yes', 'yes']
    >>> machine.get_feature_names_out().tolist()
    ['age', 'job=baker', 'job=miner', 'job=nurse']
    """

    def __init__(  # noqa: PLR0913 - one word for each decision, all with a default
        self,
        *,
        loss: str | None = "squared_hinge",
        C: float = 1.0,
        epsilon: float = 1e-3,
        fit_intercept: bool = True,
        class_weight: Mapping[Any, float] | str | None = None,
        multi_class: str = "ovr",
        scaling: str | None = None,
        map: str | None = None,  # noqa: A002 - the job's word
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

        Tables with columns of words, dates and gaps, and whatever else ``coremargin.train`` makes a store of, are
        trained on as there: values are of float32, and the answer is that of the store that ``coremargin.ingest`` makes
        with the same words, which ``coremargin.verify`` checks ``model_`` against.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d), table, path-like, Store or batches
            An array, a sparse matrix, a data frame, a Dask array or a Zarr array; the last two are read block by block,
            never as a whole, in one pass that counts what is in them and in every scan. A table: a data frame of
            pandas, polars or Dask, a table of Arrow, a Dataset of Hugging Face. Files, by their path or a list of
            paths, and batches: an iterator or a list of tables, of sparse matrices or of pairs (X, y). Or a store, or
            its path, without y.
        y : array_like of shape (n,) or str, optional
            Labels, or the name (or number) of the column of a table that holds them; a store has its own. None: files
            and batches have theirs where ``ingest`` finds them.
        sample_weight : array_like of shape (n,) or str, optional
            Factors of C for each row, or the name of their column; 0 leaves a row out, a hard margin reads nothing else
            of them. A class whose rows all have weight 0 is not in ``classes_``. What is made of all columns (scaling,
            a map, its gamma, the constant of "crammer_singer") is of all rows, as that of a store is.

        Returns
        -------
        Self
            The estimator.

        Raises
        ------
        ValueError
            Rows, labels or parameters cannot be used.
        NotCertified
            A hard margin is asked for and no hyperplane separates the rows.

        Warns
        -----
        ConvergenceWarning
            More scans would not reach epsilon.
        """
        if self.multi_class not in ("ovr", "crammer_singer"):
            raise UsageError(f"multi_class: expected 'ovr' or 'crammer_singer', found {self.multi_class!r}")
        with source_of(self, X, y, sample_weight) as source:
            model, scans = self._trained(source)
            check_separable(deciders(model))
            warn_unproven(deciders(model), self.epsilon)
            self._adopt(model, scans)
            self._forget("support_", "coreset_", "_seen")
            self._support(source, deciders(model))
        return self

    def _support(self, source: Source, models: list[Any]) -> None:
        """Set which rows decide, as far as it can be known, and what ``partial_fit`` goes on from."""
        arrays = source if isinstance(source, ArraySource) and not isinstance(source, LazySource) else None
        if self.loss is None or arrays is not None:
            self.support_ = support_of(models, source)
            most = room(source, memory_of(self.memory))
            if len(self.support_) <= most:
                self.coreset_ = source.rows_at(self.support_)[0]
            if arrays is not None and arrays.rows <= most and hasattr(self, "partial_fit"):
                self._remember(arrays, models, 2 * len(self.support_))

    def _trained(self, source: Source, declared: int | None = None) -> tuple[AnyModel, int]:
        """The model of a source, of all its classes, and the scans that it took.

        declared: how many classes there will be; None: those of the source.
        """
        refuse_several(C=self.C, gamma=self.gamma)
        parameters: dict[str, Any] = {}
        found = len(present(source))
        two, weighed = found == 2 and self.multi_class == "ovr", weighs_rows(self, declared or found)
        if self.loss == "logistic" and not two:
            raise UsageError(
                f"loss: 'logistic' is for two classes and multi_class 'ovr', found {found} classes and "
                f"{self.multi_class!r}; take another loss, or scikit-learn's OneVsRestClassifier around this estimator"
            )
        if not two:
            parameters["classes"] = self.multi_class.replace("_", "-")
        if self.loss is not None:
            parameters["C"] = self.C
            if self.class_weight is not None and not weighed:  # of several classes they are weights of the rows
                parameters["class_weight"] = self._weights(source.classes)
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
            **self._mapped(),
        )
        return model, max(1, rounds[-1]["round"])

    def _mapped(self) -> dict[str, Any]:
        """What ``coremargin.train`` is asked for of a map, which is told what it has."""
        if self.map is None:
            return {}
        asked: dict[str, Any] = {"map": self.map, "components": self.n_components, "gamma": self.gamma}
        asked["map_seed"] = self.random_state
        return asked | ({"degree": self.degree, "coef0": self.coef0} if self.map == "polynomial" else {})

    def _adopt(self, model: AnyModel, scans: int, declared: tuple[Any, ...] = ()) -> None:
        """Set what is learnt; declared: labels of classes, of which some may have had no rows."""
        model = self._with_columns(model)
        linear = model.linear()
        self.model_, self.n_iter_ = model, scans
        self.classes_, (self.coef_, self.intercept_) = linear.classes, linear.folded()
        self._forget("_places")
        if len(declared) > len(self.classes_):
            self._places = [declared.index(label) for label in self.classes_.tolist()]
            self.classes_ = label_array(declared)
            coef, intercept = self.coef_, self.intercept_
            if len(self._places) == 2:
                coef, intercept = np.vstack([-coef, coef]), np.append(-intercept, intercept)
            self.coef_, self.intercept_ = np.zeros((len(declared), coef.shape[1])), np.full(len(declared), LOWEST)
            self.coef_[self._places], self.intercept_[self._places] = coef, intercept
        claims = [one.certificate for one in deciders(model)]
        self.certificate_ = claims[0] if len(claims) == 1 else claims

    def to_sklearn(self) -> Any:
        """A fitted ``LinearSVC`` with the same decision values: for places where coremargin is not installed.

        Of a table it takes the features, see ``get_feature_names_out``.

        Returns
        -------
        LinearSVC or Pipeline
            Of "rownorm" a pipeline, whose first step divides rows by their lengths.
        """
        return as_sklearn(self._linear())

    def to_onnx(self, precision: Literal["float64", "float32"] = "float64") -> Any:
        """An ONNX graph that predicts the same; see ``coremargin.models.converters.as_onnx``.

        Of a table it takes the features, see ``get_feature_names_out``.

        Parameters
        ----------
        precision : {"float64", "float32"}, default "float64"
            Of input, coefficients and decision values.

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
