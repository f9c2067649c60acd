"""Which chunks one task reads: the grouping of chunks into blocks.

The grouping depends on the store and on ``block_bytes`` only, never on workers: summaries merge in block order, so
equal blocks mean equal bits wherever the scan runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coremargin.engine.protocols import Block
from coremargin.errors import UsageError

if TYPE_CHECKING:
    import numpy as np

    from coremargin.data.source import Source

BLOCK_BYTES = 128 * 2**20
#: A small store is cut into about this many blocks, so that every core has work until the end.
SMALL_BLOCKS = 16


def plan_blocks(source: Source, block_bytes: int = BLOCK_BYTES, skip: np.ndarray | None = None) -> tuple[Block, ...]:
    """Blocks of whole chunks of at most ``block_bytes`` (at least one chunk), in row order.

    skip: (chunks,) bool or None; True where a chunk need not be read. A block with nothing left to read is left out;
    the others keep the index that they have without ``skip``. Raises UsageError for a wrong size or shape.
    """
    if block_bytes < 1:
        raise UsageError(f"block_bytes: expected at least 1, got {block_bytes}")
    if skip is not None and skip.shape != (source.chunks,):
        raise UsageError(f"skip: expected one entry per chunk, shape ({source.chunks},), got {skip.shape}")
    together = chunks_per_block(source, block_bytes)
    blocks = []
    for index, first in enumerate(range(0, source.chunks, together)):
        chunks = range(first, min(first + together, source.chunks))
        wanted = tuple(chunk for chunk in chunks if skip is None or not skip[chunk])
        if wanted:
            blocks.append(Block(index, wanted))
    return tuple(blocks)


def chunks_per_block(source: Source, block_bytes: int = BLOCK_BYTES) -> int:
    """How many chunks one block groups: ``block_bytes`` of them, fewer where that makes under SMALL_BLOCKS blocks."""
    if source.chunks == 0:
        return 1
    chunk_bytes = max(1, source.nbytes // source.chunks)
    return max(1, min(block_bytes // chunk_bytes, -(-source.chunks // SMALL_BLOCKS)))
