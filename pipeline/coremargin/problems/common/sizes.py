"""The bytes of a row, and the number of rows that scans send and a working set holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coremargin.maths.levels import NARROW

if TYPE_CHECKING:
    from coremargin.data.source import Source

#: Share of the store that one scan may send for a hard margin, and its limits.
KEEP_SHARE, KEEP_BYTES_LEAST, KEEP_BYTES_MOST = 0.01, 4 << 20, 64 << 20
#: A scan may send at least this many rows of any length, within the most bytes: rcv1 takes 5 scans instead of 30.
KEEP_ROWS_LEAST = 1000
#: A working set has room for the rows that this many scans may send.
WORKING_SET_SCANS = 4


def row_bytes(source: Source) -> int:
    """Bytes of a row as it is read; the mean if rows are sparse."""
    return source.nbytes // source.rows if source.sparse else source.features * source.dtype.itemsize


def float64_row_bytes(source: Source) -> int:
    """Bytes of a row with its values in float64; the columns of sparse rows take four bytes each."""
    index = 4 if source.sparse else 0
    return row_bytes(source) * (8 + index) // (source.dtype.itemsize + index)


def working_set_row_bytes(source: Source) -> int:
    """Bytes of a row in a working set: dense as it is read, sparse in float64; few features are solved dense."""
    if not source.sparse:
        return row_bytes(source)
    return 8 * source.features if source.features <= NARROW else max(1, float64_row_bytes(source))


def rows_sent(source: Source, working_set_rows: int) -> int:
    """Rows that one scan may send for a hard margin, to a working set of at most ``working_set_rows``.

    These are more rows than violate the bound now: rows just above it would violate that of the next hypothesis. On 1e6
    x 100, sending only violators takes a third scan; sending the lowest 5,000 rows does not.
    """
    size = max(1, row_bytes(source))
    least = max(KEEP_BYTES_LEAST, KEEP_ROWS_LEAST * size)  # w of many features is carried by many rows
    most_bytes = min(max(KEEP_SHARE * source.nbytes, least), KEEP_BYTES_MOST)
    return max(1, min(int(most_bytes) // size, working_set_rows // WORKING_SET_SCANS))


def wanted_working_set_rows(source: Source) -> int:
    """About how many rows a working set can use: those that scans may send; all, if rows are wide."""
    every = source.rows
    return (
        every
        if every < source.features
        else min(every, WORKING_SET_SCANS * rows_sent(source, WORKING_SET_SCANS * every))
    )
