"""The rows that a problem of one class is about: all rows of weight above 0, or those of them with one label."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.data.parts import parts_of
from coremargin.errors import LabelError, StoreError
from coremargin.maths.compact import concatenate_and_free
from coremargin.maths.rows import take
from coremargin.maths.stopping import may_stop
from coremargin.problems.common.sample import sample_chunks

if TYPE_CHECKING:
    from coremargin.data.difference import Difference
    from coremargin.data.source import Source
    from coremargin.maths.margin import Array
    from coremargin.maths.rows import Rows
    from coremargin.problems.common.driver_rows import WorkingSet

#: Bins of histograms of distances.
BINS = 200


@dataclass(frozen=True)
class EnclosedRows:
    """The rows of a store to enclose. only: their label; None: all rows."""

    source: Source
    only: Any = None

    def __str__(self) -> str:
        return "all rows" if self.only is None else f"all rows of class {self.only!r}"

    @cached_property
    def code(self) -> int | None:
        """The label code of these rows, None: of all. Raises LabelError for a label that the store lacks.

        A command line gives labels as text.
        """
        if self.only is None:
            return None
        classes, label = self.source.classes, self.only
        for same in (lambda one: type(one) is type(label) and one == label, lambda one: str(one) == str(label)):
            found = [code for code, one in enumerate(classes) if same(one)]
            if found:
                return found[0]
        known = ", ".join(map(repr, classes[:8])) + (", ..." if len(classes) > 8 else "")
        raise LabelError(
            f"{self.source.name}: only: expected one of its labels ({known or 'there are none'}), found {label!r}"
        )

    @property
    def label(self) -> Any:
        """The label of these rows as the store has it; None: of all."""
        return None if self.code is None else self.source.classes[self.code]

    @cached_property
    def count(self) -> int:
        """How many rows there are; reads the sample weights of the store, if it has any."""
        source = self.source
        if source.chunks and source.weights(0) is not None:
            return sum(int(np.count_nonzero(self.mask(chunk))) for chunk in range(source.chunks))
        return source.rows if self.code is None else int(source.scalars().counts[:, self.code].sum())

    def mask(self, chunk: int) -> NDArray[np.bool_]:
        """Which rows (n,) of a chunk these are."""
        return enclosed(self.source.labels(chunk), self.source.weights(chunk), self.code)

    def check(self) -> None:
        """Refuse a store without such rows. Raises StoreError, LabelError."""
        source = self.source
        if source.rows == 0:
            raise StoreError(f"{source.name}: expected rows, found an empty store; ingest some first")
        if self.code is not None and not source.scalars().counts[:, self.code].any():
            raise LabelError(f"{source.name}: expected rows of class {self.only!r}, found none; choose another class")
        chunks = range(source.chunks) if source.weights(0) is not None else ()
        if chunks and not any(self.mask(chunk).any() for chunk in chunks):
            raise LabelError(
                f"{source.name}: expected rows that count, found that all weigh 0; give some a weight above 0"
            )

    def sample_chunks(self, share: float, limit_bytes: int) -> list[int]:
        """Chunks spread evenly over the store, and one with a row that counts if they have none."""
        source = self.source
        chosen = sample_chunks(source, () if self.code is None else (self.code,), share, limit_bytes)
        if chosen and source.weights(0) is not None and not any(self.mask(chunk).any() for chunk in chosen):
            chosen += [chunk for chunk in range(source.chunks) if self.mask(chunk).any()][:1]
        return sorted(chosen)

    def read(self, chunks: list[int]) -> tuple[Rows, Array]:
        """Such rows (m, d) of some chunks, and their weights (m,)."""
        rows, weights = [], []
        for chunk in chunks:
            may_stop()
            for part in parts_of(self.source, chunk):
                mine = np.flatnonzero(enclosed(part.codes, part.weights, self.code))
                rows.append(take(part.rows, mine))
                weights.append(np.ones(len(mine)) if part.weights is None else part.weights[mine])
        return concatenate_and_free(rows), np.concatenate(weights)

    def changes(self, difference: Difference) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The ids of rows that an earlier commit had and the present one has not, and the other way round."""
        before = enclosed(difference.codes_before, difference.weights_before, self.code)
        after = enclosed(difference.codes_after, difference.weights_after, self.code)
        return difference.ids[before & ~after], difference.ids[after & ~before]


def enclosed(codes: NDArray[np.int32], weights: NDArray[np.float64] | None, code: int | None) -> NDArray[np.bool_]:
    """Which rows (n,) have a weight above 0 and, unless it is None, this label code."""
    mine = np.ones(len(codes), bool) if code is None else codes == code
    return mine if weights is None else mine & (weights > 0)


def outermost(working_set: WorkingSet, distances: Array, most: int) -> NDArray[np.bool_]:
    """Which rows (m,) of a working set are farthest out: so many, and all with a dual weight."""
    weighted = working_set.weights > 0
    stay = weighted.copy()
    stay[np.argsort(-np.where(weighted, np.inf, distances), kind="stable")[:most]] = True
    return stay


def binned(distances: Array, high: float, bins: int) -> NDArray[np.int64]:
    """Histogram (bins,) of distances from 0 to ``high``; the last bin holds those beyond, too."""
    place = np.minimum(distances * (bins / high), bins - 1).astype(np.intp)
    return np.bincount(place, minlength=bins)
