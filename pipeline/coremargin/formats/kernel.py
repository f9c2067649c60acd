"""The record and the arrays of a machine with a kernel.

The kernel "callable" is a user-defined function: the record has its name, as information only, for no record
makes anybody run anything. Its ``error`` is a part of the claims: they hold for every positive semi-definite kernel k
with |k(x, z) - value| <= error sqrt(k(x, x) k(z, z)). Another function is detected by ``kernel_values``
(s, s), the function's values of the coreset rows at ``reference_places`` with each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, get_args

import numpy as np
from msgspec import UNSET, Meta, UnsetType

from coremargin.formats.choices import KernelName, Loss
from coremargin.formats.fleet_record import FleetRecord, Gamma, Gammas
from coremargin.formats.function import CALLABLE, LEAST_ERROR, MOST_ERROR
from coremargin.formats.limits import LARGEST_RELATIVE_MARGIN, MOST_DEGREE
from coremargin.formats.model_arrays import Numbers, Schema, demand
from coremargin.formats.model_record import (
    WHOLE,
    AboveZero,
    ClassifierRecord,
    Count,
    Folds,
    HyperplaneParameters,
    Rows,
    Seed,
    Strict,
    View,
    Word,
)
from coremargin.formats.outliers import check_proof, removal_schema
from coremargin.formats.strict_json import cut

Degree = Annotated[int, Meta(ge=1, le=MOST_DEGREE)]
NotBelowZero = Annotated[float, Meta(ge=0, le=1.7976931348623157e308)]
RelativeMarginBound = Annotated[float, Meta(gt=1, le=LARGEST_RELATIVE_MARGIN)]
KernelError = Annotated[float, Meta(ge=LEAST_ERROR, le=MOST_ERROR)]

MOST_KEPT = 16  #: coreset rows whose values a model keeps


def reference_places(rows: int) -> np.ndarray:
    """Places (s,) of the coreset rows, of so many, whose kernel values a model keeps: spread over all."""
    return np.unique(np.linspace(0, max(0, rows - 1), min(rows, MOST_KEPT)).astype(np.intp))


def check_known(name: str) -> None:
    """Raises ValueError for a kernel that this version does not know."""
    known = get_args(KernelName)
    if name not in known:
        raise ValueError(
            f"this version knows the kernels {', '.join(known)}, found {cut(repr(name))}: made by a newer coremargin? "
            f"then upgrade"
        )


class KernelParameters(HyperplaneParameters, frozen=True, kw_only=True):
    """What was asked for; loss, C and class_weight are all there or none is; gamma: "scale" or a number.

    relative_margin: B, which no decision value exceeds, with the hinge only.
    """

    kernel: Word
    classes: Literal["ovr"] | None
    gamma: Gamma | UnsetType = UNSET
    degree: Degree | UnsetType = UNSET
    coef0: NotBelowZero | UnsetType = UNSET
    kernel_error: KernelError | UnsetType = UNSET
    loss: Loss | UnsetType = UNSET
    C: AboveZero | UnsetType = UNSET
    class_weight: Literal["balanced"] | tuple[AboveZero, AboveZero] | UnsetType | None = UNSET
    relative_margin: RelativeMarginBound | UnsetType = UNSET
    outliers: Count | Word | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Raises ValueError for half a soft margin, a kernel that is not known, and outliers of what has none."""
        check_known(self.kernel)
        given = [value is not UNSET for value in (self.loss, self.C, self.class_weight)]
        if any(given) and not all(given):
            raise ValueError("expected loss, C and class_weight together, or none of them")
        if self.relative_margin is not UNSET and self.loss != "hinge":
            raise ValueError("expected relative_margin with the hinge loss only")
        if self.outliers is not UNSET and (any(given) or self.classes is not None or self.kernel == CALLABLE):
            raise ValueError("expected outliers of hard margins between two classes, of kernels known here")


