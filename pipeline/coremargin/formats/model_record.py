"""Fields of the records of all models (``model.json``), and how a record describes the arrays in its folder.

A module for each problem (hard_margin.py and so on) adds its own; kinds.py lists them by name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import numpy as np
from msgspec import UNSET, Meta, Struct, UnsetType

from coremargin.errors import DataError
from coremargin.formats.choices import MapKind, ScalingKind, Strategy
from coremargin.formats.ellipsoid_scaling import check_ellipsoid, ellipsoid_schema
from coremargin.formats.feature_map import check_map, check_map_values, map_schema, map_width
from coremargin.formats.limits import (
    C_LIMITS,
    LONGEST_LABEL,
    MOST_CLASSES,
    MOST_FEATURES,
    MOST_FOLDS,
    MOST_ROWS,
    MOST_SEED,
)
from coremargin.formats.map_asked import Coef0, Components, Degree, Gamma, MapSeed
from coremargin.formats.model_arrays import Numbers, Schema, check_rows, demand, rows_schema
from coremargin.formats.strict_json import cut

FORMAT = "coremargin-model"
VERSION = 1
FILE = "model.json"

Label: TypeAlias = bool | int | float | Annotated[str, Meta(max_length=LONGEST_LABEL)]
Number = Annotated[float, Meta(ge=-1.7976931348623157e308, le=1.7976931348623157e308)]
AboveZero = Annotated[float, Meta(gt=0, le=1.7976931348623157e308)]
Cost = Annotated[float, Meta(ge=C_LIMITS[0], le=C_LIMITS[1])]  #: C of a loss
Ratio = Annotated[float, Meta(ge=0, le=1)]
Epsilon = Annotated[float, Meta(gt=0, lt=1)]
Share = Annotated[float, Meta(gt=0, lt=1)]
Count = Annotated[int, Meta(ge=0, le=MOST_ROWS)]
Rows = Annotated[int, Meta(ge=1, le=MOST_ROWS)]
Features = Annotated[int, Meta(ge=1, le=MOST_FEATURES)]
Folds = Annotated[int, Meta(ge=2, le=MOST_FOLDS)]
Fold = Annotated[int, Meta(ge=0, lt=MOST_FOLDS)]
Seed = Annotated[int, Meta(ge=0, le=MOST_SEED)]
Digest = Annotated[str, Meta(pattern="^sha256:[0-9a-f]{64}$")]
Word = Annotated[str, Meta(max_length=200)]
Dtype = Literal["float32", "float64"]
Status = Literal["certified", "not_separable", "stopped"]
#: What certificates of the kinds of this package are about.
Known = Literal["margin", "not_separable", "duality_gap"]
COLUMN_SCALINGS = ("standard", "minmax", "maxabs")


class Strict(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A record whose keys are its fields, and no others."""


class StoreHash(Strict, frozen=True, kw_only=True):
    """SHA-256 of the content of a store's commit, whose chunks have so many rows: see formats/store_record.py."""

    chunk_rows: Rows
    digest: Digest


class Claims(Strict, frozen=True, kw_only=True):
    """The certificate; models/record.py explains its numbers.

    kind: what it is about, a word of those that ``ModelRecord.kinds`` lists. store_digest: of CRC-32C, the same however
    rows are cut into chunks. store_sha256: which no other rows have; unset for rows in memory, and for stores without.
    """

    kind: Word
    lower: Number | None
    upper: Number | None
    ratio: Ratio | None
    epsilon: Epsilon
    coreset_rows: Count
    store_digest: Digest
    store_sha256: StoreHash | UnsetType = UNSET
    radius: Annotated[float, Meta(ge=0, le=1.7976931348623157e308)]


class Transformed(Strict, frozen=True, kw_only=True):
    """Transformations of rows: they are scaled, then mapped; unset: neither."""

    scaling: ScalingKind | UnsetType = UNSET
    map: MapKind | UnsetType = UNSET
    components: Components | UnsetType | None = UNSET
    gamma: Gamma | Literal["scale"] | UnsetType = UNSET
    degree: Degree | UnsetType = UNSET
    coef0: Coef0 | UnsetType = UNSET
    map_seed: MapSeed | UnsetType = UNSET


class Parameters(Transformed, frozen=True, kw_only=True):
    """The options of all jobs; ``HyperplaneParameters`` has those of jobs that separate classes."""

    epsilon: Epsilon


class HyperplaneParameters(Parameters, frozen=True, kw_only=True):
    """The options of all jobs that separate classes."""

    intercept: bool
    strategy: Strategy


class View(Strict, frozen=True, kw_only=True, rename={"label": "class"}):
    """Which rows and labels of the store a member of a fleet is about.

    label: the class that stands against the rest (the labels are then false and true); None: the store's own two. fold:
    the one of ``folds`` that is held out; None: none is.
    """

    label: Label | None
    fold: Fold | None
    folds: Folds | None
    fold_seed: Seed | None

    def __post_init__(self) -> None:
        """Raises ValueError for a fold that is not there."""
        if self.fold is None:
            ok = self.folds is None and self.fold_seed is None
        else:
            ok = self.folds is not None and self.fold_seed is not None and self.fold < self.folds
        if not ok:
            raise ValueError(f"no fold {self.fold} of {self.folds} with seed {self.fold_seed}")


#: All rows and the store's own two classes.
WHOLE = View(label=None, fold=None, folds=None, fold_seed=None)


