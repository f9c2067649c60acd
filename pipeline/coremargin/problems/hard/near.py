"""Rows near a hyperplane that nobody has needed since they were written beside its model.

A night whose new rows lie beyond the bound asks of them only whether the bound still holds, and that their floor tells:
they all have weight zero, and lie above it at the hypothesis that was proven when they were written, so that the floor
bounds them at hypotheses close to it (maths/screening.py). Where that says too little, they are read and join the pool.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.data.filed import Filed
from coremargin.errors import DataError
from coremargin.maths import rows as row_ops
from coremargin.maths.margin import smallest_projections
from coremargin.maths.named import below, under
from coremargin.maths.screening import Balls, screened_floor
from coremargin.problems.common.ids import among
from coremargin.problems.common.pool import Pool

if TYPE_CHECKING:
    from coremargin.maths.margin import Array

_ROWS = "rows"
_KNOWN = ("ids", "signs", "at", "floor", "direction", "longest", "chunk_rows")


@dataclass(frozen=True)
class FiledRows:
    """ids (m,) int64, increasing, and signs (m,) int8 of the rows; at (m,): their places among those that were filed.

    floor (2,): lower bounds on y w.x over the rows of each class at ``direction`` (d,); longest: no row is longer;
    chunk_rows: of the store.
    """

    ids: NDArray[np.int64]
    signs: NDArray[np.int8]
    at: NDArray[np.int64]
    floor: Array
    direction: Array
    longest: float
    chunk_rows: int
    filed: Filed

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def of(cls, pool: Pool, direction: Array, chunk_rows: int) -> FiledRows:
        """These rows, whose weights are zero."""
        rows = pool.in_order()
        return cls(
            ids=rows.ids, signs=rows.signs, at=np.arange(len(rows)), direction=direction, chunk_rows=chunk_rows,
            floor=smallest_projections(rows.rows, rows.signs, direction[:, None])[:, 0],
            longest=float(row_ops.lengths(rows.rows).max(initial=0.0)),
            filed=Filed.of(row_ops.to_arrays(_ROWS, rows.rows)),
        )  # fmt: skip

    @property
    def chunks(self) -> NDArray[np.int64]:
        """The chunks, increasing, that the rows lie in."""
        return np.unique(self.ids // self.chunk_rows)

    def without(self, ids: NDArray[np.int64]) -> FiledRows:
        """Those that are none of these; the file stays as it is."""
        stay = ~among(self.ids, ids)
        return replace(self, ids=self.ids[stay], signs=self.signs[stay], at=self.at[stay])

    def screen(self, directions: Array) -> Array:
        """Lower bounds (2, k) on y w.x of the rows for directions (d, k)."""
        return np.stack([self._screened(new) for new in directions.T], axis=1)

    def _screened(self, new: Array) -> Array:
        if np.array_equal(new, self.direction):
            return self.floor
        around = Balls(None, np.array([self.longest]))
        return np.asarray(screened_floor(self.floor[None], around, self.direction, new)[0])

    def read(self) -> Pool:
        """The rows, of weight zero. Raises DataError where the file is damaged, or is another one."""
        arrays = self.filed.arrays()
        try:
            rows = row_ops.from_arrays(_ROWS, arrays)
            fits = rows.shape[0] > self.at.max(initial=-1) and rows.shape[1:] == self.direction.shape
        except (LookupError, ValueError, TypeError) as error:  # arrays of another version
            raise self.filed.another() from error
        if not fits:
            raise self.filed.another()
        return Pool.of(self.ids, rows if len(self) == rows.shape[0] else row_ops.take(rows, self.at), self.signs)

    def to_arrays(self) -> dict[str, Any]:
        """Plain arrays, and the rows as they are filed; exact."""
        return {f"near_{name}": np.asarray(getattr(self, name)) for name in _KNOWN} | {"near_filed": self.filed}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> FiledRows:
        """Inverse of ``to_arrays``, and of ``in_memory`` after it."""
        known: dict[str, Any] = {name: arrays[f"near_{name}"] for name in _KNOWN}
        known |= {"longest": float(known["longest"]), "chunk_rows": int(known["chunk_rows"])}
        if "near_filed" in arrays:
            return cls(**known, filed=arrays["near_filed"])
        rows = below("near_filed", arrays)
        return cls(**known, filed=Filed.of(rows) if rows else Filed.lost())


def in_memory(arrays: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """Arrays of which none is filed; those of a damaged file are left out, and lost for whoever takes these up.

    A state is the same with them as without: a scan that is under way takes the rows to be known.
    """
    found = {name: values for name, values in arrays.items() if not isinstance(values, Filed)}
    for name, values in arrays.items():
        if isinstance(values, Filed):
            with suppress(DataError):
                found |= under(name, values.arrays())
    return found
