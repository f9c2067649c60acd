"""Which chunks one task reads: the grouping of chunks into blocks.

The grouping depends on the store, the chunks that are wanted and ``block_bytes`` only, never on
workers: summaries merge in block order, so
equal blocks mean equal bits wherever the scan runs.
"""

from __future__ import annotations

from math import isqrt
from typing import TYPE_CHECKING

import numpy as np

from coremargin.engine.protocols import Block
from coremargin.errors import UsageError
from coremargin.formats.run_record import parts_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coremargin.data.source import Source

BLOCK_BYTES = 128 * 2**20
#: A small store is cut into about this many blocks, so that every core has work until the end.
SMALL_BLOCKS = 16
#: A large store is cut into about this many: a task costs the driver some 4 ms, whatever it reads. Two hundred workers
#: still have ten each, and one that is killed repeats little of a pass.
MOST_BLOCKS = 2048
#: But blocks do not grow beyond this: what a slow disk takes a minute for looks like a worker that hangs.
LARGEST_BLOCK_BYTES = 4 * 2**30


def plan_blocks(source: Source, block_bytes: int = BLOCK_BYTES, skip: np.ndarray | None = None) -> tuple[Block, ...]:
    """Blocks of whole chunks of at most ``block_bytes`` (at least one chunk), in row order.

    Blocks of large stores are larger, see ``chunks_per_block``: a worker holds a chunk at a time, so that they cost it
    no memory.

    skip: (chunks,) bool or None; True where a chunk need not be read. Blocks group what is left: those of a stage
    that is spread over the store are as large as those of a scan. Raises UsageError for a wrong size or shape.
    """
    if block_bytes < 1:
        raise UsageError(f"block_bytes: expected at least 1, got {block_bytes}")
    if skip is not None and skip.shape != (source.chunks,):
        raise UsageError(f"skip: expected one entry per chunk, shape ({source.chunks},), got {skip.shape}")
    wanted = list(range(source.chunks)) if skip is None else np.flatnonzero(~skip).tolist()
    together = chunks_per_block(source, block_bytes, len(wanted))
    starts = range(0, len(wanted), together)
    return tuple(Block(index, tuple(wanted[first : first + together])) for index, first in enumerate(starts))


def chunks_per_block(source: Source, block_bytes: int, wanted: int) -> int:
    """How many of the ``wanted`` chunks a block groups: ``block_bytes``, fewer where they make under SMALL_BLOCKS.

    More of a store of which that would make over MOST_BLOCKS. Of a part of it blocks are as many as the root of the
    part's share of them: an estimate of where the time that tasks cost and that of waiting for the last block meet.
    """
    if wanted == 0:
        return 1
    chunk_bytes = max(1, source.nbytes // source.chunks)
    grown = min(-(-isqrt(wanted * source.chunks) // MOST_BLOCKS), LARGEST_BLOCK_BYTES // chunk_bytes)
    return max(1, min(max(block_bytes // chunk_bytes, grown), -(-wanted // SMALL_BLOCKS)))


def read_of_parts(blocks: Sequence[Block], chunks: int) -> tuple[int, ...]:
    """How many chunks of each part of the store (``parts_of``) the blocks hold; empty where they hold all."""
    read = np.concatenate([np.zeros(0, np.int64), *(np.array(block.chunks, np.int64) for block in blocks)])
    if len(read) == chunks:
        return ()
    sizes = np.array(parts_of(chunks))
    found = np.bincount(np.searchsorted(np.cumsum(sizes), read, side="right"), minlength=len(sizes))
    return tuple(found.tolist())