class ModelRecord(Strict, frozen=True, kw_only=True, tag_field="problem"):
    """The record of a model of any kind; ``ClassifierRecord`` is that of kinds with classes."""

    KINDS: ClassVar[tuple[str, ...]] = ("margin", "not_separable")  #: of certificates
    FLEET: ClassVar[type[Strict] | None] = None  #: the record of many of them together; None: there is no such fleet

    format: Literal["coremargin-model"]
    version: Literal[1]
    status: Status
    features: Features
    rows: Rows
    dtype: Dtype
    certificate: Claims
    software: Annotated[dict[Word, Word], Meta(max_length=64)]
    parameters: Any

    def __post_init__(self) -> None:
        """Raises ValueError for what does not go together."""
        check_map(self.parameters)
        if self.width > MOST_FEATURES:
            raise ValueError(f"expected mapped rows of at most {MOST_FEATURES:,} features, found {self.width:,}")
        if self.certificate.kind not in self.kinds:
            raise ValueError(
                f"expected a certificate of kind {' or '.join(self.kinds)}, found {self.certificate.kind!r}"
            )

    @property
    def kinds(self) -> tuple[str, ...]:
        """What the certificate may be about."""
        return self.KINDS

    @property
    def problem(self) -> str:
        """Its name."""
        return str(self.__struct_config__.tag)

    @property
    def scaling(self) -> str:
        """How rows are scaled, "" for rows as they are."""
        kind = self.parameters.scaling
        return "" if kind is UNSET else str(kind)

    @property
    def map(self) -> str:
        """How rows are mapped, "" for rows that are not."""
        kind = self.parameters.map
        return "" if kind is UNSET else str(kind)

    @property
    def width(self) -> int:
        """How many features the rows have that the certificate is about: as they are mapped, where they are."""
        return map_width(self.parameters, self.features) if self.map else self.features

    @property
    def coreset_width(self) -> int:
        """How many numbers of each coreset row are stored, before they are mapped: none, where no proof needs them."""
        return self.features

    def schema(self, names: frozenset[str]) -> Schema:
        """The arrays that such a model has; names: of those that are there, where it has a choice."""
        d, m = self.features, self.certificate.coreset_rows
        schema: Schema = {"coreset_ids": Numbers("i8", (m,)), **map_schema(self.parameters, d)}
        if self.scaling in COLUMN_SCALINGS:
            schema |= {"shift": Numbers("f8", (d,)), "factor": Numbers("f8", (d,))}
        if self.scaling == "ellipsoid":
            schema |= ellipsoid_schema(d, names)
        return schema | rows_schema(m, self.coreset_width, names)

    def check_values(self, arrays: Mapping[str, np.ndarray], place: str) -> None:
        """What the numbers of arrays that fit the schema must be to mean anything. Raises DataError."""
        check_rows(arrays, self.certificate.coreset_rows, self.features, place)
        check_map_values(self.parameters, self.features, arrays, place)
        if self.scaling == "ellipsoid":
            check_ellipsoid(self.features, arrays, place)


class ClassifierRecord(ModelRecord, frozen=True, kw_only=True, tag_field="problem"):
    """The record of a model that tells classes apart."""

    classes: Annotated[list[Label], Meta(min_length=2, max_length=MOST_CLASSES)]

    def __post_init__(self) -> None:
        """Raises ValueError for equal labels, or labels of several kinds."""
        different_labels(self.classes)
        super().__post_init__()


class TwoClasses(ClassifierRecord, frozen=True, kw_only=True, tag_field="problem"):
    """What the records of models of two classes have."""

    classes: Annotated[list[Label], Meta(min_length=2, max_length=2)]

    def schema(self, names: frozenset[str]) -> Schema:
        """The same with a hyperplane, and the rows' dual weights and signs."""
        d, m = self.width, self.certificate.coreset_rows
        return super().schema(names) | {
            "w": Numbers("f8", (d,)),
            "b": Numbers("f8", (1,)),
            "alpha": Numbers("f8", (m,)),
            "coreset_y": Numbers("i1", (m,)),
        }

    def check_values(self, arrays: Mapping[str, np.ndarray], place: str) -> None:
        """Signs are signs. Raises DataError."""
        demand(np.isin(arrays["coreset_y"], (-1, 1)).all(), place, "coreset_y", "signs -1 and 1")
        super().check_values(arrays, place)


def different_labels(labels: Sequence[Any]) -> None:
    """Raises ValueError where two labels are equal, 1 and 1.0 and true included, or kinds are mixed."""
    if len(set(labels)) < len(labels) or len({type(label) for label in labels}) > 1:
        raise ValueError(f"expected different labels of one kind, found {cut(repr(list(labels)))}")


def check_version(content: Any, form: str, known: int, place: str, what: str) -> None:
    """Raises DataError unless a record is of this format and version; what: the place of such records."""
    if not isinstance(content, dict) or content.get("format") != form:
        raise DataError(f"{place}: expected a record of format {form!r}, found something else; is this {what}?")
    version = content.get("version")
    if version != known or not isinstance(version, int) or isinstance(version, bool):
        hint = "get an unaltered copy"
        if isinstance(version, int | float) and not isinstance(version, bool) and math.isfinite(version):
            if version > known:
                hint = "it was made by a newer coremargin: upgrade"
            elif version < known:
                hint = "it was made by an older coremargin: make it again, or use that one"
        raise DataError(f"{place}: expected version {known}, found {cut(repr(version))}; {hint}")
