"""What killed writers and replaced generations left at an address: found by one listing, and removed once it is old.

On disk there is nothing to do: each writer of a store removes what killed ones left there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coremargin.data.format import BLOCKS, CHANGES, GROUP_KEYS, KEYS, ROOT, read_facts
from coremargin.data.lease import FILE as LEASE
from coremargin.data.object_storage import ObjectStorage
from coremargin.data.owned import STORE
from coremargin.data.sizes import chunks_of
from coremargin.data.storages import open_storage
from coremargin.errors import UsageError
from coremargin.formats.generation import FILE as CURRENT
from coremargin.formats.generation import FOLDER
from coremargin.formats.location import location

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.data.conditional_puts import Found
    from coremargin.data.storages import Address

DEFAULT_SECONDS = 7 * 86400.0
_BATCH = 1000  # objects that are deleted at a time
_CHUNK = re.compile(r"(?:(X|y|weights)|changes/\d+/(?:y|weights))/c[./](\d+)(?:[./]\d+)*")
_ID = re.compile("[0-9a-f]{16}")
_TEST = re.compile("(clock-)?[0-9a-f]{16}")
_GROUP = re.compile(rf"(?:{BLOCKS}|{CHANGES})/(\d+)/.*|((?:{KEYS}|{GROUP_KEYS})/[^/]+)/.*")


@dataclass(frozen=True)
class Leftover:
    """Objects that nothing names: what they are, how many, their bytes, and when the last one was written (seconds)."""

    what: str
    objects: int
    nbytes: int
    modified: float


@dataclass(frozen=True)
class VacuumReport:
    """What was removed, or would be.

    Attributes
    ----------
    removed : tuple of Leftover
        By kind; of a generation that is not the current one, all of it.
    kept : tuple of Leftover
        The same, of what is younger.
    """

    removed: tuple[Leftover, ...]
    kept: tuple[Leftover, ...]

    @property
    def objects(self) -> int:
        """How many were removed, or would be."""
        return sum(one.objects for one in self.removed)

    @property
    def nbytes(self) -> int:
        """Bytes of these."""
        return sum(one.nbytes for one in self.removed)


def vacuum(
    path: Address,
    *,
    older_than: float = DEFAULT_SECONDS,
    dry_run: bool = False,
    storage_options: Mapping[str, str] | None = None,
) -> VacuumReport:
    """Remove what killed writers and replaced generations left at an address, never what a commit names.

    Readers of a replaced generation, which go on after a ``compact``, find its objects missing afterwards.

    Parameters
    ----------
    path : path-like
        The address of a store or a model; at a path on this machine there is nothing to remove.
    older_than : float, default 7 days
        Seconds; what was written later stays, by the clock of the service.
    dry_run : bool, default False
        Only say what would be removed.
    storage_options : mapping, optional
        Options of the address, as for ``Store.open``.

    Returns
    -------
    VacuumReport
        What was removed.

    Raises
    ------
    UsageError
        An age below 0.
    Busy
        Another writer is at work.
    OutputError
        Objects cannot be deleted.
    """
    if not older_than >= 0:
        raise UsageError(f"older_than: expected seconds, 0 or more, got {older_than}")
    storage = open_storage(location(path, storage_options) if isinstance(path, str) and storage_options else path)
    if not isinstance(storage, ObjectStorage):
        return VacuumReport((), ())
    if dry_run:
        return _report(storage, older_than)[0]
    storage = storage.resolved()
    lock = storage.lock_writers()
    try:
        report, is_old = _report(storage, older_than)
        batch = list[str]()
        for found, what in _leftovers(storage):
            if is_old(found, what):
                batch.append(found.path)
            if len(batch) == _BATCH:
                storage.delete_found(batch)
                batch = []
        storage.delete_found(batch)
    finally:
        lock.release()
    return report


def _report(storage: ObjectStorage, age: float) -> tuple[VacuumReport, Callable[[Found, str], bool]]:
    """What is left over, and whether an object of it is old enough to be removed."""
    newest = storage.clock() - age
    generations = dict[str, float]()
    for found, what in _leftovers(storage):
        if _is_generation(what):
            generations[what] = max(generations.get(what, 0.0), found.modified)

    def is_old(found: Found, what: str) -> bool:
        return generations.get(what, found.modified) <= newest

    counts = dict[tuple[bool, str], Leftover]()
    for found, what in _leftovers(storage):
        key = is_old(found, what), what
        before = counts.get(key, Leftover(what, 0, 0, 0.0))
        counts[key] = Leftover(
            what, before.objects + 1, before.nbytes + found.nbytes, max(before.modified, found.modified)
        )
    old, young = (
        tuple(one for (is_so, _), one in sorted(counts.items()) if is_so == wanted) for wanted in (True, False)
    )
    return VacuumReport(old, young), is_old


def _leftovers(storage: ObjectStorage) -> Iterator[tuple[Found, str]]:
    """Objects that nothing names, each with what it is left of."""
    generation = storage.generation
    prefix = "" if generation is None else generation.prefix
    unnamed = _unnamed(storage)
    for found in storage.list_found():
        path = found.path
        if path in (CURRENT, LEASE):
            continue
        if path.startswith(f"{FOLDER}/"):
            name, slash, _ = path.removeprefix(f"{FOLDER}/").partition("/")
            if not slash:
                if _TEST.fullmatch(name):
                    yield found, "tests of the service"
            elif not _ID.fullmatch(name):
                continue  # not of this project
            elif not prefix.startswith(f"{FOLDER}/{name}/"):
                yield found, f"{FOLDER}/{name}"
            elif unnamed(path.removeprefix(prefix)):
                yield found, "an unfinished commit"
        elif prefix:
            if STORE.owns(path, False):
                yield found, "objects directly below the address"
        elif unnamed(path):
            yield found, "an unfinished commit"


def _is_generation(what: str) -> bool:
    return what.startswith(f"{FOLDER}/")


def _unnamed(storage: ObjectStorage) -> Callable[[str], bool]:
    """Whether a key of the current store is one that no commit names; of a model all are named."""
    if not storage.exists(ROOT):
        return lambda key: False
    facts = read_facts(storage)
    chunks = chunks_of(facts.rows, facts.chunk_rows)
    runs = {f"{KEYS}/{run.group}" for run in facts.keys} | {f"{GROUP_KEYS}/{run.group}" for run in facts.groups}

    def is_unnamed(key: str) -> bool:
        if found := _CHUNK.fullmatch(key):
            return int(found[2]) >= chunks
        if found := _GROUP.fullmatch(key):
            return int(found[1]) >= facts.number if found[1] else found[2] not in runs
        return False

    return is_unnamed
