"""What reads the chunks of a store, and checks each against what the manifest says of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from coremargin.data.csr_reader import CsrReader
from coremargin.data.digest import WEIGHTS
from coremargin.data.layout import weights_like
from coremargin.data.reader import ArrayReader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.data.layout import ArrayLayout
    from coremargin.data.manifest import Manifest
    from coremargin.data.statistics import ChunkScalars


class Readers(NamedTuple):
    """What reads rows, labels and weights; ``weights`` is None where there are none."""

    X: ArrayReader | CsrReader
    y: ArrayReader
    weights: ArrayReader | None


def readers_of(
    layouts: Mapping[str, ArrayLayout], manifest: Manifest, scalars: ChunkScalars, features: int, map_bytes: int
) -> Readers:
    """Of the arrays of a store, by the names of their folders; map_bytes: how many bytes of rows may be mapped."""
    values, labels = scalars.digest >> np.uint64(32), scalars.digest & np.uint64(0xFFFFFFFF)
    X: ArrayReader | CsrReader
    if "X" in layouts:
        X = ArrayReader(layouts["X"], scalars.rows, values, map_bytes)
    else:
        X = CsrReader(layouts, scalars, features, map_bytes)
    where = replace(layouts["y"], moved=manifest.folders("y"))
    y = ArrayReader(where, scalars.rows, labels, 0)  # small: copied into a buffer, not mapped
    weights = None
    if manifest.weighted:
        given = layouts.get("weights") or replace(weights_like(layouts["y"]), whole_array=False)
        where = replace(given, moved=manifest.folders("weights"))
        weights = ArrayReader(where, scalars.rows, scalars.marks[:, WEIGHTS], 0)
    return Readers(X, y, weights)


def ones(rows: int) -> np.ndarray:
    """Weights (n,) of rows that have none, read-only."""
    found = np.ones(rows)
    found.flags.writeable = False
    return found
