"""A model's decision values as plain fitted objects of scikit-learn, which need nothing of coremargin.

What leaves are the decision values of rows and the labels they mean; the certificate stays behind. onnx_graph.py makes
graphs of the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.maths.feature_map import Fourier, Nystroem, Polynomial
from coremargin.maths.kernel.callables import CallableKernel
from coremargin.maths.rows import is_sparse
from coremargin.models.decision import folded_planes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from coremargin.maths.kernel.expansion import Expansion
    from coremargin.maths.kernel.functions import Kernel
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


@dataclass(frozen=True)
class Functions:
    """Decision values of scaled rows z; classes, about, scaling, names: as in ``Linear``."""

    expansion: Expansion
    classes: NDArray[Any]
    about: Mapping[str, str]
    scaling: Scaling | None
    names: Sequence[str] | None


def as_sklearn(of: Linear | Functions) -> Any:
    """A fitted object of scikit-learn with the same decision values and labels, and names of features, if any."""
    return as_svc(of) if isinstance(of, Functions) else as_linear_svc(of)


def as_linear_svc(linear: Linear) -> Any:
    """A fitted ``sklearn.svm.LinearSVC``.

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


def as_svc(of: Functions) -> Any:
    """A fitted ``sklearn.svm.SVC`` with the same decision values; of more than two classes one for each, against the
    rest, in a OneVsRestClassifier; of scaled rows in a pipeline.
    """
    from sklearn.multiclass import OneVsRestClassifier
    from sklearn.preprocessing import LabelBinarizer

    classes = of.classes
    if len(classes) == 2:
        machine: Any = _svc(of, 0, classes)
    else:
        machine = OneVsRestClassifier(_plain(of.expansion.kernel))
        machine.estimators_ = [_svc(of, k, np.array([0, 1])) for k in range(len(classes))]
        machine.label_binarizer_ = LabelBinarizer(sparse_output=True).fit(classes)
        machine.classes_, machine.n_features_in_ = machine.label_binarizer_.classes_, of.expansion.rows.shape[1]
    return in_pipeline(of.scaling, of.expansion.rows.shape[1], of.names, machine)


def _plain(kernel: Kernel) -> Any:
    """An SVC with the kernel, not fitted."""
    from sklearn.svm import SVC

    if isinstance(kernel, CallableKernel):
        return SVC(kernel=kernel.function)
    return SVC(kernel=kernel.name, gamma=kernel.gamma, degree=kernel.degree, coef0=kernel.coef0)


def _svc(of: Functions, k: int, classes: NDArray[Any]) -> Any:
    """Column k: what LIBSVM has of a machine, rows of the first class in front."""
    weights = of.expansion.weights[:, k]
    used = np.flatnonzero(weights)
    used = used[np.argsort(weights[used] > 0, kind="stable")]
    rows: Any = of.expansion.rows[used]
    machine, sparse, own = _plain(of.expansion.kernel), is_sparse(of.expansion.rows), weights[used]
    row = _own_row(-own, sparse=sparse)  # LIBSVM's sides are the other way round
    fitted = {
        "classes_": classes.copy(),
        "class_weight_": np.ones(2),
        "support_": np.arange(len(used), dtype=np.int32),
        "support_vectors_": _own(rows),
        "dual_coef_": -row,
        "intercept_": of.expansion.offsets[k : k + 1].copy(),
        "fit_status_": 0,
        "n_features_in_": rows.shape[1],
        "shape_fit_": rows.shape,
        "_n_support": np.array([np.count_nonzero(own < 0), np.count_nonzero(own > 0)], np.int32),
        "_dual_coef_": row,
        "_intercept_": -of.expansion.offsets[k : k + 1],
        "_sparse": sparse,
        "_gamma": float(of.expansion.kernel.gamma),
        "_probA": np.empty(0),
        "_probB": np.empty(0),
        "_effective_probability": False,
    }
    if isinstance(of.expansion.kernel, CallableKernel):  # for LIBSVM its values are computed before
        fitted |= {"support_vectors_": np.empty((0, 0)), "_BaseLibSVM__Xfit": fitted["support_vectors_"]}
    vars(machine).update(fitted)
    return machine


def as_one_class_svm(
    centre: Expansion,
    threshold: float,
    unit: float,
    nu: float,
    scaling: Scaling | None,
    names: Sequence[str] | None,
) -> Any:
    """A fitted ``sklearn.svm.OneClassSVM``, of scaled rows in a pipeline: the function ``centre`` less ``threshold``,
    times ``unit``.
    """
    from sklearn.svm import OneClassSVM

    kernel, rows, sparse = centre.kernel, centre.rows, is_sparse(centre.rows)
    machine = OneClassSVM(kernel=kernel.name, gamma=kernel.gamma, nu=nu)
    row = _own_row(unit * centre.weights[:, 0], sparse=sparse)
    intercept = np.array([-unit * threshold])
    fitted = {
        "class_weight_": np.empty(0),
        "support_": np.arange(rows.shape[0], dtype=np.int32),
        "support_vectors_": _own(rows),
        "dual_coef_": row,
        "intercept_": intercept,
        "offset_": -intercept,
        "fit_status_": 0,
        "n_iter_": 0,
        "n_features_in_": rows.shape[1],
        "shape_fit_": rows.shape,
        "_n_support": np.array([rows.shape[0], rows.shape[0]], np.int32),
        "_dual_coef_": row,
        "_intercept_": intercept,
        "_sparse": sparse,
        "_gamma": float(kernel.gamma),
        "_probA": np.empty(0),
        "_probB": np.empty(0),
        "_effective_probability": False,
    }
    vars(machine).update(fitted)
    return in_pipeline(scaling, rows.shape[1], names, machine)


