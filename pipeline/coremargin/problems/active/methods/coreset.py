"""Har-Peled, Roth, Zimak 2006, Figure 2: the row nearest to the hyperplane of the largest margin; and any row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coremargin.problems.active.methods.method import Method

if TYPE_CHECKING:
    from coremargin.problems.active.methods.method import Asking


class Coreset(Method):
    """The default; Tong and Koller's (2002) with an offset, and with an end."""

    def pick(self, asking: Asking) -> int:
        """The nearest."""
        return int(asking.sizes.argmin())


class Stream(Method):
    """Section 4.1's variant: any row within the slab will do, here the first by its id, as rows of a stream come."""

    def pick(self, asking: Asking) -> int:
        """The first within the slab."""
        inside = np.flatnonzero(asking.within)
        return int(inside[asking.rows.ids[inside].argmin()])
