"""A registry of models as it lies on disk, and how a reader finds the version that an alias stands for.

::

    name/
      registry.json          what it is; written last when it is made, and never again
      versions/000017/       a model's folder, and version.json: what it was made of; appears whole, never changes
      aliases/champion       which version has this name; replaced as a whole
      log.jsonl              a chained log (chained.py) of all that happened, from the hash of registry.json on
      work/                  what is being trained

A line of the log is what makes it so: whoever writes next brings folders and aliases up to it. The number of the line
that moved an alias is its fence: an alias never goes back to a lower one. Whoever reads looks at the alias once, and
keeps the folder that it then stood for: versions that have a name are not removed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from coremargin.errors import DataError, UsageError
from coremargin.formats.chained import LONGEST_LINE, Chain, Hash, Number, When, read_chain
from coremargin.formats.model_record import Count, Digest, Features, Label, Rows, Status, Strict, Word, check_version
from coremargin.formats.plain_file import read_plain
from coremargin.formats.strict_json import LARGEST, read_object, typed

FORMAT: Literal["coremargin-registry"] = "coremargin-registry"
VERSION_FORMAT: Literal["coremargin-version"] = "coremargin-version"
VERSION = 1
FILE, RECORD, LOG, ALIASES, VERSIONS, WORK = (
    "registry.json",
    "version.json",
    "log.jsonl",
    "aliases",
    "versions",
    "work",
)
CHAMPION = "champion"  #: the alias of what is used
CANDIDATE = "candidate"  #: the alias of what was trained last
ALIAS = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_NUMBERED = re.compile(r"[0-9]{1,9}")

Name: TypeAlias = Annotated[str, Meta(pattern=rf"^{ALIAS.pattern}$")]
Text: TypeAlias = Annotated[str, Meta(max_length=4000)]
Job: TypeAlias = Annotated[str, Meta(max_length=1 << 20)]
Figure: TypeAlias = float | int | None
Did = Literal["trained", "passed", "refused", "promoted", "rolled back", "removed", "predicted", "night"]
MOVES: tuple[Did, ...] = ("promoted", "rolled back")  #: what moves an alias


class Head(Strict, frozen=True, kw_only=True):
    """``registry.json``; id: a random text, so that the log of one registry is that of no other."""

    format: Literal["coremargin-registry"]
    version: Literal[1]
    id: Hash
    made: When


class VersionRecord(Strict, frozen=True, kw_only=True):
    """``version.json``: what a version is and came from.

    parent: the version that it was retrained from. store, digest, commit: the rows of its certificate. rows, classes:
    how many of them count, and of each class. job: what was asked for, as TOML. first_job: of a version with a parent,
    what was asked for when the first of its forebears was trained. bytes_read, seconds: what it took. files: the hash
    of each of its files.
    """

    format: Literal["coremargin-version"]
    version: Literal[1]
    number: Number
    parent: Number | None
    made: When
    by: Word
    model: Digest
    problem: Word
    status: Status
    ratio: Figure
    store: Text
    digest: Digest
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
    """A file below ``aliases``: the version, and the number of the line that says so."""

    version: Number
    fence: Number


class Gate(Strict, frozen=True, kw_only=True):
    """What one gate has found: found and asked, each a number where there is one, and told: both in words.

    figures: what else it rests on.
    """

    name: Word
    ok: bool
    found: Figure
    asked: Figure
    told: Text
    figures: dict[Word, Figure] | UnsetType = UNSET


class Night(Strict, frozen=True, kw_only=True):
    """What a run of the nightly job has done; exit_code: what it ended with.

    rows: that came; files: that were taken in; quarantined: that could not be. read: bytes that training has read.
    """

    seconds: float
    rows: Count
    files: Count
    quarantined: Count
    expired: Count
    read: Count
    exit_code: Count
    told: Text


class Line(Strict, frozen=True, kw_only=True):
    """A line of the log.

    version: that it is about. record: of "trained", the hash of version.json. alias, was: which name was moved, and the
    version that had it before. gates: of "passed" and "refused"; was: the champion that it was held against. source,
    out: of "predicted", what tells the rows from others, and where their labels are. why: what whoever did it had to
    say.
    """

    number: Number
    did: Did
    version: Number | None
    who: Word
    when: When
    why: Text
    before: Hash
    record: Hash | UnsetType = UNSET
    alias: Name | UnsetType = UNSET
    was: Number | UnsetType | None = UNSET
    gates: list[Gate] | UnsetType = UNSET
    source: Text | UnsetType = UNSET
    out: Text | UnsetType = UNSET
    night: Night | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Raises ValueError for what does not go together."""
        for name, dids in _BELONGS.items():
            if (getattr(self, name) is not UNSET) != (self.did in dids):
                raise ValueError(f"expected {name!r} with {' and '.join(dids)}, and only there")
        if (self.version is None) != (self.did == "night"):
            raise ValueError(f"expected a version but with a night, found {self.version!r} with {self.did!r}")


