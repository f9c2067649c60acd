"""What a job about outliers says: how many rows may be left out of a hard margin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from msgspec import Meta

from coremargin.formats.outlier_counts import outlier_counts
from coremargin.problems.job import TrainJob

if TYPE_CHECKING:
    from collections.abc import Callable

Search = Literal["exact", "heuristic"]


def outliers_of(text: str) -> str | int:
    """A whole number as such; what else there is, as it is."""
    return int(text) if text.isascii() and text.isdigit() else text


class OutlierJob(TrainJob, frozen=True, kw_only=True):
    """The largest margin once some rows are left out.

    outliers: how many: a number, a share such as "1%" of the rows that have a label and a weight (rounded down), or
    several values, such as "0..10" or [0, 1, 2, 5], for the margin against them; the model is that of the largest.
    outlier_search: "exact" for a proof that no others do better, "heuristic" for a good answer with an upper bound
    whatever the distance; None: exact up to 1,000 outliers. epsilon may be 0: as close as float64 can tell (1e-8).
    """

    EXACT: ClassVar[bool] = True

    outliers: Annotated[
        int | str | tuple[int, ...],
        Meta(
            description="Rows that may be left out: 10, 1% of the labelled, 0..10, or 0,1,2,5.",
            extra={"metavar": "K", "text": outliers_of},
        ),
    ]
    outlier_search: Annotated[Search | None, Meta(description="Proof, or margin and bound quickly.")] = None

    def __post_init__(self) -> None:
        """Refuse what is out of range. Raises ValueError."""
        outlier_counts(self.outliers)
        super().__post_init__()

    def counts(self, rows: Callable[[], int]) -> tuple[int, ...]:
        """The numbers of rows that may be left out, in increasing order.

        rows: counts those that may be: they have a label and a weight. It is called for a share of them.
        """
        return outlier_counts(self.outliers, rows)

    def parameters(self) -> dict[str, Any]:
        """What the model's record keeps."""
        asked = list(self.outliers) if isinstance(self.outliers, tuple) else self.outliers
        return super().parameters() | {"outliers": asked, "outlier_search": self.outlier_search}
