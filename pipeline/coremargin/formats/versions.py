"""The files of a model registry, and how a reader resolves an alias.

::

    name/
      registry.json          format and id; written once, as the last file of a new registry
      versions/000017/       a model's folder with version.json; renamed into place, immutable
      aliases/champion       the version that the alias points to; replaced atomically
      log.jsonl              chained log (chained.py) of all events, starting from the hash of registry.json
      work/                  models in training

The log is authoritative: a writer first brings folders and aliases up to the last line. The number of the line that
moved an alias is its fencing token, which never decreases. A reader resolves an alias once and keeps the folder:
versions with an alias are not removed.

At an address, ``versions/000017`` is a model as it is at any address (generation.py), the log is one object that is
replaced on condition, and there is no ``aliases``: the log has the last move of each. ``work`` is a folder elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, to_builtins

from coremargin.errors import AccessDenied, DataError, UsageError
from coremargin.formats.chained import LONGEST_LINE, Chain, Hash, Number, When, hash_of, read_chain
from coremargin.formats.location import Location, is_remote, location
from coremargin.formats.model_record import (
    Count,
    Digest,
    Features,
    Label,
    Rows,
    Status,
    StoreHash,
    Strict,
    Word,
    check_version,
)
from coremargin.formats.object_storage import ObjectReader
from coremargin.formats.open_folder import Folder
from coremargin.formats.storage import MISSING, read_checked_bytes, read_object_bytes, rereading_refused
from coremargin.formats.strict_json import LARGEST, read_object, typed

if TYPE_CHECKING:
    from coremargin.formats.storage import ReadableStorage

FORMAT: Literal["coremargin-registry"] = "coremargin-registry"
VERSION_FORMAT: Literal["coremargin-version"] = "coremargin-version"
VERSION: Literal[2] = 2
FILE, RECORD, LOG, ALIASES, VERSIONS, WORK = (
    "registry.json",
    "version.json",
    "log.jsonl",
    "aliases",
    "versions",
    "work",
)
CHAMPION = "champion"  #: alias of the version in use
CANDIDATE = "candidate"  #: alias of the newest version
ALIAS = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_NUMBERED = re.compile(r"[0-9]{1,9}")

Name: TypeAlias = Annotated[str, Meta(pattern=rf"^{ALIAS.pattern}$")]
Text: TypeAlias = Annotated[str, Meta(max_length=4000)]
Job: TypeAlias = Annotated[str, Meta(max_length=1 << 20)]
Figure: TypeAlias = float | int | None
Action = Literal["trained", "passed", "refused", "promoted", "rolled back", "removed", "predicted", "run"]
MOVES: tuple[Action, ...] = ("promoted", "rolled back")  #: actions that move an alias


class Head(Strict, frozen=True, kw_only=True):
    """``registry.json``; id: random, so that logs of two registries cannot be exchanged."""

    format: Literal["coremargin-registry"]
    version: Literal[2]
    id: Hash
    created: When


class VersionRecord(Strict, frozen=True, kw_only=True):
    """``version.json``: a version and its provenance.

    parent: the version that it was retrained from. store, store_digest, store_sha256, commit: the rows of its
    certificate; store_sha256: as in the model's record, where that has it. rows, classes: numbers of rows with a
    positive weight, in all and of each class. job: the training job as TOML. first_job:
    with a parent, the job of its first ancestor. bytes_read, seconds: cost of training. files: hashes of its files.
    """

    format: Literal["coremargin-version"]
    version: Literal[2]
    number: Number
    parent: Number | None
    created: When
    by: Word
    model_digest: Digest
    problem: Word
    status: Status
    ratio: Figure
    store: Text
    store_digest: Digest
    store_sha256: StoreHash | UnsetType = UNSET
    commit: Count
    rows: Rows
    features: Features
    classes: list[tuple[Label, Count]]
    job: Job
    first_job: Job | UnsetType = UNSET
    bytes_read: Count
    seconds: float
    software: Annotated[dict[Word, Word], Meta(max_length=64)]
    files: Annotated[dict[str, Hash], Meta(max_length=100_000)]


class Alias(Strict, frozen=True, kw_only=True):
    """A file in ``aliases``; fence: number of the log line that moved it."""

    version: Number
    fence: Number


class Gate(Strict, frozen=True, kw_only=True):
    """Result of a gate; value and limit: None for gates without a number. figures: further numbers of the test."""

    name: Word
    ok: bool
    value: Figure
    limit: Figure
    text: Text
    figures: dict[Word, Figure] | UnsetType = UNSET


class ScheduledRun(Strict, frozen=True, kw_only=True):
    """Result of a run of the nightly job.

    rows, files: ingested; quarantined: files that could not be ingested; expired: rows; bytes_read: by training.
    """

    seconds: float
    rows: Count
    files: Count
    quarantined: Count
    expired: Count
    bytes_read: Count
    exit_code: Count
    text: Text


class Line(Strict, frozen=True, kw_only=True):
    """A line of the log.

    record: hash of version.json ("trained"). alias, previous: the alias that was moved, and its previous version.
    gates: results of the gates ("passed", "refused"); previous: then the champion that the version was compared with.
    source, out: digest of the rows that were labelled, and the file with their labels ("predicted"). run: only with
    "run", which has no version. comment: of the user, or the reason for a refusal or removal. token: random, at an
    address, where two writers at once must not take the line of the other for their own.
    """

    number: Number
    action: Action
    version: Number | None
    who: Word
    when: When
    comment: Text
    before: Hash
    record: Hash | UnsetType = UNSET
    alias: Name | UnsetType = UNSET
    previous: Number | UnsetType | None = UNSET
    gates: list[Gate] | UnsetType = UNSET
    source: Text | UnsetType = UNSET
    out: Text | UnsetType = UNSET
    run: ScheduledRun | UnsetType = UNSET
    token: Annotated[str, Meta(pattern="^[0-9a-f]{16}$")] | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Raises ValueError if a key does not belong to the action."""
        for name, actions in _ACTIONS_WITH.items():
            if (getattr(self, name) is not UNSET) != (self.action in actions):
                raise ValueError(f"expected {name!r} with {' and '.join(actions)} only, found action {self.action!r}")
        if (self.version is None) != (self.action == "run"):
            raise ValueError(f"expected a version except with 'run', found {self.version!r} with {self.action!r}")


