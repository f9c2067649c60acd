"""Functions of a kernel in the formats of others: a fitted SVC of scikit-learn, an ONNX graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.maths.kernel.callables import CallableKernel
from coremargin.maths.rows import dense, is_sparse
from coremargin.models.onnx_graph import (
    VALUES,
    Precision,
    finished,
    kernel_graph,
    scaling_constants,
    scaling_nodes,
    with_constants,
)
from coremargin.models.sklearn_steps import in_pipeline

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from coremargin.maths.kernel.expansion import Expansion
    from coremargin.maths.kernel.functions import Kernel
    from coremargin.maths.scaling import Scaling


@dataclass(frozen=True)
class Functions:
    """Decision values of scaled rows z; classes, about, scaling, names: as in ``converters.Linear``."""

    expansion: Expansion
    classes: NDArray[Any]
    about: Mapping[str, str]
    scaling: Scaling | None
    names: Sequence[str] | None


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


def kernel_as_onnx(of: Functions, precision: Precision = "float64") -> Any:
    """An ``onnx.ModelProto`` as ``converters.as_onnx`` makes one, for functions of a kernel."""
    functions = of.expansion
    rows, nodes = scaling_nodes(of.scaling)
    steps, arrays = kernel_graph(functions.kernel, dense(functions.rows), rows)
    steps += [("MatMul", ["kernel", "weights"], ["sums"]), ("Add", ["sums", "offsets"], [VALUES])]
    arrays |= {"weights": functions.weights, "offsets": functions.offsets}
    made, constants = with_constants(steps, arrays, precision)
    shape = functions.rows.shape[1], len(functions.offsets)
    constants += scaling_constants(of.scaling, precision)
    return finished([*nodes, *made], constants, shape, of.classes, precision, of.about, of.names)
