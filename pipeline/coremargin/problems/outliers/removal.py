"""The rows that a job removes as outliers, in the state between two scans."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from coremargin.errors import UsageError
from coremargin.formats.outliers import outlier_counts
from coremargin.maths.named import below, under
from coremargin.maths.outliers.forecast import forecast_gap
from coremargin.maths.outliers.row_search import Proof
from coremargin.problems.common.classes import count_weighted_rows
from coremargin.problems.common.driver_rows import ClassRows
from coremargin.problems.common.state_arrays import state_from_arrays, state_to_arrays

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.maths.outliers.row_search import Trimmed

Array = NDArray[np.float64]
Ids = NDArray[np.int64]

#: Why a search ended without a proof.
UNFINISHED = (
    "the search for the best rows to exclude took too many nodes; a larger epsilon, or fewer outliers, needs fewer"
)


def count_left_out(source: Source, asked: int | str) -> int:
    """How many rows may be left out: a number, or a share of the rows with a label and a weight."""
    return outlier_counts(asked, lambda: int(count_weighted_rows(source).sum()))[0]


def check_class_stays(source: Source, codes: tuple[int, ...], left_out: int) -> None:
    """Raise UsageError if all rows of a class could be left out."""
    counts = count_weighted_rows(source)[list(codes)]
    smallest = int(np.argmin(counts))
    if counts[smallest] <= left_out:
        raise UsageError(
            f"outliers: {left_out:,} rows may be excluded, and class {source.classes[codes[smallest]]!r} of "
            f"{source.name} has {counts[smallest]:,}: expected a number below {counts[smallest]:,}, so that a row of "
            f"each class stays"
        )


def check_one_count(outliers: int | str) -> None:
    """Raise ValueError for several numbers, or none."""
    if len(outlier_counts(outliers)) > 1:
        raise ValueError(f"outliers: expected one number, found {outliers!r}: such a job leaves out one number of rows")


@dataclass(frozen=True)
class Removal:
    """The rows that are removed as outliers, and what is proven of all choices of so many.

    ids, best: of the rows, increasing, that the newest hypothesis and the best one do without. bound: no choice allows
    a larger margin, by ``proof``, whose places are those of the rows ``named``. trace (t, 3): the nodes of a search,
    and the bounds by then.
    """

    ids: Ids
    best: Ids
    bound: float
    named: ClassRows
    proof: Proof | None
    trace: Array

    @classmethod
    def nothing(cls, none: ClassRows) -> Removal:
        """Nothing is removed, and nothing proven; none: no rows."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), np.inf, none, None, np.zeros((0, 3)))

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact."""
        return under(name, state_to_arrays(self))

    @classmethod
    def from_arrays(cls, name: str, arrays: Mapping[str, NDArray[Any]]) -> Removal | None:
        """Inverse of ``to_arrays``; None if there are none."""
        mine = below(name, arrays)
        if not mine:
            return None
        makers: dict[str, Any] = {"named": ClassRows.from_arrays}
        if "proof_rows" in mine:
            makers["proof"] = Proof.from_arrays
        return cls(**state_from_arrays(cls, mine, makers, may_lack=("proof",)))

    def with_search(self, found: Trimmed[Any], rows: ClassRows, places: NDArray[np.intp], lower: float) -> Removal:
        """With the bound that a search of the rows at ``places`` (m,) of some has come to; lower: the margin so far."""
        better = self
        if found.proof is not None and -found.bound < self.bound:
            named, proof = found.proof.about(places)
            better = replace(self, bound=-found.bound, named=rows.take(named), proof=proof)
        return replace(better, trace=np.vstack([self.trace, [found.nodes, max(lower, 0.0), better.bound]]))

    def describe_search(self) -> dict[str, Any]:
        """The nodes of the search, and the gap that is expected after ten times as many."""
        if not len(self.trace):
            return {}
        nodes = int(self.trace[-1, 0])
        forecast = forecast_gap([(int(at), lower, upper) for at, lower, upper in self.trace.tolist()], nodes)
        return {"nodes": nodes} | ({} if forecast is None else {"gap_later": forecast.later})