_ACTIONS_WITH: dict[str, tuple[Action, ...]] = {
    "record": ("trained",),
    "alias": MOVES,
    "previous": (*MOVES, "passed", "refused"),
    "gates": ("passed", "refused"),
    "source": ("predicted",),
    "out": ("predicted",),
    "run": ("run",),
}


def folder_of(registry: Path | Location, number: int) -> Path | Location:
    """The folder of a version, or its address."""
    below = f"{VERSIONS}/{number:06d}"
    return registry / below if isinstance(registry, Path) else Location(f"{registry}/{below}", registry.options)


@rereading_refused
def read_head(registry: ReadableStorage) -> tuple[Head, bytes]:
    """``registry.json`` and its bytes. Raises DataError."""
    place = f"{registry.name}/{FILE}"
    data = _read(registry, FILE, f"{registry.name}: expected a registry, found no {FILE}")
    content = read_object(data, place)
    check_version(content, FORMAT, VERSION, place, "a registry's folder")
    return typed(Head, content, place), data


def read_alias(registry: ReadableStorage, name: str) -> Alias | None:
    """The alias in its file, or None if there is none of this name. Raises DataError."""
    key = f"{ALIASES}/{name}"
    try:
        data = read_object_bytes(registry, key, LONGEST_LINE)
    except MISSING:
        return None
    return typed(Alias, read_object(data, f"{registry.name}/{key}"), f"{registry.name}/{key}")


def aliases_of_log(lines: Iterable[Line]) -> dict[str, Alias]:
    """Where the lines of a log have moved each alias, by name."""
    moved = {str(line.alias): line for line in lines if line.action in MOVES}
    return {name: Alias(version=line.version or 0, fence=line.number) for name, line in sorted(moved.items())}


