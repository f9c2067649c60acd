"""Which chunks one task reads: the grouping of chunks into blocks.

It depends only on the store, the chunks to read and ``block_bytes``, never on workers: summaries merge in block order,
so equal blocks mean equal bits wherever the scan runs.
"""

from __future__ import annotations

from itertools import pairwise
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
#: A small store is divided into about this many blocks, so that every core has work until the end.
SMALL_BLOCKS = 16
#: A large store is divided into about this many: a task costs driver and scheduler a millisecond or two, whatever it
#: reads. Two hundred workers still have ten each, and one that is killed repeats little of a pass.
MOST_BLOCKS = 2048
#: With more blocks than this the last quarter of the chunks lies in blocks half as large: a thousand workers that have
#: two or four blocks each would otherwise wait for the last ones as long as for the others.
TAPERED_BLOCKS = 1024
#: Blocks do not grow beyond this: if a slow disk takes a minute for one, its worker seems to hang.
LARGEST_BLOCK_BYTES = 4 * 2**30


def plan_blocks(source: Source, block_bytes: int = BLOCK_BYTES, skip: np.ndarray | None = None) -> tuple[Block, ...]:
    """Blocks of whole chunks of at most ``block_bytes`` (at least one chunk), in row order.

    Blocks of large stores are larger, see ``chunks_per_block``: a worker holds a chunk at a time, so that they cost it
    no memory. From TAPERED_BLOCKS on, the last ones are smaller.

    skip: (chunks,) bool or None; True where a chunk need not be read. Blocks group what is left: those of a stage
    that is spread over the store are as large as those of a scan. Raises UsageError for a wrong size or shape.
    """
    if block_bytes < 1:
        raise UsageError(f"block_bytes: expected at least 1, got {block_bytes}")
    if skip is not None and skip.shape != (source.chunks,):
        raise UsageError(f"skip: expected one entry per chunk, shape ({source.chunks},), got {skip.shape}")
    wanted = list(range(source.chunks)) if skip is None else np.flatnonzero(~skip).tolist()
    together = chunks_per_block(source, block_bytes, len(wanted))
    starts = list(range(0, len(wanted), together))
    if len(starts) > TAPERED_BLOCKS and together > 1:
        half = -(-together // 2)
        starts = starts[: -(len(starts) // 4)]
        starts += range(starts[-1] + together, len(wanted), half)
    spans = enumerate(pairwise([*starts, len(wanted)]))
    return tuple(Block(index, tuple(wanted[first:stop])) for index, (first, stop) in spans)


def chunks_per_block(source: Source, block_bytes: int, wanted: int) -> int:
    """The number of chunks per block: ``block_bytes``, less if that makes fewer than SMALL_BLOCKS blocks.

    More if it makes over MOST_BLOCKS. A part of a store has as many blocks as the root of its share: an estimate of
    where the cost of tasks equals that of waiting for the last block.
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
