"""``StructuredClassifier``: labels of sequences of rows, or of single rows with costs, with a certificate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from coremargin.argument_names import named_arguments
from coremargin.data.rows import refuse_rounded
from coremargin.errors import LabelError, UsageError
from coremargin.estimators.inputs import DTYPES
from coremargin.estimators.support import refuse_several, warn_unproven
from coremargin.learn.api import train
from coremargin.models.decision import label_array

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from sklearn.utils import Tags

    from coremargin.models.structured import StructuredModel

_ADVICE = "more rounds would take long; choose a smaller C or a larger epsilon"


class StructuredClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Label the rows of sequences together, with a certificate of the duality gap.

    Minimises 1/2 ||w||^2 + C sum_i max_y [loss(y_i, y) - w.(Phi(x_i, y_i) - Phi(x_i, y))] over all sequences x_i, the
    structured hinge loss with rescaled margins [1]_ [2]_. The score w.Phi(x, y) of a labelling adds up a score for each
    row and its label and, in a chain, for each two labels that follow one another; the loss counts wrong labels.

    Parameters
    ----------
    structure : {"chain", "outputs"}, default "chain"
        "chain": the rows of a group are a sequence, and ``fit``, ``predict`` and ``score`` need ``groups``.
        "outputs": each row is labelled for itself.
    C : float, default 1.0
        Factor of the loss.
    epsilon : float, default 1e-3
        Relative gap between the bounds of the objective.
    fit_intercept : bool, default True
        Weights of a constant feature, which are penalised as the others.
    scaling : {"standard", "minmax", "maxabs", "rownorm"}, optional
        Scale rows, with statistics of all rows.
    memory : str or int, optional
        For rows and labellings. None: a quarter of the available memory.

    Attributes
    ----------
    classes_ : ndarray of shape (k,)
        Labels in order.
    coef_ : ndarray of shape (k, d)
        Weights of the features for each label, for rows as they are.
    intercept_ : ndarray of shape (k,)
        Intercepts for each label.
    transitions_ : ndarray of shape (k, k)
        Of a chain: the score of the label of a column after that of a row.
    n_features_in_ : int
        Columns of the input.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Names of these columns, for tables.
    n_iter_ : int
        Passes over all rows.
    certificate_ : Certificate
        Bounds and their ratio.
    model_ : StructuredModel
        The trained model, with ``save``; ``coremargin verify`` checks it.

    References
    ----------
    .. [1] B. Taskar, C. Guestrin, D. Koller, "Max-Margin Markov Networks", 2003.
    .. [2] I. Tsochantaridis, T. Joachims, T. Hofmann, Y. Altun, "Large Margin Methods for Structured and Interdependent
       Output Variables", Journal of Machine Learning Research 6, 2005.

    Examples
    --------
    Features of words, as CRFsuite takes them, become columns in a pipeline that passes groups on:

    >>> import sklearn
    >>> from sklearn.feature_extraction import DictVectorizer
    >>> from sklearn.pipeline import make_pipeline
    >>> words, sentences = ["the", "old", "man", "saw", "a", "ship"], [1, 1, 1, 2, 2, 2]
    >>> X = [{"word": word, "length": len(word)} for word in words]
    >>> with sklearn.config_context(enable_metadata_routing=True):
    ...     chain = StructuredClassifier().set_fit_request(groups=True).set_predict_request(groups=True)
    ...     tagger = make_pipeline(DictVectorizer(), chain)
    ...     tagger = tagger.fit(X, ["DT", "JJ", "NN", "VB", "DT", "NN"], groups=sentences)
    ...     tagger.predict(X[:3], groups=sentences[:3]).tolist()
    ['DT', 'JJ', 'NN']
    >>> tagger[-1].certificate_.ratio > 0.999
    True
    """

    def __init__(
        self,
        *,
        structure: str = "chain",
        C: float = 1.0,
        epsilon: float = 1e-3,
        fit_intercept: bool = True,
        scaling: str | None = None,
        memory: str | int | None = None,
    ) -> None:
        self.structure = structure
        self.C = C
        self.epsilon = epsilon
        self.fit_intercept = fit_intercept
        self.scaling = scaling
        self.memory = memory

    @named_arguments()
    def fit(self, X: Any, y: Any, groups: Any = None) -> Self:
        """Train on rows with labels.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            Rows in memory; for stores use ``coremargin.train``.
        y : array_like of shape (n,)
            The label of each row.
        groups : array_like of shape (n,), optional
            Of a chain: the id of each row's sequence, a text or a whole number; rows of a sequence come one after the
            other.

        Returns
        -------
        Self
            The estimator.

        Raises
        ------
        ValueError
            Rows, labels, groups or parameters cannot be used.

        Warns
        -----
        ConvergenceWarning
            If epsilon is not reached.
        """
        if self.structure not in ("chain", "outputs"):
            raise UsageError(
                f"structure: expected 'chain' or 'outputs', found {self.structure!r}; use coremargin.train for others"
            )
        refuse_several(C=self.C, epsilon=self.epsilon)
        refuse_rounded(X, "X")
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=DTYPES)
        check_classification_targets(y)
        if (y == y[0]).all():
            raise LabelError(f"y: expected labels of at least two classes, found 1 class: {y[0]!r}")
        rounds: list[dict[str, Any]] = []
        found = train(
            X,
            y,
            groups=groups,
            structure=cast("Any", self.structure),
            loss="hinge",
            C=self.C,
            epsilon=self.epsilon,
            intercept=bool(self.fit_intercept),
            scaling=cast("Any", self.scaling),
            memory=self.memory,
            on_round=rounds.append,
        )
        warn_unproven([found], self.epsilon, _ADVICE)
        model = cast("StructuredModel", found)
        self.model_, self.certificate_, self.n_iter_ = model, model.certificate, max(1, rounds[-1]["round"])
        self.classes_, self.coef_, self.intercept_ = label_array(model.labels), model.coef, model.intercept
        if model.transitions is not None:
            self.transitions_ = model.transitions
        return self

    def decision_function(self, X: Any, groups: Any = None) -> NDArray[np.float64]:
        """Decision values of rows for each label.

        Of a chain the value of a row for a label is the highest score of all labellings of its sequence in which the
        row has this label.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            Rows.
        groups : array_like of shape (n,), optional
            Of a chain: as for ``fit``.

        Returns
        -------
        ndarray of shape (n, k)
            Of "outputs" with two classes (n,), positive towards the second.
        """
        X = self._rows(X)
        return self.model_.decision_function(X, groups)

    def predict(self, X: Any, groups: Any = None) -> NDArray[Any]:
        """The label of each row.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            Rows.
        groups : array_like of shape (n,), optional
            Of a chain: as for ``fit``.

        Returns
        -------
        ndarray of shape (n,)
            Labels.
        """
        X = self._rows(X)
        return self.model_.predict(X, groups)

    def score(self, X: Any, y: Any, groups: Any = None) -> float:
        """The share of the rows whose label is predicted.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            Rows.
        y : array_like of shape (n,)
            Their labels.
        groups : array_like of shape (n,), optional
            Of a chain: as for ``fit``.

        Returns
        -------
        float
            Accuracy.
        """
        return float(np.mean(self.predict(X, groups) == np.asarray(y)))

    def _rows(self, X: Any) -> Any:
        check_is_fitted(self)
        refuse_rounded(X, "X")
        return validate_data(self, X, accept_sparse="csr", dtype=DTYPES, reset=False)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
