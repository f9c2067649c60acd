"""What a job knows that tries a hard margin first, and how it is written to a checkpoint."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from coremargin.maths.named import under
from coremargin.problems.hard.ledger import Ledger

if TYPE_CHECKING:
    from coremargin.problems.hard.state import HardMarginState
    from coremargin.problems.soft.state import SoftState


@dataclass(frozen=True)
class HardOrSoftState:
    """hard: the state of the margin; once there is none, with its proof and little else. soft: None as long as it is
    tried.
    """

    hard: HardMarginState
    soft: SoftState | None = None

    @property
    def now(self) -> HardMarginState | SoftState:
        """The state of what the job is at."""
        return self.hard if self.soft is None else self.soft

    @property
    def in_the_same_read(self) -> bool:
        """Whether the first stage of the margin's read was the first of the soft margin's, too."""
        return self.soft is not None and self.soft.stages > 0 and self.hard.round == 1

    @property
    def just_begun(self) -> bool:
        """Whether nothing was asked for the soft margin's sake so far."""
        return self.soft is not None and self.soft.round == int(self.in_the_same_read)

    @property
    def round(self) -> int:
        """It grows with every update."""
        return self.hard.round + (0 if self.soft is None else self.soft.round)

    @property
    def status(self) -> str:
        """A word: "running", or how it ended."""
        return self.now.status

    @property
    def sample_bytes(self) -> int:
        """Read so far besides scans."""
        return self.hard.sample_bytes + (0 if self.soft is None else self.soft.sample_bytes)

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact: ``HardOrSoft.restore`` gives the same bits back."""
        soft = {} if self.soft is None else under("soft", self.soft.to_arrays())
        return under("hard", self.hard.to_arrays()) | soft


def proof_of(state: HardMarginState) -> HardMarginState:
    """The same without the rows that its proof can do without."""
    blank = Ledger.blank(len(state.ledger.which), state.ledger.directions.shape[1])
    return replace(state, pool=state.coreset, sketch=state.coreset, ledger=blank, near=None)
