"""Labels of rows that are in a store already, written as a commit of their own: see formats/store_record.py.

The commit before stays as it is, with its labels. Who dies meanwhile leaves it, or the new one, and nothing between.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.amend import Amendment, by_chunk
from coremargin.data.arrays import checked_ids
from coremargin.data.commits import CommitInfo
from coremargin.data.format import UNLABELLED, facts_as_of
from coremargin.data.labels import LabelCoder, refuse_unclear
from coremargin.data.place import Place
from coremargin.data.row_selection import chosen
from coremargin.data.store import Store
from coremargin.errors import UsageError
from coremargin.formats.current_answers import same

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coremargin.data.row_selection import Chosen
    from coremargin.data.storages import Address

_TOLD = 8  # rows that had a label and have another one or none, which are named


@dataclass(frozen=True)
class LabelReport:
    """What labels that were written have changed.

    Attributes
    ----------
    given : int
        Rows that were to have a label.
    added : int
        Rows that had no label before.
    replaced : int
        Rows that had another label before.
    removed : int
        Rows that had a label and have none now.
    examples : tuple of (int, label, label)
        The first of the last two: row, the label before, the label now, None for none.
    called : tuple of str
        The rows of these as they were named: "row 5", or "key '4711' (row 5)".
    digest : str
        Of the last commit: a new one where anything changed.
    """

    given: int
    added: int
    replaced: int
    removed: int
    examples: tuple[tuple[int, Any, Any], ...]
    called: tuple[str, ...]
    digest: str

    @property
    def changed(self) -> int:
        """Rows that have another label now, or none."""
        return self.added + self.replaced + self.removed


def write_labels(  # noqa: PLR0913 - one word for each decision, all with a default
    path: Address,
    ids: Any = None,
    labels: Sequence[Any] = (),
    *,
    keys: Any = None,
    withdrawn: Mapping[int, Sequence[Any]] = MappingProxyType({}),
    after: str | None = None,
    note: str = "",
    counting: bool = False,
) -> LabelReport:
    """Give rows labels, all of them or none, in a commit of its own; no commit where they have them already.

    Parameters
    ----------
    path : path-like
        The store.
    ids : array_like of shape (m,), optional
        Row ids, each once.
    labels : sequence of length m
        Their labels, new classes among them or not. None takes a label away; other missing entries (NaN, nulls) are
        refused.
    keys : array_like of shape (m,), optional
        Instead of ids, the rows' keys: whole numbers or texts of the column that ``ingest`` was given.
    withdrawn : mapping of int to sequence of labels
        Row ids, none of them among the rows named, whose label is taken away where it is one of these.
    after : str, optional
        The digest of one of the store's commits: what the row ids are about.
    note : str, optional
        A word on it for the store's log.
    counting : bool, default False
        Rows that were taken out of the store, whose weight is 0, are refused.

    Returns
    -------
    LabelReport
        What has changed.

    Raises
    ------
    StoreError
        It is no store, or one that this writer did not write, or none of its commits is the one named.
    DamagedChunk
        Labels of a chunk that changes cannot be read.
    LabelError
        Labels of another kind than those of the store, or too many classes.
    UsageError
        A row or a key that is not there, is named twice, or no longer counts.
    OutputError
        The store cannot be written.
    Busy
        Another writer is at work.
    """
    place = Place.existing(path)
    try:
        store = Store.open(place.target, map_bytes=0)
        if after is not None:
            facts_as_of(place.target, digest=after)
        found, coder = chosen(store, ids, keys), LabelCoder(store.classes)
        where = f"{store.name}: labels in the order given"
        refuse_unclear(labels, where)
        codes = coder.encode(labels, len(found.rows), where)
        given, less = int(np.count_nonzero(codes != UNLABELLED)), _having(store, withdrawn)
        found, codes = found.and_rows(less), np.append(codes, np.full(len(less), UNLABELLED, codes.dtype))
        found.refuse_twice(store.name)
        rows, order = found.rows, np.argsort(found.rows, kind="stable")
        work = Amendment(store, coder.classes)
        changes = _Changes(coder.classes)
        for chunk, offsets, new in by_chunk(store, rows[order], codes[order]):
            if counting:
                _refuse_removed(store, chunk, offsets, found)
            before = store.labels(chunk)
            other = before[offsets] != new
            if other.any():
                new_codes = before.copy()
                new_codes[offsets[other]] = new[other]
                changes.count(chunk * store.chunk_rows + offsets[other], before[offsets[other]], new[other])
                work.labels(chunk, new_codes)
        counts = {"added": changes.added, "replaced": changes.replaced, "removed": changes.removed}
        counts = {f"labels_{name}": number for name, number in counts.items() if number}
        digest = work.commit(CommitInfo("labels", note, counts)) if work.changed else store.digest
    finally:
        place.close()
    called = tuple(found.called(found.at(row)) for row, _, _ in changes.examples)
    return LabelReport(given, changes.added, changes.replaced, changes.removed, tuple(changes.examples), called, digest)


def _refuse_removed(store: Store, chunk: int, offsets: np.ndarray, found: Chosen) -> None:
    """Raises UsageError for rows that no longer count."""
    weights = store.weights(chunk)
    gone = offsets[:0] if weights is None else offsets[weights[offsets] == 0]
    if len(gone):
        at = found.at(store.span(chunk)[0] + int(gone[0]))
        raise UsageError(
            f"{found.place(at, store.name)}: {found.called(at)} was taken out; leave it out, or give it a weight first"
        )


def _having(store: Store, withdrawn: Mapping[int, Sequence[Any]]) -> np.ndarray:
    """Rows (m,) whose label is one of those that are to be taken away."""
    rows = checked_ids(np.array(sorted(withdrawn), np.int64), store.rows, store.name)
    found = list[int]()
    for chunk, offsets, ids in by_chunk(store, rows, rows):
        for row, code in zip(ids.tolist(), store.labels(chunk)[offsets].tolist(), strict=True):
            if code != UNLABELLED and any(same(store.classes[code], label) for label in withdrawn[row]):
                found.append(row)
    return np.array(found, np.int64)


class _Changes:
    """What changes of labels amount to, with a few examples."""

    def __init__(self, classes: Sequence[Any]) -> None:
        self.added = self.replaced = self.removed = 0
        self.examples: list[tuple[int, Any, Any]] = []
        self._classes = classes

    def count(self, rows: np.ndarray, before: np.ndarray, after: np.ndarray) -> None:
        """Rows (m,) whose codes were others before."""
        had = before != UNLABELLED
        self.added += int(np.count_nonzero(~had))
        self.removed += int(np.count_nonzero(after == UNLABELLED))  # each of them had another code
        self.replaced += int(np.count_nonzero(had & (after != UNLABELLED)))
        for row, was, now in zip(rows[had].tolist(), before[had].tolist(), after[had].tolist(), strict=True):
            if len(self.examples) == _TOLD:
                break
            self.examples.append((row, self._classes[was], None if now == UNLABELLED else self._classes[now]))
