"""The decision values of models of one class, balls and ellipsoids, as an ONNX graph."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.models.decision import label_array
from coremargin.models.onnx_graph import (
    VALUES,
    Precision,
    finished,
    map_graph,
    scaling_constants,
    scaling_nodes,
    with_constants,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from coremargin.models.single import SingleModel


def enclosure_onnx(
    model: SingleModel, centre: NDArray[Any], radius: float, precision: Precision, axes: NDArray[Any] | None = None
) -> Any:
    """The graph of a model of one class, with the inputs and outputs of ``onnx_graph.as_onnx``.

    The decision value is radius - ||axes (z - centre)|| of scaled and mapped rows z; the label is 1 inside, -1 outside.
    centre (d,); axes (d, d), None: I. Raises UsageError as ``as_onnx`` does.
    """
    rows, nodes = scaling_nodes(model.row_scaling, precision)
    made = model.row_map
    steps, arrays = ([], {}) if made is None else map_graph(made, rows)
    arrays |= {"middle": centre, "radius": np.array(radius), "along": np.array([1])}
    steps.append(("Sub", [rows if made is None else "mapped", "middle"], ["away"]))
    if axes is not None:
        arrays["turned"] = np.ascontiguousarray(axes.T)
        steps.append(("MatMul", ["away", "turned"], ["white"]))
    white = "away" if axes is None else "white"
    steps += [
        ("Mul", [white, white], ["squared"]),
        ("ReduceSum", ["squared", "along"], ["square"]),
        ("Sqrt", ["square"], ["distance"]),
        ("Sub", ["radius", "distance"], [VALUES]),
    ]
    nodes_of_steps, constants = with_constants(steps, arrays, precision)
    constants += scaling_constants(model.row_scaling, precision)
    about = {
        "problem": model.problem,
        "status": model.status,
        "certificate": json.dumps(model.record["certificate"], sort_keys=True),
    }
    shape, labels = (model.features, 1), label_array(model.labels)
    return finished([*nodes, *nodes_of_steps], constants, shape, labels, precision, about, model.feature_names)