def _own(rows: Any) -> Any:
    """Rows as scikit-learn holds them: of its own kind of sparse matrices, with short indices."""
    if not is_sparse(rows):
        return np.ascontiguousarray(rows, dtype=np.float64)
    from scipy.sparse import csr_matrix

    parts = rows.data.astype(np.float64), rows.indices.astype(np.int32), rows.indptr.astype(np.int32)
    return csr_matrix(parts, shape=rows.shape)


def _own_row(values: NDArray[np.float64], *, sparse: bool) -> Any:
    if not sparse:
        return values[None, :].copy()
    from scipy.sparse import csr_matrix

    return csr_matrix(values[None, :])


def in_pipeline(scaling: Scaling | None, features: int, names: Sequence[str] | None, *steps: Any) -> Any:
    """Fitted steps, behind what scales rows for them; one alone is no pipeline.

    What comes first knows how many features there are, and their names: the others get arrays, which have none.
    """
    from sklearn.pipeline import make_pipeline

    every = [*_scalers(scaling), *steps]
    every[0].n_features_in_ = features
    if names is not None:
        every[0].feature_names_in_ = np.array(names, dtype=object)
    return every[0] if len(every) == 1 else make_pipeline(*every)


def _scalers(scaling: Scaling | None) -> list[Any]:
    """Fitted steps that scale rows; none for rows as they are."""
    from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler

    if scaling is None:
        return []
    if scaling.kind == "rownorm":
        return [Normalizer()]
    if scaling.metric is not None:
        shift, matrix = scaling.metric.affine()
        centre = StandardScaler(with_std=False)
        centre.mean_, centre.var_, centre.scale_, centre.n_samples_seen_ = shift, None, None, 1
        return [centre, FunctionTransformer(np.dot, kw_args={"b": matrix})]
    if scaling.shift is None or scaling.factor is None:
        return []
    made = StandardScaler(with_mean=bool(scaling.shift.any()))
    made.scale_ = 1.0 / scaling.factor.astype(np.float64)
    made.mean_, made.var_ = scaling.shift.astype(np.float64), made.scale_**2
    made.n_samples_seen_ = 1
    return [made]


def map_step(made: FeatureMap) -> Any:
    """The map as a fitted transform of scikit-learn; of an exact polynomial its monomials (``weights_of_step``)."""
    from sklearn import kernel_approximation as sk
    from sklearn.preprocessing import PolynomialFeatures

    if isinstance(made, Nystroem):
        step: Any = sk.Nystroem(kernel="rbf", gamma=made.gamma, n_components=made.width)
        own: dict[str, Any] = {"components_": made.landmarks, "normalization_": made.normalization}
        own["component_indices_"] = np.arange(made.width)
    elif isinstance(made, Fourier):
        step = sk.RBFSampler(n_components=made.width)
        own = {"random_weights_": made.weights, "random_offset_": made.offsets}
    elif isinstance(made, Polynomial) and made.index is not None and made.sign is not None:
        asked = {"gamma": made.gamma, "degree": made.degree, "coef0": made.coef0}
        step = sk.PolynomialCountSketch(**asked, n_components=made.width)
        own = {"indexHash_": made.index, "bitHash_": made.sign.astype(np.float64)}
    else:
        degrees, bias = _degrees(made)
        return PolynomialFeatures(degrees, include_bias=bias).fit(np.zeros((1, made.features)))
    fitted = {name: values.copy() for name, values in own.items()}
    vars(step).update(fitted, n_features_in_=made.features, _n_features_out=made.width)
    return step


def weights_of_step(made: FeatureMap, coef: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights (k, M) of what ``map_step`` makes of rows, from those of mapped rows.

    They differ for exact polynomials: scikit-learn's monomials come in another order, and without their factors.
    """
    if not isinstance(made, Polynomial) or made.index is not None:
        return coef.copy()
    places, factors = made.monomials
    powers = np.zeros((made.width, made.features + 1), np.intp)
    for place in places:
        powers[np.arange(made.width), place] += 1
    own = powers[:, : made.features]
    factors = factors * made.gamma ** (own.sum(axis=1) / 2) * made.coef0 ** (powers[:, -1] / 2)
    at = {tuple(entry): k for k, entry in enumerate(own.tolist())}
    order = [at[tuple(entry)] for entry in map_step(made).powers_.tolist()]
    return np.asarray((coef * factors)[:, order])


def _degrees(made: FeatureMap) -> tuple[int | tuple[int, int], bool]:
    """Of the monomials of an exact polynomial, and whether 1 is one of them."""
    assert isinstance(made, Polynomial)  # noqa: S101 - for the type checker: there is no other map
    return (made.degree, True) if made.coef0 > 0 else ((made.degree, made.degree), False)
