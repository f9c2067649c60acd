"""What a model of two classes claims, as the scans of ``verify`` use it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import UNSET
from scipy.sparse import csr_array

from coremargin.formats.model_arrays import ROWS
from coremargin.formats.model_record import WHOLE, TwoClasses, View
from coremargin.formats.outliers import OUTLIERS

if TYPE_CHECKING:
    from coremargin.formats.model_files import ModelFiles


@dataclass(frozen=True, kw_only=True)
class AnyClaim:
    """What every model folder claims; ``certificate`` as in ``model.json``, arrays as in ``arrays.npz``."""

    path: Path
    problem: str
    status: str
    features: int
    rows: int
    dtype: str
    epsilon: float  #: of the parameters
    intercept: bool
    kind: str
    lower: float | None
    upper: float | None
    ratio: float | None
    proven_epsilon: float  #: of the certificate
    store_digest: str
    radius: float
    soft: bool  #: a soft margin: the bounds are about a value
    cost: float  #: C, 0 for a hard margin
    ids: np.ndarray  #: (m,) int64
    x: Any  #: (m, d), an array or, of a sparse store, a csr_array; (m, 0) for a soft margin
    y: np.ndarray  #: (m,) what the model says of the rows' classes, 0 being for rows that do not count
    scaling: str  #: how rows are scaled, "" for rows as they are stored
    shift: np.ndarray  #: (d,), or (0,) where columns are not scaled
    factor: np.ndarray  #: (d,), or (0,)
    view: View  #: which rows and labels of the store it is about


@dataclass(frozen=True, kw_only=True)
class Claim(AnyClaim):
    """Of two classes; y is -1 or +1. loss "", class_weight None and reference () are those of a hard margin."""

    negative: Any  #: label
    positive: Any
    w: np.ndarray  #: (d,)
    b: float
    alpha: np.ndarray  #: (m,)
    loss: str  #: "hinge" or "squared_hinge"
    class_weight: str | tuple[float, float] | None  #: "balanced", or factors of C of the negative and positive class
    outliers: dict[str, np.ndarray]  #: of problem "outliers", the arrays about them by name
    asked: Any  #: of problem "outliers": how many rows may be left out, as it was asked for
    reference: np.ndarray  #: (d + 1,) the hypothesis that the dual point belongs to


def claim_of(files: ModelFiles) -> Claim:
    """The claim in the files of a model of two classes."""
    record, arrays = files.record, files.arrays
    if not isinstance(record, TwoClasses):
        raise TypeError(f"expected a model of two classes, got {record.problem}")
    parameters: Any = record.parameters
    soft = record.certificate.kind == "duality_gap"
    negative, positive = record.classes
    return Claim(
        **any_claim(files),
        y=arrays["coreset_y"].astype(np.int64),
        view=getattr(record, "view", WHOLE),
        negative=negative,
        positive=positive,
        w=arrays["w"],
        b=float(arrays["b"][0]),
        alpha=arrays["alpha"],
        loss=str(parameters.loss) if soft else "",
        class_weight=parameters.class_weight if soft else None,
        outliers={name.removeprefix(OUTLIERS): arrays[name] for name in arrays if name.startswith(OUTLIERS)},
        asked=getattr(parameters, "outliers", None),
        reference=arrays["ledger_reference"] if soft else np.zeros(0),
    )


def any_claim(files: ModelFiles) -> dict[str, Any]:
    """The fields of ``AnyClaim`` but for ``y`` and ``view``."""
    record, arrays = files.record, files.arrays
    certificate, cost = record.certificate, getattr(record.parameters, "C", UNSET)
    return {
        "path": files.path,
        **{name: getattr(record, name) for name in ("problem", "status", "features", "rows", "dtype")},
        "soft": certificate.kind == "duality_gap",
        **{name: getattr(record.parameters, name) for name in ("epsilon", "intercept")},
        **{name: getattr(certificate, name) for name in ("kind", "lower", "upper", "ratio", "store_digest", "radius")},
        "proven_epsilon": certificate.epsilon,
        "cost": 0.0 if cost is UNSET else float(cost),
        "ids": arrays["coreset_ids"],
        "x": _coreset_rows(files),
        "scaling": record.scaling,
        "shift": arrays.get("shift", np.zeros(0)),
        "factor": arrays.get("factor", np.zeros(0)),
    }


def _coreset_rows(files: ModelFiles) -> Any:
    """The coreset's rows (m, d) float64: an array, or a csr_array made of its parts."""
    arrays = files.arrays
    if ROWS in arrays:
        return arrays[ROWS]
    data, indices, indptr = (arrays[f"{ROWS}_{part}"] for part in ("data", "indices", "indptr"))
    return csr_array((data, indices, indptr), shape=(files.record.certificate.coreset_rows, files.record.features))
