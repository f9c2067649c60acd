"""Reading all of a store, with the labels and weights that only earlier commits have, and naming all damage."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.data import chunk_hashes
from coremargin.data.format import GROUP_KEYS, KEY_PARTS, KEYS, read_facts
from coremargin.data.group_parts import groups_of
from coremargin.data.groups import GroupColumns, GroupRuns, check_group_weights, checked_id
from coremargin.data.key_runs import first_twice
from coremargin.data.layout import check_changed
from coremargin.data.narrow_rows import widen
from coremargin.data.ordered_threads import in_order
from coremargin.data.row_selection import group_index, index_of
from coremargin.data.rows import as_rows
from coremargin.data.sparse import as_sparse_rows, csr_slice
from coremargin.data.statistics import ChunkStatistics, measure
from coremargin.data.store import Store
from coremargin.data.weights import as_weights
from coremargin.errors import BadRow, DamagedChunk, StoreError, raise_if_limit
from coremargin.formats.zarr_metadata import read_array_metadata
from coremargin.maths.rows import is_sparse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from coremargin.data.buffers import Content
    from coremargin.data.key_runs import KeyIndex, Run
    from coremargin.data.layout import ArrayLayout
    from coremargin.data.readers import Readers
    from coremargin.data.storage import Storage
    from coremargin.formats.store_record import CommitRecord


_REQUESTS = 16  # chunks that are fetched at a time
_File = tuple[str, int]  # folder of an array, and number of a chunk


@dataclass(frozen=True)
class Damage:
    """One finding: chunk ``chunk`` (rows [start, stop)), or the store's own account of itself when chunk is None."""

    chunk: int | None
    start: int
    stop: int
    what: str


def look_at_earlier(store: Store, pool: ThreadPoolExecutor, workers: int) -> tuple[list[Damage], int]:
    """What is wrong with labels and weights that earlier commits have and the last one has not, and their bytes.

    Rows of an earlier commit are the beginning of those of the last one, which have been read.
    """
    damaged: list[Damage] = []
    seen, folders, more = set[_File]().union(*_files(store).values()), set(store.arrays), 0
    for commit in _changed_since([entry.commit for entry in store.log]):
        place = f"as of the commit {commit.digest} of {commit.rows:,} rows"
        try:
            older = Store.open(store.storage, map_bytes=0, digest=commit.digest)
            files, hashes = _files(older), older.chunk_hashes() if older.sha256 else None
        except StoreError as error:
            damaged.append(Damage(None, 0, commit.rows, f"{place}: {error}"))
            continue
        for part, of in files.items():
            new = of - seen
            unseen = {name for name, _ in new} - folders
            layout = _layouts(older)[part]
            for name in sorted(unseen):
                found = _bad_folder(layout, {chunk: name for where, chunk in new if where == name}, older.rows)
                damaged += [Damage(None, 0, commit.rows, f"{place}: {what}") for what in found]
            look = partial(_bad_part, older, part, place, hashes)
            for wrong in in_order(pool, look, sorted(n for _, n in new), workers + 2):
                damaged += wrong
            seen, folders = seen | new, folders | unseen
            more += sum(store.storage.stored_bytes(name) for name in unseen if store.storage.lists)
    return damaged, more


def _layouts(store: Store) -> dict[str, ArrayLayout]:
    """The arrays that commits may change."""
    readers = store.readers()
    found = {"y": readers.y.layout}
    return found if readers.weights is None else found | {"weights": readers.weights.layout}


def _files(store: Store) -> dict[str, set[_File]]:
    """Where labels and weights of all chunks lie."""
    return {
        part: {(layout.moved.get(chunk, layout.name), chunk) for chunk in range(store.chunks) if layout.has(chunk)}
        for part, layout in _layouts(store).items()
    }


def _bad_folder(layout: ArrayLayout, moved: dict[int, str], rows: int) -> list[str]:
    """What is wrong with an array of a change, as it describes itself, in which these chunks lie."""
    try:
        check_changed(replace(layout, moved=moved), rows)
        for name in set(moved.values()):
            check_opens(layout.storage, name)
    except StoreError as error:
        return [str(error)]
    return []


def _changed_since(history: Sequence[CommitRecord]) -> Iterator[CommitRecord]:
    """Commits before the last one, the latest first, that may need what no later one needs; each digest's last.

    Where rows were added, the next commit has all labels and weights of the one before, in the same files.
    """
    known = {commit.digest: number for number, commit in enumerate(history)}
    for number, (commit, then) in reversed(list(enumerate(pairwise(history)))):
        if known[commit.digest] == number and (then.changed or known[then.digest] != number + 1):
            yield commit