_BELONGS: dict[str, tuple[Did, ...]] = {
    "record": ("trained",),
    "alias": MOVES,
    "was": (*MOVES, "passed", "refused"),
    "gates": ("passed", "refused"),
    "source": ("predicted",),
    "out": ("predicted",),
    "night": ("night",),
}


def folder_of(registry: Path, number: int) -> Path:
    """Where a version lies."""
    return registry / VERSIONS / f"{number:06d}"


def read_head(registry: Path) -> tuple[Head, bytes]:
    """What a registry is, and the bytes that say so. Raises DataError."""
    data = _read(registry / FILE, f"{registry}: expected a registry, found no {FILE}")
    content = read_object(data, str(registry / FILE))
    check_version(content, FORMAT, VERSION, str(registry / FILE), "a registry's folder")
    return typed(Head, content, str(registry / FILE)), data


def read_alias(registry: Path, name: str) -> Alias | None:
    """Which version has a name now; None: none has it. Raises DataError."""
    path = registry / ALIASES / name
    try:
        data = read_plain(path, LONGEST_LINE)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return typed(Alias, read_object(data, str(path)), str(path))


def read_version(registry: Path, number: int) -> tuple[VersionRecord, bytes]:
    """What a version is, and the bytes that say so. Raises DataError: it is not there, or not whole."""
    path = folder_of(registry, number) / RECORD
    data = _read(path, f"{registry}: has no version {number}")
    return typed(VersionRecord, read_object(data, str(path), names=True), str(path)), data


def read_log(registry: Path, first: str) -> Chain[Line]:
    """All lines of the log; half a line at its end is none yet. Raises DataError."""
    place = registry / LOG
    return read_chain(_read(place, f"{place}: expected the log of a registry, found nothing"), first, str(place), line)


def line(text: bytes, place: str) -> Line:
    """A line in its bytes. Raises DataError."""
    return typed(Line, read_object(text, place, largest=LONGEST_LINE, names=True), place)


def resolved(given: Path) -> Path:
    """The folder of the model that a path names: REGISTRY@ALIAS, REGISTRY@17, or the path as it is.

    Raises DataError for a registry, an alias or a version that is not there, UsageError for what is no name.
    """
    place, at, name = str(given).rpartition("@")
    if not at or "/" in name or given.exists() or not (Path(place) / FILE).is_file():
        return given
    registry = Path(place)
    read_head(registry)
    if _NUMBERED.fullmatch(name):
        number = int(name)
    elif ALIAS.fullmatch(name):
        alias = read_alias(registry, name)
        if alias is None:
            raise DataError(f"{given}: no version has the name {name!r}; `coremargin registry list {registry}`")
        number = alias.version
    else:
        raise UsageError(f"{given}: expected the name of an alias, or a version's number, behind @, found {name!r}")
    if not folder_of(registry, number).is_dir():
        raise DataError(f"{given}: version {number} is not there; `coremargin registry log {registry}` says why")
    return folder_of(registry, number)


def _read(path: Path, missing: str) -> bytes:
    try:
        return read_plain(path, LARGEST * 64)
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(f"{missing}; `coremargin registry list` shows what there is") from None


def as_values(record: Any) -> dict[str, Any]:
    """A record as JSON has it, without what is not said."""
    found = {name: getattr(record, name) for name in record.__struct_fields__}
    return {name: value for name, value in found.items() if value is not UNSET}
