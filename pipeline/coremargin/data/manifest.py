"""The store's own account of its chunks: statistics and digests, one group of small arrays per commit."""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data.changes import Changed, folders_of, read_changes
from coremargin.data.digest import Digested, store_digest
from coremargin.data.files import aside_of, output_errors, sync_folder, write_json
from coremargin.data.owned import STORE
from coremargin.data.plain import group_metadata, write_array
from coremargin.data.sizes import chunks_of
from coremargin.data.statistics import ChunkScalars, ChunkStatistics, widened
from coremargin.data.support import read_vectors, vector_file
from coremargin.errors import StoreError
from coremargin.formats.raw_array import read_raw_array
from coremargin.formats.store_record import spans
from coremargin.formats.stored_values import check_stored_values
from coremargin.maths.rows import concatenate as stacked
from coremargin.maths.rows import nothing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from coremargin.data.format import Commit, Facts

BLOCKS = "blocks"
_SCALARS = {
    "rows": "int64",
    "unlabelled": "int64",
    "radius": "float64",
    "max_norm": "float64",
    "digest": "uint64",
}
MARKS = 3  #: columns of ``ChunkStatistics.marks``
_VECTORS = ("centre", "low", "high", "total", "spread")


def write_statistics(
    store: Path, group: str, statistics: ChunkStatistics | ChunkScalars, facts: Facts, array: np.ndarray
) -> None:
    """Write one commit's statistics; array (c,): which commit's array has the labels of each chunk, 0 for ``y``.

    The vectors of sparse chunks have files of their own: see support.py.
    """
    left_out = {"nonzeros", "marks"} - set(_extra(facts))
    columns = {name: values for name, values in vars(statistics).items() if name not in left_out}
    write_group(store, group, columns | ({"array": array} if facts.changed else {}))


def write_group(store: Path, group: str, columns: Mapping[str, Any]) -> None:
    """Write one commit's columns; the group appears whole. What an unfinished commit left there is replaced."""
    blocks = store / BLOCKS
    final = blocks / group
    aside = aside_of(final)
    with output_errors(final):
        blocks.mkdir(exist_ok=True)
        if not (blocks / "zarr.json").exists():
            write_json(blocks / "zarr.json", group_metadata({}))
        for folder in (aside, final):
            STORE.remove(store, f"{BLOCKS}/{folder.name}")
        aside.mkdir()
        write_json(aside / "zarr.json", group_metadata({}))
        for name, values in columns.items():
            tail = {"counts": ("class",), "marks": ("mark",)}.get(name, ("feature",))
            write_array(aside / name, values, ("chunk", *tail)[: values.ndim])
            sync_folder(aside / name)
        sync_folder(aside)
        os.rename(aside, final)
        sync_folder(blocks)


def _extra(facts: Facts) -> dict[str, tuple[str, tuple[int, ...]]]:
    """dtype and row shape of the columns that not every store has."""
    extra: dict[str, tuple[str, tuple[int, ...]]] = {"nonzeros": ("int64", ())} if facts.sparse else {}
    return extra | ({"marks": ("uint32", (MARKS,))} if facts.sparse or facts.weighted else {})


