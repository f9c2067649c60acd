"""What a soft margin has to know of the changes of its store since it was trained."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Ids = NDArray[np.int64]


class Difference(Protocol):
    """What has changed between two commits."""

    @property
    def before(self) -> int:
        """Rows of the earlier one; all others were appended."""

    @property
    def ids(self) -> Ids:
        """Older rows (m,), increasing, whose label or weight is another."""

    @property
    def codes_before(self) -> NDArray[np.int32]:
        """Their label codes (m,) as they were."""

    @property
    def codes_after(self) -> NDArray[np.int32]:
        """Their label codes (m,) as they are."""

    @property
    def weights_before(self) -> Array:
        """Their weights (m,) as they were, 1 where there were none."""

    @property
    def weights_after(self) -> Array:
        """Their weights (m,) as they are."""

    @property
    def nbytes(self) -> int:
        """Bytes that were read to find out."""
