"""The store's own account of its chunks: statistics and digests, one group of small arrays per commit."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data import chunk_hashes
from coremargin.data.changes import Changed, Places, folders_of, read_changes
from coremargin.data.digest import WEIGHTS, Digested, checksums_of_ones, store_digest
from coremargin.data.format import BLOCKS
from coremargin.data.groups import GROUP_COLUMNS, GroupColumns
from coremargin.data.owned import STORE
from coremargin.data.plain import group_metadata, write_array
from coremargin.data.sizes import chunks_of
from coremargin.data.sparse_statistics import read_vectors
from coremargin.data.statistics import ChunkScalars, ChunkStatistics, widened
from coremargin.data.storage import write_json
from coremargin.errors import StoreError
from coremargin.formats.limits import LONGEST_LABEL
from coremargin.formats.raw_array import preload_raw_arrays, read_raw_array
from coremargin.formats.row_types import stored_dtype
from coremargin.formats.store_record import check_stored_values, spans
from coremargin.maths.rows import concatenate as stacked
from coremargin.maths.rows import nothing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from coremargin.data.format import Commit, Facts
    from coremargin.data.storage import Storage

_SCALARS = {
    "rows": "int64",
    "unlabelled": "int64",
    "radius": "float64",
    "max_norm": "float64",
    "digest": "uint64",
}
MARKS = 3  #: columns of ``ChunkStatistics.marks``
_TAILS = {  # dimensions of columns, but that of chunks
    "counts": ("class",),
    "marks": ("mark",),
    chunk_hashes.COLUMN: ("part", "byte"),
    "group_sha256": ("part", "byte"),
    "groups": ("part",),
    "group_marks": ("part",),
}
_VECTORS = ("centre", "low", "high", "total", "spread")


def write_statistics(
    storage: Storage,
    group: str,
    statistics: ChunkStatistics | ChunkScalars,
    facts: Facts,
    places: Places,
    hashes: np.ndarray | None,
    groups: GroupColumns | None,
) -> None:
    """Write one commit's statistics.

    places: where labels and weights of its chunks lie. hashes: SHA-256 (c, 5, 32) of their parts, if the store has
    those of all chunks. groups: what is recorded of groups, if rows are in some. The vectors of sparse chunks have
    objects of their own: see sparse_statistics.py.
    """
    reweighed = bool(places.weights.any())
    left_out = {"nonzeros", "marks"} - set(_extra(facts, marked=reweighed))
    columns = {name: values for name, values in vars(statistics).items() if name not in left_out}
    columns |= {"array": places.labels} if facts.moved else {}
    columns |= {} if hashes is None else {chunk_hashes.COLUMN: hashes}
    if groups is not None:
        columns |= {name: getattr(groups, field) for name, (field, _, _) in GROUP_COLUMNS.items()}
    write_group(storage, group, columns | ({"weights_array": places.weights} if reweighed else {}))


def write_group(storage: Storage, group: str, columns: Mapping[str, Any]) -> None:
    """Write one commit's columns, which a root names later. What an unfinished commit left there is replaced."""
    key, groups = f"{BLOCKS}/{group}", group_metadata({})
    storage.remove(key, STORE.owns)
    if not storage.exists(f"{BLOCKS}/zarr.json"):
        write_json(storage, f"{BLOCKS}/zarr.json", groups)
    with storage.batch() as batch:
        write_json(batch, f"{key}/zarr.json", groups)
        for name, values in columns.items():
            tail = _TAILS.get(name, ("feature",))
            write_array(batch, f"{key}/{name}", values, ("chunk", *tail)[: values.ndim])
    storage.sync(*(f"{key}/{name}" for name in columns), key, BLOCKS)


def _extra(facts: Facts, *, marked: bool = False) -> dict[str, tuple[str, tuple[int, ...]]]:
    """dtype and row shape of the columns that not every store has; marked: checksums of weights are there anyhow."""
    extra: dict[str, tuple[str, tuple[int, ...]]] = {"nonzeros": ("int64", ())} if facts.sparse else {}
    return extra | ({"marks": ("uint32", (MARKS,))} if facts.sparse or facts.weighted or marked else {})


