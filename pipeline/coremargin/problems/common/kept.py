"""How many rows of a store may lie beside its model, so that it can be retrained from there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coremargin.problems.common.start import row_bytes

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.engine.allowance import Allowance

#: At most this share of a store's rows; up to half of them while they take no more bytes than this.
KEPT_SHARE, FEW_BYTES = 0.25, 4 << 20


def most_kept(source: Source, allowance: Allowance) -> int:
    """So many rows, which take no more bytes than allowed, about."""
    share = max(int(KEPT_SHARE * source.rows), few_rows(source))
    return min(share, allowance.bytes // max(1, row_bytes(source)))


def few_rows(source: Source) -> int:
    """So many rows may be kept of any store, if they are no more than half of it."""
    return min(source.rows // 2, FEW_BYTES // max(1, row_bytes(source)))
