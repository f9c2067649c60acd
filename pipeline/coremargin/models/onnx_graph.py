"""A model's decision values as an ONNX graph: rows are scaled and mapped, or compared by a kernel, then decided.

What leaves are the decision values of rows and the labels they mean; of the certificate a few words are in the graph's
metadata.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from coremargin.errors import UsageError
from coremargin.interruption import deferred_interrupts
from coremargin.maths.feature_map import Fourier, Nystroem, Polynomial
from coremargin.maths.kernel.functions import Kernel
from coremargin.maths.rows import dense
from coremargin.models.sklearn_objects import Functions
from coremargin.version import version

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from coremargin.maths.mapping import FeatureMap
    from coremargin.maths.scaling import Scaling
    from coremargin.models.sklearn_objects import Linear

Precision = Literal["float64", "float32"]

MAKER = "coremargin"  #: who made a file, for its metadata
VALUES = "values"  #: what graphs call decision values (n, k) before they decide
#: Operation, inputs, outputs; of ``Gather`` along the columns of its input.
Step: TypeAlias = tuple[str, list[str], list[str]]
#: Steps, the arrays that they name, and the shape (d, k) of the graph.
_Steps: TypeAlias = tuple[list[Step], dict[str, "NDArray[Any]"], tuple[int, int]]
_OPSET, _IR = 13, 8  # of 2020 and 2021: every runtime since then reads them


def as_onnx(of: Linear | Functions, precision: Precision = "float64") -> Any:
    """An ``onnx.ModelProto``: input "X" (n, d); outputs "label" (n,) and "decision", (n,) for two classes else (n, k).

    precision: of input, coefficients and decision values. "float64" agrees with ``decision_function`` to rounding, both
    of rows in float64;
    "float32" rounds rows and coefficients to 24 bits, which may change labels of rows that near to the plane.
    Rows are scaled, and mapped, in the graph, in ``precision``, by the operations of ``decision_function``.
    Labels are int64, text, float64 or bool. The metadata have ``about``, and the names in ``feature_names``, as JSON.
    Raises UsageError when onnx is not installed, or for labels that would not come back as they are, and for maps that
    graphs have no operations for.
    """
    rows, nodes = scaling_nodes(of.scaling, precision)
    steps, arrays, shape = _kernel_steps(of, rows) if isinstance(of, Functions) else _linear_steps(of, rows)
    made, constants = with_constants(steps, arrays, precision)
    constants += scaling_constants(of.scaling, precision)
    return finished([*nodes, *made], constants, shape, of.classes, precision, of.about, of.names)


def _linear_steps(linear: Linear, rows: str) -> _Steps:
    """From scaled rows to VALUES, and what the steps name, and (d, k)."""
    steps, arrays = ([], {}) if linear.map is None else map_graph(linear.map, rows)
    arrays |= {"coef": linear.coef.T, "intercept": linear.intercept}
    steps += [("Gemm", [rows if linear.map is None else "mapped", "coef", "intercept"], [VALUES])]
    return steps, arrays, (linear.features, len(linear.intercept))


def _kernel_steps(of: Functions, rows: str) -> _Steps:
    """The same of functions of a kernel."""
    functions = of.expansion
    steps, arrays = kernel_graph(functions.kernel, dense(functions.rows), rows)
    steps += [("MatMul", ["kernel", "weights"], ["sums"]), ("Add", ["sums", "offsets"], [VALUES])]
    arrays |= {"weights": functions.weights, "offsets": functions.offsets}
    return steps, arrays, (functions.rows.shape[1], len(functions.offsets))


def map_graph(made: FeatureMap, rows: str) -> tuple[list[Step], dict[str, NDArray[Any]]]:
    """Steps of a graph from ``rows`` (n, d) to "mapped" (n, M), and the arrays that they name.

    Raises UsageError for a sketch, and for a kernel so narrow that the graph would lose its digits.
    """
    if isinstance(made, Nystroem):
        if made.cancels:
            raise UsageError("export to ONNX: gamma is so large that distances of rows lose their digits in a graph")
        steps, arrays = kernel_graph(Kernel("rbf", made.gamma), made.landmarks, rows)
        last: Step = ("MatMul", ["kernel", "normalization"], ["mapped"])
        return [*steps, last], arrays | {"normalization": made.normalization.T}
    if isinstance(made, Fourier):
        steps = [
            ("MatMul", [rows, "frequencies"], ["projected"]),
            ("Add", ["projected", "phases"], ["turned"]),
            ("Cos", ["turned"], ["waves"]),
            ("Mul", ["waves", "size"], ["mapped"]),
        ]
        size = np.array(np.sqrt(2.0 / made.width))
        return steps, {"frequencies": made.weights, "phases": made.offsets, "size": size}
    assert isinstance(made, Polynomial)  # noqa: S101 - for the type checker: there is no other map
    if made.index is not None:
        raise UsageError(
            "export to ONNX: graphs have no operation for a sketch; train with an exact polynomial (without "
            "components), nystroem or fourier, or export for scikit-learn"
        )
    return _products(made, rows)


def _products(made: Polynomial, rows: str) -> tuple[list[Step], dict[str, NDArray[Any]]]:
    """Of an exact polynomial: products of entries of (sqrt(gamma) x, sqrt(coef0))."""
    places, factors = made.monomials
    spread = np.sqrt(made.gamma) * np.eye(made.features, made.features + 1)
    last = np.append(np.zeros(made.features), np.sqrt(made.coef0))
    steps: list[Step] = [("MatMul", [rows, "spread"], ["across"]), ("Add", ["across", "constant"], ["u"])]
    arrays: dict[str, NDArray[Any]] = {"spread": spread, "constant": last, "factors": factors}
    for k, place in enumerate(places):
        arrays[f"entries_{k}"] = place.astype(np.int64)
        steps.append(("Gather", ["u", f"entries_{k}"], [f"factor_{k}"]))
    product = "factor_0"
    for k in range(1, len(places)):
        steps.append(("Mul", [product, f"factor_{k}"], [f"product_{k}"]))
        product = f"product_{k}"
    return [*steps, ("Mul", [product, "factors"], ["mapped"])], arrays


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
    nodes: Sequence[Any],
    constants: Sequence[Any],
    shape: tuple[int, int],
    classes: NDArray[Any],
    precision: Precision,
    about: Mapping[str, str],
    names: Sequence[str] | None,
) -> Any:
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
        [*nodes, *_deciding(two=k == 1)],
        MAKER,
        [helper.make_tensor_value_info("X", kind, ["rows", d])],
        outputs,
        initializer=[*constants, *(zero if k == 1 else []), labels],
    )
    made = helper.make_model(
        graph,
        producer_name=MAKER,
        producer_version=version(MAKER),
        ir_version=_IR,
        opset_imports=[helper.make_opsetid("", _OPSET)],
    )
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


def scaling_nodes(scaling: Scaling | None, precision: Precision) -> tuple[str, list[Any]]:
    """What makes scaled rows of X, and by what name they go."""
    helper, _ = onnx_tools()
    columns, rows, nodes = _columns(scaling), "X", []
    if scaling is not None and scaling.kind == "rownorm":
        rows = "unit"
        nodes.append(helper.make_node("LpNormalization", ["X"], [rows], axis=1, p=2))
    if scaling is not None and scaling.metric is not None:  # in float64 whatever X is, as rows are scaled
        nodes += [
            helper.make_node("Cast", ["X"], ["metric_x"], to=kind_of("float64")),
            helper.make_node("Sub", ["metric_x", "metric_centre"], ["metric_off"]),
            helper.make_node("MatMul", ["metric_off", "metric_axes"], ["in_metric"]),
            helper.make_node("Cast", ["in_metric"], ["scaled"], to=kind_of(precision)),
        ]
        return "scaled", nodes
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
    if scaling is not None and scaling.metric is not None:
        shift, matrix = scaling.metric.affine()
        return [
            helper.make_tensor("metric_centre", kind_of("float64"), shift.shape, shift),
            helper.make_tensor("metric_axes", kind_of("float64"), matrix.shape, matrix.ravel()),
        ]
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


def tensor(name: str, values: NDArray[Any], precision: Precision) -> Any:
    """A constant of a graph: whole numbers as they are, others in a precision."""
    helper, tensors = onnx_tools()
    if values.dtype.kind == "i":
        return helper.make_tensor(name, tensors.INT64, values.shape, values.astype(np.int64).ravel())
    return helper.make_tensor(name, kind_of(precision), values.shape, values.astype(precision).ravel())


def with_constants(
    steps: Sequence[Step], arrays: Mapping[str, NDArray[Any]], precision: Precision
) -> tuple[list[Any], list[Any]]:
    """Nodes of steps (operation, inputs, outputs), and the tensors of those of the arrays that they name."""
    helper, _ = onnx_tools()
    named = {name for _, inputs, _ in steps for name in inputs}
    constants = [tensor(name, values, precision) for name, values in arrays.items() if name in named]
    made = [helper.make_node(*step, **({"axis": 1} if step[0] == "Gather" else {})) for step in steps]
    return made, constants


def kernel_graph(kernel: Kernel, own: NDArray[np.float64], rows: str) -> tuple[list[Step], dict[str, NDArray[Any]]]:
    """Steps from ``rows`` (n, d) to "kernel" (n, m), their kernel values with own rows (m, d), and the arrays of these.

    Rows of the rbf kernel are taken about the mean of the own ones.
    """
    centre = own.mean(axis=0) if kernel.name == "rbf" and len(own) else np.zeros(own.shape[1])
    own = own - centre
    arrays = {
        "own": own.T,
        "centre": centre,
        "squares": (own * own).sum(axis=1),
        "minus_gamma": np.array(-kernel.gamma),
        "gamma": np.array(kernel.gamma),
        "two": np.array(2.0),
        "nothing": np.array(0.0),
        "coef0": np.array(kernel.coef0),
        "degree": np.array(float(kernel.degree)),
        "across": np.array([1]),
    }
    return _kernel_nodes(kernel.name, rows), arrays


def _kernel_nodes(name: str, rows: str) -> list[Step]:
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
