"""What is counted of a column in one pass over a table, in memory that does not grow with its rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from coremargin.formats.column_kinds import LONGEST_CATEGORY, MOST_CATEGORIES

if TYPE_CHECKING:
    from coremargin.data.tables.values import Texts

SAMPLE = 1 << 17  #: values of which a median is that of all, exactly; of more it is that of a random sample as large
_SAMPLE_WORDS = 1000
SAMPLES = 1 << 23  #: of all columns together


class NumberStatistics:
    """Of numbers: the mean; "median" and "most-frequent" where they are wanted, the median of a sample this large."""

    def __init__(self, wanted: Collection[str] = (), sample: int = SAMPLE, seed: int = 0) -> None:
        self.count = 0
        self._total = 0.0
        self._sample = sample if "median" in wanted else 0
        self._random = np.random.default_rng(seed)
        self._parts: list[tuple[np.ndarray, np.ndarray]] = []  # values and their ranks
        self._held, self._most = 0, 1.0  # how many; a rank that none of the smallest has
        self._counts: Counter[float] | None = Counter() if "most-frequent" in wanted else None

    def add(self, values: np.ndarray) -> None:
        """Take finite values (m,)."""
        self.count += len(values)
        self._total += float(np.sum(values))
        if self._sample:
            ranks = self._random.random(len(values))
            low = np.flatnonzero(ranks < self._most)
            self._parts.append((values[low], ranks[low]))
            self._held += len(low)
            if self._held > 2 * self._sample:
                self._thin()
        if self._counts is not None:
            found, counts = np.unique(values, return_counts=True)
            self._counts.update(dict(zip(found.tolist(), counts.tolist(), strict=True)))
            if len(self._counts) > MOST_CATEGORIES:
                self._counts = None

    def _thin(self) -> None:
        """Keep the values of the smallest ranks: a sample in which each value is as likely as any other."""
        values, ranks = (np.concatenate(part) for part in zip(*self._parts, strict=True))
        order = np.argpartition(ranks, self._sample)[: self._sample]
        self._parts, self._held = [(values[order], ranks[order])], len(order)
        self._most = float(ranks[order].max())

    @property
    def mean(self) -> float:
        """Of all values; 0 of none."""
        return self._total / max(1, self.count)

    @property
    def median(self) -> float:
        """Of all values, or of the sample; 0 of none."""
        if self._held > self._sample:
            self._thin()
        return float(np.median(np.concatenate([values for values, _ in self._parts]))) if self._held else 0.0

    @property
    def most_frequent(self) -> float | None:
        """The smallest of those that are there most often, as scikit-learn has it; None: too many to count."""
        if not self._counts:
            return None
        most = max(self._counts.values())
        return min(value for value, count in self._counts.items() if count == most)


class ValueCounts:
    """Of categories: how often each occurs, as long as they are few."""

    def __init__(self) -> None:
        self.count = 0  #: values that are there
        self.counts: Counter[str] | None = Counter()  #: None: too many, or far too long
        self.examples: tuple[str, ...] = ()  #: the first few
        self.sample: tuple[str, ...] = ()  #: the first some hundred different ones

    def add(self, texts: Texts) -> None:
        """Take texts; those that are missing do not count."""
        there = texts.codes[texts.codes >= 0]
        self.count += len(there)
        if self.counts is None:
            return
        words, found = texts.words, np.bincount(there, minlength=len(texts.words))
        self.counts.update({word: count for word, count in zip(words, found.tolist(), strict=True) if count})
        if len(self.sample) < _SAMPLE_WORDS:
            self.sample = tuple(islice(self.counts, _SAMPLE_WORDS))
            self.examples = self.sample[:3]
        if len(self.counts) > MOST_CATEGORIES or any(len(word) > LONGEST_CATEGORY for word in words):
            self.counts = None

    def most_frequent(self) -> str | None:
        """The first in order of the alphabet of those that are there most often; None: too many to count."""
        if not self.counts:
            return None
        most = max(self.counts.values())
        return min(value for value, count in self.counts.items() if count == most)
