"""The record of a model (``model.json``): its keys, their kinds and ranges, one Struct for each problem."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from coremargin.errors import DataError
from coremargin.formats.limits import LONGEST_LABEL, MOST_CLASSES, MOST_FEATURES, MOST_FOLDS, MOST_ROWS, MOST_SEED
from coremargin.formats.strict_json import cut, typed

FORMAT = "coremargin-model"
VERSION = 1
FILE = "model.json"

Label: TypeAlias = bool | int | float | Annotated[str, Meta(max_length=LONGEST_LABEL)]
Number = Annotated[float, Meta(ge=-1.7976931348623157e308, le=1.7976931348623157e308)]
AboveZero = Annotated[float, Meta(gt=0, le=1.7976931348623157e308)]
Ratio = Annotated[float, Meta(ge=0, le=1)]
Epsilon = Annotated[float, Meta(gt=0, lt=1)]
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
Strategy = Literal["fast", "paper", "any-violator"]
ScalingKind = Literal["standard", "minmax", "maxabs", "rownorm"]
Loss = Literal["hinge", "squared_hinge"]
Problem = Literal["hard_margin", "soft_margin", "crammer_singer", "outliers"]
COLUMN_SCALINGS = ("standard", "minmax", "maxabs")


class Strict(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A record whose keys are its fields, and no others."""


class Claims(Strict, frozen=True, kw_only=True):
    """The certificate; models/record.py says what its numbers mean."""

    kind: Literal["margin", "not_separable", "duality_gap"]
    lower: Number | None
    upper: Number | None
    ratio: Ratio | None
    epsilon: Epsilon
    coreset_rows: Count
    store_digest: Digest
    radius: Annotated[float, Meta(ge=0, le=1.7976931348623157e308)]


class Parameters(Strict, frozen=True, kw_only=True):
    """What was asked for, of a hard margin."""

    epsilon: Epsilon
    intercept: bool
    strategy: Strategy
    scaling: ScalingKind | UnsetType = UNSET


class SoftParameters(Parameters, frozen=True, kw_only=True):
    """The same with a loss; class_weight: factors of C of the negative and of the positive class."""

    loss: Loss
    C: AboveZero
    class_weight: Literal["balanced"] | tuple[AboveZero, AboveZero] | None


class OutlierParameters(Parameters, frozen=True, kw_only=True):
    """The same of a margin with outliers, where epsilon 0 asks for as much as float64 can tell."""

    epsilon: Annotated[float, Meta(ge=0, lt=1)]
    outliers: Count | Word | list[Count]
    outlier_search: Literal["exact", "heuristic"] | None


class ClassesParameters(Parameters, frozen=True, kw_only=True):
    """The same of several classes at once; loss, C and class_weight are all there or none is."""

    classes: Literal["crammer-singer"]
    loss: Literal["hinge"] | UnsetType = UNSET
    C: AboveZero | UnsetType = UNSET
    class_weight: Literal["balanced"] | UnsetType | None = UNSET

    def __post_init__(self) -> None:
        """Raises ValueError for half a soft margin."""
        given = [value is not UNSET for value in (self.loss, self.C, self.class_weight)]
        if any(given) and not all(given):
            raise ValueError("expected loss, C and class_weight together, or none of them")


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
    """What the records of all models have."""

    KINDS: ClassVar[tuple[str, ...]] = ("margin", "not_separable")  #: of certificates

    format: Literal["coremargin-model"]
    version: Literal[1]
    status: Status
    classes: Annotated[list[Label], Meta(min_length=2, max_length=MOST_CLASSES)]
    features: Features
    rows: Rows
    dtype: Dtype
    certificate: Claims
    software: Annotated[dict[Word, Word], Meta(max_length=64)]
    parameters: Any

    def __post_init__(self) -> None:
        """Raises ValueError for what does not go together."""
        different_labels(self.classes)
        if self.certificate.kind not in self.kinds:
            raise ValueError(
                f"expected a certificate of kind {' or '.join(self.kinds)}, found {self.certificate.kind!r}"
            )

    @property
    def kinds(self) -> tuple[str, ...]:
        """What the certificate may be about."""
        return self.KINDS

    @property
    def soft(self) -> bool:
        """The bounds are about a value, not a margin."""
        return self.kinds == ("duality_gap",)

    @property
    def problem(self) -> str:
        """Its name."""
        return str(self.__struct_config__.tag)

    @property
    def scaling(self) -> str:
        """How rows are scaled, "" for rows as they are."""
        kind = self.parameters.scaling
        return "" if kind is UNSET else str(kind)


class TwoClasses(ModelRecord, frozen=True, kw_only=True, tag_field="problem"):
    """What the records of models of two classes have; ``view`` is that of a member of a fleet."""

    classes: Annotated[list[Label], Meta(min_length=2, max_length=2)]


class HardMargin(TwoClasses, frozen=True, kw_only=True, tag_field="problem", tag="hard_margin"):
    """A hard margin."""

    parameters: Parameters
    view: View = WHOLE


class SoftMargin(TwoClasses, frozen=True, kw_only=True, tag_field="problem", tag="soft_margin"):
    """A soft margin."""

    KINDS: ClassVar[tuple[str, ...]] = ("duality_gap",)

    parameters: SoftParameters
    view: View = WHOLE


class Outliers(TwoClasses, frozen=True, kw_only=True, tag_field="problem", tag="outliers"):
    """A hard margin of all rows but some."""

    parameters: OutlierParameters


class SeveralClasses(ModelRecord, frozen=True, kw_only=True, tag_field="problem", tag="crammer_singer"):
    """Several classes at once; constant: the last entry of every row, 0 without intercepts."""

    parameters: ClassesParameters
    constant: Annotated[float, Meta(ge=0, le=1.7976931348623157e308)]

    @property
    def kinds(self) -> tuple[str, ...]:
        """What the certificate may be about: with a loss, a value."""
        return self.KINDS if self.parameters.loss is UNSET else ("duality_gap",)


AnyRecord: TypeAlias = HardMargin | SoftMargin | Outliers | SeveralClasses


def different_labels(labels: Sequence[Any]) -> None:
    """Raises ValueError where two labels are equal, 1 and 1.0 and true included, or kinds are mixed."""
    if len(set(labels)) < len(labels) or len({type(label) for label in labels}) > 1:
        raise ValueError(f"expected different labels of one kind, found {cut(repr(list(labels)))}")


def typed_record(content: Any, place: str) -> AnyRecord:
    """The record of a model, every key of it checked. Raises DataError."""
    check_version(content, FORMAT, VERSION, place, "a model's folder")
    found: AnyRecord = typed(AnyRecord, content, place)
    return found


def check_version(content: Any, form: str, known: int, place: str, what: str) -> None:
    """Raises DataError unless a record says to be of this format and version; what: where such records lie."""
    if not isinstance(content, dict) or content.get("format") != form:
        raise DataError(f"{place}: expected a record of format {form!r}, found something else; is this {what}?")
    version = content.get("version")
    if version != known or not isinstance(version, int) or isinstance(version, bool):
        newer = isinstance(version, int | float) and math.isfinite(version) and version > known
        hint = "it was made by a newer coremargin: upgrade" if newer else "get an unaltered copy"
        raise DataError(f"{place}: expected version {known}, found {cut(repr(version))}; {hint}")
