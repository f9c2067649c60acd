"""What a store has gained and lost between two of its commits: from the checksums of its chunks, without its rows.

Rows that are appended are known by their numbers. Labels and weights can change, and of the chunks whose checksums of
these differ both are read, as they were and as they are. Rows themselves never change: where they do, it is another
store.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from coremargin.data.digest import WEIGHTS, checksums_of_ones
from coremargin.data.sizes import LABEL_DTYPE, WEIGHT_DTYPE
from coremargin.data.store import Store
from coremargin.errors import StoreError

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
        return Store.open(store.path, digest=digest)
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
    other = (checksums & _LABELS != 0) | (weighed != found.marks[:, WEIGHTS])
    other = (other & whole) | (~whole & (not only_rows))
    chunks = np.flatnonzero(other).tolist()
    parts = zip(_EMPTY, *(_of_chunk(old, new, chunk) for chunk in chunks), strict=True)
    ids, codes, codes_now, weights, weights_now = map(np.concatenate, parts)
    rows = sum(old.span(chunk)[1] - old.span(chunk)[0] for chunk in chunks)
    size = 2 * LABEL_DTYPE.itemsize + (old.weighted + new.weighted) * WEIGHT_DTYPE.itemsize
    return Difference(old.rows, new.rows, ids, codes, codes_now, weights, weights_now, rows * size)


def _written_anew(old: Store, new: Store) -> StoreError:
    return StoreError(
        f"{new.name}: expected the rows of the commit {old.digest} in the newest one, found others: the store was "
        "written anew; train a new model on it with `coremargin train`"
    )


_Columns = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]
_EMPTY: _Columns = (
    np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0), np.zeros(0),
)  # fmt: skip


def _of_chunk(old: Store, new: Store, chunk: int) -> _Columns:
    """The rows of a chunk that differ: ids, codes and weights as they were and as they are."""
    start, stop = old.span(chunk)
    (codes, weights), (codes_now, weights_now) = (_of_rows(store, chunk, stop - start) for store in (old, new))
    at = np.flatnonzero((codes != codes_now) | (weights != weights_now))
    return start + at, codes[at], codes_now[at], weights[at], weights_now[at]


def _of_rows(store: Store, chunk: int, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes and weights of the first rows of a chunk."""
    weights = store.weights(chunk)
    return store.labels(chunk)[:rows].copy(), np.ones(rows) if weights is None else weights[:rows].copy()
