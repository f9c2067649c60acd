"""What the columns of a table are, and which features each of them becomes: ``columns.json`` of stores and models.

The features of a row are those of its columns, in this order. What a column needs to become numbers was found out when
the store was made, is kept here, and never changes: rows that come later are treated in the same way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta, structs

from coremargin.errors import DataError, StoreError
from coremargin.formats.column_kinds import Column, Lists, Name, Numbers
from coremargin.formats.limits import MOST_FEATURES
from coremargin.formats.model_record import Strict, check_version
from coremargin.formats.storage import read_checked_bytes
from coremargin.formats.strict_json import read_object, typed

if TYPE_CHECKING:
    from coremargin.formats.storage import ReadableStorage

FORMAT = "coremargin-columns"
VERSION = 1
FILE = "columns.json"
LARGEST = 64 << 20  #: bytes of the file


class TextFormat(Strict, frozen=True, kw_only=True):
    """How numbers and missing values are written in delimited text.

    thousands: what separates them: "space" is any of those that people use, "'" the straight and the curly one.
    na_values: texts that stand for a missing value, besides the usual ones unless ``keep_default_na`` is false.
    """

    decimal: Literal[".", ","] = "."
    thousands: Literal["", ",", ".", "space", "'", "_"] = ""
    na_values: Annotated[tuple[Name, ...], Meta(max_length=1000)] = ()
    keep_default_na: bool = True

    def __post_init__(self) -> None:
        """Raises ValueError for one character that separates both thousands and decimals."""
        if self.decimal == self.thousands:
            raise ValueError(f"expected different characters for decimal and thousands, found {self.decimal!r} twice")


class ColumnsRecord(Strict, frozen=True, kw_only=True):
    """The file. label, weights, key, group: names of the columns that these of the store came from, where they did.

    named: the table had names; else columns, the label's and the others too, are called by their numbers. text: how
    the delimited text was written, where it was not as usual; later files are read in the same way.
    """

    format: Literal["coremargin-columns"] = "coremargin-columns"
    version: Literal[1] = 1
    columns: Annotated[list[Column], Meta(min_length=1, max_length=MOST_FEATURES)]
    label: Name | None = None
    weights: Name | None = None
    named: bool = True
    key: Name | None = None
    group: Name | None = None
    text: TextFormat | None = None

    def __post_init__(self) -> None:
        """Raises ValueError for names that are there twice, and more features than there can be."""
        names = [column.name for column in self.columns]
        if len(set(names)) < len(names):
            raise ValueError("expected a name for each column, found one twice")
        if self.width > MOST_FEATURES:
            raise ValueError(f"expected at most {MOST_FEATURES:,} features, found {self.width:,}")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.name for column in self.columns)

    @property
    def width(self) -> int:
        """How many features there are."""
        return sum(column.width for column in self.columns)

    @property
    def features(self) -> Iterator[str]:
        """Names of the features, in order."""
        return (name for column in self.columns for name in column.features)

    @property
    def filled(self) -> float:
        """The share of features that are not 0 in a row, about."""
        return sum(column.filled for column in self.columns) / self.width

    @property
    def plain(self) -> bool:
        """Columns are numbers, or lists of them, that are features as they are."""
        return all(column.plain for column in self.columns)

    def encoded(self) -> bytes:
        """The file's content; later additions to the format are omitted when empty."""
        later = ("key", "group", "text")
        fields = {name: value for name, value in structs.asdict(self).items() if value is not None or name not in later}
        return msgspec.json.format(msgspec.json.encode(fields), indent=1) + b"\n"

    @property
    def other_names(self) -> frozenset[str | None]:
        """Names of label, weights, key and group, where no feature has the same name."""
        return frozenset({self.label, self.weights, self.key, self.group} - set(self.names))

    @property
    def digest(self) -> str:
        """Of the file's content, "sha256:...": that of two tables is the same where their columns are."""
        return digest_of(self.encoded())

    @property
    def claim(self) -> str:
        """What is compared of a model and its store: the digest of all that decides about features, and the label."""
        return f"{structs.replace(self, label=None, weights=None, key=None, group=None).digest} {self.label or ''}"


def plain_columns(names: Sequence[str], widths: Sequence[int] | None = None) -> list[Column]:
    """Columns of numbers; widths: how many each has, where some are lists (None: one each)."""
    if widths is None:
        return [Numbers(name=name) for name in names]
    return [
        Numbers(name=name) if width == 0 else Lists(name=name, length=width)
        for name, width in zip(names, widths, strict=True)
    ]


def read_stored(storage: ReadableStorage, digest: str, features: int) -> ColumnsRecord:
    """The record next to a store's ``zarr.json``, which has its digest, and the number of features.

    Raises StoreError: lost, altered, newer.
    """
    place = f"{storage.name}/{FILE}"
    try:
        data = read_checked_bytes(storage, FILE, LARGEST, lambda data: digest_of(data) == digest, error=StoreError)
    except FileNotFoundError:
        raise StoreError(f"{place}: expected what the columns of the store are, found no file; restore it") from None
    found = digest_of(data)
    if found != digest:
        raise StoreError(f"{place}: expected the content {digest}, found {found}; restore it from a copy")
    record = read_columns(data, place, StoreError)
    if record.width != features:
        raise StoreError(f"{place}: expected columns of {features:,} features, found {record.width:,}; restore it")
    return record


def digest_of(data: bytes) -> str:
    """Of a file's content."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def read_columns(data: bytes, place: str, error: type[DataError] = DataError) -> ColumnsRecord:
    """The record in a file's content. Raises ``error``: another kind of file, a newer version, broken or absurd."""
    content: dict[str, Any] = read_object(data, place, largest=LARGEST, error=error)
    check_version(content, FORMAT, VERSION, place, "columns.json of a store or a model")
    return typed(ColumnsRecord, content, place, error=error)
