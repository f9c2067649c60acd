"""What a campaign is about (``campaign.toml``): written once; everything that decides about it is here.

The log of answers (answers.py) continues from its bytes, so that neither can be changed without the other.
"""

from __future__ import annotations

import hashlib
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, BinaryIO, Literal

import numpy as np
from msgspec import Meta

from coremargin.errors import DataError
from coremargin.formats.choices import Loss, MapKind, Method, ScalingKind
from coremargin.formats.feature_map import check_map_values, map_digest, map_schema
from coremargin.formats.limits import MOST_CLASSES, MOST_ROWS, MOST_SEED
from coremargin.formats.location import Location, is_remote, storage_options
from coremargin.formats.map_asked import KEYS, Coef0, Components, Degree, Gamma, MapAsked, MapSeed
from coremargin.formats.model_arrays import Schema, check_arrays
from coremargin.formats.model_record import (
    Cost,
    Digest,
    Epsilon,
    Features,
    Label,
    Rows,
    Share,
    StoreHash,
    Strict,
    Word,
    check_version,
    different_labels,
)
from coremargin.formats.npz import read_arrays
from coremargin.formats.strict_json import cut, deeper, typed

FORMAT = "coremargin-campaign"
VERSION = 1
FILE = "campaign.toml"
ANSWERS = "answers.jsonl"
MAP = "map.npz"
STATE = "state"  #: folder of the checkpoint
MODEL = "model"  #: folder of the model
LARGEST = 1 << 16  #: bytes
MOST_PEOPLE = 20  #: that are asked about a row
_LEVELS = 8
#: A line: a name and a value, an element of a list or its end, a table. A key with dots would need memory with the
#: square of their number.
_LINE = re.compile(rb'[A-Za-z_0-9]+ *=.*|\s*"(?:[^"\\]|\\.)*",?|\s*[-+\w.]+,?|\]|\[[a-z_0-9]+\]|\s*')


