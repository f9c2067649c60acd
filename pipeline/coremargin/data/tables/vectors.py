"""Texts and categories as numbers by hashing: scikit-learn's own classes do it."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array, diags_array

if TYPE_CHECKING:
    from coremargin.data.tables.values import Texts
    from coremargin.formats.column_kinds import Texts as TextColumn

BUCKETS = 1 << 18  #: of texts
HASHED_BUCKETS = 1 << 10  #: of categories


class Frequencies:
    """In how many texts each bucket occurs."""

    def __init__(self, ngrams: int) -> None:
        self.ngrams, self.rows = ngrams, 0
        self._counts = np.zeros(BUCKETS, dtype=np.int64)

    def add(self, texts: Texts) -> None:
        """Take texts; one that is missing has no words."""
        self.rows += len(texts.codes)
        found = word_counts(texts, BUCKETS, self.ngrams)
        self._counts += np.bincount(found.indices, minlength=BUCKETS)  # each bucket once a row

    @property
    def counts(self) -> list[int]:
        """By bucket."""
        return [int(count) for count in self._counts]


@lru_cache(maxsize=16)
def _hasher(buckets: int, ngrams: int) -> Any:
    from sklearn.feature_extraction.text import HashingVectorizer

    return HashingVectorizer(n_features=buckets, ngram_range=(1, ngrams), norm=None, alternate_sign=False)


def word_counts(texts: Texts, buckets: int, ngrams: int) -> csr_array:
    """How often (m, buckets) each bucket's words occur in each text."""
    found = csr_array(_hasher(buckets, ngrams).transform([*texts.words, ""]))
    return found[np.where(texts.codes < 0, len(texts.words), texts.codes)]


def word_features(texts: Texts, column: TextColumn) -> csr_array:
    """Features (m, buckets) of texts: counts, weighed by how rare their words are, each row of length 1 or 0."""
    found = word_counts(texts, column.buckets, column.ngrams)
    if column.frequencies:
        weights = np.log((1 + column.rows) / (1 + np.array(column.frequencies, dtype=np.float64))) + 1
        found = csr_array(found @ diags_array(weights))
    lengths = np.sqrt(np.asarray(found.multiply(found).sum(axis=1)).reshape(-1))
    scale = np.divide(1.0, lengths, out=np.zeros(len(lengths)), where=lengths > 0)
    return csr_array(diags_array(scale) @ found)


def hashed(value: str, buckets: int) -> tuple[int, int]:
    """The bucket of a category, and 1 or -1, as scikit-learn's FeatureHasher has them."""
    from sklearn.utils import murmurhash3_32

    number = int(murmurhash3_32(value, seed=0))
    return abs(number) % buckets, 1 if number >= 0 else -1
