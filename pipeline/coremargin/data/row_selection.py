"""Rows of a store named by ids or by keys, and their names in messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.arrays import checked_ids
from coremargin.data.format import read_facts
from coremargin.data.group_parts import group_bounds, groups_of
from coremargin.data.key_runs import KeyIndex
from coremargin.data.key_values import GivenKeys, given_keys
from coremargin.errors import StoreError, UsageError

if TYPE_CHECKING:
    from coremargin.data.store import Store


def index_of(store: Store) -> KeyIndex | None:
    """The keys of the store's rows as they are now; None: it has none. Raises StoreError for what does not fit."""
    facts, columns = read_facts(store.storage), store.columns
    if (columns is not None and columns.key is not None) != bool(facts.keys):
        raise StoreError(
            f"{store.name}: zarr.json and columns.json do not agree on whether rows have keys; restore both from a copy"
        )
    return KeyIndex(store.storage, facts.keys, facts.rows) if facts.keys else None


def key_column(store: Store) -> str | None:
    """What the column of keys is called in tables that name rows; None: the store has none."""
    columns = store.columns
    if columns is None or columns.key is None:
        return None
    return columns.key if columns.named else "key"


@dataclass(frozen=True)
class SelectedRows:
    """Rows (m,) int64, in the order given, and the keys that the first of them were named by, if they were."""

    rows: np.ndarray
    keys: GivenKeys | None

    def and_rows(self, rows: np.ndarray) -> SelectedRows:
        """With others behind them, by their ids."""
        return SelectedRows(np.append(self.rows, rows), self.keys)

    def called(self, at: int) -> str:
        """Number ``at`` of them, as it was named."""
        row = f"row {self.rows[at]:,}"
        return row if self.keys is None or at >= len(self.keys.texts) else f"key {self.keys.texts[at]!r} ({row})"

    def place(self, at: int, name: str) -> str:
        """Where it was named, if that was in a file; else ``name``, that of the store."""
        place = None if self.keys is None or at >= len(self.keys.texts) else self.keys.place
        return name if place is None else place(at)

    def at(self, row: int) -> int:
        """Which of them a row is."""
        return int(np.argmax(self.rows == row))

    def refuse_twice(self, name: str) -> None:
        """Raise UsageError for a row that is there twice. name: of the store."""
        order = np.argsort(self.rows, kind="stable")
        twice = np.flatnonzero(np.diff(self.rows[order]) == 0)
        if len(twice):
            at = int(order[twice[0] + 1])
            raise UsageError(f"{self.place(at, name)}: expected each row once, found {self.called(at)} twice")


def group_index(store: Store) -> KeyIndex:
    """The first rows of the store's groups, by the hashes of their ids. Raises UsageError, StoreError."""
    facts, counts = read_facts(store.storage), groups_of(store).counts
    return KeyIndex(store.storage, facts.groups, facts.rows, int(counts.sum()))


def _rows_of_groups(store: Store, given: GivenKeys) -> np.ndarray:
    firsts = group_index(store).find(given.hashes)
    if not len(firsts):
        return np.zeros(0, np.int64)
    if (unknown := np.flatnonzero(firsts < 0)).size:
        raise UsageError(f"{store.name}: found no group {given.texts[int(unknown[0])]!r}; correct it")
    if len(np.unique(firsts)) < len(firsts):
        order = np.argsort(firsts, kind="stable")
        at = int(order[1:][np.diff(firsts[order]) == 0][0])
        raise UsageError(f"{store.name}: expected each group once, found {given.texts[at]!r} twice")
    starts, ends = group_bounds(store, firsts)
    return np.concatenate([np.arange(start, stop) for start, stop in zip(starts, ends, strict=True)])


def select_rows(store: Store, ids: Any, keys: Any, groups: Any = None) -> SelectedRows:
    """Rows by ids, by keys, or by groups: two of these are None.

    Raises UsageError: none has such an id, key or group; StoreError.
    """
    if [ids is None, keys is None, groups is None].count(False) != 1:
        raise UsageError(f"{store.name}: say which rows, either by ids or by keys, or by groups")
    if groups is not None:
        return SelectedRows(_rows_of_groups(store, given_keys(groups)), None)
    if keys is None:
        return SelectedRows(checked_ids(np.asarray(ids), store.rows, store.name), None)
    given, index = given_keys(keys), index_of(store)
    if index is None:
        raise UsageError(f"{store.name}: its rows have no keys, which `ingest --key COLUMN` gives them: say row ids")
    rows = index.find(given.hashes)
    if (unknown := np.flatnonzero(rows < 0)).size:
        at = int(unknown[0])
        place, whose = (store.name, "") if given.place is None else (given.place(at), f" of {store.name}")
        raise UsageError(f"{place}: found the key {given.texts[at]!r}, which no row{whose} has; correct it")
    return SelectedRows(rows, given)