class CampaignSettings(Strict, frozen=True, kw_only=True):
    """The rows that are asked about, and what is to be proven.

    store, digest, store_sha256, rows, features: the store, and its commit. method: how rows are chosen. epsilon: what
    may be missing of the margin; error, confidence: at most this share of the rows is labelled wrongly, and how sure
    that is to be. seed: of the draws. classes: (negative, positive), where they were known; all, where there are more.
    by_class: that share is one of the rows of each class that is predicted. hypothesis: the centre of the method takes
    the place of the largest margin. multi_class: three classes or more have one margin at once. loss, C, trial: answers
    may contradict each other. memory, block: for the rows in memory, and bytes that one task reads. expires: seconds
    after which a question without an answer may be asked again. people: so many are asked about each row; settle: who
    settles what they disagree about. like: rows that are asked about first, in this order: the most similar to
    given examples.
    store_options: of the address of the store. map and so on: what rows are mapped by, gamma being a number;
    map_digest: of the arrays of the map (map.npz).
    """

    format: Literal["coremargin-campaign"]
    version: Literal[1]
    store: str
    store_options: dict[str, str] | None = None
    store_sha256: StoreHash | None = None
    digest: Digest
    rows: Rows
    features: Features
    method: Method
    epsilon: Epsilon
    error: Share
    confidence: Share
    seed: Annotated[int, Meta(ge=0, le=MOST_SEED)]
    intercept: bool
    memory: Annotated[int, Meta(ge=1)]
    block: Annotated[int, Meta(ge=1)]
    scaling: ScalingKind | None = None
    map: MapKind | None = None
    components: Components | None = None
    gamma: Gamma | None = None
    degree: Degree | None = None
    coef0: Coef0 | None = None
    map_seed: MapSeed | None = None
    map_digest: Digest | None = None
    classes: Annotated[list[Label], Meta(min_length=2, max_length=MOST_CLASSES)] | None = None
    by_class: Literal[True] | None = None
    hypothesis: Literal["centre"] | None = None
    multi_class: Literal["crammer-singer"] | None = None
    loss: Loss | None = None
    C: Cost | None = None
    trial: Annotated[int, Meta(ge=1, le=MOST_ROWS)] | None = None
    expires: Annotated[float, Meta(gt=0, le=1e12)] | None = None
    people: Annotated[int, Meta(ge=2, le=MOST_PEOPLE)] | None = None
    settle: Annotated[Word, Meta(min_length=1)] | None = None
    like: Annotated[list[Annotated[int, Meta(ge=0, le=MOST_ROWS)]], Meta(min_length=1, max_length=1000)] | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for two labels that are one, options that no store has, half a soft margin or map."""
        if self.classes is not None:
            different_labels(self.classes)
        if len({value is None for value in (self.loss, self.C, self.trial)}) > 1:
            raise ValueError("expected loss, C and trial together, or none of them")
        options = self.store_options or {}
        if options and (not is_remote(self.store) or storage_options(options) != options):
            raise ValueError("expected store_options of an address, by their names")
        if self.multi_class is not None and len(self.classes or ()) < 3:
            raise ValueError("expected multi_class with three classes or more")
        if self.settle is not None and self.people is None:
            raise ValueError("expected settle with people only")
        if self.like is not None and (len(set(self.like)) < len(self.like) or max(self.like) >= self.rows):
            raise ValueError(f"like: expected different numbers of rows below {self.rows:,}")
        self._check_map()

    def _check_map(self) -> None:
        names = {name for keys in KEYS.values() for name in keys} | {"map_digest"}
        given = {name for name in names if getattr(self, name) is not None}
        wanted = set[str]() if self.map is None else KEYS[self.map] | {"map_digest"}
        may_lack = {"components"} if self.map == "polynomial" else set[str]()
        if not wanted - may_lack <= given <= wanted:
            kinds = ", ".join(sorted(wanted)) or "no map"
            raise ValueError(f"expected {kinds} of a map, found {', '.join(sorted(given))}")

    @property
    def location(self) -> Location:
        """Where the store lies."""
        return Location(self.store, self.store_options)

    @property
    def asked_map(self) -> MapAsked | None:
        """What rows are mapped by; None where they are not mapped."""
        if self.map is None:
            return None
        given = {name: getattr(self, name) for name in KEYS[self.map]}
        return MapAsked(map=self.map, **given)


def read_campaign(data: bytes, place: str) -> CampaignSettings:
    """What the bytes of a ``campaign.toml`` say; place: its path, for messages. Raises DataError."""
    if len(data) > LARGEST:
        raise DataError(f"{place}: expected at most {LARGEST:,} bytes of TOML, found more; get an unaltered copy")
    for number, line in enumerate(data.split(b"\n"), 1):
        if not _LINE.fullmatch(line):
            text = f"expected TOML, a name and a value, found {cut(repr(line))}"
            raise DataError(f"{place}, line {number}: {text}; get an unaltered copy")
    try:
        content = tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place}: expected TOML, cannot be read: {cut(str(error))}; get an unaltered copy") from error
    if deeper(content, _LEVELS):
        raise DataError(f"{place}: expected values and lists of them, found more levels; get an unaltered copy")
    _check_numbers(content, place)
    check_version(content, FORMAT, VERSION, place, "a campaign's folder")
    return typed(CampaignSettings, content, place)


def _check_numbers(content: dict[str, Any], place: str) -> None:
    """Raises DataError for a number, however deep, that a machine does not hold."""
    values: list[Any] = [content]
    while values:
        value = values.pop()
        if isinstance(value, dict | list):
            values += value.values() if isinstance(value, dict) else value
        elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
            raise DataError(f"{place}: expected numbers, found one beyond 64 bits; get an unaltered copy")
        elif isinstance(value, float) and not math.isfinite(value):
            raise DataError(f"{place}: expected numbers, found {value}; get an unaltered copy")


def first_hash(data: bytes) -> str:
    """What the first line of the log has as the hash of the line before it: that of ``campaign.toml``."""
    return hashlib.sha256(data).hexdigest()


@dataclass(frozen=True)
class _Map:
    """What the file of a campaign says of the arrays."""

    asked: MapAsked
    features: int

    def schema(self, names: frozenset[str]) -> Schema:
        """Those of the map."""
        return map_schema(self.asked, self.features)

    def check_values(self, arrays: Mapping[str, np.ndarray], place: str) -> None:
        """Raises DataError for numbers that are none of a map."""
        check_map_values(self.asked, self.features, arrays, place)


def read_map(file: BinaryIO, campaign: CampaignSettings, place: str) -> dict[str, np.ndarray]:
    """The arrays in an open ``map.npz`` of a campaign that maps rows, by name; place: its path, for messages.

    Raises DataError for other arrays than those that the campaign began with.
    """
    asked = campaign.asked_map
    if asked is None:
        raise DataError(f"{place}: expected no map, as {FILE} says, found one; get an unaltered copy")
    arrays = read_arrays(file, place)
    check_arrays(_Map(asked, campaign.features), arrays, place)
    found = map_digest(arrays)
    if found != campaign.map_digest:
        raise DataError(
            f"{place}: expected the map that the campaign began with, {campaign.map_digest}, found {found}: it was "
            "changed, or is another campaign's; get an unaltered copy"
        )
    return arrays
