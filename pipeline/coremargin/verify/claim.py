"""The claims of a model, for the scans of ``verify``: those of all models, and those of two classes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from msgspec import UNSET
from scipy.sparse import csr_array

from coremargin.formats.ellipsoid_scaling import PREFIX
from coremargin.formats.model_arrays import ROWS
from coremargin.verify.feature_map import RowMap

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.formats.model_files import ModelFiles
    from coremargin.formats.model_record import StoreHash, TwoClasses, View


@dataclass(frozen=True, kw_only=True)
class AnyClaim:
    """The claims of every model folder; ``certificate`` as in ``model.json``, arrays as in ``arrays.npz``."""

    path: str
    problem: str
    status: str
    features: int  #: of the rows that the claim is about, after the map
    stored_features: int  #: of the store's rows
    rows: int
    dtype: str
    epsilon: float  #: of the parameters
    intercept: bool  #: False for a hyperplane through the origin, and for models without one
    kind: str
    lower: float | None
    upper: float | None
    ratio: float | None
    proven_epsilon: float  #: of the certificate
    store_digest: str
    store_sha256: StoreHash | None  #: of the same content; None if the model identifies it by CRC-32C alone
    radius: float
    soft: bool  #: a soft margin: the bounds are about a value
    ids: np.ndarray  #: (m,) int64
    x: Any  #: (m, d), an array or, of a sparse store, a csr_array; (m, 0) for a soft margin
    given: Any  #: the same before the map
    y: np.ndarray  #: (m,) classes of the rows by the model, 0 for rows that do not count
    scaling: str  #: how rows are scaled, "" for rows as they are stored
    shift: np.ndarray  #: (d,), or (0,) if columns are not scaled
    factor: np.ndarray  #: (d,), or (0,)
    ellipsoid: Mapping[str, np.ndarray]  #: arrays of the ellipsoid that scales rows, by name; none for other scalings
    map: RowMap | None  #: the map of scaled rows
    moved: float  #: bound on the error of a mapped row, 0 without a map
    columns: str  #: names and meaning of the columns, "" if the model has none
    view: View  #: the rows and labels of the store that the claim is about

    def tightened(self, more: float) -> Self:
        """A stronger claim: that about a margin with its bounds moved inward."""
        lower, upper = self.lower, self.upper
        return replace(
            self, lower=None if lower is None else lower + more, upper=None if upper is None else upper - more
        )


@dataclass(frozen=True, kw_only=True)
class Claim(AnyClaim):
    """The claims of a model of two classes; y is -1 or +1."""

    negative: Any  #: label
    positive: Any
    w: np.ndarray  #: (d,)
    b: float
    alpha: np.ndarray  #: (m,)


def two_classes(files: ModelFiles, view: View, *, soft: bool) -> dict[str, Any]:
    """The fields of ``Claim``."""
    arrays = files.arrays
    negative, positive = cast("TwoClasses", files.record).classes
    return {
        **any_claim(files, view, soft=soft),
        "y": arrays["coreset_y"].astype(np.int64),
        "negative": negative,
        "positive": positive,
        "w": arrays["w"],
        "b": float(arrays["b"][0]),
        "alpha": arrays["alpha"],
    }


def any_claim(files: ModelFiles, view: View, *, soft: bool) -> dict[str, Any]:
    """The fields of ``AnyClaim`` except ``y``."""
    record, arrays = files.record, files.arrays
    certificate, given, made = record.certificate, _coreset_rows(files), RowMap.of(record, arrays)
    return {
        "path": files.path,
        **{name: getattr(record, name) for name in ("problem", "status", "rows", "dtype", "scaling")},
        "features": record.width,
        "stored_features": record.features,
        "epsilon": record.parameters.epsilon,
        "intercept": getattr(record.parameters, "intercept", False),
        **{name: getattr(certificate, name) for name in ("kind", "lower", "upper", "ratio", "store_digest", "radius")},
        "store_sha256": None if certificate.store_sha256 is UNSET else certificate.store_sha256,
        "proven_epsilon": certificate.epsilon,
        "soft": soft,
        "ids": arrays["coreset_ids"],
        "x": given if made is None or not given.shape[1] else made.rows(given),
        "given": given,
        "map": made,
        "moved": 0.0 if made is None else made.moved(certificate.radius),
        "shift": arrays.get("shift", np.zeros(0)),
        "factor": arrays.get("factor", np.zeros(0)),
        "ellipsoid": {name.removeprefix(PREFIX): values for name, values in arrays.items() if name.startswith(PREFIX)},
        "columns": "" if files.columns is None else files.columns.claim,
        "view": view,
    }


def _coreset_rows(files: ModelFiles) -> Any:
    """The coreset's rows (m, d) float64: an array, or a csr_array made of its parts."""
    arrays = files.arrays
    if ROWS in arrays:
        return arrays[ROWS]
    data, indices, indptr = (arrays[f"{ROWS}_{part}"] for part in ("data", "indices", "indptr"))
    return csr_array((data, indices, indptr), shape=(files.record.certificate.coreset_rows, files.record.features))
