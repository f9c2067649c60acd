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
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType, to_builtins

from coremargin.errors import DataError, UsageError
from coremargin.formats.chained import LONGEST_LINE, Chain, Hash, Number, When, read_chain
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
from coremargin.formats.plain_file import read_plain
from coremargin.formats.strict_json import LARGEST, read_object, typed

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
    "run", which has no version. comment: of the user, or the reason for a refusal or removal.
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


def folder_of(registry: Path, number: int) -> Path:
    """The folder of a version."""
    return registry / VERSIONS / f"{number:06d}"


def read_head(registry: Path) -> tuple[Head, bytes]:
    """``registry.json`` and its bytes. Raises DataError."""
    data = _read(registry / FILE, f"{registry}: expected a registry, found no {FILE}")
    content = read_object(data, str(registry / FILE))
    check_version(content, FORMAT, VERSION, str(registry / FILE), "a registry's folder")
    return typed(Head, content, str(registry / FILE)), data


def read_alias(registry: Path, name: str) -> Alias | None:
    """The alias, or None if there is none of this name. Raises DataError."""
    path = registry / ALIASES / name
    try:
        data = read_plain(path, LONGEST_LINE)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return typed(Alias, read_object(data, str(path)), str(path))


def read_version(registry: Path, number: int) -> tuple[VersionRecord, bytes]:
    """``version.json`` of a version and its bytes. Raises DataError."""
    path = folder_of(registry, number) / RECORD
    data = _read(path, f"{registry}: has no version {number}")
    return typed(VersionRecord, read_object(data, str(path), names=True), str(path)), data


def read_log(registry: Path, first: str) -> Chain[Line]:
    """The log; an incomplete last line is ignored. Raises DataError."""
    place = registry / LOG
    return read_chain(
        _read(place, f"{place}: expected the log of a registry, found nothing"), first, str(place), parse_line
    )


def parse_line(text: bytes, place: str) -> Line:
    """Raises DataError."""
    return typed(Line, read_object(text, place, largest=LONGEST_LINE, names=True), place)


def resolve_model(path: Path) -> Path:
    """The model folder of REGISTRY@ALIAS or REGISTRY@17; any other path is returned unchanged.

    Raises DataError (no such registry, alias or version), UsageError (not a valid name).
    """
    place, at, name = str(path).rpartition("@")
    if not at or "/" in name or path.exists() or not (Path(place) / FILE).is_file():
        return path
    registry = Path(place)
    read_head(registry)
    if _NUMBERED.fullmatch(name):
        number = int(name)
    elif ALIAS.fullmatch(name):
        alias = read_alias(registry, name)
        if alias is None:
            raise DataError(f"{path}: no version has the alias {name!r}; see `coremargin registry list {registry}`")
        number = alias.version
    else:
        raise UsageError(f"{path}: expected an alias or a version number after @, found {name!r}")
    if not folder_of(registry, number).is_dir():
        raise DataError(f"{path}: has no version {number}; `coremargin registry log {registry}` shows why")
    return folder_of(registry, number)


def _read(path: Path, missing: str) -> bytes:
    try:
        return read_plain(path, LARGEST * 64)
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(f"{missing}; check the path, or list versions with `coremargin registry list`") from None


def as_values(record: Any) -> dict[str, Any]:
    """A record as JSON, without unset fields."""
    found = {name: getattr(record, name) for name in record.__struct_fields__}
    return {
        name: to_builtins(value) if isinstance(value, Struct) else value
        for name, value in found.items()
        if value is not UNSET
    }
