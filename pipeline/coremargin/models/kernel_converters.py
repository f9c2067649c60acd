"""Functions of a kernel in the formats of others: a fitted SVC of scikit-learn, an ONNX graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.maths.rows import dense, is_sparse
from coremargin.models.converters import (
    VALUES,
    Precision,
    finished,
    kind_of,
    onnx_tools,
    scaling_constants,
    scaling_nodes,
)

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
    return _scaled(of, machine)


def _plain(kernel: Kernel) -> Any:
    """An SVC with the kernel, not fitted."""
    from sklearn.svm import SVC

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
        "classes_": classes.copy(), "class_weight_": np.ones(2), "support_": np.arange(len(used), dtype=np.int32),
        "support_vectors_": _own(rows), "dual_coef_": -row, "intercept_": of.expansion.offsets[k : k + 1].copy(),
        "fit_status_": 0, "n_features_in_": rows.shape[1], "shape_fit_": rows.shape,
        "_n_support": np.array([np.count_nonzero(own < 0), np.count_nonzero(own > 0)], np.int32),
        "_dual_coef_": row, "_intercept_": -of.expansion.offsets[k : k + 1], "_sparse": sparse,
        "_gamma": float(of.expansion.kernel.gamma), "_probA": np.empty(0), "_probB": np.empty(0),
        "_effective_probability": False,
    }  # fmt: skip
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


def _scaled(of: Functions, machine: Any) -> Any:
    """The machine, behind what scales rows for it; what comes first knows the names."""
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import Normalizer, StandardScaler

    scaling, first = of.scaling, machine
    if scaling is not None and scaling.kind == "rownorm":
        first = Normalizer()
    elif scaling is not None and scaling.shift is not None and scaling.factor is not None:
        shifted = bool(scaling.shift.any())
        first = StandardScaler(with_mean=shifted)
        first.scale_ = 1.0 / scaling.factor.astype(np.float64)
        first.mean_, first.var_ = scaling.shift.astype(np.float64), first.scale_**2
        first.n_samples_seen_ = 1
    first.n_features_in_ = of.expansion.rows.shape[1]
    if of.names is not None:
        first.feature_names_in_ = np.array(of.names, dtype=object)
    return machine if first is machine else make_pipeline(first, machine)


def kernel_as_onnx(of: Functions, precision: Precision = "float64") -> Any:
    """An ``onnx.ModelProto`` as ``converters.as_onnx`` makes one, for functions of a kernel.

    Rows of the rbf kernel are taken about the mean of those that carry the function, in the graph too.
    """
    helper, _ = onnx_tools()
    functions, kind = of.expansion, kind_of(precision)
    kernel, own, (d, k) = functions.kernel, dense(functions.rows), (functions.rows.shape[1], len(functions.offsets))
    centre = own.mean(axis=0) if kernel.name == "rbf" and len(own) else np.zeros(d)
    own = own - centre
    arrays = {
        "own": own.T, "weights": functions.weights, "offsets": functions.offsets, "centre": centre,
        "squares": (own * own).sum(axis=1), "minus_gamma": np.array(-kernel.gamma), "gamma": np.array(kernel.gamma),
        "two": np.array(2.0), "nothing": np.array(0.0), "coef0": np.array(kernel.coef0),
        "degree": np.array(float(kernel.degree)), "across": np.array([1]),
    }  # fmt: skip
    rows, nodes = scaling_nodes(of.scaling)
    nodes += [helper.make_node(*node) for node in _kernel_nodes(kernel.name, rows)]
    nodes.append(helper.make_node("MatMul", ["kernel", "weights"], ["sums"]))
    nodes.append(helper.make_node("Add", ["sums", "offsets"], [VALUES]))
    used = {name for node in nodes for name in node.input}
    constants = [
        _tensor(name, values, kind, precision) for name, values in arrays.items() if name in used
    ]  # fmt: skip
    constants += scaling_constants(of.scaling, precision)
    return finished(nodes, constants, (d, k), of.classes, precision, of.about, of.names)


def _kernel_nodes(name: str, rows: str) -> list[tuple[str, list[str], list[str]]]:
    """(operation, inputs, outputs) from rows to "kernel" (n, m)."""
    if name == "linear":
        return [("MatMul", [rows, "own"], ["kernel"])]
    if name == "poly":
        return [
            ("MatMul", [rows, "own"], ["products"]),
            ("Mul", ["products", "gamma"], ["times"]),
            ("Add", ["times", "coef0"], ["base"]),
            ("Pow", ["base", "degree"], ["kernel"]),
        ]
    return [
        ("Sub", [rows, "centre"], ["centred"]),
        ("MatMul", ["centred", "own"], ["products"]),
        ("Mul", ["products", "two"], ["twice"]),
        ("Mul", ["centred", "centred"], ["each"]),
        ("ReduceSum", ["each", "across"], ["lengths"]),
        ("Add", ["lengths", "squares"], ["both"]),
        ("Sub", ["both", "twice"], ["apart"]),
        ("Max", ["apart", "nothing"], ["distances"]),
        ("Mul", ["distances", "minus_gamma"], ["exponents"]),
        ("Exp", ["exponents"], ["kernel"]),
    ]


def _tensor(name: str, values: NDArray[Any], kind: Any, precision: Precision) -> Any:
    helper, tensors = onnx_tools()
    if values.dtype.kind == "i":
        return helper.make_tensor(name, tensors.INT64, values.shape, values)
    return helper.make_tensor(name, kind, values.shape, values.astype(precision).ravel())
