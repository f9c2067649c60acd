"""A model's hypothesis in the formats of others: a plain fitted scikit-learn object, an ONNX graph.

What leaves is the hypothesis alone, w.x + b of each row and the label it means; the certificate stays behind, but for
a few words in the graph's metadata. Nothing of coremargin is needed where the result is used.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from coremargin.engine.interruption import deferred_interrupts
from coremargin.errors import UsageError
from coremargin.models.decision import folded_planes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from coremargin.maths.scaling import Scaling

Precision = Literal["float64", "float32"]

MAKER = "coremargin"  #: who made a file, for its metadata
VALUES = "values"  #: what graphs call decision values (n, k) before they decide
_OPSET, _IR = 13, 8  # of 2020 and 2021: every runtime since then reads them


@dataclass(frozen=True)
class Linear:
    """Decision values coef (k, d) z + intercept (k,): one a class, or k = 1 for two, where positive is the second.

    scaling: what makes z of a row x, None: z = x. classes (max(k, 2),): their labels. about: a few words on where it
    comes from, for the metadata. names (d,): of the features, where they have some.
    """

    coef: NDArray[np.float64]
    intercept: NDArray[np.float64]
    classes: NDArray[Any]
    about: Mapping[str, str]
    scaling: Scaling | None = None
    names: Sequence[str] | None = None

    @property
    def unit(self) -> bool:
        """Rows are divided by their lengths first."""
        return self.scaling is not None and self.scaling.kind == "rownorm"

    def folded(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """coef and intercept for rows as they are (or of length 1): see ``folded_planes``."""
        return folded_planes(self.coef, self.intercept, self.scaling)


def as_sklearn(linear: Linear) -> Any:
    """A fitted ``sklearn.svm.LinearSVC`` with the same decision values and labels, and names of features, if any.

    It predicts, calibrates, sits in pipelines and is saved like any other; ``fit`` would train it anew, as LinearSVC
    does. A scaling of columns is folded into the coefficients: the same up to rounding, which is large where shifts are
    large beside the ranges of their columns. Rows that are divided by their lengths need a pipeline: a ``Normalizer``
    comes before it, and is what knows the names. Raises DataError for coefficients that overflow.
    """
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import Normalizer
    from sklearn.svm import LinearSVC

    machine = LinearSVC()
    machine.coef_, machine.intercept_ = (values.copy() for values in linear.folded())
    machine.classes_, machine.n_features_in_, machine.n_iter_ = linear.classes.copy(), linear.coef.shape[1], 0
    first = Normalizer() if linear.unit else machine  # what follows in a pipeline gets arrays, which have no names
    first.n_features_in_ = linear.coef.shape[1]
    if linear.names is not None:
        first.feature_names_in_ = np.array(linear.names, dtype=object)
    return make_pipeline(first, machine) if linear.unit else machine


def as_onnx(linear: Linear, precision: Precision = "float64") -> Any:
    """An ``onnx.ModelProto``: input "X" (n, d); outputs "label" (n,) and "decision", (n,) for two classes else (n, k).

    precision: of input, coefficients and decision values. "float64" agrees with ``decision_function`` to rounding, both
    of rows in float64;
    "float32" rounds rows and coefficients to 24 bits, which may turn labels of rows that lie so near to the plane.
    Rows are scaled in the graph, in ``precision``, by the operations of ``decision_function``.
    Labels are int64, text, float64 or bool. The metadata have ``about``, and the names in ``feature_names``, as JSON.
    Raises UsageError when onnx is not installed, or for labels that would not come back as they are.
    """
    helper, _ = onnx_tools()
    kind = kind_of(precision)
    k, d = linear.coef.shape
    constants = [
        helper.make_tensor("coef", kind, (d, k), linear.coef.T.astype(precision).ravel()),
        helper.make_tensor("intercept", kind, (k,), linear.intercept.astype(precision)),
        *scaling_constants(linear.scaling, precision),
    ]
    rows, nodes = scaling_nodes(linear.scaling)
    nodes.append(helper.make_node("Gemm", [rows, "coef", "intercept"], [VALUES]))
    return finished(nodes, constants, (d, k), linear.classes, precision, linear.about, linear.names)


def onnx_tools() -> tuple[Any, Any]:
    """The modules ``helper`` and ``TensorProto`` of onnx. Raises UsageError where it is not installed."""
    try:
        with deferred_interrupts():
            from onnx import TensorProto, helper
    except ImportError:
        raise UsageError("export to ONNX: expected the package onnx: pip install 'coremargin[onnx]'") from None
    return helper, TensorProto


def kind_of(precision: Precision) -> Any:
    """The tensors of a precision. Raises UsageError for another one."""
    kinds = {"float64": onnx_tools()[1].DOUBLE, "float32": onnx_tools()[1].FLOAT}
    if precision not in kinds:
        raise UsageError(f"precision: expected one of {', '.join(kinds)}, got {precision!r}")
    return kinds[precision]


def finished(
    nodes: Sequence[Any], constants: Sequence[Any], shape: tuple[int, int], classes: NDArray[Any],
    precision: Precision, about: Mapping[str, str], names: Sequence[str] | None,
) -> Any:  # fmt: skip
    """The graph whose ``nodes`` make VALUES (n, k) of rows X (n, d), with decision and label; shape: (d, k)."""
    from onnx import checker

    helper, tensors = onnx_tools()
    kind, (d, k), labels = kind_of(precision), shape, _label_tensor(classes)
    zero = [
        helper.make_tensor("zero", kind, (), np.zeros(1, precision)),
        helper.make_tensor("last", tensors.INT64, (1,), np.ones(1, np.int64)),
    ]
    outputs = [
        helper.make_tensor_value_info("label", labels.data_type, ["rows"]),
        helper.make_tensor_value_info("decision", kind, ["rows"] if k == 1 else ["rows", k]),
    ]
    graph = helper.make_graph(
        [*nodes, *_deciding(two=k == 1)], MAKER, [helper.make_tensor_value_info("X", kind, ["rows", d])], outputs,
        initializer=[*constants, *(zero if k == 1 else []), labels],
    )  # fmt: skip
    made = helper.make_model(
        graph, producer_name=MAKER, producer_version=version(MAKER), ir_version=_IR,
        opset_imports=[helper.make_opsetid("", _OPSET)],
    )  # fmt: skip
    named = {} if names is None else {"feature_names": json.dumps(list(names))}
    helper.set_model_props(made, {**about, **named})
    checker.check_model(made)
    return made


def _deciding(*, two: bool) -> list[Any]:
    """From VALUES to label and decision."""
    helper, tensors = onnx_tools()
    if two:
        nodes = [
            helper.make_node("Squeeze", [VALUES, "last"], ["decision"]),
            helper.make_node("Greater", ["decision", "zero"], ["above"]),
            helper.make_node("Cast", ["above"], ["code"], to=tensors.INT64),
        ]
    else:
        nodes = [
            helper.make_node("Identity", [VALUES], ["decision"]),
            helper.make_node("ArgMax", ["decision"], ["code"], axis=1, keepdims=0),
        ]
    return [*nodes, helper.make_node("Gather", ["labels", "code"], ["label"], axis=0)]


def scaling_nodes(scaling: Scaling | None) -> tuple[str, list[Any]]:
    """What makes scaled rows of X, and by what name they go."""
    helper, _ = onnx_tools()
    columns, rows, nodes = _columns(scaling), "X", []
    if scaling is not None and scaling.kind == "rownorm":
        rows = "unit"
        nodes.append(helper.make_node("LpNormalization", ["X"], [rows], axis=1, p=2))
    if "shift" in columns:
        nodes.append(helper.make_node("Sub", [rows, "shift"], ["shifted"]))
        rows = "shifted"
    if "factor" in columns:
        nodes.append(helper.make_node("Mul", [rows, "factor"], ["scaled"]))
        rows = "scaled"
    return rows, nodes


def scaling_constants(scaling: Scaling | None, precision: Precision) -> list[Any]:
    """The tensors that ``scaling_nodes`` name."""
    helper, _ = onnx_tools()
    kind, columns = kind_of(precision), _columns(scaling)
    return [
        helper.make_tensor(name, kind, (len(values),), values.astype(precision)) for name, values in columns.items()
    ]


def _columns(scaling: Scaling | None) -> dict[str, NDArray[Any]]:
    """What a graph has to scale columns by: "shift", unless it is 0 throughout, and "factor"."""
    if scaling is None or scaling.shift is None or scaling.factor is None:
        return {}
    return ({"shift": scaling.shift} if scaling.shift.any() else {}) | {"factor": scaling.factor}


def _label_tensor(classes: NDArray[Any]) -> Any:
    """The labels; of kinds that differ as text. Raises UsageError for those that would become others in the graph."""
    from onnx import TensorProto, helper

    kinds = {"i": TensorProto.INT64, "u": TensorProto.INT64, "b": TensorProto.BOOL, "f": TensorProto.DOUBLE}
    kind, values = kinds.get(classes.dtype.kind, TensorProto.STRING), classes.tolist()
    large = [label for label in values if isinstance(label, int) and label > np.iinfo(np.int64).max]
    if large:
        raise UsageError(f"export to ONNX: expected labels up to 2^63 - 1, found {large[0]}; train with other labels")
    if kind == TensorProto.STRING:
        texts = [str(label) for label in values]
        ends = [text for text in texts if "\0" in text]
        if ends:  # runtimes take it for the end of the text
            raise UsageError(
                f"export to ONNX: expected labels without zero characters, found {ends[0]!r}; train with other labels"
            )
        if len(set(texts)) < len(texts):
            twice = next(text for text in texts if texts.count(text) > 1)
            raise UsageError(
                f"export to ONNX: expected labels that differ as texts, found {twice!r} twice; train with other labels"
            )
        values = [text.encode() for text in texts]
    return helper.make_tensor("labels", kind, (len(values),), values)
