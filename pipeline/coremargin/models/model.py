"""A trained model: the hypothesis, its certificate and what a check needs.

On disk a model is a folder. ``model.json`` (the record: problem, classes, certificate) and ``arrays.npz`` (hypothesis,
dual weights, coreset, what else proves it) are the same bytes for the same job: no clock, no host. ``run.json``,
``rounds.jsonl`` and ``report.html`` describe this run. Loading runs no code; data/folder.py describes how a model
appears whole or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.formats.model_arrays import ROWS
from coremargin.formats.model_record import TwoClasses
from coremargin.maths.rows import Rows, from_arrays
from coremargin.maths.scaling import folded
from coremargin.models.decision import PlaneScorer
from coremargin.models.single import Single, frozen

if TYPE_CHECKING:
    from coremargin.formats.columns import ColumnsRecord
    from coremargin.formats.model_files import ModelFiles

#: Arrays that every model of two classes has, or may have.
_NAMES = ("w", "alpha", "coreset_ids", "coreset_y", "shift", "factor")


@dataclass(frozen=True, eq=False, repr=False)
class Model(Single):
    """A hypothesis with its certificate; arrays are read-only.

    The decision value of a row x is w.x + b, positive towards ``classes[1]``. All methods take rows as they are and
    scale them; ``coef`` and ``intercept`` are the hyperplane for rows as they are, up to rounding. ``Model.load`` reads
    one.

    Parameters
    ----------
    record : mapping
        The content of ``model.json``.
    w : ndarray of shape (d,)
        Float64. Hard margin: ||w|| = 1.
    b : float
        The offset.
    alpha : ndarray of shape (m,)
        Float64, dual weights of the coreset. Hard margin: each class's weights sum to 1 with an intercept, all sum to 1
        without. Soft margin: in [0, c], of the hinge's rows near the margin (none for squared hinge).
    coreset_ids : ndarray of shape (m,)
        Int64, the rows by number.
    coreset_x : ndarray or csr_array of shape (m, d)
        Hard margin: float64, exact copies of the store's rows, a csr_array where these are sparse. Soft margin: (m, 0).
    coreset_y : ndarray of shape (m,)
        Int8, their signs in {-1, +1}.
    extra : mapping of str to ndarray, optional
        Arrays of one problem, by name: "block_bounds_..." what scans proved about each chunk (hard margin),
        "reference" (d + 1,) the hypothesis of the dual point (soft margin), or (s, d + 1) several and "reference_of"
        (chunks,) which of them is that of a chunk, or "ramp" (1,) where it is corrected (squared hinge), "outliers_..."
        the excluded rows. Of a map, its arrays, as "map_..."; d is then that of mapped rows, and coreset_x has
        the rows before they are mapped.
    shift, factor : ndarray of shape (d,), optional
        Where rows are scaled (``scaling``), what by: w, b, coreset_x and the certificate are about scaled rows. Both
        None for "rownorm".
    columns : ColumnsRecord, optional
        What the features come from, where the rows had names.

    Raises
    ------
    DataError
        The record is incomplete or does not fit the arrays.

    Examples
    --------
    >>> model = coremargin.Model.load("rows.model")  # doctest: +SKIP
    >>> model.certificate.lower, model.predict(X)  # doctest: +SKIP
    """

    RECORD = TwoClasses
    WHAT = "two classes"

    record: Mapping[str, Any]
    w: np.ndarray
    b: float
    alpha: np.ndarray
    coreset_ids: np.ndarray
    coreset_x: Rows
    coreset_y: np.ndarray
    extra: Mapping[str, np.ndarray] = field(default_factory=dict)
    shift: np.ndarray | None = None
    factor: np.ndarray | None = None
    columns: ColumnsRecord | None = None

    def __post_init__(self) -> None:
        kinds = dict.fromkeys(("w", "alpha", "coreset_x", "shift", "factor"), np.float64)
        object.__setattr__(self, "b", float(self.b))
        object.__setattr__(self, "extra", {name: frozen(values) for name, values in sorted(self.extra.items())})
        self._settle({**kinds, "coreset_ids": np.int64, "coreset_y": np.int8})

    @property
    def classes(self) -> tuple[Any, Any]:
        """The labels: (negative, positive)."""
        negative, positive = self.record["classes"]
        return negative, positive

    @property
    def row_duals(self) -> np.ndarray:
        """The dual weight of each coreset row (m,)."""
        return self.alpha

    @cached_property
    def _folded(self) -> tuple[np.ndarray, float]:
        if self.shift is None or self.factor is None or self.row_map is not None:
            return self.w, self.b
        coef, intercept = folded(self.w, self.b, self.shift, self.factor)
        coef.flags.writeable = False
        return coef, intercept

    @property
    def coef(self) -> np.ndarray:
        """Weights (d,) for rows as they are; of "rownorm": divided by their lengths; of a map: for mapped rows."""
        return self._folded[0]

    @property
    def intercept(self) -> float:
        """The decision value of a row of zeros as it is; it goes with ``coef``."""
        return self._folded[1]

    def scorer(self) -> PlaneScorer:
        """One hyperplane, for scaled and mapped rows.

        Returns
        -------
        PlaneScorer
            What gives rows as they are their decision values.
        """
        return PlaneScorer((self.w,), (self.b,), self.row_scaling, self.row_map)

    def __repr__(self) -> str:
        negative, positive = self.classes
        return (
            f"Model({self.status}: {negative!r} | {positive!r}, {self.rows:,} rows x {self.features:,} features, "
            f"{self.bounds_text()}, {self.certificate.coreset_rows:,} coreset rows)"
        )

    def numbers(self) -> dict[str, np.ndarray]:
        """The content of ``arrays.npz`` but for the coreset's rows.

        Returns
        -------
        dict of str to ndarray
            The arrays by name.
        """
        arrays = {name: values for name in _NAMES if (values := getattr(self, name)) is not None}
        arrays |= {"b": np.array([self.b])}
        return arrays | dict(self.extra)

    @classmethod
    def of(cls, files: ModelFiles) -> Model:
        """The model in files that were read.

        Parameters
        ----------
        files : ModelFiles
            Record and arrays of a model's folder, checked.

        Returns
        -------
        Model
            The model.
        """
        arrays = {name: values for name, values in files.arrays.items() if not name.startswith(ROWS)}
        offset = float(arrays.pop("b")[0])
        extra = {name: arrays.pop(name) for name in list(arrays) if name not in _NAMES}
        rows = from_arrays(ROWS, files.arrays)
        return cls(record=files.content, b=offset, extra=extra, coreset_x=rows, columns=files.columns, **arrays)


MODEL_CLASS = Model
