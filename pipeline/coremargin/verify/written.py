"""What is written down of the chunks of a store: checksums, how many values they hold, and where their labels lie."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from coremargin.errors import StoreError
from coremargin.formats.raw_array import read_raw_array
from coremargin.formats.store_record import changes, spans
from coremargin.formats.stored_values import check_stored_values

if TYPE_CHECKING:
    from coremargin.formats.store_record import StoreRecord


@dataclass(frozen=True)
class Sums:
    """What was written down of each chunk (c,): values stored, and crc32c of the bytes of each part."""

    nonzeros: np.ndarray
    parts: dict[str, np.ndarray]


def as_of(record: StoreRecord, digest: str, path: Path, *, grown: bool) -> StoreRecord:
    """The record as the last commit of this digest left it; as it is, where no commit has it.

    grown: also where rows were appended since; without it the record is as it is then, too.
    """
    known = [commit.digest for commit in record.commits]
    if digest not in known:
        return record
    number = len(known) - 1 - known[::-1].index(digest)
    if number == len(known) - 1 or not (grown or record.commits[number].rows == record.rows):
        return record
    try:
        return record.upto(number)
    except ValueError as error:
        rows = record.commits[number].rows
        raise StoreError(f"{path}: as of its {rows:,} rows: {error}; restore zarr.json from a copy") from error


def read_sums(blocks: Path, record: StoreRecord) -> Sums:
    """Of each chunk as ingest wrote them down: digest has the rows in its high half, the labels in the low one.

    Only what no later commit supersedes is read. Nothing is made as long as a number says before it is read.
    """

    def column(name: str, dtype: str, tail: tuple[int, ...] = ()) -> np.ndarray:
        parts = [
            read_raw_array(blocks / commit.group / name, first - commit.first, stop - commit.first, dtype, tail)
            for first, stop, commit in spans(record.commits)
        ]
        return np.concatenate(parts)

    sparse, digests = record.sparse, column("digest", "uint64")
    labels = digests & np.uint64(0xFFFFFFFF)
    for chunk, changed in _changed(blocks, record, "y", "uint32"):
        labels[chunk] = changed
    nonzeros = column("nonzeros", "int64") if sparse else np.zeros(len(digests), np.int64)
    marks = column("marks", "uint32", (3,)) if sparse or record.weighted else np.zeros((len(digests), 3), np.uint32)
    if sparse:
        shape = {"rows": record.rows, "chunk_rows": record.chunk_rows, "features": record.features}
        check_stored_values(blocks.parent, nonzeros, **shape)
    if (not sparse and marks[:, :2].any()) or (not record.weighted and marks[:, 2].any()):
        raise StoreError(f"{blocks}: expected no checksums of what the rows do not have, found some; ingest again")
    parts = {"x": digests >> np.uint64(32), "y": labels}
    if sparse:
        parts |= {"indices": marks[:, 0], "lengths": marks[:, 1]}
    return Sums(nonzeros, parts | ({"weights": marks[:, 2]} if record.weighted else {}))


def _changed(blocks: Path, record: StoreRecord, name: str, dtype: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Chunks whose labels commits changed, and a column of what these say of them; later ones come later."""
    for number, stop, commit in changes(record.commits):
        folder = blocks / commit.group
        chunk = read_raw_array(folder / "chunk", 0, commit.changed, "int64")
        values = read_raw_array(folder / name, 0, commit.changed, dtype)
        if not ((chunk >= 0) & (chunk < commit.last)).all() or not (np.diff(chunk) > 0).all():
            raise StoreError(
                f"{folder}/chunk: expected chunks of {commit.last:,} that commit {number} changed, ascending, found "
                f"others; restore it from a copy"
            )
        yield chunk[chunk < stop], values[chunk < stop]


def label_folders(blocks: Path, record: StoreRecord) -> dict[int, str]:
    """Where labels of chunks lie that do not lie in ``y``, by number of the chunk."""
    first = next((number for number, commit in enumerate(record.commits) if commit.changed), len(record.commits))
    later = {commit.group for commit in record.commits[first:]}
    found = np.zeros(record.commits[-1].last, np.int64)
    for start, stop, commit in spans(record.commits):
        if commit.group in later:
            folder = blocks / commit.group / "array"
            found[start:stop] = read_raw_array(folder, start - commit.first, stop - commit.first, "int64")
    for chunk, array in _changed(blocks, record, "array", "int64"):
        found[chunk] = array
    folders = dict[int, str]()
    for index in np.flatnonzero(found).tolist():
        number = int(found[index])
        if not (0 < number < len(record.commits) and record.commits[number].changed):
            raise StoreError(
                f"{blocks}: chunk {index}: expected its labels in the array of a commit that changed some, found "
                f"number {number}; restore it from a copy"
            )
        folders[index] = f"changes/{record.commits[number].group}/y"
    return folders
