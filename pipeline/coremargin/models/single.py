"""What models with one certificate have: a typed record and the arrays that prove its claims."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import msgspec
import numpy as np

from coremargin.data.folder import write_arrays
from coremargin.errors import DataError, UsageError
from coremargin.formats import kinds
from coremargin.formats.model_arrays import ROWS, Numbers, check_arrays
from coremargin.formats.model_files import ARRAYS, read_model_files
from coremargin.formats.model_record import FILE, ModelRecord
from coremargin.formats.registry import typed_record
from coremargin.maths.rows import Rows, from_arrays, frozen_rows, is_sparse, to_arrays
from coremargin.maths.scaling import Metric, Scaling
from coremargin.models.base import BaseModel
from coremargin.models.feature_map import feature_map_of
from coremargin.models.files import write_columns, write_record
from coremargin.models.record import Certificate, plain

if TYPE_CHECKING:
    from coremargin.data.storage import Storage
    from coremargin.formats.columns import ColumnsRecord
    from coremargin.formats.model_files import ModelFiles
    from coremargin.formats.storage import ReadableStorage
    from coremargin.maths.mapping import FeatureMap
    from coremargin.maths.scaling import Kind


@dataclass(frozen=True, eq=False, repr=False)
class SingleModel(BaseModel):
    """A model with one certificate: ``model.json`` is its record, ``arrays.npz`` its numbers and the coreset's rows.

    The record says which numbers there are (``formats.model_arrays``); they are converted to its types, and read-only,
    also in copies.
    formats/kinds.py says which kinds have which models.

    Parameters
    ----------
    record : mapping
        The content of ``model.json``.
    numbers : mapping of str to ndarray
        The content of ``arrays.npz`` but for the coreset's rows.
    coreset_x : ndarray or csr_array of shape (m, d)
        Exact copies of the coreset's rows, scaled where rows are; (m, 0) where no proof needs them.
    columns : ColumnsRecord, optional
        What the features come from, where the rows had names.

    Raises
    ------
    DataError
        The record is incomplete or does not fit the arrays.
    """

    WHAT: ClassVar[str]  #: "hyperplanes", for messages

    record: Mapping[str, Any]
    numbers: Mapping[str, np.ndarray]
    coreset_x: Rows
    columns: ColumnsRecord | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "record", plain(dict(self.record)))
        sparse = is_sparse(self.coreset_x)
        rows = frozen_rows(self.coreset_x) if sparse else _typed(ROWS, self.coreset_x, Numbers("f8", ()))
        schema = self.facts.schema(frozenset({*self.numbers, *to_arrays(ROWS, rows)}))
        numbers = {name: _typed(name, values, schema.get(name)) for name, values in sorted(self.numbers.items())}
        object.__setattr__(self, "coreset_x", rows)
        object.__setattr__(self, "numbers", MappingProxyType(numbers))
        check_arrays(self.facts, self.arrays(), "arrays")

    def __reduce__(self) -> tuple[Any, ...]:
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        return type(self), tuple((given | {"numbers": dict(self.numbers)}).values())

    def array(self, name: str) -> np.ndarray:
        """One of the numbers.

        Parameters
        ----------
        name : str
            Its name in ``arrays.npz``.

        Returns
        -------
        ndarray
            Read-only.

        Raises
        ------
        AttributeError
            Such models have no array of this name.
        """
        if name not in self.numbers:
            raise AttributeError(f"this model of problem {self.problem!r} has no {name}")
        return self.numbers[name]

    @property
    def coreset_ids(self) -> np.ndarray:
        """The rows of the coreset (m,) by number, int64."""
        return self.array("coreset_ids")

    @property
    def outlier_ids(self) -> np.ndarray | None:
        """The rows that are left out (k,) by number, int64; None where none may be."""
        return self.numbers.get("outliers_ids")

    @property
    def shift(self) -> np.ndarray | None:
        """What is subtracted from each column (d,); None where columns are not scaled."""
        return self.numbers.get("shift")

    @property
    def factor(self) -> np.ndarray | None:
        """What each column (d,) is multiplied by then; None where columns are not scaled."""
        return self.numbers.get("factor")

    @cached_property
    def facts(self) -> ModelRecord:
        """The record, typed, as it is when first asked for. Raises DataError."""
        return typed_record(self.record, "record")

    @property
    def scaling(self) -> Kind | None:
        """How rows are scaled before the hypothesis: "standard", ..., "ellipsoid" (maths/scaling.py), or None."""
        kind: Kind | None = self.record["parameters"].get("scaling")
        return kind

    @property
    def row_scaling(self) -> Scaling | None:
        """What scales rows as training did, its numbers in the precision of the store; None for rows as they are."""
        if self.scaling is None:
            return None
        dtype = np.dtype(self.record["dtype"])
        if self.scaling == "ellipsoid":
            return Scaling(self.scaling, dtype, metric=Metric.of(self.features, self.numbers))
        with np.errstate(over="ignore"):  # values that are not finite are refused by the scorer
            shift, factor = (None if values is None else values.astype(dtype) for values in (self.shift, self.factor))
        return Scaling(self.scaling, dtype, shift, factor)

    @cached_property
    def row_map(self) -> FeatureMap | None:
        """What maps rows as training did, after they are scaled; None for rows that are not mapped."""
        return feature_map_of(self.facts, self.numbers) if self.facts.map else None

    @property
    def row_maps(self) -> tuple[FeatureMap, ...]:
        """The same as fleets have it: one map, or none."""
        return () if self.row_map is None else (self.row_map,)

    @property
    def proof_rows(self) -> Rows:
        """The coreset's rows as the hyperplane is about them: mapped, where rows are."""
        made = self.row_map
        return self.coreset_x if made is None or not self.coreset_x.shape[1] else made.of_rows(self.coreset_x)

    @property
    def certificate(self) -> Certificate:
        """What is claimed, typed."""
        claims = msgspec.structs.asdict(self.facts.certificate)
        return Certificate(**{name: value for name, value in claims.items() if value is not msgspec.UNSET})

    @property
    def store_digest(self) -> str:
        """Identity of the rows that the certificate is about."""
        return self.certificate.store_digest

    @property
    def proof(self) -> dict[str, Any]:
        """The certificate."""
        return {"certificate": self.record["certificate"]}

    def at(self, C: float | None = None, gamma: str | float | None = None) -> Self:
        """Refused: a model alone has its own C.

        Parameters
        ----------
        C : float, optional
            Any.
        gamma : float or "scale", optional
            Any.

        Returns
        -------
        SingleModel
            Never.

        Raises
        ------
        UsageError
            Always.
        """
        name = "gamma" if C is None else "C"
        raise UsageError(f"{name}: this model is one alone, with its own {name}; only of a fleet one is chosen")

    def deciders(self) -> list[Self]:
        """The model itself.

        Returns
        -------
        list of SingleModel
            One.
        """
        return [self]

    def with_deciders(self, models: Sequence[Self]) -> Self:
        """The one other model.

        Parameters
        ----------
        models : sequence of one model
            The other model.

        Returns
        -------
        model
            The same.
        """
        (model,) = models
        return model

    @property
    @abstractmethod
    def row_duals(self) -> np.ndarray:
        """The dual weight of each coreset row (m,), in all."""

    def bounds_text(self) -> str:
        """The two bounds as far as they are claimed, for people.

        Returns
        -------
        str
            Such as "lower 0.5, upper 0.5001".
        """
        bounds = {name: getattr(self.certificate, name) for name in ("lower", "upper")}
        known = [f"{name} {value!r}".removesuffix(".0") for name, value in bounds.items() if value is not None]
        return ", ".join(known) or "no bounds"

    @classmethod
    def read(cls, model: ReadableStorage, below: str = "") -> Self:
        """From its objects.

        Parameters
        ----------
        model : ReadableStorage
            Where these are read from.
        below : str
            What their keys begin with, of one of many models.

        Returns
        -------
        model
            What is there.

        Raises
        ------
        DataError
            It is none, or a model of another kind.
        """
        files = read_model_files(model, below)
        if not issubclass(kinds.module(kinds.KINDS[files.record.problem].model).MODEL_CLASS, cls):
            found = f"found one of problem {files.record.problem!r}"
            raise DataError(f"{files.path}: expected a model of {cls.WHAT}, {found}")
        return cls.from_files(files)

    @classmethod
    def from_files(cls, files: ModelFiles) -> Self:
        """The model in files that were read.

        Parameters
        ----------
        files : ModelFiles
            Record and arrays of a model's folder, checked.

        Returns
        -------
        model
            The model.
        """
        numbers = {name: values for name, values in files.arrays.items() if not name.startswith(ROWS)}
        return cls(files.content, numbers, from_arrays(ROWS, files.arrays), files.columns)

    def arrays(self) -> dict[str, np.ndarray]:
        """The content of ``arrays.npz``.

        Returns
        -------
        dict of str to ndarray
            The arrays by name.
        """
        return dict(self.numbers) | to_arrays(ROWS, self.coreset_x)

    def write(self, model: Storage, below: str = "") -> None:
        """Write ``model.json`` and ``arrays.npz``.

        Parameters
        ----------
        model : Storage
            An empty one.
        below : str
            What keys begin with, of one of many models.
        """
        start = f"{below}/" if below else ""
        with model.create(start + ARRAYS) as file:
            write_arrays(file, self.arrays())
        write_record(model, start + FILE, self.record)
        write_columns(model, self.columns, start)


def frozen(values: np.ndarray, dtype: Any = None) -> np.ndarray:
    """A read-only copy."""
    copy = np.array(values, dtype=dtype or values.dtype.newbyteorder("="), order="C")
    copy.flags.writeable = False
    return copy


def _typed(name: str, values: Any, wanted: Numbers | None) -> np.ndarray:
    """A read-only copy in the first of the types that a record allows, if all values stay what they are.

    Raises DataError for what is no array.
    """
    try:
        array = np.asarray(values)
    except ValueError as error:
        found = f"a {type(values).__name__} of parts of several lengths"
        raise DataError(
            f"arrays: {name}: expected an array of numbers, found {found}; get an unaltered copy"
        ) from error
    types = [] if wanted is None else [np.dtype(word) for word in wanted.kind.split()]
    if not types or array.dtype in types or not np.can_cast(array.dtype, types[0], "same_kind"):
        return frozen(array)
    with np.errstate(over="ignore"):
        copy = frozen(array, types[0])
    return copy if np.array_equal(copy, array, equal_nan=True) else frozen(array)
