"""What only earlier commits of a store read, when everything in it is checked: labels and weights that were changed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from coremargin.data.layout import check_changed
from coremargin.data.ordered_threads import in_order
from coremargin.data.storage import stored_bytes
from coremargin.data.store import Store
from coremargin.data.weights import as_weights
from coremargin.errors import BadRow, DamagedChunk, StoreError, raise_if_limit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from concurrent.futures import ThreadPoolExecutor

    from coremargin.data.layout import ArrayLayout
    from coremargin.data.storage import Storage
    from coremargin.formats.store_record import CommitRecord

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
            files = _files(older)
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
            look = partial(_bad_part, older, part, place)
            for wrong in in_order(pool, look, sorted(n for _, n in new), workers + 2):
                damaged += wrong
            seen, folders = seen | new, folders | unseen
            more += sum(stored_bytes(store.storage, name) for name in unseen)
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


def _bad_part(store: Store, part: str, place: str, chunk: int) -> tuple[Damage, ...]:
    """What is wrong with the labels or weights of one chunk of an earlier commit."""
    readers = store.readers()
    try:
        if part == "y":
            found = bad_codes(store, readers.y.reread(chunk), chunk)
        else:
            weights = readers.weights.reread(chunk) if readers.weights else np.ones(0)
            as_weights(weights, len(weights), f"{store.name}: chunk {chunk}", store.span(chunk)[0])
            found = []
    except (DamagedChunk, BadRow) as error:
        found = [str(error)]
    return tuple(Damage(chunk, *store.span(chunk), f"{place}: {what}") for what in found)


def check_opens(storage: Storage, array: str) -> None:
    """Raises StoreError unless zarr-python, the reader of others and of ``verify``, opens an array too."""
    import zarr

    place = f"{storage.name}/{array}"
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
