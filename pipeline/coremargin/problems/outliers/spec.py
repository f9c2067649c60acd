"""What a job about outliers says: how many rows may be left out of a hard margin."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from msgspec import Meta

from coremargin.formats.outlier_counts import outlier_counts
from coremargin.problems.job import TrainJob

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from coremargin.maths.outliers.published import Published

Search = Literal["exact", "heuristic", "published", "published-simple"]
#: Those of Har-Peled, Roth, Zimak 2006, Figure 4, (a) and (b), by their names there.
PUBLISHED: Mapping[str, Published] = {"published": "outlier-svm", "published-simple": "simple-outlier-svm"}


def outliers_of(text: str) -> str | int | list[int]:
    """A whole number, or several with commas, as such; what else there is, as it is."""
    words = text.split(",")
    if not all(word.isascii() and word.isdigit() for word in words):
        return text
    return int(text) if len(words) == 1 else [int(word) for word in words]


class OutlierJob(TrainJob, frozen=True, kw_only=True):
    """The largest margin once some rows are left out.

    outliers: how many: a number, a share such as "1%" of the rows that have a label and a weight (rounded down), or
    several values, such as "0..10" or [0, 1, 2, 5], for the margin against them; the model is that of the largest.
    outlier_search: "exact" for a proof that no others do better, "heuristic" for a good answer with an upper bound
    whatever the distance; None: exact up to 1,000 outliers; "published" and "published-simple" for Figure 4 of
    Har-Peled, Roth, Zimak 2006, (a) and (b), on a few dozen rows: all subsets of a coreset's size, with the sharper
    constants of ``maths.outliers.published``. epsilon may be 0, but not for these: as
    close as float64 can tell (1e-8).
    """

    EXACT: ClassVar[bool] = True

    outliers: Annotated[
        int | str | tuple[int, ...],
        Meta(
            description="Rows that may be left out: 10, 1% of the labelled, 0..10, or 0,1,2,5.",
            extra={"metavar": "K", "text": outliers_of},
        ),
    ]
    outlier_search: Annotated[
        Search | None, Meta(description="Proof; margin and bound quickly; or Har-Peled et al. 2006, Figure 4.")
    ] = None

    def __post_init__(self) -> None:
        """Refuse what is out of range. Raises ValueError."""
        outlier_counts(self.outliers)
        super().__post_init__()
        if self.outlier_search in PUBLISHED and not self.epsilon > 0:
            raise ValueError(
                f"epsilon: expected a number above 0 for outlier_search {self.outlier_search!r}, whose subsets would "
                f"have no largest size, found {self.epsilon}; with outlier_search 'exact' it may be 0"
            )

    def counts(self, rows: Callable[[], int]) -> tuple[int, ...]:
        """The numbers of rows that may be left out, in increasing order.

        rows: counts those that may be: they have a label and a weight. It is called for a share of them.
        """
        return outlier_counts(self.outliers, rows)

    def parameters(self) -> dict[str, Any]:
        """What the model's record keeps."""
        asked = list(self.outliers) if isinstance(self.outliers, tuple) else self.outliers
        return super().parameters() | {"outliers": asked, "outlier_search": self.outlier_search}
