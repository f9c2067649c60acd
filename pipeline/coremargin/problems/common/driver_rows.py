"""Rows in the driver's memory, with what is known of each: labels and weights, by whatever names a problem has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from coremargin.maths import rows as row_ops

if TYPE_CHECKING:
    from coremargin.maths.rows import Rows


@dataclass(frozen=True)
class DriverRows:
    """ids (m,) int64 and rows (m, d), dense or sparse; classes that extend it have arrays (m,) beside them."""

    #: What the rows are called among the arrays of a checkpoint.
    ROWS: ClassVar[str] = "rows"

    ids: NDArray[np.int64]
    rows: Rows

    def __len__(self) -> int:
        return len(self.ids)

    def take(self, positions: NDArray[Any]) -> Self:
        """Only the rows at these positions, or where a mask is true; all of them, in their order, are not copied."""
        mask = positions.dtype == np.bool_
        if len(positions) == len(self) and (positions if mask else positions == np.arange(len(self))).all():
            return self
        known = {name: getattr(self, name)[positions] for name in self._known()}
        return replace(self, rows=row_ops.take(self.rows, positions), **known)

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """All rows of the parts, one part after the other; of one part that itself."""
        if len(parts) == 1:
            return parts[0]
        known: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts]) for name in cls._known()
        }  # fmt: skip
        return cls(rows=row_ops.concatenate([part.rows for part in parts]), **known)

    def in_order(self) -> Self:
        """The same rows by their ids; those that are in order are not copied."""
        if (self.ids[1:] >= self.ids[:-1]).all():
            return self
        return self.take(np.argsort(self.ids, kind="stable"))

    def unlike(self, ids: NDArray[np.int64]) -> NDArray[np.intp]:
        """Positions of the rows that are none of these."""
        return np.flatnonzero(np.isin(self.ids, ids, invert=True))

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Plain arrays ``NAME_ids``, ``NAME_rows`` or its parts, and so on; exact."""
        known = {f"{name}_{field}": getattr(self, field) for field in self._known()}
        return known | row_ops.to_arrays(f"{name}_{self.ROWS}", self.rows)

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Inverse of ``to_arrays``."""
        known: dict[str, Any] = {field: arrays[f"{name}_{field}"] for field in cls._known()}
        return cls(rows=row_ops.from_arrays(f"{name}_{cls.ROWS}", arrays), **known)

    @classmethod
    def _known(cls) -> list[str]:
        return [field.name for field in fields(cls) if field.name != "rows"]


@dataclass(frozen=True)
class SignedRows(DriverRows):
    """Rows of two classes: signs (m,) int8; classes that extend it may have numbers (m,) float64 beside them."""

    signs: NDArray[np.int8]

    @classmethod
    def nothing(cls, features: int, dtype: Any = np.float64, *, sparse: bool = False) -> Self:
        """No rows; dtype: of those that come."""
        known: dict[str, Any] = {name: np.zeros(0) for name in cls._known()}
        known |= {"ids": np.zeros(0, np.int64), "signs": np.zeros(0, np.int8)}
        return cls(rows=row_ops.nothing(features, np.float64 if sparse else dtype, sparse=sparse), **known)
