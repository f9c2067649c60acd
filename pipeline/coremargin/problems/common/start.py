"""Where a job begins: which classes, which chunks make the sample."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from coremargin.data.parts import parts_of
from coremargin.data.view import bytes_read
from coremargin.errors import BadRow, LabelError, StoreError, UsageError
from coremargin.formats.limits import C_LIMITS
from coremargin.maths.breakdown import exact_sum
from coremargin.maths.compact import compact, light, poured
from coremargin.maths.levels import NARROW
from coremargin.maths.rows import Rows, take
from coremargin.maths.stopping import may_stop

if TYPE_CHECKING:
    from coremargin.data.source import Source

#: Share of the rows that the sample reads, and its bounds. Measured on 1e6 x 100: 4 % and the lowest rows of one scan
#: certify 1e-3 with the second scan; 2 % need one more.
SAMPLE_SHARE = 0.04
SAMPLE_BYTES = 64 << 20
#: Share of the store that one scan may send for a hard margin, and its bounds.
KEEP_SHARE, KEEP_BYTES_LEAST, KEEP_BYTES_MOST = 0.01, 4 << 20, 64 << 20
#: However long its rows are, a scan may send so many (within the most bytes). rcv1: 5 scans instead of 30.
KEEP_ROWS_LEAST = 1000
#: A pool has room for what so many scans may send.
POOL_SCANS = 4
#: Lengths of the longest row between which squares, and differences down to float64's resolution, keep their digits.
SCALES = (1e-130, 1e130)


def two_classes(source: Source) -> tuple[int, int]:
    """Codes of the positive and the negative class: the labels in sorted order, the larger one positive.

    Raises StoreError for no rows, LabelError unless exactly two classes have rows.
    """
    if source.rows == 0:
        raise StoreError(f"{source.name}: expected rows, found an empty store; ingest some first")
    present = np.flatnonzero(source.scalars().counts.sum(axis=0))
    labels = [source.classes[code] for code in present]
    if len(labels) == 2:
        negative, positive = sorted(present.tolist(), key=lambda code: source.classes[code])
        return positive, negative
    shown = ", ".join(repr(label) for label in labels[:8]) + (", ..." if len(labels) > 8 else "")
    if not labels:
        raise LabelError(f"{source.name}: expected two classes, found no labelled row; ingest with --labels or --label")
    if len(labels) == 1:
        raise LabelError(f"{source.name}: expected two classes, found only {shown}; a margin needs rows of both")
    raise LabelError(
        f"{source.name}: expected two classes, found {len(labels)} ({shown}); a model separates two classes: "
        f"train each against the rest with --classes ovr, or ingest the pair you mean with --only "
        f"{labels[0]},{labels[1]}"
    )


def check_scale(
    source: Source, class_c: NDArray[np.float64] | None = None, totals: NDArray[np.float64] | None = None
) -> None:
    """Refuse what would under- or overflow in float64, so that no bound could be trusted.

    class_c (k,) of a row of weight 1 and sums of weights ``totals`` (k,) of the classes, where there is a loss.
    Raises BadRow (squares of all rows), UsageError (C of all rows of a class).
    """
    if class_c is not None and totals is not None:
        check_class_c(source.name, class_c, totals)
    check_longest(source.name, float(source.scalars().max_norm.max()))


def check_longest(name: str, longest: float) -> None:
    """``check_scale`` for the length of the longest row."""
    if longest and not SCALES[0] <= longest <= SCALES[1]:
        raise BadRow(
            f"{name}: expected the longest row to have a length from {SCALES[0]:g} to {SCALES[1]:g}, found "
            f"{longest:g}; rescale the features (a common factor changes nothing but the margin's unit)"
        )


def check_class_c(name: str, class_c: NDArray[np.float64], totals: NDArray[np.float64]) -> None:
    """``check_scale`` for what the rows of each class cost together."""
    with np.errstate(over="ignore"):
        sums = class_c * totals
    bad = ~((sums >= C_LIMITS[0]) & (sums <= C_LIMITS[1]))
    if bad.any():
        raise UsageError(
            f"{name}: expected C times the weights of a class, summed up, from {C_LIMITS[0]:g} to "
            f"{C_LIMITS[1]:g}, found {sums[bad][0]:g}; weights t times as large are the same problem with C / t"
        )


@dataclass(frozen=True)
class Sample:
    """The chunks that were read first, and their rows that count: ids (m,), rows (m, d), signs (m,), weights (m,).

    weights: None where all are 1. Rows without label or of weight 0 do not count.
    """

    chunks: list[int]
    ids: NDArray[np.int64]
    rows: Rows
    signs: NDArray[np.int8]
    weights: NDArray[np.float64] | None = None

    def thin(self, step: int) -> Sample:
        """Every so many-th of its rows."""
        few = np.arange(0, len(self.ids), step)
        weights = None if self.weights is None else self.weights[few]
        return Sample(self.chunks, self.ids[few], take(self.rows, few), self.signs[few], weights)

    def nbytes(self, source: Source) -> int:
        """Bytes that were read for it."""
        return bytes_read(source, sum(source.span(c)[1] - source.span(c)[0] for c in self.chunks))


def row_bytes(source: Source) -> int:
    """Bytes of a row as it is read; of sparse rows, whose lengths differ, the mean."""
    return source.nbytes // source.rows if source.sparse else source.features * source.dtype.itemsize


def rows_sent(source: Source, pool_rows: int) -> int:
    """Rows that one scan may send to a pool for a hard margin.

    More than violate the bound now: rows just above it are those that would break the next hypothesis. Measured on
    1e6 x 100: with violators only a third scan is needed, with the lowest 5,000 rows it is not.
    """
    size = max(1, row_bytes(source))
    least = max(KEEP_BYTES_LEAST, KEEP_ROWS_LEAST * size)  # w of many features is carried by many rows
    most_bytes = min(max(KEEP_SHARE * source.nbytes, least), KEEP_BYTES_MOST)
    return max(1, min(int(most_bytes) // size, pool_rows // POOL_SCANS))


def pool_wanted(source: Source) -> int:
    """Rows of which a pool for a hard margin makes use, about: what scans may send; of wide rows all."""
    every = source.rows
    return every if every < source.features else min(every, POOL_SCANS * rows_sent(source, POOL_SCANS * every))


def float64_row_bytes(source: Source) -> int:
    """Bytes of a row with its values in float64; the columns of sparse ones take four bytes each."""
    index = 4 if source.sparse else 0
    return row_bytes(source) * (8 + index) // (source.dtype.itemsize + index)


def pool_row_bytes(source: Source) -> int:
    """Bytes of a row in a pool: dense ones as they are read, sparse ones in float64; few features are solved dense."""
    if not source.sparse:
        return row_bytes(source)
    return 8 * source.features if source.features <= NARROW else max(1, float64_row_bytes(source))


def sample_chunks(source: Source, codes: tuple[int, int], share: float, limit_bytes: int) -> list[int]:
    """Chunks spread evenly over the store, with rows of both classes among them; all chunks of a small store."""
    if source.nbytes <= limit_bytes:
        return list(range(source.chunks))
    counts = source.scalars().counts[:, list(codes)]
    chunk_bytes = max(1, source.nbytes // source.chunks)
    wanted = max(1, min(round(share * source.chunks), limit_bytes // chunk_bytes))
    spread = (np.arange(wanted) + 0.5) * source.chunks / wanted
    chosen = set(spread.astype(int).tolist())
    for k in range(2):
        if not counts[sorted(chosen), k].any():
            chosen.add(int(counts[:, k].argmax()))
    return sorted(chosen)


def read_sample(source: Source, chunks: list[int], codes: tuple[int, int], *, stay: bool = False) -> Sample:
    """The rows of two classes of some chunks; stay: they are kept, in whatever form takes the least memory."""
    ids, rows, signs, weights = [], [], [], []
    for chunk in chunks:
        may_stop()
        for part in parts_of(source, chunk):
            code = left_out(part.codes, part.weights)
            mine = np.flatnonzero((code == codes[0]) | (code == codes[1]))
            ids.append(mine + part.start)
            rows.append(light(take(part.rows, mine)) if stay else take(part.rows, mine))
            signs.append(np.where(code[mine] == codes[0], 1, -1).astype(np.int8))
            if part.weights is not None:
                weights.append(part.weights[mine])
    every = np.concatenate(weights) if weights else None
    joined = compact(rows) if stay else poured(rows)
    return Sample(chunks, np.concatenate(ids), joined, np.concatenate(signs), every)


def weights_of(source: Source, ids: NDArray[np.int64], chunks: list[int]) -> NDArray[np.float64] | None:
    """Sample weights (m,) of rows of these chunks, both increasing; None where all are 1."""
    found = []
    for chunk in chunks:
        weights = source.weights(chunk)
        if weights is None:
            return None
        start, stop = source.span(chunk)
        first, last = np.searchsorted(ids, [start, stop])
        found.append(weights[ids[first:last] - start])
    return np.concatenate(found)


def left_out(codes: NDArray[np.int32], weights: NDArray[np.float64] | None) -> NDArray[np.int32]:
    """Label codes (n,) with -1, unlabelled, for rows of weight 0: they do not count."""
    return codes if weights is None or weights.all() else np.where(weights > 0, codes, -1).astype(np.int32)


def signs_of(codes: NDArray[np.int32], weights: NDArray[np.float64], of: tuple[int, int]) -> NDArray[np.int8]:
    """The sides (m,) of rows by their label codes, the positive class first: 0 for those that do not count."""
    positive, negative = of
    sides = (codes == positive).astype(np.int8) - (codes == negative)
    return np.where(weights > 0, sides, 0).astype(np.int8)


def nothing_counts(source: Source, code: int) -> LabelError:
    """The error for a class of which all rows weigh 0."""
    return LabelError(
        f"{source.name}: expected rows of every class, found that all of class {source.classes[code]!r} weigh 0, "
        f"which leaves them out; give some of them a weight above 0"
    )


def check_class_weights(source: Source) -> None:
    """Refuse a class of which all rows weigh 0, before a row is read: no model tells it from the others.

    Labels and weights are read, as far as the first row of each class with a weight above 0. Raises LabelError.
    """
    if source.weights(0) is None:
        return
    missing = set(np.flatnonzero(source.scalars().counts.sum(axis=0)).tolist())
    for chunk in range(source.chunks):
        missing -= set(np.unique(left_out(source.labels(chunk), source.weights(chunk))).tolist())
        if not missing:
            return
    raise nothing_counts(source, min(missing))


def rows_that_count(source: Source) -> NDArray[np.int64]:
    """How many rows of each class (k,) have a weight above 0. Labels and weights are read where there are weights, no
    rows.
    """
    total = source.scalars().counts.sum(axis=0)
    if source.weights(0) is None:
        return np.asarray(total, np.int64)
    found = np.zeros(len(total), np.int64)
    for chunk in range(source.chunks):
        codes = left_out(source.labels(chunk), source.weights(chunk))
        found += np.bincount(codes[codes >= 0], minlength=len(total))
    return found


def class_weights(source: Source, codes: tuple[int, ...]) -> NDArray[np.float64]:
    """Sums of the sample weights (k,) over the rows of these classes, all above 0.

    Labels and weights are read for it, no rows. Raises LabelError for a class of which all rows weigh 0.
    """
    totals = np.zeros(len(codes))
    if source.weights(0) is None:
        return np.asarray(source.scalars().counts.sum(axis=0)[list(codes)], np.float64)
    for chunk in range(source.chunks):
        labels, weights = source.labels(chunk), source.weights(chunk)
        if weights is not None:
            totals += [exact_sum(weights[labels == code]) for code in codes]
    if not totals.all():
        raise nothing_counts(source, codes[int(totals.argmin())])
    return totals


def balanced(cost: float, totals: NDArray[np.float64]) -> NDArray[np.float64]:
    """c (K,) of a row of weight 1 of each class for class_weight "balanced": C times n / (K n_class)."""
    return np.asarray(cost * totals.sum() / (len(totals) * totals))


def first_row(source: Source, codes: tuple[int, int]) -> Sample:
    """The first labelled row, as the paper's algorithm starts from one example, and the chunk that was read for it."""
    for chunk in np.flatnonzero(source.scalars().counts[:, list(codes)].any(axis=1)):
        found = read_sample(source, [int(chunk)], codes)
        if len(found.ids):
            return Sample([int(chunk)], found.ids[:1], found.rows[:1], found.signs[:1])
    raise nothing_counts(source, codes[0])
