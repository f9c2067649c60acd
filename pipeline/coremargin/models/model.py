"""A model of hyperplanes: of two classes one, of more one for each class.

On disk a model is a folder. ``model.json`` (the record: problem, classes, certificate) and ``arrays.npz`` (hyperplanes,
dual weights, coreset, what else proves them) are the same bytes for the same job: no clock, no host. ``run.json``,
``rounds.jsonl`` and ``report.html`` describe this run. Loading runs no code; data/folder.py describes how a model
appears whole or not at all.

The record names the problem, and with it the arrays. For k hyperplanes and a coreset of m rows:

    w (d,), b (1,)      one hyperplane of two classes; of a hard margin ||w|| = 1
    alpha (m,)          dual weights of the coreset. Hard margin: each class's weights sum to 1 with an intercept, all
                        sum to 1 without. Soft margin: in [0, c], of the hinge's rows near the margin (none for squared
                        hinge)
    coreset_y (m,)      int8, signs of these rows in {-1, +1}

    hypothesis (k, d + 1)   a hyperplane for each class; the last column times ``constant`` are the intercepts. Of
                            Crammer and Singer's hard margin ||hypothesis||_F = 1
    duals (m, k)            dual weights of the coreset: a column for each hyperplane
    coreset_classes (m,)    int32, classes of these rows

    coreset_ids (m,)    int64, these rows by number
    coreset_x (m, d)    exact copies of them, before they are mapped; (m, 0) where no proof needs them
    shift, factor (d,)  where columns are scaled, what by: all other numbers are about scaled rows
    scaling_...         of scaling by an ellipsoid, the ellipsoid (formats/ellipsoid_scaling.py)
    map_...             of a map, what it is made of; d is then that of mapped rows, but for coreset_x

and of some problems "block_bounds_..." (what scans proved about each chunk), "reference" (the hypothesis of the dual
point, with "reference_of", which of several is that of a chunk, or "ramp", where it is corrected), "outliers_..." (the
excluded rows), "tried_..." (the proof that there is no hard margin), "answered_...", "draws_..." and "unsure_ids" (rows
with answers, those that were drawn among them, and those that no annotator could label).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from coremargin.maths.scaling import folded
from coremargin.models.decision import PlaneScorer
from coremargin.models.single import SingleModel


@dataclass(frozen=True, eq=False, repr=False)
class Model(SingleModel):
    """Hyperplanes with their certificate; arrays are read-only.

    Of two classes the decision value of a row x is w.x + b, positive towards ``classes[1]``; of more each class has a
    score, and the largest decides. All methods take rows as they are and scale them; ``coef`` and ``intercept`` are the
    hyperplanes for rows as they are, up to rounding. ``Model.load`` reads one.

    Parameters
    ----------
    record : mapping
        The content of ``model.json``.
    numbers : mapping of str to ndarray
        The content of ``arrays.npz`` but for the coreset's rows, by the names in ``coremargin.models.model``.
    coreset_x : ndarray or csr_array of shape (m, d)
        Exact copies of the coreset's rows, a csr_array where the store's are sparse; (m, 0) where no proof needs them.
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

    WHAT = "hyperplanes"

    @property
    def w(self) -> np.ndarray:
        """Weights (d,) of the hyperplane between two classes, for scaled and mapped rows."""
        return self.array("w")

    @property
    def b(self) -> float:
        """The offset of the hyperplane between two classes."""
        return float(self.array("b")[0])

    @property
    def alpha(self) -> np.ndarray:
        """Dual weights (m,) of the coreset of two classes."""
        return self.array("alpha")

    @property
    def coreset_y(self) -> np.ndarray:
        """Signs (m,) of the coreset's rows, of two classes."""
        return self.array("coreset_y")

    @property
    def hypothesis(self) -> np.ndarray:
        """Weights and offsets (k, d + 1) of a hyperplane for each of several classes."""
        return self.array("hypothesis")

    @property
    def duals(self) -> np.ndarray:
        """Dual weights (m, k) of the coreset of several classes: a column for each hyperplane."""
        return self.array("duals")

    @property
    def coreset_classes(self) -> np.ndarray:
        """Classes (m,) of the coreset's rows, of several classes."""
        return self.array("coreset_classes")

    @cached_property
    def planes(self) -> tuple[np.ndarray, np.ndarray]:
        """Weights (k, d) and offsets (k,) for scaled and mapped rows."""
        if "w" in self.numbers:
            return self.w[None, :], self.numbers["b"]
        hypothesis = self.array("hypothesis")
        with np.errstate(over="ignore"):  # values that are not finite are refused by the scorer
            return hypothesis[:, :-1], float(self.record.get("constant", 1.0)) * hypothesis[:, -1]

    @cached_property
    def _folded(self) -> tuple[np.ndarray, np.ndarray]:
        weights, offsets = self.planes
        scaling = self.row_scaling
        if scaling is None or scaling.kind == "rownorm" or self.row_map is not None:
            return weights, offsets
        pairs = [folded(w, float(b), scaling) for w, b in zip(weights, offsets, strict=True)]
        coef = np.stack([w for w, _ in pairs])
        coef.flags.writeable = False
        return coef, np.array([b for _, b in pairs])

    @property
    def coef(self) -> np.ndarray:
        """Weights (d,) or (k, d) for rows as they are; of "rownorm": divided by their lengths; of a map: mapped."""
        coef = self._folded[0]
        return coef if len(coef) > 1 else coef[0]

    @property
    def intercept(self) -> Any:
        """The decision value of a row of zeros as it is, or scores (k,); it goes with ``coef``."""
        offsets = self._folded[1]
        return offsets if len(offsets) > 1 else float(offsets[0])

    @property
    def row_duals(self) -> np.ndarray:
        """The dual weights of each coreset row (m,), of all hyperplanes together."""
        return self.alpha if "alpha" in self.numbers else np.asarray(self.array("duals").sum(axis=1))

    def scorer(self) -> PlaneScorer:
        """The hyperplanes, for scaled and mapped rows; of two for two classes the second's score less the first's.

        Returns
        -------
        PlaneScorer
            What gives rows as they are their decision values.
        """
        weights, offsets = self.planes
        two = len(weights) == len(self.classes) == 2
        return PlaneScorer(tuple(weights), tuple(map(float, offsets)), self.row_scaling, self.row_map, difference=two)

    @property
    def evidence(self) -> dict[str, Any] | None:
        """What draws have shown of a campaign's rows, of all or by class (``strata``); None before they have."""
        found = self.record.get("evidence")
        return None if found is None else dict(found)

    @property
    def answers(self) -> int:
        """How many rows have answers, draws included; 0 of a model of labelled rows."""
        return int(self.record.get("answers", 0))

    @property
    def unsure_ids(self) -> np.ndarray:
        """Numbers of the rows that no annotator could label, of which nothing is claimed."""
        return self.numbers.get("unsure_ids", np.zeros(0, np.int64))

    @property
    def log(self) -> str | None:
        """Hash of the last line of the campaign's log that it is about."""
        found = self.record.get("log")
        return None if found is None else str(found)

    def __repr__(self) -> str:
        several = len(self.classes) > 2
        classes = f"{len(self.classes)} classes" if several else " | ".join(map(repr, self.classes))
        return (
            f"Model({self.status}: {classes}, {self.rows:,} rows x {self.features:,} features, "
            f"{self.bounds_text()}, {self.certificate.coreset_rows:,} coreset rows)"
        )


MODEL_CLASS = Model
