"""Rows at random: what the others are measured against."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coremargin.problems.active.methods.method import Method

if TYPE_CHECKING:
    from coremargin.problems.active.methods.method import Asking


class Random(Method):
    """Any row in memory, near or far; the largest margin of what is answered."""

    def pick(self, asking: Asking) -> int:
        """Each with the same chance."""
        return int(asking.chance.choice(len(asking.sizes)))
