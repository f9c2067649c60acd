"""What models with one certificate have: a typed record, its claims, and arrays in one file."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import msgspec
import numpy as np

from coremargin.data.folder import write_arrays
from coremargin.errors import DataError, UsageError
from coremargin.formats.model_arrays import ROWS, check_arrays
from coremargin.formats.model_files import ARRAYS, read_model_files
from coremargin.formats.model_record import FILE, ModelRecord
from coremargin.formats.registry import typed_record
from coremargin.maths.rows import Rows, frozen_rows, is_sparse, to_arrays
from coremargin.maths.scaling import Scaling
from coremargin.models.feature_map import feature_map_of
from coremargin.models.files import write_columns, write_record
from coremargin.models.record import Certificate, plain
from coremargin.models.trained import Trained

if TYPE_CHECKING:
    from coremargin.data.storage import Storage
    from coremargin.formats.model_files import ModelFiles
    from coremargin.formats.storage import ReadableStorage
    from coremargin.maths.mapping import FeatureMap
    from coremargin.maths.scaling import Kind


class Single(Trained):
    """A model with one certificate: ``model.json`` is its record, ``arrays.npz`` holds the numbers and the coreset.

    formats/kinds.py says which kinds have which models.
    """

    RECORD: ClassVar[type[ModelRecord]]  #: what the records of such models are
    WHAT: ClassVar[str]  #: "two classes", for messages

    coreset_ids: np.ndarray
    coreset_x: Rows
    extra: Mapping[str, np.ndarray]
    shift: np.ndarray | None
    factor: np.ndarray | None

    def _settle(self, names: Mapping[str, Any]) -> None:
        """Make the record plain and the arrays ``names`` (to their kinds, None: as they are) read-only; check them.

        Raises DataError where they are not as those of a model on disk.
        """
        object.__setattr__(self, "record", plain(dict(self.record)))
        for name, kind in names.items():
            values = getattr(self, name)
            if values is not None:
                object.__setattr__(self, name, frozen_rows(values) if is_sparse(values) else frozen(values, kind))
        check_arrays(self.facts, self.arrays(), "arrays")

    @cached_property
    def facts(self) -> ModelRecord:
        """The record, typed, as it is when first asked for. Raises DataError."""
        return typed_record(self.record, "record")

    @property
    def scaling(self) -> Kind | None:
        """How rows are scaled before the hypothesis: "standard", "minmax", "maxabs", "rownorm", or None."""
        kind: Kind | None = self.record["parameters"].get("scaling")
        return kind

    @property
    def row_scaling(self) -> Scaling | None:
        """What scales rows as training did, its numbers in the precision of the store; None for rows as they are."""
        if self.scaling is None:
            return None
        dtype = np.dtype(self.record["dtype"])
        with np.errstate(over="ignore"):  # values that are not finite are refused by the scorer
            shift, factor = (None if values is None else values.astype(dtype) for values in (self.shift, self.factor))
        return Scaling(self.scaling, dtype, shift, factor)

    @cached_property
    def row_map(self) -> FeatureMap | None:
        """What maps rows as training did, after they are scaled; None for rows that are not mapped."""
        return feature_map_of(self.facts, self.extra) if self.facts.map else None

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
        return Certificate(**msgspec.structs.asdict(self.facts.certificate))

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
        Single
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
        list of Single
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
        if not isinstance(files.record, cls.RECORD):
            found = f"found one of problem {files.record.problem!r}"
            raise DataError(f"{files.path}: expected a model of {cls.WHAT}, {found}")
        return cls.of(files)

    @classmethod
    @abstractmethod
    def of(cls, files: ModelFiles) -> Self:
        """The model in files that were read, whose record is one of ``RECORD``."""

    @abstractmethod
    def numbers(self) -> dict[str, np.ndarray]:
        """The content of ``arrays.npz`` but for the coreset's rows.

        Returns
        -------
        dict of str to ndarray
            The arrays by name.
        """

    def arrays(self) -> dict[str, np.ndarray]:
        """The content of ``arrays.npz``.

        Returns
        -------
        dict of str to ndarray
            The arrays by name.
        """
        return self.numbers() | to_arrays(ROWS, self.coreset_x)

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
