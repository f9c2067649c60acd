"""SHA-256 of the parts of each chunk, and of a store's content from these: formats/store_record.py defines both.

The digest of digest.py is the same however rows are cut into chunks, because checksums of parts can be joined. SHA-256
has no such algebra, so stores keep both: the digest finds the commit that has the same rows, SHA-256 proves that they
were not replaced by others with the same checksums.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.sizes import WEIGHT_DTYPE
from coremargin.data.sparse import INDEX_DTYPE, INDPTR_DTYPE
from coremargin.formats.store_record import FORMAT
from coremargin.maths.rows import is_sparse

if TYPE_CHECKING:
    from collections.abc import Sequence

PARTS = ("x", "y", "indices", "lengths", "weights")
GROUP_PARTS = ("groups", "group_ids")  #: of rows in groups
LABELS, WEIGHTS = PARTS.index("y"), PARTS.index("weights")
BYTES = 32  #: of a SHA-256
COLUMN = "sha256"  #: of a commit's group


def hash_values(values: np.ndarray) -> np.ndarray:
    """SHA-256 (32,) uint8 of the little-endian bytes of an array."""
    little = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
    return np.frombuffer(hashlib.sha256(little.reshape(-1).data).digest(), np.uint8)


def hash_chunk(X: Any, codes: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """SHA-256 (5, 32) uint8 of the parts of a chunk: rows X (n, d), codes (n,) int32, weights (n,) or None."""
    parts: list[np.ndarray | None] = [X, codes, None, None, None]
    if is_sparse(X):
        parts = [X.data, codes, X.indices.astype(INDEX_DTYPE, copy=False), np.diff(X.indptr).astype(INDPTR_DTYPE), None]
    if weights is not None:
        parts[WEIGHTS] = weights.astype(WEIGHT_DTYPE, copy=False)
    found = np.zeros((len(PARTS), BYTES), np.uint8)
    for number, values in enumerate(parts):
        if values is not None:
            found[number] = hash_values(values)
    return found


def describe_mismatch(place: str, recorded: np.ndarray, found: np.ndarray) -> str:
    """A message if SHA-256 (5, 32) of a chunk, whose CRC-32C hold, are not the recorded ones; else ""."""
    other = [PARTS[number] for number in np.flatnonzero((recorded != found).any(axis=1))]
    if not other:
        return ""
    names = " and ".join({"x": "rows", "y": "labels"}.get(part, part) for part in other)
    return (
        f"{place}: the SHA-256 of its {names} is not the recorded one, but the CRC-32C is: the chunk was replaced; "
        f"restore it from a copy"
    )


def hash_ones(rows: np.ndarray) -> np.ndarray:
    """SHA-256 (c, 32) uint8 of weights that are all 1, of chunks with so many rows (c,)."""
    sizes, of = np.unique(rows, return_inverse=True)
    known = [hash_values(np.ones(size, WEIGHT_DTYPE)) for size in sizes.tolist()]
    return np.array(known, np.uint8).reshape(len(sizes), BYTES)[of]


def content_sha256(
    hashes: np.ndarray,
    *,
    features: int,
    dtype: str,
    classes: Sequence[Any],
    rows: int,
    chunk_rows: int,
    groups: np.ndarray | None,
) -> str:
    """SHA-256 of a commit's content, "sha256:...", from those (c, 5, 32) of the parts of its chunks.

    groups: those (c, 2, 32) of the groups that begin in each; None: rows are in none.
    """
    facts = {
        "format": FORMAT,
        "features": features,
        "dtype": dtype,
        "classes": list(classes),
        "rows": rows,
        "chunk_rows": chunk_rows,
    }
    facts |= {name: hashlib.sha256(hashes[:, k].tobytes()).hexdigest() for k, name in enumerate(PARTS)}
    if groups is not None:
        facts |= {name: hashlib.sha256(groups[:, k].tobytes()).hexdigest() for k, name in enumerate(GROUP_PARTS)}
    return "sha256:" + hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