def _bad_part(store: Store, part: str, place: str, hashes: np.ndarray | None, chunk: int) -> tuple[Damage, ...]:
    """What is wrong with the labels or weights of one chunk of an earlier commit."""
    readers = store.readers()
    try:
        if part == "y":
            values = readers.y.reread(chunk)
            found = bad_codes(store, values, chunk)
        else:
            values = readers.weights.reread(chunk) if readers.weights else np.ones(0)
            as_weights(values, len(values), f"{store.name}: chunk {chunk}", store.span(chunk)[0])
            found = []
        if hashes is not None:
            computed = hashes[chunk].copy()
            computed[chunk_hashes.PARTS.index(part)] = chunk_hashes.hash_values(values)
            wrong = chunk_hashes.describe_mismatch(f"{store.name}: chunk {chunk}", hashes[chunk], computed)
            found += [wrong] if wrong else []
    except (DamagedChunk, BadRow) as error:
        found = [str(error)]
    return tuple(Damage(chunk, *store.span(chunk), f"{place}: {what}") for what in found)


def check_opens(storage: Storage, array: str) -> None:
    """Raises StoreError unless zarr-python, the reader of others and of ``verify``, opens an array too."""
    import zarr

    place = f"{storage.name}/{array}"
    if read_array_metadata(storage, array).data_type == "bfloat16":  # which it does not know: its metadata were checked
        return
    try:
        zarr.open_array(storage.zarr_node(array), mode="r", zarr_format=3)
    except Exception as error:  # zarr raises what it likes of metadata
        raise_if_limit(error, place)
        raise StoreError(f"{place}/zarr.json: zarr cannot open it ({error}); restore it from a copy") from error


def bad_codes(store: Store, codes: np.ndarray, chunk: int) -> list[str]:
    """What is wrong with codes whose bytes are those that were written."""
    if codes.min() >= -1 and codes.max() < len(store.classes):
        return []
    known = f"expected codes from -1 to {len(store.classes) - 1}"
    return [f"{store.name}: chunk {chunk}: {known}, got {codes.min()} to {codes.max()}"]


# Reading all keys of a store and naming what is damaged: every row has one, and none is there twice.


def bad_keys(store: Store) -> list[Damage]:
    """What is wrong with the keys of a store, of all its commits; one finding for each run.

    While it is read, a writer may merge runs, and the next one remove them: then what is there now is read.
    """
    while True:
        before = _runs(store)
        found = _bad(store, index_of, KEYS) + ([] if store.groups is None else _bad(store, group_index, GROUP_KEYS))
        if not found or _runs(store) == before:
            return [Damage(None, 0, store.rows, what) for what in found]


def _runs(store: Store) -> tuple[Any, Any]:
    facts = read_facts(store.storage)
    return facts.keys, facts.groups


