"""How many rows of a store may lie beside its model, so that it can go on from them when the store has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coremargin.problems.common.start import row_bytes

if TYPE_CHECKING:
    from coremargin.data.source import Source

#: At most this share of a store's rows; up to half of them while they take no more bytes than this.
KEPT_SHARE, KEPT_BYTES = 0.25, 4 << 20


def most_kept(source: Source) -> int:
    """So many rows."""
    few = KEPT_BYTES // max(1, row_bytes(source))
    return max(int(KEPT_SHARE * source.rows), min(source.rows // 2, few))
