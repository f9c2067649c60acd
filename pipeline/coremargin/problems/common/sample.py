"""The sample at the beginning of a job: its chunks, and their rows that count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.data.parts import parts_of
from coremargin.data.view import bytes_read
from coremargin.maths.compact import compact, concatenate_and_free, in_smaller_form
from coremargin.maths.rows import Rows, concatenate, take
from coremargin.maths.stopping import may_stop
from coremargin.problems.common.classes import mask_zero_weights, zero_weight_error

if TYPE_CHECKING:
    from coremargin.data.source import Source

#: Share of the rows that the sample reads, and its limit. On 1e6 x 100, 4 % and the lowest rows of one scan certify
#: 1e-3 with the second scan; 2 % need one more.
SAMPLE_SHARE = 0.04
SAMPLE_BYTES = 64 << 20


@dataclass(frozen=True)
class Sample:
    """The chunks that were read first, and their rows that count: ids (m,), rows (m, d), signs (m,), weights (m,).

    weights: None if all are 1.
    """

    chunks: list[int]
    ids: NDArray[np.int64]
    rows: Rows
    signs: NDArray[np.int8]
    weights: NDArray[np.float64] | None = None

    def thin(self, step: int) -> Sample:
        """Every ``step``-th row."""
        return self.take(np.arange(0, len(self.ids), step))

    def take(self, few: NDArray[np.intp]) -> Sample:
        """The rows at these positions."""
        weights = None if self.weights is None else self.weights[few]
        return Sample(self.chunks, self.ids[few], take(self.rows, few), self.signs[few], weights)

    def nbytes(self, source: Source) -> int:
        """Bytes that were read for the sample."""
        return bytes_read(source, sum(source.span(c)[1] - source.span(c)[0] for c in self.chunks))


def sample_chunks(source: Source, codes: tuple[int, ...], share: float, limit_bytes: int) -> list[int]:
    """Chunks spread evenly over the store, with rows of every class among them; all chunks of a small store."""
    if source.nbytes <= limit_bytes:
        return list(range(source.chunks))
    counts = source.scalars().counts[:, list(codes)]
    chunk_bytes = max(1, source.nbytes // source.chunks)
    wanted = max(1, min(round(share * source.chunks), limit_bytes // chunk_bytes))
    spread = (np.arange(wanted) + 0.5) * source.chunks / wanted
    chosen = set(spread.astype(int).tolist())
    for k in range(len(codes)):
        if not counts[sorted(chosen), k].any():
            chosen.add(int(counts[:, k].argmax()))
    return sorted(chosen)


def read_sample(source: Source, chunks: list[int], codes: tuple[int, int], *, stay: bool = False) -> Sample:
    """The rows of two classes of some chunks; stay: they stay in memory, in the form that takes the least."""
    (found,) = read_labelled_samples([source], chunks, stay=stay)
    return found.of_classes(found.codes, *codes)


@dataclass(frozen=True)
class LabelledSample:
    """The rows of some chunks that have a label and a weight above 0.

    ids (m,), rows (m, d), codes (m,); weights (m,), None: all 1. nbytes: what was read for them.
    """

    chunks: list[int]
    ids: NDArray[np.int64]
    rows: Rows
    codes: NDArray[np.int32]
    weights: NDArray[np.float64] | None
    nbytes: int

    def of_classes(self, codes: NDArray[np.int32], positive: int, negative: int) -> Sample:
        """The rows of two classes, by their codes (m,) in a view of the source."""
        mine = np.flatnonzero((codes == positive) | (codes == negative))
        signs = np.where(codes[mine] == positive, 1, -1).astype(np.int8)
        if len(mine) == len(self.ids):  # not copied
            return Sample(self.chunks, self.ids, self.rows, signs, self.weights)
        weights = None if self.weights is None else self.weights[mine]
        return Sample(self.chunks, self.ids[mine], take(self.rows, mine), signs, weights)


def read_labelled_samples(sources: Sequence[Source], chunks: list[int], *, stay: bool) -> list[LabelledSample]:
    """The rows of some chunks in each of these sources, views of one store with the same labels, chunk by chunk.

    stay: they stay in memory, in the form that takes the least. What is read counts for the first source.
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
                found.append(in_smaller_form(take(part.rows, mine)) if stay else take(part.rows, mine))
                if source is first:
                    ids.append(mine + part.start)
                    codes.append(code[mine])
                    weights += [] if part.weights is None else [part.weights[mine]]
    count = sum(first.span(chunk)[1] - first.span(chunk)[0] for chunk in chunks)
    read = [bytes_read(first, count), *(0 for _ in sources[1:])]
    known = np.concatenate(ids), np.concatenate(codes), np.concatenate(weights) if weights else None
    return [
        LabelledSample(chunks, known[0], compact(found) if stay else concatenate_and_free(found), *known[1:], nbytes)
        for found, nbytes in zip(rows, read, strict=True)
    ]


def weights_of(source: Source, ids: NDArray[np.int64], chunks: list[int]) -> NDArray[np.float64] | None:
    """Sample weights (m,) of rows of these chunks, both increasing; None if all are 1."""
    found = []
    for chunk in chunks:
        weights = source.weights(chunk)
        if weights is None:
            return None
        start, stop = source.span(chunk)
        first, last = np.searchsorted(ids, [start, stop])
        found.append(weights[ids[first:last] - start])
    return np.concatenate(found)


def first_row(source: Source, codes: tuple[int, int]) -> Sample:
    """The first labelled row, with which the paper's algorithm begins, and its chunk."""
    for chunk in np.flatnonzero(source.scalars().counts[:, list(codes)].any(axis=1)):
        found = read_sample(source, [int(chunk)], codes)
        if len(found.ids):
            return Sample([int(chunk)], found.ids[:1], found.rows[:1], found.signs[:1])
    raise zero_weight_error(source, codes[0])


def few_rows(source: Source, codes: tuple[int, int], most: int) -> Sample:
    """About ``most`` rows of a chunk or two, evenly spread in these, and the first row of each class there."""
    found = read_sample(source, sample_chunks(source, codes, 0.0, 1), codes)
    first = [np.flatnonzero(found.signs == sign)[:1] for sign in (1, -1)]
    if not all(len(one) for one in first):  # the rows of a class have no weight there
        return first_row_of_each(source, codes)
    every = np.arange(0, len(found.ids), -(-len(found.ids) // most))
    return found.take(np.union1d(every, np.concatenate(first)))


def first_row_of_each(source: Source, codes: tuple[int, int]) -> Sample:
    """The first row of each class, and their chunks."""
    counts, chunks = source.scalars().counts[:, list(codes)], list[int]()
    ids, rows, signs = list[NDArray[np.int64]](), list[Rows](), list[NDArray[np.int8]]()
    for k, sign in ((0, 1), (1, -1)):
        for chunk in np.flatnonzero(counts[:, k]).tolist():
            found = read_sample(source, [chunk], codes)
            mine = np.flatnonzero(found.signs == sign)[:1]
            if len(mine):
                ids.append(found.ids[mine])
                rows.append(take(found.rows, mine))
                signs.append(found.signs[mine])
                chunks.append(chunk)
                break
        else:
            raise zero_weight_error(source, codes[k])
    order = np.argsort(np.concatenate(ids))
    known = np.concatenate(ids)[order], take(concatenate(rows), order), np.concatenate(signs)[order]
    return Sample(sorted(set(chunks)), *known)
