"""What a store has gained and lost between two of its commits: from the checksums of its chunks, without its rows.

Rows that are appended are known by their numbers. Labels and weights can change: a commit notes of which rows they did,
as they were and became, in ``changes/GROUP/rows.npz``. Without this file, a comparison of two commits would read labels
and weights of every chunk that has changed, twice: if corrections are scattered, that is most of what a retraining
reads. It is a cache: where it is missing, damaged, or contradicts the checksums of chunks, labels and weights of those
that differ are compared: what differs is read as it was and as it is, the other one once. Neither readers of the store
nor ``coremargin verify`` use it. Rows themselves never change: where they do, it is another store.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from coremargin.data import chunk_hashes
from coremargin.data.digest import WEIGHTS, checksums_of_ones
from coremargin.data.folder import write_arrays
from coremargin.data.format import CHANGES
from coremargin.data.sizes import LABEL_DTYPE, WEIGHT_DTYPE
from coremargin.data.store import Store
from coremargin.data.view import contradicts
from coremargin.data.weights import weights_in
from coremargin.errors import DataError, StoreError
from coremargin.formats.npz import read_arrays
from coremargin.formats.storage import opened_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coremargin.data.storage import Storage
    from coremargin.formats.storage import ReadableStorage


FILE = "rows.npz"
_KINDS = {
    "ids": "int64",
    "codes_before": "int32",
    "codes_after": "int32",
    "weights_before": "float64",
    "weights_after": "float64",
}


@dataclass(frozen=True)
class ChangedRows:
    """ids (m,), increasing; codes and weights (m,) of these as they were and as they became."""

    ids: np.ndarray
    codes_before: np.ndarray
    codes_after: np.ndarray
    weights_before: np.ndarray
    weights_after: np.ndarray

    def take(self, where: np.ndarray) -> ChangedRows:
        """Some of them."""
        return ChangedRows(**{name: getattr(self, name)[where] for name in _KINDS})

    def sound(self, classes: int) -> bool:
        """Whether they could be rows of a store of so many classes."""
        codes, weights = (self.codes_before, self.codes_after), (self.weights_before, self.weights_after)
        return (
            all(getattr(self, name).shape == (len(self.ids),) for name in _KINDS)
            and bool((np.diff(self.ids, prepend=-1) > 0).all())
            and all(bool(((some >= -1) & (some < classes)).all()) for some in codes)
            and all(bool((np.isfinite(some) & (some >= 0)).all()) for some in weights)
        )

    @property
    def other(self) -> ChangedRows:
        """Those that are not what they were."""
        changed = (self.codes_before != self.codes_after) | (self.weights_before != self.weights_after)
        return self.take(np.flatnonzero(changed))


def join_changes(parts: Sequence[ChangedRows]) -> ChangedRows:
    """What commits have changed one after the other: as rows were before the first, and are after the last."""
    every = {
        name: np.concatenate([np.zeros(0, kind), *(getattr(part, name) for part in parts)])
        for name, kind in _KINDS.items()
    }
    ids, first = np.unique(every["ids"], return_index=True)
    last = len(every["ids"]) - 1 - np.unique(every["ids"][::-1], return_index=True)[1]
    before = {name: every[name][first] for name in ("codes_before", "weights_before")}
    after = {name: every[name][last] for name in ("codes_after", "weights_after")}
    return ChangedRows(ids, **before, **after)


def write_changed_rows(storage: Storage, group: str, rows: ChangedRows) -> None:
    """Write those of a commit; group: its name."""
    content = BytesIO()
    write_arrays(content, vars(rows))
    storage.write(f"{CHANGES}/{group}/{FILE}", [content.getvalue()])


def read_changed_rows(storage: ReadableStorage, group: str, classes: int) -> tuple[ChangedRows, int] | None:
    """Those of a commit of a store of so many classes, and the bytes that were read for them; None where there are none
    that could be.
    """
    key = f"{CHANGES}/{group}/{FILE}"
    try:
        with opened_object(storage, key) as file:
            arrays = read_arrays(file, f"{storage.name}/{key}")
    except (OSError, DataError):
        return None
    if {name: values.dtype.name for name, values in arrays.items()} != _KINDS:
        return None
    found = ChangedRows(**arrays)
    return (found, sum(values.nbytes for values in arrays.values())) if found.sound(classes) else None


_LABELS = np.uint64(0xFFFFFFFF)  # the half of a chunk's digest that is about labels; the other one is about its rows
_ROW_PARTS = [chunk_hashes.PARTS.index(name) for name in ("x", "indices", "lengths")]


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


def earlier(store: Store, digest: str, sha256: Mapping[str, Any] | None = None) -> Store:
    """The commit of a store's past with this content; sha256: what the model's record says of it.

    Raises StoreError: there is none, or it was forged.
    """
    try:
        found = Store.open(store.storage, digest=digest)
    except StoreError as error:
        error.add_note(
            f"the model is about the rows {digest}: give the store that it was trained on, or train a new model on "
            "this one with `coremargin train`"
        )
        raise
    if contradicts(found, sha256):
        raise StoreError(
            f"{store.name}: expected the rows and labels that the model was trained on, of SHA-256 "
            f"{(sha256 or {})['digest']}, found {found.sha256} with the same CRC-32C: some were replaced; restore "
            "the store from a copy"
        )
    return found


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
    other = _other_hashes(old, new)
    rewritten |= other[:, _ROW_PARTS].any(axis=1)
    if (rewritten & whole).any():
        raise _written_anew(old, new)
    weighed = known.marks[:, WEIGHTS] if old.weighted or not new.weighted else checksums_of_ones(known.rows)
    both = ~whole & (not only_rows)
    labels = (((checksums & _LABELS != 0) | other[:, chunk_hashes.LABELS]) & whole) | both
    weights = (((weighed != found.marks[:, WEIGHTS]) | other[:, chunk_hashes.WEIGHTS]) & whole) | both
    noted = _noted(old, new, labels, weights, whole)
    if noted is None:
        chunks = np.flatnonzero(labels | weights).tolist()
        parts = [
            _compare_chunk(old, new, chunk, labels=bool(labels[chunk]), weights=bool(weights[chunk]))
            for chunk in chunks
        ]
        noted = join_changes([part for part, _ in parts]), sum(nbytes for _, nbytes in parts)
    rows, nbytes = noted
    return Difference(old.rows, new.rows, **vars(rows), nbytes=nbytes)


def _other_hashes(old: Store, new: Store) -> np.ndarray:
    """Which parts (c, 5) of the earlier commit's chunks have another SHA-256; none where one of them has none."""
    if not (old.sha256 and new.sha256):
        return np.zeros((old.chunks, len(chunk_hashes.PARTS)), bool)
    known, found = old.chunk_hashes(), new.chunk_hashes()[: old.chunks]
    if new.weighted and not old.weighted:
        known[:, chunk_hashes.WEIGHTS] = chunk_hashes.hash_ones(old.scalars().rows)
    return np.asarray((known != found).any(axis=2))


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
    rows = join_changes([part for part, _ in cast("list[tuple[ChangedRows, int]]", found)]).other
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
        "rewritten; train a new model on it with `coremargin train`"
    )


def _compare_chunk(old: Store, new: Store, chunk: int, *, labels: bool, weights: bool) -> tuple[ChangedRows, int]:
    """The rows of a chunk that differ, and the bytes read for it.

    labels, weights: which of them may differ.
    """
    start, stop = old.span(chunk)
    codes, w = new.labels(chunk)[: stop - start].copy(), weights_in(new, chunk)[: stop - start].copy()
    codes_before = old.labels(chunk)[: stop - start] if labels else codes
    w_before = weights_in(old, chunk)[: stop - start] if weights else w
    nbytes = (1 + labels) * LABEL_DTYPE.itemsize + (new.weighted + (weights and old.weighted)) * WEIGHT_DTYPE.itemsize
    rows = ChangedRows(np.arange(start, stop), codes_before, codes, w_before, w)
    return rows.other, (stop - start) * nbytes
