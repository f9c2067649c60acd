"""Features that give the labels away, or number the rows: looked for while rows are read, in bounded memory."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np

from coremargin.maths.rows import Rows, is_sparse

if TYPE_CHECKING:
    from coremargin.formats.columns import ColumnsRecord

_MOST_WATCHED = 1 << 16  # features; wider columns are hashed words
_WIDEST = 2000  # features of a column: one for each category
_TILE = 1 << 20  # values that are looked at together
_HEAD = 64  # rows that rule out nearly all features
_FEWEST_ROWS, _FEWEST_OF_CLASS = 10, 2  # in fewer it happens by chance


class LeakDetector:
    """Which columns are the same throughout each class, but not in all, and which count the rows.

    The first are copies of the label, encodings of it, or made from it: no measurement is so.
    """

    def __init__(self, features: int, columns: ColumnsRecord | None) -> None:
        if columns is None:
            widths, self._names = [1] * features, [f"{feature}" for feature in range(features)]
        else:
            widths, self._names = [column.width for column in columns.columns], list(columns.names)
        starts = [0, *accumulate(widths)]
        groups = [
            (column, range(start, stop))
            for column, (start, stop) in enumerate(pairwise(starts))
            if stop - start <= _WIDEST
        ]
        watched = [(feature, column) for column, group in groups for feature in group][:_MOST_WATCHED]
        found = np.array(watched, np.intp).reshape(-1, 2)
        self._features, self._columns = found[:, 0], found[:, 1]  # those that may still be made from the label
        self._table = np.zeros((0, len(found)))  # the values of each class so far
        self._rows = np.zeros(0, np.int64)  # of each class
        single = np.array([start for start, width in zip(starts, widths, strict=False) if width == 1], np.intp)
        self._counting = single[:_MOST_WATCHED]  # features that may still count the rows
        self._counting_columns = np.array([at for at, width in enumerate(widths) if width == 1], np.intp)[
            :_MOST_WATCHED
        ]
        self._first: np.ndarray | None = None
        self._read = 0

    def add(self, rows: Rows, codes: np.ndarray | None) -> None:
        """Take the next rows (m, d), and the codes (m,) of their labels where there are some."""
        start = 0
        while start < len(codes if codes is not None else range(rows.shape[0])):
            watched = max(len(self._features), len(self._counting))
            if not watched:
                return
            step = min(_HEAD if self._read < _HEAD else _TILE, max(1, _TILE // watched))
            part = rows[start : start + step]
            if codes is not None and len(self._features):
                self._compare(_dense(part, self._features), codes[start : start + step])
            if len(self._counting):
                self._count(_dense(part, self._counting))
            self._read += int(part.shape[0])
            start += step

    def _compare(self, values: np.ndarray, codes: np.ndarray) -> None:
        classes = int(codes.max(initial=-1)) + 1
        if classes * len(self._features) > 4 * _TILE:
            self._features = self._features[:0]
            return
        if classes > len(self._rows):
            more = classes - len(self._rows)
            self._rows = np.append(self._rows, np.zeros(more, np.int64))
            self._table = np.vstack([self._table, np.zeros((more, len(self._features)))])
        present, first = np.unique(codes, return_index=True)
        new = self._rows[present] == 0
        self._table[present[new]] = values[first[new]]
        same = (values == self._table[codes]).all(axis=0)
        self._rows += np.bincount(codes, minlength=len(self._rows))
        if not same.all():
            left = ~np.isin(self._columns, self._columns[~same])
            self._features, self._columns, self._table = self._features[left], self._columns[left], self._table[:, left]

    def _count(self, values: np.ndarray) -> None:
        if self._first is None:
            self._first = values[0].copy()
        expected = self._first + np.arange(self._read, self._read + len(values))[:, None]
        left = (values == expected).all(axis=0) & (self._first == np.floor(self._first))
        self._counting, self._counting_columns = self._counting[left], self._counting_columns[left]
        self._first = self._first[left]

    def warnings(self) -> list[str]:
        """Warnings about such columns."""
        found = []
        present = self._rows > 0
        enough = self._read >= _FEWEST_ROWS and present.sum() > 1 and self._rows[present].min() >= _FEWEST_OF_CLASS
        for column in dict.fromkeys(self._columns[: len(self._features)].tolist()) if enough else ():
            values = self._table[np.ix_(present, self._columns == column)]
            kinds = len(np.unique(values, axis=0))
            if kinds == 1:
                continue  # of all rows
            what = "another value for each class" if kinds == len(values) else "one value throughout each class"
            found.append(
                f"column {self._names[column]!r} has {what}, as a copy of the label has, or what is made from it; "
                "leave it out with --drop if it is not known before the label"
            )
        if self._read >= _FEWEST_ROWS and self._first is not None:
            for column, first in zip(self._counting_columns.tolist(), self._first.tolist(), strict=True):
                found.append(
                    f"column {self._names[column]!r} counts the rows ({first:.0f}, {first + 1:.0f}, ...): leave it out "
                    "with --drop if it is their index"
                )
        return found


def _dense(rows: Rows, features: np.ndarray) -> np.ndarray:
    """These features of some rows."""
    every = len(features) == rows.shape[1]
    part = rows if every else rows[:, features]
    return part.toarray() if is_sparse(part) else np.asarray(part)
