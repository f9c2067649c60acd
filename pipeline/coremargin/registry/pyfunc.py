"""Files with which MLflow loads a version without coremargin, and an ONNX graph."""

from __future__ import annotations

import json
import platform
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from coremargin.data.folder import write_arrays
from coremargin.errors import CoremarginError, UsageError
from coremargin.maths.rows import dense
from coremargin.models.decision import KernelScorer

if TYPE_CHECKING:
    from coremargin.models.decision import Scorer
    from coremargin.models.fleet import AnyModel

ARRAYS, ONNX, LOADER = "planes.npz", "model.onnx", "coremargin_version"
_MOST_NUMBERS = 1 << 28  # of the dense support vectors of a kernel


def write_pyfunc(folder: Path, model: AnyModel, digest: str, created: str) -> None:
    """Write ``MLmodel``, its loader and arrays, and ``model.onnx`` if the package onnx is installed.

    Does nothing for kernels whose sparse support vectors are too wide to be dense, and for models without hyperplanes.
    """
    arrays = _predictor_arrays(model)
    if arrays is None:
        return
    write_arrays(folder / ARRAYS, arrays)
    (folder / "code").mkdir(exist_ok=True)
    source = resources.files("coremargin.registry").joinpath("pyfunc_loader.py").read_bytes()
    (folder / "code" / f"{LOADER}.py").write_bytes(source)
    (folder / "requirements.txt").write_text("numpy\n", encoding="utf-8")
    flavour = {
        "code": "code",
        "data": ARRAYS,
        "loader_module": LOADER,
        "python_version": platform.python_version(),
    }
    record = {
        "artifact_path": "model",
        "flavors": {"python_function": flavour},
        "mlflow_version": "2.9.0",
        "model_uuid": digest.removeprefix("sha256:")[:32],
        "utc_time_created": created.removesuffix("Z").replace("T", " "),
    }
    (folder / "MLmodel").write_text(yaml.safe_dump(record, sort_keys=False), encoding="utf-8")
    _write_onnx(folder, model)


def _predictor_arrays(model: AnyModel) -> dict[str, Any] | None:
    """Arrays as pyfunc_loader.py expects them; None if they would be too large, or it cannot use them."""
    scorer, arrays = model.scorer(), dict[str, Any]()
    about: dict[str, Any] = {
        "classes": list(model.labels),
        "width": model.features,
        "dtype": str(model.record["dtype"]),
        "kernel": None,
        "features": None if model.feature_names is None else list(model.feature_names),
        **_add_scaling(scorer, arrays),
    }
    if isinstance(scorer, KernelScorer):
        functions, kernel = scorer.functions, scorer.functions.kernel
        if functions.rows.shape[0] * functions.rows.shape[1] > _MOST_NUMBERS:
            return None
        about |= {
            "kernel": kernel.name,
            "gamma": kernel.gamma,
            "degree": kernel.degree,
            "coef0": kernel.coef0,
        }
        arrays |= {
            "rows": np.asarray(dense(functions.rows)),
            "weights": functions.weights,
            "offsets": functions.offsets,
        }
        if kernel.centre is not None:
            arrays["centre"] = kernel.centre
    else:
        try:
            arrays["weights"], arrays["offsets"] = scorer.planes()
        except UsageError:
            return None
    text = json.dumps(about, ensure_ascii=True).encode("ascii")
    return {**arrays, "about": np.frombuffer(text, np.uint8)}


def _add_scaling(scorer: Scorer, arrays: dict[str, Any]) -> dict[str, Any]:
    scaling = scorer.scaling
    if scaling is None:
        return {"scaling": None}
    if scaling.shift is not None and scaling.factor is not None:
        arrays |= {"shift": scaling.shift, "factor": scaling.factor}
    if scaling.metric is not None:
        arrays["shift"], arrays["matrix"] = scaling.metric.affine()
    return {"scaling": str(scaling.kind)}


def _write_onnx(folder: Path, model: AnyModel) -> None:
    try:
        graph = model.to_onnx().SerializeToString()
    except (ImportError, CoremarginError):  # without onnx, or for models that it cannot express
        return
    (folder / ONNX).write_bytes(graph)
