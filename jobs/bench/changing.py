"""A store that changes at random, update after update: rows come and go, labels and weights are corrected.

Some of the rows that go, or are corrected, are those that the last model rests on. Sometimes all rows of an update are
expired, and once the store is compacted. What happens is drawn from a seed; with a loss a share of the labels is wrong,
without one the classes stay apart, and labels are withdrawn and given back.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from coremargin.data.amend import remove_rows, set_weights, write_labels
from coremargin.data.compact import compact
from coremargin.data.expire import expire
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

MARGIN = 0.5
#: How likely an update brings each; rows of a model that go or are corrected, at most.
APPENDS, REMOVES, CORRECTS, WEIGHS, OF_MODEL, MODEL_ROWS = 0.9, 0.5, 0.5, 0.3, 0.3, 3
#: Old rows that one of these is about at most, as a share of an update's new ones.
CHANGED = 0.1
#: The oldest rows that are left go every so many updates.
EXPIRES_EVERY = 50
#: By how much of their margin new rows come closer in one update of so many.
CLOSER, CLOSER_EVERY = 0.01, 10
#: Commits that brought the first rows.
COMMITS = 20


@dataclass
class Changing:
    """path: of the store; wrong: share of the labels that are wrong; an_update: rows that come in one, on the mean."""

    path: Path
    features: int
    chunk_rows: int
    rows: int
    an_update: int
    wrong: float = 0.0
    seed: int = 0
    happened: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Create the store."""
        self._rng = np.random.default_rng(self.seed)
        self._plane = self._rng.standard_normal(self.features)
        self._plane /= np.linalg.norm(self._plane)
        self._margin, self._withdrawn, self._out = MARGIN, dict[int, int](), set[int]()
        with StoreWriter.create(
            self.path, features=self.features, dtype="float32", chunk_rows=self.chunk_rows
        ) as writer:
            for _ in range(COMMITS):
                self._write(writer, self.rows // COMMITS)
                writer.commit()

    def _write(self, writer: StoreWriter, rows: int) -> None:
        X = self._rng.standard_normal((rows, self.features), dtype=np.float32)
        y = np.where(X @ self._plane >= 0, 1, -1)
        X += ((self._margin * y)[:, None] * self._plane).astype(np.float32)
        writer.write(X, np.where(self._rng.random(rows) < self.wrong, -y, y), origin="updates")

    def update(self, number: int, of_model: Sequence[int]) -> None:
        """What happens in one update; of_model: ids of rows that the last model rests on."""
        rng, likely = self._rng, self._rng.random(4)
        if number % CLOSER_EVERY == 0:
            self._margin *= 1 - CLOSER
        if likely[0] < APPENDS:
            with StoreWriter.append(self.path) as writer:
                self._write(writer, int(rng.integers(1, 2 * self.an_update)))
            self.happened["appended"] += 1
        if likely[1] < REMOVES:
            self._remove(self._some(of_model))
        if likely[2] < CORRECTS:
            self._correct(self._some(of_model))
        if likely[3] < WEIGHS:
            self._weigh(self._some(of_model))
        if number % EXPIRES_EVERY == 0:
            self._expire()

    def _some(self, of_model: Sequence[int]) -> np.ndarray:
        """Rows that count, some of them of the model."""
        rng, store = self._rng, Store.open(self.path)
        some = rng.integers(store.rows, size=int(rng.integers(1, max(2, int(2 * CHANGED * self.an_update)))))
        if rng.random() < OF_MODEL and len(of_model):
            some = np.append(some, rng.choice(of_model, min(len(of_model), MODEL_ROWS), replace=False))
            self.happened["changes of the model's rows"] += 1
        gone = [*self._withdrawn, *self._out]
        return np.setdiff1d(some, gone)

    def _remove(self, ids: np.ndarray) -> None:
        if len(ids):
            remove_rows(self.path, ids)
            self._out |= set(ids.tolist())
            self.happened["taken out"] += 1

    def _correct(self, ids: np.ndarray) -> None:
        """With a loss the other label; without one labels are withdrawn, and those of earlier updates given back."""
        store = Store.open(self.path)
        codes = store.rows_at(ids)[1].tolist()
        labels = [store.classes[code] for code in codes]
        self.happened["corrected"] += 1
        if self.wrong:
            write_labels(self.path, ids, [-label for label in labels])
            return
        back = self._withdrawn if self._rng.random() < 0.5 else {}
        write_labels(self.path, [*ids, *back], [*[None] * len(ids), *back.values()])
        self._withdrawn = {row: label for row, label in self._withdrawn.items() if row not in back}
        self._withdrawn |= dict(zip(ids.tolist(), labels, strict=True))

    def _weigh(self, ids: np.ndarray) -> None:
        """Other weights, and some rows come back that were taken out."""
        back = self._rng.permutation(sorted(self._out))[: len(ids)]
        ids = np.union1d(ids, back).astype(np.int64)
        set_weights(self.path, ids, self._rng.choice([0.5, 1.0, 2.0], len(ids)))
        self._out -= set(ids.tolist())
        self.happened["weighed"] += 1

    def _expire(self) -> None:
        """The rows of the oldest commit of which there are any."""
        for entry in Store.open(self.path).log:
            if "added" in entry.counts and not self._out.issuperset(range(entry.commit.rows)):
                expire(self.path, 1.0, now=entry.time + 1.0)
                self._out |= set(range(entry.commit.rows))
                self.happened["expired"] += 1
                return

    def compact(self) -> None:
        """Rows have other numbers then."""
        gone = np.array(sorted(self._out), np.int64)
        compact(self.path)
        self._withdrawn = {
            row - int(np.searchsorted(gone, row)): label
            for row, label in self._withdrawn.items()
            if row not in self._out
        }
        self._out = set()
        self.happened["compacted"] += 1
