"""Reading all keys of a store and naming what is damaged: every row has one, and none is there twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from coremargin.data.check_earlier import Damage, opens
from coremargin.data.format import read_facts
from coremargin.data.key_runs import KEYS, PARTS, first_twice
from coremargin.data.row_selection import index_of
from coremargin.errors import StoreError

if TYPE_CHECKING:
    from coremargin.data.key_runs import KeyIndex, Run
    from coremargin.data.store import Store


def bad_keys(store: Store) -> list[Damage]:
    """What is wrong with the keys of a store, of all its commits; one finding for each run.

    While it is read, a writer may merge runs, and the next one remove them: then what is there now is read.
    """
    while True:
        before = read_facts(store.path).keys
        found = _bad(store)
        if not found or read_facts(store.path).keys == before:
            return [Damage(None, 0, store.rows, what) for what in found]


def _bad(store: Store) -> list[str]:
    try:
        index = index_of(store)
    except StoreError as error:
        return [str(error)]
    if index is None:
        return []
    seen = np.zeros(-(-index.rows // 8), np.uint8)  # a bit for each row
    found = [what for run in index.runs if (what := _bad_run(run, index, seen))]
    if found:
        return found
    missing = np.flatnonzero(np.unpackbits(seen, count=index.rows, bitorder="little") == 0)
    if len(missing):
        return [f"{store.path}/{KEYS}: expected a key for each row, found none for row {missing[0]:,}; restore it"]
    pair = first_twice(index.runs, [])
    if pair is None:
        return []
    return [
        f"{store.path}/{KEYS}: expected a key of its own for each row, found one for rows {pair[0]:,} and {pair[1]:,}"
    ]


def _bad_run(run: Run, index: KeyIndex, seen: np.ndarray) -> str | None:
    """What is wrong with a run by itself, and with its rows, which ``seen`` takes."""
    restore = "restore it from a copy"
    try:
        for part in PARTS:
            opens(run.folder / part)
        last: tuple[int, int] | None = None
        for number, entries in enumerate(run.pieces()):
            high, low, rows = entries
            ascending = (high[1:] > high[:-1]) | ((high[1:] == high[:-1]) & (low[1:] > low[:-1]))
            here = int(high[0]), int(low[0])
            if not ascending.all() or (last is not None and here <= last) or run.first[number] != high[0]:
                return f"{run.folder}: file {number} of its keys is not in order; {restore}"
            last = int(high[-1]), int(low[-1])
            if rows.min() < 0 or rows.max() >= index.rows:
                found = f"{rows.min():,} to {rows.max():,}"
                return f"{run.folder}: expected rows from 0 to {index.rows - 1:,}, found {found}; {restore}"
            rows = np.sort(rows)
            bits = np.uint8(1) << (rows & 7).astype(np.uint8)
            twice = np.append((rows[1:] == rows[:-1]), False) | (seen[rows >> 3] & bits > 0)
            if twice.any():
                return f"{run.folder}: found another key for row {rows[np.argmax(twice)]:,}; {restore}"
            np.bitwise_or.at(seen, rows >> 3, bits)
    except StoreError as error:
        return str(error)
    return None
