"""What models of one class share: which rows they enclose, their centre, and the radius of soft ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from coremargin.models.single import SingleModel


@dataclass(frozen=True, eq=False, repr=False)
class EnclosureModel(SingleModel):
    """A model of all rows, or of those of one class; arrays are read-only."""

    @property
    def centre(self) -> np.ndarray:
        """The centre, of scaled and mapped rows where rows are: (d,), or (r,) of rows in a flat."""
        return self.array("centre")

    @property
    def row_duals(self) -> np.ndarray:
        """The dual weight of each coreset row (m,)."""
        return self.array("alpha")

    @property
    def only(self) -> Any:
        """The label of the rows that count; None: all rows do."""
        return self.record.get("only")


class SoftRadius(EnclosureModel):
    """A radius outside of which a share nu of the rows may lie."""

    @property
    def nu(self) -> float:
        """The share of the rows that may lie outside."""
        return float(self.record["parameters"]["nu"])

    @property
    def radius(self) -> float:
        """The distance from the centre at which ``predict`` changes."""
        return math.sqrt(float(self.array("square")[0]))
