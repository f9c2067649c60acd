"""Identity of a store's content, from the checksums of its chunks."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.checksum import crc32c, joined
from coremargin.data.groups import IDS, STARTS
from coremargin.data.sizes import LABEL_DTYPE, WEIGHT_DTYPE
from coremargin.data.sparse import INDEX_DTYPE, INDPTR_DTYPE
from coremargin.data.statistics import chunk_digest, chunk_marks
from coremargin.formats.row_types import stored_dtype
from coremargin.formats.store_record import FORMAT
from coremargin.maths.rows import is_sparse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coremargin.data.groups import GroupColumns

INDICES, LENGTHS, WEIGHTS = range(3)  #: columns of ``ChunkStatistics.marks``


@dataclass(frozen=True)
class Digested:
    """What the digest of a store needs of its chunks (c,): rows, stored values, checksums; see ``ChunkStatistics``."""

    rows: np.ndarray
    nonzeros: np.ndarray
    digest: np.ndarray
    marks: np.ndarray

    @classmethod
    def of(cls, chunks: Any) -> Digested:
        """From ``ChunkStatistics`` or ``ChunkScalars``."""
        return cls(chunks.rows, chunks.nonzeros, chunks.digest, chunks.marks)

    def upto(self, chunks: int) -> Digested:
        """The first chunks."""
        return Digested(*(values[:chunks] for values in vars(self).values()))

    @classmethod
    def of_rows(cls, X: Any, codes: np.ndarray, weights: np.ndarray | None) -> Digested:
        """Of one chunk: rows X (n, d), codes (n,) int32, weights (n,), None: all are 1."""
        stored = X.nnz if is_sparse(X) else np.size(X)
        sums = np.array([chunk_digest(X, codes)], np.uint64), chunk_marks(X, weights)[None, :]
        return cls(np.array([X.shape[0]]), np.array([stored]), *sums)

    @classmethod
    def joined(cls, parts: Sequence[Digested]) -> Digested:
        """The chunks of all parts (at least one), in order."""
        return cls(*(np.concatenate(same) for same in zip(*(vars(part).values() for part in parts), strict=True)))


def checksums_of_ones(rows: np.ndarray) -> np.ndarray:
    """The checksums (c,) uint32 of weights that are all 1, of chunks with so many rows (c,)."""
    sizes, of = np.unique(rows, return_inverse=True)
    known = [crc32c(np.ones(size, WEIGHT_DTYPE).data.cast("B")) for size in sizes.tolist()]
    return np.array(known, np.uint32)[of]


def store_digest(
    *,
    features: int,
    dtype: str,
    classes: Sequence[Any],
    chunks: Digested,
    sparse: bool = False,
    weighted: bool = False,
    groups: GroupColumns | None = None,
) -> str:
    """Identity of the committed content, from the rows and the checksums of each chunk.

    Depends on the rows, their order, the codes, the classes, the weights, the groups, and whether the rows are sparse;
    not on compression, nor on how rows were cut into chunks or commits: the checksums of the chunks are joined into
    those of all rows, of all labels, and so on.
    """
    rows = [int(n) for n in chunks.rows]
    digests = [int(digest) for digest in chunks.digest]
    values = [int(n) for n in chunks.nonzeros]
    itemsize = stored_dtype(dtype).itemsize

    def mark(column: int, counts: list[int], size: int) -> int:
        crcs = [int(crc) for crc in chunks.marks[:, column]]
        return joined((crc, n * size) for crc, n in zip(crcs, counts, strict=True))

    facts: dict[str, Any] = {
        "format": FORMAT,
        "features": features,
        "dtype": dtype,
        "classes": list(classes),
        "rows": sum(rows),
        "x": joined((digest >> 32, n * itemsize) for n, digest in zip(values, digests, strict=True)),
        "y": joined((digest & 0xFFFFFFFF, n * LABEL_DTYPE.itemsize) for n, digest in zip(rows, digests, strict=True)),
    }
    if sparse:
        facts["indices"] = mark(INDICES, values, INDEX_DTYPE.itemsize)
        facts["lengths"] = mark(LENGTHS, rows, INDPTR_DTYPE.itemsize)
    if weighted:
        facts["weights"] = mark(WEIGHTS, rows, WEIGHT_DTYPE.itemsize)
    if groups is not None:
        for column, name, size in ((STARTS, "groups", 8), (IDS, "group_ids", 1)):
            lengths = (groups.sizes[:, column] * size).tolist()
            facts[name] = joined(zip(groups.marks[:, column].tolist(), lengths, strict=True))
    return "sha256:" + hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
