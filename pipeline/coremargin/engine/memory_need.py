"""The memory that a problem could use for its rows, the memory that it has, and the cost of the difference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from coremargin.spec import format_size

if TYPE_CHECKING:
    from coremargin.data.source import Source

#: A run that needs more scans than this, with less memory than it could use, reports the shortage.
FEW_SCANS = 2
#: Statuses of runs that ended with a proof.
PROVEN = ("certified", "not_separable")


@dataclass(frozen=True)
class MemoryNeed:
    """given: bytes available for rows; size: more bytes than this would not help, an upper estimate.

    rows: the number of rows that ``size`` holds; what: a noun for them; less: a text, what happens with less memory.
    room: the number of rows that ``given`` holds, if that is not proportional.
    """

    given: int
    size: int
    rows: int
    what: str
    less: str
    room: int | None = None

    @classmethod
    def of_all_rows(cls, source: Source, given: int) -> Self:
        """Half of the memory has to hold all rows; else every scan reads them."""
        return cls(given, 2 * source.nbytes, source.rows, "rows", "with less, every scan reads all rows")

    @property
    def short(self) -> bool:
        """Whether less memory is available than would help."""
        return self.given < self.size

    @property
    def held(self) -> int:
        """About how many of the rows fit."""
        if self.room is not None:
            return min(self.rows, self.room)
        return min(self.rows, self.rows * self.given // max(1, self.size))

    @property
    def holds(self) -> str:
        """A text: how many rows fit, and what would be enough."""
        return (
            f"{format_size(self.given)} of memory hold about {self.held:,} of the {self.rows:,} {self.what}: "
            f"--memory {size_up(self.size)} is enough"
        )

    def shortage(self, *, scans: int, status: str) -> str | None:
        """A text if a lack of memory may be why a run takes many scans or ended without a proof; else None."""
        late = scans > FEW_SCANS or status not in PROVEN
        return f"{self.holds}; {self.less}" if self.short and late else None


def size_up(size: int) -> str:
    """Bytes as ``--memory`` takes them, rounded up."""
    if size < 1 << 30:
        return f"{-(-size // (1 << 20))}MiB"
    tenths = -(-10 * size // (1 << 30))
    return f"{tenths // 10}.{tenths % 10}GiB"