@rereading_refused
def read_version(version: ReadableStorage, number: int) -> tuple[VersionRecord, bytes]:
    """``version.json`` of a version and its bytes. Raises DataError."""
    place = f"{version.name}/{RECORD}"
    registry = version.name.rpartition(f"/{VERSIONS}/")[0]
    data = _read(version, RECORD, f"{registry}: has no version {number}")
    return typed(VersionRecord, read_object(data, place, names=True), place), data


def read_log_bytes(registry: ReadableStorage) -> bytes:
    """The log as it is there. Raises DataError.

    From an address until it came twice alike: the hash in each line would not show that the last one was damaged.
    """
    missing = f"{registry.name}/{LOG}: expected the log of a registry, found nothing"
    return _read(registry, LOG, missing, twice=isinstance(registry, ObjectReader))


@rereading_refused
def read_log(registry: ReadableStorage, first: str) -> Chain[Line]:
    """The log; an incomplete last line is ignored. Raises DataError."""
    return read_chain(read_log_bytes(registry), first, f"{registry.name}/{LOG}", parse_line)


def parse_line(text: bytes, place: str) -> Line:
    """Raises DataError."""
    return typed(Line, read_object(text, place, largest=LONGEST_LINE, names=True), place)


def resolve_model(place: str | Path) -> Path | Location:
    """The model of REGISTRY@ALIAS or REGISTRY@17; any other path or address is returned unchanged.

    Raises DataError (no such registry, alias or version), UsageError (not a valid name).
    """
    if is_remote(place):
        return _resolve_address(location(place))
    path = Path(place)
    before, at, name = str(path).rpartition("@")
    if not at or "/" in name or path.exists() or not Path(before, FILE).is_file():
        return path
    registry = Folder(Path(before))
    read_head(registry)
    number = _version_number(path, name, registry.path, lambda: read_alias(registry, name))
    folder = Path(folder_of(registry.path, number))
    if not folder.is_dir():
        raise _no_version(path, number, registry.path)
    return folder


def _resolve_address(address: Location) -> Location:
    """The same of an address: nothing else lies at it, and at what comes before the ``@`` there is a registry."""
    before, at, name = address.rpartition("@")
    if not at or "/" in name or "/" not in before.partition("://")[2] or address.generation is not None:
        return address
    place = Location(before, address.options)
    registry = ObjectReader.of_generation(place, None)
    if not _is_there(registry, FILE) or _is_there(ObjectReader(address)):
        return address
    _, data = read_head(registry)
    number = _version_number(
        address, name, place, lambda: aliases_of_log(read_log(registry, hash_of(data)).entries).get(name)
    )
    found = location(folder_of(place, number))
    if not _is_there(ObjectReader(found), RECORD):
        raise _no_version(address, number, place)
    return found


def _version_number(place: object, name: str, registry: object, find: Callable[[], Alias | None]) -> int:
    """The number that is meant by what comes after the ``@``; find: the alias. Raises DataError, UsageError."""
    if _NUMBERED.fullmatch(name):
        return int(name)
    if not ALIAS.fullmatch(name):
        raise UsageError(f"{place}: expected an alias or a version number after @, found {name!r}")
    alias = find()
    if alias is None:
        raise DataError(f"{place}: no version has the alias {name!r}; see `coremargin registry list {registry}`")
    return alias.version


def _no_version(place: object, number: int, registry: object) -> DataError:
    return DataError(f"{place}: has no version {number}; `coremargin registry log {registry}` shows why")


def _is_there(reader: ObjectReader, key: str = "") -> bool:
    """Whether there is such an object; without the right to list, a service refuses what is not there."""
    try:
        return reader.exists(key)
    except AccessDenied:
        return False


def _read(storage: ReadableStorage, key: str, missing: str, *, twice: bool = False) -> bytes:
    try:
        return read_checked_bytes(storage, key, LARGEST * 64, lambda _: not twice)
    except MISSING:
        raise DataError(f"{missing}; check the path, or list versions with `coremargin registry list`") from None


def as_values(record: Any) -> dict[str, Any]:
    """A record as JSON, without unset fields."""
    found = {name: getattr(record, name) for name in record.__struct_fields__}
    return {
        name: to_builtins(value) if isinstance(value, Struct) else value
        for name, value in found.items()
        if value is not UNSET
    }