class Manifest:
    """Read access to the statistics of the chunks of one commit of a store, merged over the commits before it."""

    def __init__(self, storage: Storage, facts: Facts, commits: Sequence[Commit]) -> None:
        """``commits`` ends with the commit that is read; the entries of later groups supersede earlier ones."""
        self._storage, self._facts, self._last = storage, facts, commits[-1]
        self._commits, self._spans = commits, spans(commits)

    @cached_property
    def changes(self) -> list[tuple[int, Changed]]:
        """What commits that changed labels or weights say of their chunks, as far as it stands; see changes.py."""
        return read_changes(self._storage, self._commits)

    @cached_property
    def places(self) -> Places:
        """Where labels and weights of all chunks lie."""
        found = Places.nothing(self._last.last)
        for a, b, commit in self._spans:
            if commit.moved:
                found.labels[a:b] = self._slice(commit, "array", "int64", (), a, b)
            if commit.weights:
                found.weights[a:b] = self._slice(commit, "weights_array", "int64", (), a, b)
        for _, entries in self.changes:
            entries.place(found)
        return found

    @property
    def weighted(self) -> bool:
        """Rows have weights: they came with some, or were given others since."""
        return self._facts.weighted or bool(self.places.weights.any())

    def folders(self, part: str = "y") -> dict[int, str]:
        """Where labels or weights of chunks lie that commits changed, by number of the chunk. Raises StoreError."""
        places = self.places.labels if part == "y" else self.places.weights
        return folders_of(f"{self._storage.name}/{BLOCKS}", self._last, places, part)

    @cached_property
    def groups(self) -> GroupColumns | None:
        """What is recorded of the groups of all chunks, checked by ``scalars``; None: rows are in none.

        Raises StoreError.
        """
        if not self._facts.grouped:
            return None
        last = self._last.last
        found = GroupColumns(
            **{field: self._column(name, dtype, tail, 0, last) for name, (field, dtype, tail) in GROUP_COLUMNS.items()}
        )
        counts, id_bytes = found.sizes.T
        most = counts * (4 * LONGEST_LABEL + 1)  # before memory for ids is allocated
        if (
            (found.sizes < 0).any()
            or (counts > self._facts.chunk_rows).any()
            or (id_bytes > most).any()
            or not counts[0]
        ):
            raise StoreError(
                f"{self._storage.name}/{BLOCKS}: expected numbers of groups that each chunk can have, "
                "found others; restore it from a copy"
            )
        return found

    def scalars(self) -> ChunkScalars:
        """Entries of all chunks that are one number, or one per class; checked against the commit's digest."""
        self._preload()
        columns = {name: self._column(name, dtype, (), 0, self._last.last) for name, dtype in _SCALARS.items()}
        counts = [
            widened(self._slice(c, "counts", "int64", (c.classes,), a, b), self._last.classes)
            for a, b, c in self._spans
        ]
        columns["nonzeros"] = columns["rows"] * self._facts.features
        columns["marks"] = self._marks(columns["rows"])
        if self._facts.sparse:
            columns["nonzeros"] = self._column("nonzeros", "int64", (), 0, self._last.last)
            shape = {"rows": self._last.rows, "chunk_rows": self._facts.chunk_rows, "features": self._facts.features}
            check_stored_values(self._storage, columns["nonzeros"], **shape)
        columns["counts"] = np.concatenate(counts)
        for _, entries in self.changes:
            entries.put(columns)
        scalars = ChunkScalars(**columns)
        self._check(scalars)
        return scalars

    def _preload(self) -> None:
        """Fetch the columns that ``scalars`` reads, of all commits at once."""
        wanted = list[tuple[str, int]]()
        for _, _, commit in self._spans:
            dimensions = dict.fromkeys(_SCALARS, 1) | {"counts": 2}
            marked = commit.weights and not commit.changed
            dimensions |= {name: 1 + len(tail) for name, (_, tail) in _extra(self._facts, marked=marked).items()}
            dimensions |= {"array": 1} if commit.moved else {}
            dimensions |= {"weights_array": 1} if commit.weights else {}
            if self._facts.grouped:
                dimensions |= {name: 1 + len(tail) for name, (_, _, tail) in GROUP_COLUMNS.items()}
            wanted += [(f"{BLOCKS}/{commit.group}/{name}", n) for name, n in dimensions.items()]
        preload_raw_arrays(self._storage, wanted)

    def _preload_columns(self, names: Sequence[str], dimensions: int, start: int, stop: int) -> None:
        """Fetch columns of the commits that describe the chunks [start, stop), at once."""
        groups = [commit.group for first, last, commit in self._spans if max(first, start) < min(last, stop)]
        preload_raw_arrays(
            self._storage, ((f"{BLOCKS}/{group}/{name}", dimensions) for group in groups for name in names)
        )

    def _marks(self, rows: np.ndarray) -> np.ndarray:
        """Checksums (c, 3) of what not every store has; of weights that were never given, those of ones."""
        found = np.zeros((self._last.last, MARKS), dtype=np.uint32)
        if self.weighted and not self._facts.weighted:
            found[:, WEIGHTS] = checksums_of_ones(rows)
        for a, b, commit in self._spans:
            if "marks" in _extra(self._facts, marked=commit.weights and not commit.changed):
                marks = self._slice(commit, "marks", "uint32", (MARKS,), a, b)
                given = np.full(b - a, self._facts.weighted) | self._moved(commit, a, b)
                marks[~given, WEIGHTS] = found[a:b][~given, WEIGHTS]
                found[a:b] = marks
        return found

    def _moved(self, commit: Commit, a: int, b: int) -> np.ndarray:
        """Of which chunks [a, b) a commit's group says that their weights lie in a change."""
        if not commit.weights:
            return np.zeros(b - a, bool)
        return np.asarray(self._slice(commit, "weights_array", "int64", (), a, b) > 0)

    def hashes(self, rows: np.ndarray) -> np.ndarray:
        """SHA-256 (c, 5, 32) uint8 of the parts of all chunks, of a commit that has its own; rows (c,) of each chunk.

        Nothing that trains or predicts needs them, so they are not read with the scalars. Raises StoreError: they are
        not those of which the commit has the SHA-256.
        """
        facts, last = self._facts, self._last
        self._preload_columns([chunk_hashes.COLUMN], 3, 0, last.last)
        found = self._column(chunk_hashes.COLUMN, "uint8", (len(chunk_hashes.PARTS), chunk_hashes.BYTES), 0, last.last)
        of = {commit.number: commit for commit in self._commits}
        for number, entries in self.changes:
            array, count = f"{BLOCKS}/{of[number].group}/{chunk_hashes.COLUMN}", len(entries.chunk)
            changed = read_raw_array(self._storage, array, 0, count, "uint8", (2, chunk_hashes.BYTES))
            found[entries.chunk, chunk_hashes.LABELS] = changed[:, 0]
            found[entries.chunk, chunk_hashes.WEIGHTS] = changed[:, 1]
        if self.weighted and not facts.weighted:
            unmoved = self.places.weights == 0
            found[unmoved, chunk_hashes.WEIGHTS] = chunk_hashes.hash_ones(rows[unmoved])
        sha256 = chunk_hashes.content_sha256(
            found,
            features=facts.features,
            dtype=facts.dtype,
            classes=facts.classes[: last.classes],
            rows=last.rows,
            chunk_rows=facts.chunk_rows,
            groups=None if self.groups is None else self.groups.hashes,
        )
        if sha256 != last.sha256:
            raise StoreError(
                f"{self._storage.name}: expected content of SHA-256 {last.sha256}, those of the chunks say {sha256}; "
                f"the metadata was altered: restore zarr.json and {BLOCKS} from a copy"
            )
        return found

    def vectors(self, name: str, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop) of centre, low, high, total or spread, of dense chunks: (stop - start, d) float64."""
        return self._column(name, "float64", (self._facts.features,), start, stop)

    def part(self, start: int, stop: int, known: ChunkScalars) -> ChunkStatistics:
        """Everything, of the chunks [start, stop); ``known`` are the scalars of all chunks."""
        scalars = vars(known.part(start, stop))
        if self._facts.sparse:
            return ChunkStatistics(**scalars, **self.sparse_vectors(start, stop, known.rows))
        self._preload_columns(_VECTORS, 2, start, stop)
        return ChunkStatistics(**scalars, **{name: self.vectors(name, start, stop) for name in _VECTORS})

    def sparse_vectors(self, start: int, stop: int, rows: np.ndarray) -> dict[str, Any]:
        """The vectors (stop - start, d) of sparse chunks as CSR arrays; rows (c,): of all chunks."""
        facts, dtype = self._facts, stored_dtype(self._facts.dtype)
        found = [
            read_vectors(self._storage, chunk, int(rows[chunk]), facts.features, dtype) for chunk in range(start, stop)
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
        array = f"{BLOCKS}/{commit.group}/{name}"
        return read_raw_array(self._storage, array, a - commit.first, b - commit.first, dtype, tail)

    def _check(self, scalars: ChunkScalars) -> None:
        facts, last, place = self._facts, self._last, f"{self._storage.name}/{BLOCKS}"
        expected = np.full(last.last, facts.chunk_rows, dtype=np.int64)
        expected[-1] = last.rows - (last.last - 1) * facts.chunk_rows
        if chunks_of(last.rows, facts.chunk_rows) != len(scalars.rows) or not np.array_equal(scalars.rows, expected):
            raise StoreError(f"{place}: the rows per chunk do not add up to {last.rows:,}; restore it from a copy")
        digest = store_digest(
            features=facts.features,
            dtype=facts.dtype,
            classes=facts.classes[: last.classes],
            chunks=Digested.of(scalars),
            sparse=facts.sparse,
            weighted=self.weighted,
            groups=self.groups,
        )
        if digest != last.digest:
            raise StoreError(
                f"{self._storage.name}: expected the content {last.digest}, the chunks' digests say {digest}; "
                f"the metadata was altered: restore zarr.json and {BLOCKS} from a copy"
            )
