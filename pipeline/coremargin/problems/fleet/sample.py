"""The rows that a fleet reads before its first scan, for all members."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.data.parts import parts_of
from coremargin.data.view import bytes_read
from coremargin.maths.compact import compact, light, poured
from coremargin.maths.rows import take
from coremargin.maths.stopping import may_stop
from coremargin.problems.common.classes import mask_zero_weights

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coremargin.data.source import Source
    from coremargin.maths.rows import Rows

Array = NDArray[np.float64]


@dataclass(frozen=True)
class SampleRows:
    """The chunks that were read first, and their rows that count, of whatever class.

    ids (m,), rows (m, d), codes (m,) and weights (m,), None: all 1. nbytes: what was read for them.
    """

    chunks: list[int]
    ids: NDArray[np.int64]
    rows: Rows
    codes: NDArray[np.int32]
    weights: Array | None
    nbytes: int


def read_rows(sources: Sequence[Source], chunks: list[int], *, stay: bool) -> list[SampleRows]:
    """The rows of some chunks as each of these sources shows them, which are views of the same ones, chunk by chunk.

    stay: they are kept, in whatever form takes the least memory. What is read counts for the first source.
    """
    first = sources[0]
    ids, codes, weights = [], [], []
    rows: list[list[Rows]] = [[] for _ in sources]
    for chunk in chunks:
        may_stop()
        for source, found in zip(sources, rows, strict=True):
            for part in parts_of(source, chunk):
                code = mask_zero_weights(part.codes, part.weights)
                mine = np.flatnonzero(code >= 0)
                found.append(light(take(part.rows, mine)) if stay else take(part.rows, mine))
                if source is first:  # all have the same labels
                    ids.append(mine + part.start)
                    codes.append(code[mine])
                    weights += [] if part.weights is None else [part.weights[mine]]
    count = sum(first.span(chunk)[1] - first.span(chunk)[0] for chunk in chunks)
    read = [bytes_read(first, count), *(0 for _ in sources[1:])]
    known = np.concatenate(ids), np.concatenate(codes), np.concatenate(weights) if weights else None
    return [
        SampleRows(chunks, known[0], compact(found) if stay else poured(found), *known[1:], nbytes)
        for found, nbytes in zip(rows, read, strict=True)
    ]
