"""The records of chunks in a store: checksums, numbers of values, and places of labels and weights."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import crc32c
import numpy as np
from msgspec import UNSET

from coremargin.errors import StoreError
from coremargin.formats import store_log
from coremargin.formats.raw_array import preload_raw_arrays, read_raw_array
from coremargin.formats.store_record import GROUP_FILES, changes, check_stored_values, group_of, spans
from coremargin.formats.zarr_metadata import read_array_metadata
from coremargin.verify.hashes import GROUP_PARTS, PARTS, hashes_of

if TYPE_CHECKING:
    from coremargin.formats.storage import ReadableStorage
    from coremargin.formats.store_log import LogEntry
    from coremargin.formats.store_record import CommitRecord, StoreRecord

BLOCKS = "blocks"


@dataclass(frozen=True)
class Sums:
    """The records of each chunk (c,): number of stored values, and crc32c of the bytes of each part.

    hashes: SHA-256 (c, 32) uint8 of all parts, zeros for what the rows do not have; empty for a store that has none.
    folders: by number of the chunk, the places of labels ("y") and weights outside of the arrays of these names.
    groups (c, 2): how many groups begin in each chunk, and bytes of their ids; zeros for rows in no groups.
    weighted: rows have weights; rows ingested without have 1 until a commit changes it.
    """

    nonzeros: np.ndarray
    parts: dict[str, np.ndarray]
    hashes: dict[str, np.ndarray]
    folders: dict[str, dict[int, str]]
    groups: np.ndarray
    weighted: bool


def as_of(record: StoreRecord, log: list[LogEntry], digest: str, path: str, *, grown: bool) -> tuple[StoreRecord, int]:
    """The record at the last commit with this digest, and its number; the present one if no commit has it.

    grown: also if rows were appended since; False: the record is then the present one, too.
    """
    known = [entry.commit.digest for entry in log]
    last = len(known) - 1
    if digest not in known:
        return record, last
    number = last - known[::-1].index(digest)
    if number == last or not (grown or log[number].commit.rows == record.rows):
        return record, last
    try:
        return store_log.as_of(record, log, number), number
    except ValueError as error:
        rows = log[number].commit.rows
        raise StoreError(f"{path}: as of its {rows:,} rows: {error}; restore zarr.json from a copy") from error


def read_sums(store: ReadableStorage, record: StoreRecord) -> Sums:
    """Read the records of each chunk: digest has the rows in its high half, the labels in the low one.

    Records that later commits supersede are not read. No memory is allocated by a number before it is checked.
    """
    commits, sparse = record.commits, record.sparse
    described = spans(commits)
    _preload(store, record)

    def column(name: str, dtype: str, tail: tuple[int, ...] = (), only: str = "") -> np.ndarray:
        """A column for all chunks; only: selects commits, with 0 for the chunks of others."""
        parts = [
            read_raw_array(
                store, f"{BLOCKS}/{commit.group}/{name}", first - commit.first, stop - commit.first, dtype, tail
            )
            if not only or getattr(commit, only)
            else np.zeros((stop - first, *tail), dtype)
            for first, stop, commit in described
        ]
        return np.concatenate(parts)

    digests = column("digest", "uint64")
    labels = digests & np.uint64(0xFFFFFFFF)
    nonzeros = column("nonzeros", "int64") if sparse else np.zeros(len(digests), np.int64)
    marks = column("marks", "uint32", (3,), "" if sparse or record.weighted else "weights")
    if sparse:
        shape = {"rows": record.rows, "chunk_rows": record.chunk_rows, "features": record.features}
        check_stored_values(store, nonzeros, **shape)
    hashed = commits[-1].sha256 is not UNSET
    hashes = column("sha256", "uint8", (len(PARTS), 32)) if hashed else np.zeros((0, len(PARTS), 32), np.uint8)
    weights, places = marks[:, 2].copy(), {"y": column("array", "int64", only="moved")}
    places["weights"] = column("weights_array", "int64", only="weights")
    weighted_rows = (places["weights"] > 0) | record.weighted
    for commit, chunk, where in _changed(store, commits):
        labels[chunk] = _entries(store, commit, "y", "uint32")[where]
        places["y"][chunk] = _entries(store, commit, "array", "int64")[where]
        if commit.weights:
            weights[chunk] = _entries(store, commit, "weights", "uint32")[where]
            places["weights"][chunk] = _entries(store, commit, "weights_array", "int64")[where]
        if hashed:
            changed = _entries(store, commit, "sha256", "uint8", (2, 32))[where]
            hashes[chunk, 1], hashes[chunk, 4] = changed[:, 0], changed[:, 1]
    weighted_rows |= places["weights"] > 0
    weighted = bool(weighted_rows.any())
    if (not sparse and marks[:, :2].any()) or (not weighted and marks[:, 2].any()):
        raise StoreError(
            f"{store.name}/{BLOCKS}: expected no checksums of what the rows do not have, found some; ingest again"
        )
    parts = {"x": digests >> np.uint64(32), "y": labels}
    if sparse:
        parts |= {"indices": marks[:, 0], "lengths": marks[:, 1]}
    if weighted:
        parts["weights"] = np.where(weighted_rows, weights, _of_ones(record, len(digests)))
        if hashed:
            hashes[~weighted_rows, 4] = _hashes_of_ones(record, len(digests))[~weighted_rows]
    named = {name: hashes[:, number] for number, name in enumerate(PARTS)} if hashed else {}
    groups = np.zeros((len(digests), 2), np.int64)
    if record.grouped:
        groups, found = column("groups", "int64", (2,)), column("group_marks", "uint32", (2,))
        hashed_groups = column("group_sha256", "uint8", (2, 32))
        for number, name in enumerate(GROUP_PARTS):
            parts[name], named[name] = found[:, number], hashed_groups[:, number]
        length = [read_array_metadata(store, name).shape[0] for name in GROUP_FILES]
        if (groups < 0).any() or (groups.sum(axis=0, dtype=object) > length).any():
            raise StoreError(f"{store.name}/{BLOCKS}: expected at most as many groups as are stored; restore it")
    folders = {part: _folders(f"{store.name}/{BLOCKS}", record, part, of) for part, of in places.items()}
    return Sums(nonzeros, parts, named, folders, groups, weighted)


def _preload(store: ReadableStorage, record: StoreRecord) -> None:
    """Fetch the records at once, where requests take long."""
    wanted = list[tuple[str, int]]()
    hashed = {"sha256": 3} if record.commits[-1].sha256 is not UNSET else {}
    for _, _, commit in spans(record.commits):
        names = {"digest": 1} | hashed | ({"nonzeros": 1} if record.sparse else {})
        names |= {"marks": 2} if record.sparse or record.weighted or commit.weights else {}
        names |= {"groups": 2, "group_marks": 2, "group_sha256": 3} if record.grouped else {}
        names |= ({"array": 1} if commit.moved else {}) | ({"weights_array": 1} if commit.weights else {})
        wanted += [(f"{BLOCKS}/{commit.group}/{name}", n) for name, n in names.items()]
    for _, _, commit in changes(record.commits):
        changed = ("chunk", "y", "array", *(("weights", "weights_array") if commit.weights else ()))
        dimensions = dict.fromkeys(changed, 1) | hashed
        wanted += [(f"{BLOCKS}/{commit.group}/{name}", n) for name, n in dimensions.items()]
    preload_raw_arrays(store, wanted)


def _of_ones(record: StoreRecord, chunks: int) -> np.ndarray:
    """The checksums (c,) of weights of 1 for all rows of each chunk."""
    last = record.rows - (chunks - 1) * record.chunk_rows
    whole, rest = (crc32c.crc32c(np.ones(rows, "<f8").tobytes()) for rows in (record.chunk_rows, last))
    return np.array([*[whole] * (chunks - 1), rest], np.uint32)


def _hashes_of_ones(record: StoreRecord, chunks: int) -> np.ndarray:
    """SHA-256 (c, 32) uint8 of the same weights."""
    last = record.rows - (chunks - 1) * record.chunk_rows
    whole, rest = (hashes_of({"weights": np.ones(rows)})["weights"] for rows in (record.chunk_rows, last))
    return np.frombuffer(whole * (chunks - 1) + rest, np.uint8).reshape(chunks, 32)


def _entries(
    store: ReadableStorage, commit: CommitRecord, name: str, dtype: str, tail: tuple[int, ...] = ()
) -> np.ndarray:
    return read_raw_array(store, f"{BLOCKS}/{commit.group}/{name}", 0, commit.changed, dtype, tail)


def _changed(
    store: ReadableStorage, commits: list[CommitRecord]
) -> Iterator[tuple[CommitRecord, np.ndarray, np.ndarray]]:
    """Commits that changed labels or weights, in order: their chunks that are still valid, and the entries of these."""
    for number, stop, commit in changes(commits):
        chunk = _entries(store, commit, "chunk", "int64")
        if not ((chunk >= 0) & (chunk < commit.last)).all() or not (np.diff(chunk) > 0).all():
            place = f"{store.name}/{BLOCKS}/{commit.group}/chunk"
            raise StoreError(
                f"{place}: expected chunks of {commit.last:,} that commit {number} changed, ascending, found others; "
                f"restore it from a copy"
            )
        where = np.flatnonzero(chunk < stop)
        yield commit, chunk[where], where


def _folders(place: str, record: StoreRecord, part: str, places: np.ndarray) -> dict[int, str]:
    """The places of a part of chunks that a commit changed; places (c,): number of the commit, 0 for none."""
    last = record.commits[-1].number
    folders = dict[int, str]()
    for index in np.flatnonzero(places).tolist():
        number = int(places[index])
        if not 0 < number <= last:
            what = {"y": "labels"}.get(part, part)
            raise StoreError(
                f"{place}: chunk {index}: expected its {what} in the array of a commit that changed some, found "
                f"number {number}; restore it from a copy"
            )
        folders[index] = f"changes/{group_of(number)}/{part}"
    return folders
