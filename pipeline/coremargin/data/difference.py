"""What a store has gained and lost between two of its commits: from the checksums of its chunks, without its rows.

Rows that are appended are known by their numbers. Labels and weights can change: commits note of which rows they did
(changed_rows.py). Where what they note is not what the checksums of chunks say, labels and weights of those that differ
are compared: what differs is read as it was and as it is, the other one once. Rows themselves never change: where they
do, it is another store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from coremargin.data.changed_rows import joined, read_changed_rows
from coremargin.data.digest import WEIGHTS, checksums_of_ones
from coremargin.data.sizes import LABEL_DTYPE, WEIGHT_DTYPE
from coremargin.data.store import Store
from coremargin.data.weights import weights_in
from coremargin.errors import StoreError

if TYPE_CHECKING:
    from coremargin.data.changed_rows import ChangedRows

_LABELS = np.uint64(0xFFFFFFFF)  # the half of a chunk's digest that is about labels; the other one is about its rows


@dataclass(frozen=True)
class Difference:
    """From one commit to a later one.

    before, after: how many rows there were and are; those in between were appended. ids (m,), increasing, of older rows
    whose label or weight is another one; codes and weights (m,) of these, as they were and as they are: -1 unlabelled,
    weight 1 where there are none. nbytes: of labels and weights that were read to find out.
    """

    before: int
    after: int
    ids: NDArray[np.int64]
    codes_before: NDArray[np.int32]
    codes_after: NDArray[np.int32]
    weights_before: NDArray[np.float64]
    weights_after: NDArray[np.float64]
    nbytes: int

    @property
    def appended(self) -> int:
        """Rows that were appended."""
        return self.after - self.before

    @property
    def changed(self) -> int:
        """Older rows whose label or weight is another one."""
        return len(self.ids)

    def __bool__(self) -> bool:
        """Whether there is any."""
        return self.appended > 0 or self.changed > 0


def earlier(store: Store, digest: str) -> Store:
    """The commit of a store's past with this content. Raises StoreError: there is none."""
    try:
        return Store.open(store.storage, digest=digest)
    except StoreError as error:
        error.add_note(
            f"the model is about the rows {digest}: give the store that it was trained on, or train a new model on "
            "this one with `coremargin train`"
        )
        raise


def difference(old: Store, new: Store) -> Difference:
    """What happened between a commit and a later one of the same store. Raises StoreError where rows are others."""
    if old.chunk_rows != new.chunk_rows or new.rows < old.rows:
        raise _written_anew(old, new)
    known, found = old.scalars(), new.scalars().part(0, old.chunks)
    # A chunk that was not full may have grown: then its checksums are others whatever came besides.
    whole = np.arange(old.chunks) < (old.chunks if new.rows == old.rows else old.rows // old.chunk_rows)
    only_rows = not any(entry.commit.changed for entry in new.log[old.commits :])
    checksums = known.digest ^ found.digest
    rewritten = (checksums & ~_LABELS != 0) | (known.marks != found.marks)[:, :WEIGHTS].any(axis=1)
    if (rewritten & whole).any():
        raise _written_anew(old, new)
    weighed = known.marks[:, WEIGHTS] if old.weighted or not new.weighted else checksums_of_ones(known.rows)
    both = ~whole & (not only_rows)
    labels = ((checksums & _LABELS != 0) & whole) | both
    weights = ((weighed != found.marks[:, WEIGHTS]) & whole) | both
    noted = _noted(old, new, labels, weights, whole)
    if noted is not None:
        rows, nbytes = noted
        return Difference(
            old.rows,
            new.rows,
            rows.ids,
            rows.codes_before,
            rows.codes_after,
            rows.weights_before,
            rows.weights_after,
            nbytes,
        )
    chunks = np.flatnonzero(labels | weights).tolist()
    parts = [_of_chunk(old, new, chunk, labels=bool(labels[chunk]), weights=bool(weights[chunk])) for chunk in chunks]
    columns = zip(_EMPTY, *(columns for columns, _ in parts), strict=True)
    ids, codes, codes_now, weights_then, weights_now = map(np.concatenate, columns)
    nbytes = sum(nbytes for _, nbytes in parts)
    return Difference(old.rows, new.rows, ids, codes, codes_now, weights_then, weights_now, nbytes)


def _noted(
    old: Store, new: Store, labels: np.ndarray, weights: np.ndarray, whole: np.ndarray
) -> tuple[ChangedRows, int] | None:
    """The rows that commits in between note as changed, and the bytes read for them.

    labels, weights (c,): chunks of the earlier commit whose checksums say that these have changed, or that they may
    have where a chunk is not ``whole``. None where a note is missing, or is not what they say.
    """
    changing = [entry.commit for entry in new.log[old.commits :] if entry.commit.changed]
    found = [read_changed_rows(new.storage, commit.group, len(new.classes)) for commit in changing]
    if not found or None in found:
        return None
    rows = joined([part for part, _ in cast("list[tuple[ChangedRows, int]]", found)]).other
    rows = rows.take(np.flatnonzero(rows.ids < old.rows))
    for before, after, other in (
        (rows.codes_before, rows.codes_after, labels),
        (rows.weights_before, rows.weights_after, weights),
    ):
        named = np.zeros(old.chunks, bool)
        named[rows.ids[before != after] // old.chunk_rows] = True
        if (named != other)[whole].any():
            return None
    return rows, sum(nbytes for _, nbytes in cast("list[tuple[ChangedRows, int]]", found))


def _written_anew(old: Store, new: Store) -> StoreError:
    return StoreError(
        f"{new.name}: expected the rows of the commit {old.digest} in the newest one, found others: the store was "
        "written anew; train a new model on it with `coremargin train`"
    )


_Columns = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
_EMPTY: _Columns = (
    np.zeros(0, np.int64),
    np.zeros(0, np.int32),
    np.zeros(0, np.int32),
    np.zeros(0),
    np.zeros(0),
)


def _of_chunk(old: Store, new: Store, chunk: int, *, labels: bool, weights: bool) -> tuple[_Columns, int]:
    """The rows of a chunk that differ: ids, codes and weights as they were and as they are; and the bytes read for it.

    labels, weights: which of them may differ.
    """
    start, stop = old.span(chunk)
    codes, w = new.labels(chunk)[: stop - start].copy(), weights_in(new, chunk)[: stop - start].copy()
    codes_before = old.labels(chunk)[: stop - start] if labels else codes
    w_before = weights_in(old, chunk)[: stop - start] if weights else w
    at = np.flatnonzero((codes_before != codes) | (w_before != w))
    nbytes = (1 + labels) * LABEL_DTYPE.itemsize + (new.weighted + (weights and old.weighted)) * WEIGHT_DTYPE.itemsize
    return (start + at, codes_before[at], codes[at], w_before[at], w[at]), (stop - start) * nbytes
