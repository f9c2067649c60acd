"""Reading all of a store and naming everything that is damaged."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from coremargin.data.statistics import ChunkStatistics, measure
from coremargin.data.store import Store
from coremargin.data.synth import in_order
from coremargin.errors import DamagedChunk, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from coremargin.data.reader import ArrayReader

_SLICE = 256  # chunks whose statistics are held at a time
_EXACT = ("rows", "counts", "unlabelled", "low", "high", "digest", "nonzeros", "marks")
_RELATIVE = 1e-9  # of radius and norm, about a centre that may differ in its last bits between machines
_ROUNDING = 1e-15  # per row: sums in another order


@dataclass(frozen=True)
class Damage:
    """One finding: chunk ``chunk`` (rows [start, stop)), or the store's own account of itself when chunk is None."""

    chunk: int | None
    start: int
    stop: int
    what: str


@dataclass(frozen=True)
class CheckReport:
    """What ``check_store`` found; ``damaged`` is empty for a store that is whole."""

    path: Path
    rows: int
    chunks: int
    bytes_read: int
    damaged: tuple[Damage, ...]

    @property
    def whole(self) -> bool:
        """Nothing is damaged."""
        return not self.damaged


def check_store(
    path: str | os.PathLike[str],
    on_chunk: Callable[[int, int, tuple[Damage, ...]], None] | None = None,
    *,
    workers: int | None = None,
) -> CheckReport:
    """Read every byte of a store: checksums of files and rows, values, statistics.

    on_chunk(chunks done, chunks in all, damage of this chunk) is called in this thread. Raises StoreError when not even
    the metadata tells what should be there.
    """
    store = Store.open(path, map_bytes=0)
    readers = store.readers()
    workers = workers or len(os.sched_getaffinity(0))
    damaged: list[Damage] = []
    with ThreadPoolExecutor(workers, thread_name_prefix="coremargin-check") as pool:
        for start in range(0, store.chunks, _SLICE):
            chunks = range(start, min(store.chunks, start + _SLICE))
            stored, complaint = _stored(store, chunks)
            damaged += complaint
            look = partial(_look, store, readers, stored, start)
            for chunk, found in zip(chunks, in_order(pool, look, chunks, workers + 2), strict=True):
                damaged += found
                if on_chunk is not None:
                    on_chunk(chunk + 1, store.chunks, found)
    return CheckReport(store.path, store.rows, store.chunks, store.compressed_bytes, tuple(damaged))


def _stored(store: Store, chunks: range) -> tuple[ChunkStatistics | None, list[Damage]]:
    """Statistics of some chunks as the store has them, or why they cannot be read."""
    try:
        return store.statistics(chunks.start, chunks.stop), []
    except StoreError as error:
        return None, [Damage(None, store.span(chunks.start)[0], store.span(chunks.stop - 1)[1], str(error))]


def _look(
    store: Store, readers: tuple[ArrayReader, ArrayReader], stored: ChunkStatistics | None, first: int, chunk: int
) -> tuple[Damage, ...]:
    """What is wrong with one chunk."""
    start, stop = store.span(chunk)
    read: list[np.ndarray] = []
    found: list[str] = []
    for reader in readers:
        try:
            read.append(reader.reread(chunk))
        except DamagedChunk as error:
            found.append(str(error))
    if len(read) == len(readers):
        found += _contents(store, read[0], read[1], stored, chunk - first, chunk)
    return tuple(Damage(chunk, start, stop, what) for what in found)


def _contents(
    store: Store, X: np.ndarray, codes: np.ndarray, stored: ChunkStatistics | None, index: int, chunk: int
) -> list[str]:
    """What is wrong with rows whose bytes are those that were written."""
    place = f"{store.name}: chunk {chunk}"
    bad = np.flatnonzero(~np.isfinite(X).all(axis=1))
    if bad.size:
        row = store.span(chunk)[0] + int(bad[0])
        return [f"{place}: row {row} holds a value that is not finite; ingest again without such rows"]
    if codes.min() < -1 or codes.max() >= len(store.classes):
        return [f"{place}: expected codes from -1 to {len(store.classes) - 1}, got {codes.min()} to {codes.max()}"]
    if stored is None:
        return []
    names = _differing(measure(X, codes, len(store.classes)), stored, index)
    return [f"{place}: the statistics {', '.join(names)} are not those of its rows; ingest again"] if names else []


def _differing(computed: ChunkStatistics, stored: ChunkStatistics, index: int) -> list[str]:
    """Names of the statistics that do not describe the rows."""
    names = []
    size = float(computed.max_norm[0])
    for field in fields(ChunkStatistics):
        new, old = getattr(computed, field.name)[0], getattr(stored, field.name)[index]
        if field.name in _EXACT:
            same = np.array_equal(new, old)
        elif field.name in ("radius", "max_norm"):  # bounds: never below the truth, about which the centre may wobble
            same = bool(old >= new * (1 - _RELATIVE) - _RELATIVE * size and old <= new + _RELATIVE * size)
        else:
            rows = float(computed.rows[0])
            scale = {"centre": size, "total": size * rows, "spread": size * size * rows}[field.name]
            same = np.array_equal(new, old) or bool((np.abs(new - old) <= _ROUNDING * rows * scale).all())
        if not same:
            names.append(field.name)
    return names