class KernelFleetParameters(KernelParameters, frozen=True, kw_only=True):
    """What was asked for of a fleet."""

    gamma: Gammas | UnsetType = UNSET  # type: ignore[assignment]
    C: Annotated[list[AboveZero], Meta(min_length=1)] | UnsetType = UNSET  # type: ignore[assignment]
    folds: Folds | None
    fold_seed: Seed
    choose: Literal["risk"] | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Raises ValueError for outliers."""
        super().__post_init__()
        if self.outliers is not UNSET:
            raise ValueError("expected no outliers of several machines")

    @property
    def costs(self) -> list[float | None]:
        """The values of C; none of hard margins."""
        return [None] if self.C is UNSET else list(self.C)


class KernelFleet(FleetRecord, frozen=True, kw_only=True, tag_field="problem", tag="kernel"):
    """Many machines with kernels: one for each C, gamma and fold, each of which has all classes."""

    parameters: KernelFleetParameters

    @property
    def sides(self) -> list[Any]:
        """A member has all of them."""
        return [None]


class KernelNumbers(Strict, frozen=True, kw_only=True):
    """A kernel with numbers for what it has; function: module:qualname of one that is a function."""

    name: Word
    gamma: AboveZero | UnsetType = UNSET
    degree: Degree | UnsetType = UNSET
    coef0: NotBelowZero | UnsetType = UNSET
    error: KernelError | UnsetType = UNSET
    function: Word | UnsetType = UNSET

    def __post_init__(self) -> None:
        """Raises ValueError for parameters that the kernel does not have, or lacks, and one that is not known."""
        check_known(self.name)
        has = {name for name in _NUMBERS if getattr(self, name) is not UNSET}
        needs = {
            "linear": set(),
            "poly": {"gamma", "degree", "coef0"},
            "rbf": {"gamma"},
            CALLABLE: {"error", "function"},
        }[self.name]
        if has != needs:
            raise ValueError(f"expected {', '.join(sorted(needs)) or 'no number'} of the kernel {self.name!r}")


_NUMBERS = ("gamma", "degree", "coef0", "error", "function")


def check_same_kernel(asked: Any, kernel: KernelNumbers) -> None:
    """Raises ValueError for a kernel that is not the one that parameters ask for."""
    if asked.kernel != kernel.name:
        raise ValueError(f"parameters name the kernel {asked.kernel!r}, the record has {kernel.name!r}")
    for name in ("gamma", "degree", "coef0"):
        wanted, found = getattr(asked, name), getattr(kernel, name)
        if wanted not in ("scale", found) or (wanted is UNSET) != (found is UNSET):
            raise ValueError(f"parameters ask for {name} {wanted!r}, the kernel has {found!r}")


class Reduction(Strict, frozen=True, kw_only=True):
    """Fewer rows that carry the functions in the place of all of the coreset, which stays for the lower bound.

    rows: of the coreset; distance: none of the functions is farther from the one that the whole coreset carries, on any
    row; changed: no more rows have another class by them.
    """

    rows: Rows
    distance: NotBelowZero
    changed: Count


class KernelRecord(ClassifierRecord, frozen=True, kw_only=True, tag_field="problem", tag="kernel"):
    """A machine with a kernel: of two classes one column, of more one a class; view: of a member of a fleet.

    With outliers the margin is that of all rows but those at ``outliers_ids``, and the arrays ``proof_...`` prove the
    upper bound: certificates, by places in the coreset, and the leaves of a search.
    """

    FLEET: ClassVar[type[FleetRecord]] = KernelFleet

    parameters: KernelParameters
    kernel: KernelNumbers
    reduced: Reduction | UnsetType = UNSET
    view: View = WHOLE

    def __post_init__(self) -> None:
        """Raises ValueError for a kernel that is not the one that was asked for."""
        super().__post_init__()
        asked, kernel = self.parameters, self.kernel
        check_same_kernel(asked, kernel)
        if asked.kernel_error != kernel.error:
            raise ValueError(f"parameters ask for kernel_error {asked.kernel_error!r}, the kernel has {kernel.error!r}")
        if self.view.label is not None:
            raise ValueError(f"expected a view of all classes, found that of {self.view.label!r}")
        if len(self.classes) > 2 and asked.classes is None:
            raise ValueError(f"{len(self.classes)} classes, and classes is not 'ovr'")
        if self.reduced is not UNSET and asked.relative_margin is not UNSET:
            raise ValueError("a reduced model has no relative margin")
        if asked.outliers is not UNSET and (self.reduced is not UNSET or self.view != WHOLE):
            raise ValueError("a model with outliers is neither reduced nor of a fold")

    @property
    def soft(self) -> bool:
        """With a loss: the bounds are about values, not margins."""
        return self.parameters.loss is not UNSET

    @property
    def kinds(self) -> tuple[str, ...]:
        """What the certificate may be about: with a loss, a value."""
        return ("duality_gap",) if self.soft else ("margin",)

    @property
    def columns(self) -> int:
        """How many functions there are."""
        return 1 if len(self.classes) == 2 else len(self.classes)

    def schema(self, names: frozenset[str]) -> Schema:
        """The same with dual weights of each column, intercepts and bounds."""
        m, columns = self.certificate.coreset_rows, self.columns
        mine = super().schema(names) | {
            "duals": Numbers("f8", (m, columns)),
            "offsets": Numbers("f8", (columns,)),
            "lowers": Numbers("f8", (columns,), finite=False),
            "uppers": Numbers("f8", (columns,), finite=False),
            "coreset_classes": Numbers("i4", (m,)),
        }
        if self.kernel.name == CALLABLE:
            mine |= {"kernel_values": Numbers("f8", 2 * (len(reference_places(m)),))}
        if self.parameters.outliers is not UNSET:
            mine |= removal_schema(names)
        if self.reduced is UNSET:
            return mine
        carry = self.reduced.rows
        return mine | {"reduced_places": Numbers("i8", (carry,)), "reduced_weights": Numbers("f8", (carry, columns))}

    def check_values(self, arrays: Mapping[str, np.ndarray], place: str) -> None:
        """Rows are of classes that there are, and weights none below 0 without a relative margin. Raises DataError."""
        classes = arrays["coreset_classes"]
        demand(((classes >= 0) & (classes < len(self.classes))).all(), place, "coreset_classes", "places of classes")
        if self.parameters.relative_margin is UNSET:
            demand((arrays["duals"] >= 0).all(), place, "duals", "numbers from 0 on")
        for name in ("lowers", "uppers"):
            demand(not np.isinf(arrays[name]).any(), place, name, "numbers, or NaN where nothing is known")
        if self.reduced is not UNSET:
            found = arrays["reduced_places"]
            ok = (found >= 0).all() and (found < len(classes)).all() and (np.diff(found) > 0).all()
            demand(ok, place, "reduced_places", "places of coreset rows that ascend")
        check_proof(arrays, place)
        super().check_values(arrays, place)


RECORD = KernelRecord