class Manifest:
    """Read access to the statistics of the chunks of one commit of a store, merged over the commits before it."""

    def __init__(self, store: Path, facts: Facts, commits: Sequence[Commit]) -> None:
        """``commits`` ends with the commit that is read; the entries of later groups supersede earlier ones."""
        self._store, self._facts, self._last = store, facts, commits[-1]
        self._commits, self._spans = commits, spans(commits)

    @cached_property
    def changes(self) -> list[tuple[int, Changed]]:
        """What commits that changed labels say of their chunks, as far as it stands; see ``read_changes``."""
        return read_changes(self._store / BLOCKS, self._commits)

    @cached_property
    def array(self) -> np.ndarray:
        """Which commit's array has the labels of each chunk (c,), 0 for ``y``."""
        numbers = [number for number, commit in enumerate(self._commits) if commit.changed]
        later = {commit.group for commit in self._commits[numbers[0] :]} if numbers else set()
        parts = [
            self._slice(commit, "array", "int64", (), a, b) if commit.group in later else np.zeros(b - a, np.int64)
            for a, b, commit in self._spans
        ]
        found = np.concatenate(parts)
        for _, entries in self.changes:
            found[entries.chunk] = entries.array
        return found

    def folders(self) -> dict[int, str]:
        """Where the labels of chunks lie that commits changed, by number of the chunk. Raises StoreError."""
        return folders_of(self._store / BLOCKS, self._commits, self.array)

    def scalars(self) -> ChunkScalars:
        """Entries of all chunks that are one number, or one per class; checked against the commit's digest."""
        columns = {name: self._column(name, dtype, (), 0, self._last.last) for name, dtype in _SCALARS.items()}
        counts = [
            widened(self._slice(c, "counts", "int64", (c.classes,), a, b), self._last.classes)
            for a, b, c in self._spans
        ]
        columns["nonzeros"] = columns["rows"] * self._facts.features
        columns["marks"] = np.zeros((self._last.last, MARKS), dtype=np.uint32)
        for name, (dtype, tail) in _extra(self._facts).items():
            columns[name] = self._column(name, dtype, tail, 0, self._last.last)
        if self._facts.sparse:
            shape = {"rows": self._last.rows, "chunk_rows": self._facts.chunk_rows, "features": self._facts.features}
            check_stored_values(self._store, columns["nonzeros"], **shape)
        columns["counts"] = np.concatenate(counts)
        for _, entries in self.changes:
            entries.put(columns)
        scalars = ChunkScalars(**columns)
        self._check(scalars)
        return scalars

    def vectors(self, name: str, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop) of centre, low, high, total or spread, of dense chunks: (stop - start, d) float64."""
        return self._column(name, "float64", (self._facts.features,), start, stop)

    def part(self, start: int, stop: int, known: ChunkScalars) -> ChunkStatistics:
        """Everything, of the chunks [start, stop); ``known`` are the scalars of all chunks."""
        scalars = vars(known.part(start, stop))
        if self._facts.sparse:
            return ChunkStatistics(**scalars, **self.sparse_vectors(start, stop, known.rows))
        return ChunkStatistics(**scalars, **{name: self.vectors(name, start, stop) for name in _VECTORS})

    def sparse_vectors(self, start: int, stop: int, rows: np.ndarray) -> dict[str, Any]:
        """The vectors (stop - start, d) of sparse chunks as CSR arrays; rows (c,): of all chunks."""
        facts, blocks = self._facts, self._store / BLOCKS
        dtype = np.dtype(facts.dtype)
        found = [
            read_vectors(vector_file(blocks, chunk, int(rows[chunk])), int(rows[chunk]), facts.features, dtype)
            for chunk in range(start, stop)
        ]
        if not found:
            return {name: nothing(facts.features, sparse=True) for name in _VECTORS}
        return {name: stacked([part[name] for part in found]) for name in _VECTORS}

    def _column(self, name: str, dtype: str, tail: tuple[int, ...], start: int, stop: int) -> np.ndarray:
        parts = [np.zeros((0, *tail), dtype=dtype)]
        for first, last, commit in self._spans:
            a, b = max(first, start), min(last, stop)
            if a < b:
                parts.append(self._slice(commit, name, dtype, tail, a, b))
        return np.concatenate(parts)

    def _slice(self, commit: Commit, name: str, dtype: str, tail: tuple[int, ...], a: int, b: int) -> np.ndarray:
        folder = self._store / BLOCKS / commit.group / name
        if name == "spread" and not folder.exists() and folder.with_name("squares").exists():
            return self._spread_of_old(commit, tail, a, b)
        return read_raw_array(folder, a - commit.first, b - commit.first, dtype, tail)

    def _spread_of_old(self, commit: Commit, tail: tuple[int, ...], a: int, b: int) -> np.ndarray:
        """Stores written before 2026-11-21 have sums of squares instead: less exact far from the origin."""
        total, squares = (self._slice(commit, name, "float64", tail, a, b) for name in ("total", "squares"))
        rows = self._slice(commit, "rows", "int64", (), a, b)[:, None]
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray(np.maximum(squares - total * total / rows, 0.0))

    def _check(self, scalars: ChunkScalars) -> None:
        facts, last = self._facts, self._last
        expected = np.full(last.last, facts.chunk_rows, dtype=np.int64)
        expected[-1] = last.rows - (last.last - 1) * facts.chunk_rows
        if chunks_of(last.rows, facts.chunk_rows) != len(scalars.rows) or not np.array_equal(scalars.rows, expected):
            raise StoreError(
                f"{self._store}/{BLOCKS}: the rows per chunk do not add up to {last.rows:,}; restore it from a copy"
            )
        digest = store_digest(
            features=facts.features,
            dtype=facts.dtype,
            classes=facts.classes[: last.classes],
            chunks=Digested.of(scalars),
            sparse=facts.sparse,
            weighted=facts.weighted,
        )
        if digest != last.digest:
            raise StoreError(
                f"{self._store}: expected the content {last.digest}, the chunks' digests say {digest}; "
                f"the metadata was altered: restore zarr.json and {BLOCKS} from a copy"
            )
