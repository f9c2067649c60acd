"""What memory a problem would like for its rows, what it was given, and what less costs."""

from __future__ import annotations

from dataclasses import dataclass

from coremargin.spec import format_size

#: A run that needs more scans than this with less memory than it wants is told why.
FEW_SCANS = 2
#: Statuses of runs that ended with a proof, be it that there is nothing to be had.
PROVEN = ("certified", "not_separable")


@dataclass(frozen=True)
class Want:
    """given: bytes that there are for rows; size: with more than this nothing would be gained, an estimate from above.

    rows: that ``size`` holds; what: they are, for people; less: what happens with less. room: how many of the rows what
    was given holds, where that is no equal share of them.
    """

    given: int
    size: int
    rows: int
    what: str
    less: str
    room: int | None = None

    @property
    def short(self) -> bool:
        """Whether less was given than is wanted."""
        return self.given < self.size

    @property
    def held(self) -> int:
        """How many of the rows what was given has room for, about."""
        if self.room is not None:
            return min(self.rows, self.room)
        return min(self.rows, self.rows * self.given // max(1, self.size))

    @property
    def holds(self) -> str:
        """What there is room for, and what would be enough."""
        return (
            f"{format_size(self.given)} of memory hold about {self.held:,} of the {self.rows:,} {self.what}: "
            f"--memory {size_up(self.size)} is enough"
        )

    def shortage(self, *, scans: int, status: str) -> str | None:
        """Why a run goes on and on, or ended without a proof, as far as memory can be the reason; None: it cannot."""
        late = scans > FEW_SCANS or status not in PROVEN
        return f"{self.holds}; {self.less}" if self.short and late else None


def size_up(size: int) -> str:
    """Bytes as ``--memory`` takes them, rounded up."""
    if size < 1 << 30:
        return f"{-(-size // (1 << 20))}MiB"
    tenths = -(-10 * size // (1 << 30))
    return f"{tenths // 10}.{tenths % 10}GiB"