def _bad(store: Store, index_in: Callable[[Store], KeyIndex | None], folder: str) -> list[str]:
    """The same of keys of rows, or of groups: those of their first rows."""
    try:
        latest = store if folder == KEYS else Store.open(store.storage, map_bytes=0)  # whose groups the runs have
        index = index_in(latest)
        expected = None if folder == KEYS else _first_rows(latest)
    except (StoreError, DamagedChunk) as error:
        return [str(error)]
    if index is None:
        return []
    place = f"{store.storage.name}/{folder}"
    seen = np.zeros(-(-index.rows // 8), np.uint8)  # a bit for each row
    found = [what for run in index.runs if (what := _bad_run(store, run, index, seen))]
    if found:
        return found
    there = np.unpackbits(seen, count=index.rows, bitorder="little").astype(bool)
    wrong = np.flatnonzero(~there if expected is None else there != expected)
    if len(wrong):
        what = "a key for each row" if expected is None else "keys of the first rows of groups"
        found_row = "none" if not there[wrong[0]] else "one"
        return [f"{place}: expected {what}, found {found_row} for row {wrong[0]:,}; restore it"]
    pair = first_twice(index.runs, [])
    if pair is None:
        return []
    return [f"{place}: expected a key of its own for each row, found one for rows {pair[0]:,} and {pair[1]:,}"]


def _first_rows(store: Store) -> np.ndarray:
    """Whether a group begins at each row."""
    groups, found = groups_of(store), np.zeros(store.rows, bool)
    for chunk in range(store.chunks):
        found[groups.offsets(chunk)[:-1]] = True
    return found


def _bad_run(store: Store, run: Run, index: KeyIndex, seen: np.ndarray) -> str | None:
    """What is wrong with a run by itself, and with its rows, which ``seen`` takes."""
    restore = "restore it from a copy"
    try:
        for part in KEY_PARTS:
            check_opens(store.storage, f"{run.key}/{part}")
        last: tuple[int, int] | None = None
        for number, entries in enumerate(run.pieces()):
            high, low, rows = entries
            ascending = (high[1:] > high[:-1]) | ((high[1:] == high[:-1]) & (low[1:] > low[:-1]))
            here = int(high[0]), int(low[0])
            if not ascending.all() or (last is not None and here <= last) or run.first[number] != high[0]:
                return f"{run.name}: file {number} of its keys is not in order; {restore}"
            last = int(high[-1]), int(low[-1])
            if rows.min() < 0 or rows.max() >= index.rows:
                found = f"{rows.min():,} to {rows.max():,}"
                return f"{run.name}: expected rows from 0 to {index.rows - 1:,}, found {found}; {restore}"
            rows = np.sort(rows)
            bits = np.uint8(1) << (rows & 7).astype(np.uint8)
            twice = np.append((rows[1:] == rows[:-1]), False) | (seen[rows >> 3] & bits > 0)
            if twice.any():
                return f"{run.name}: found another key for row {rows[np.argmax(twice)]:,}; {restore}"
            np.bitwise_or.at(seen, rows >> 3, bits)
    except StoreError as error:
        return str(error)
    return None


_SLICE = 256  # chunks whose statistics are held at a time
_SPARSE_SLICE = 8  # of sparse rows: each may mention a million features
_EXACT = ("rows", "counts", "unlabelled", "low", "high", "digest", "nonzeros", "marks")
_RELATIVE = 1e-9  # of radius and norm, about a centre that may differ in its last bits between machines
_ROUNDING = 1e-15  # per row: sums in another order


@dataclass(frozen=True)
class CheckReport:
    """What ``check_store`` found; ``damaged`` is empty for a store that is whole."""

    path: str
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
    digest: str | None = None,
) -> CheckReport:
    """Read every byte of a store: checksums and SHA-256, values, statistics, keys; labels of earlier commits.

    on_chunk(chunks done, chunks in all, damage of this chunk) is called in this thread. digest: of the commit that is
    read, alone. Raises StoreError when not even the metadata tells what should be there.
    """
    store = Store.open(path, map_bytes=0, digest=digest)
    readers = store.readers()
    for reader in (readers.y, readers.weights):
        if reader is not None:
            check_changed(reader.layout, store.rows)
    for name in store.arrays:
        check_opens(store.storage, name)
    damaged = _bad_columns(store) or [*_bad_group_files(store), *bad_keys(store)]
    hashes = None
    if store.sha256:
        try:
            hashes = store.chunk_hashes()
        except StoreError as error:
            damaged.append(Damage(None, 0, store.rows, str(error)))
    workers = workers or (_REQUESTS if store.storage.remote else len(os.sched_getaffinity(0)))
    with ThreadPoolExecutor(workers, thread_name_prefix="coremargin-check") as pool:
        together = _SPARSE_SLICE if store.sparse else _SLICE
        for start in range(0, store.chunks, together):
            chunks = range(start, min(store.chunks, start + together))
            stored, complaint = _stored(store, chunks)
            damaged += complaint
            look = partial(_look, store, readers, stored, hashes, start)
            for chunk, found in zip(chunks, in_order(pool, look, chunks, workers + 2), strict=True):
                damaged += found
                if on_chunk is not None:
                    on_chunk(chunk + 1, store.chunks, found)
        before, more = look_at_earlier(store, pool, workers) if digest is None else ([], 0)
    read = store.compressed_bytes + more
    return CheckReport(store.storage.name, store.rows, store.chunks, read, tuple(damaged + before))


def _bad_columns(store: Store) -> list[Damage]:
    """What is wrong with the file that says what the columns are."""
    try:
        store.columns  # noqa: B018 - it is read when it is asked for
    except StoreError as error:
        return [Damage(None, 0, store.rows, str(error))]
    return []


def _bad_group_files(store: Store) -> list[Damage]:
    """What is wrong with the files of groups, padding included."""
    try:
        if store.groups is not None:
            store.groups.check_files()
    except DamagedChunk as error:
        return [Damage(None, 0, store.rows, str(error))]
    return []


def _stored(store: Store, chunks: range) -> tuple[ChunkStatistics | None, list[Damage]]:
    """Statistics of some chunks as the store has them, or why they cannot be read."""
    try:
        return store.statistics(chunks.start, chunks.stop), []
    except StoreError as error:
        return None, [Damage(None, store.span(chunks.start)[0], store.span(chunks.stop - 1)[1], str(error))]


def _look(
    store: Store,
    readers: Readers,
    stored: ChunkStatistics | None,
    hashes: np.ndarray | None,
    first: int,
    chunk: int,
) -> tuple[Damage, ...]:
    """What is wrong with one chunk."""
    start, stop = store.span(chunk)
    read: list[Any] = []
    found: list[str] = []
    for reader in readers:
        try:
            read.append(reader.reread(chunk) if reader is not None and reader.has(chunk) else None)
        except DamagedChunk as error:
            found.append(str(error))
    if not found:
        weights = store.weights(chunk) if read[2] is None else read[2]
        if hashes is not None:
            computed = chunk_hashes.hash_chunk(read[0], read[1], weights)
            wrong = chunk_hashes.describe_mismatch(f"{store.name}: chunk {chunk}", hashes[chunk], computed)
            found += [wrong] if wrong else []
        found += _contents(store, (read[0], read[1], weights), stored, chunk - first, chunk)
        found += _bad_groups(store, chunk, weights)
    return tuple(Damage(chunk, start, stop, what) for what in found)


def _bad_groups(store: Store, chunk: int, weights: np.ndarray | None) -> list[str]:
    """What is wrong with the groups that begin in a chunk. weights (n,): of its rows, which are right."""
    if store.groups is None:
        return []
    place, (start, stop) = f"{store.name}: chunk {chunk}", store.span(chunk)
    try:
        offsets, ids = store.groups.offsets(chunk), store.groups.ids(chunk)
        for name in ids:
            checked_id(name, lambda row: place, 0)
    except (DamagedChunk, BadRow) as error:
        return [str(error)]
    if (store.groups.hashes(chunk) != GroupColumns.of_chunk(offsets[:-1], ids).hashes[0]).any():
        return [f"{place}: the SHA-256 of its groups is not the recorded one; restore it from a copy"]
    if weights is not None and len(offsets) > 1:
        runs = GroupRuns(stop - int(offsets[0]), offsets[:-1] - offsets[0], ids, lambda row: place)
        try:
            check_group_weights(runs, weights[offsets[0] - start :])
        except BadRow as error:
            return [str(error)]
    return []


def _contents(store: Store, content: Content, stored: ChunkStatistics | None, index: int, chunk: int) -> list[str]:
    """What is wrong with rows whose bytes are those that were written."""
    X: Any = content[0]
    codes, weights = content[1:]
    place, first = f"{store.name}: chunk {chunk}", store.span(chunk)[0]
    try:
        if store.sparse:
            kept = as_sparse_rows(X, dtype=store.dtype, place=place, first=first)
            if not (np.array_equal(kept.indices, X.indices) and np.array_equal(kept.indptr, X.indptr)):
                return [f"{place}: expected ascending indices and no zeros, found others; ingest again"]
        else:
            as_rows(widen(X), dtype=store.dtype, place=place, first=first)
        if weights is not None:
            as_weights(weights, len(codes), place, first)
    except BadRow as error:
        return [f"{error}; ingest again without such rows"]
    if (wrong := bad_codes(store, codes, chunk)) or stored is None:
        return wrong
    names = _differing(measure(X, codes, len(store.classes), weights), stored, index)
    return [f"{place}: the statistics {', '.join(names)} are not those of its rows; ingest again"] if names else []


def _differing(computed: ChunkStatistics, stored: ChunkStatistics, index: int) -> list[str]:
    """Names of the statistics that do not describe the rows."""
    names = []
    size = float(computed.max_norm[0])
    for field in fields(ChunkStatistics):
        new, old = getattr(computed, field.name), getattr(stored, field.name)
        if is_sparse(new):  # the features that occur are the same, or the statistics are another chunk's
            old = csr_slice(old, index, index + 1)
            new, old = (new.data, old.data) if np.array_equal(new.indices, old.indices) else (np.zeros(1), np.ones(1))
        else:
            new, old = new[0], old[index]
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
