"""What all trained models have, of two classes, of several, or a fleet: a record, labels, a folder, others' formats."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import msgspec
import numpy as np

from coremargin.data.folder import write_arrays
from coremargin.errors import DataError, UsageError
from coremargin.formats.model_arrays import ROWS, check_arrays
from coremargin.formats.model_files import ARRAYS, read_model_files
from coremargin.formats.model_record import FILE, ModelRecord
from coremargin.formats.open_folder import read_folder
from coremargin.formats.registry import typed_record
from coremargin.maths.rows import Rows, frozen_rows, is_sparse, to_arrays
from coremargin.maths.scaling import Scaling
from coremargin.models.decision import Scorer, decided, label_array
from coremargin.models.files import save_folder, write_record
from coremargin.models.record import Certificate, plain

if TYPE_CHECKING:
    from coremargin.formats.model_files import ModelFiles
    from coremargin.maths.scaling import Kind
    from coremargin.models.converters import Linear


class Trained(ABC):
    """A hypothesis, or several that decide together.

    Attributes
    ----------
    record : mapping
        What was trained and what is claimed of it.
    """

    record: Mapping[str, Any]

    @property
    def problem(self) -> str:
        """Which problem was solved, e.g. "hard_margin"; of a fleet, by all members."""
        return str(self.record["problem"])

    @property
    def kind(self) -> str:
        """Which kind of problem it answers, as the registry of problems names it."""
        return self.problem

    @property
    def status(self) -> str:
        """How training ended: "certified" (of a fleet: all members), "not_separable" or "stopped"."""
        return str(self.record["status"])

    @property
    def ended(self) -> bool:
        """False when training stopped at a limit: more scans may prove more."""
        return self.status != "stopped"

    @property
    def classes(self) -> tuple[Any, ...]:
        """The labels, in order."""
        return tuple(self.record["classes"])

    @property
    def parameters(self) -> dict[str, Any]:
        """What was asked for: epsilon, intercept, strategy; what the loss, several classes and fleets add to it."""
        return dict(self.record["parameters"])

    @property
    def features(self) -> int:
        """Features per row, d."""
        return int(self.record["features"])

    @property
    def rows(self) -> int:
        """Rows of the store that the certificate is about."""
        return int(self.record["rows"])

    @property
    @abstractmethod
    def store_digest(self) -> str:
        """Identity of the rows that the certificate is about."""

    @property
    @abstractmethod
    def proof(self) -> dict[str, Any]:
        """What predictions say of the model that made them: its certificate, or which of many decided."""

    @abstractmethod
    def at(self, C: float) -> Trained:
        """The same, with the members for this C deciding.

        Parameters
        ----------
        C : float
            One of those that were trained.

        Returns
        -------
        Trained
            What decides by it.

        Raises
        ------
        UsageError
            There is no such C to choose.
        """

    @abstractmethod
    def deciders(self) -> Sequence[Single]:
        """The models that decide, one a class or one for all.

        Returns
        -------
        sequence of Single
            Models with a certificate each.
        """

    @abstractmethod
    def with_deciders(self, models: Sequence[Any]) -> Trained:
        """The same with other models, all about the same rows, in the place of those that decide.

        Parameters
        ----------
        models : sequence of models
            As many as decide, in their order.

        Returns
        -------
        Trained
            What they make together.
        """

    @abstractmethod
    def scorer(self) -> Scorer:
        """What gives rows as they are their decision values; all that a worker needs.

        Returns
        -------
        Scorer
            The hyperplanes, and what scales rows for them.
        """

    def decision_function(self, X: Any) -> np.ndarray:
        """Decision values of rows as they are.

        They are w.z + b, in float64, of the row z scaled as in training; see ``Scorer``. Of several classes at once,
        scores.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            Numbers: an array or a SciPy sparse matrix.

        Returns
        -------
        ndarray of shape (n,) or (n, k)
            Of two classes one value, positive towards the second; else one for each class.

        Raises
        ------
        UsageError
            X has another shape or kind, or a fleet has several values of C and none was chosen.
        BadRow
            A row is not finite.
        """
        return self.scorer().values(X)

    def predict(self, X: Any) -> np.ndarray:
        """The label of each row.

        Of two classes the second where the decision value is positive, else the first; of more that of the largest.

        Parameters
        ----------
        X : array_like or sparse matrix of shape (n, d)
            As for ``decision_function``.

        Returns
        -------
        ndarray of shape (n,)
            Labels as they were given.
        """
        return np.asarray(label_array(self.classes)[decided(self.decision_function(X))])

    def linear(self) -> Linear:
        """The hypotheses and what scales the rows for them.

        Returns
        -------
        Linear
            Weights and intercepts, the labels, the scaling.

        Raises
        ------
        UsageError
            A fleet has several values of C and none was chosen.
        """
        from coremargin.models.converters import Linear

        claims = [member.record["certificate"] for member in self.deciders()]
        about = {
            "problem": self.problem, "status": self.status,
            "certificate": json.dumps(claims[0] if len(claims) == 1 else claims, sort_keys=True),
        }  # fmt: skip
        scorer = self.scorer()
        return Linear(*scorer.planes(), label_array(self.classes), about, scorer.scaling)

    def to_sklearn(self) -> Any:
        """A fitted scikit-learn object that predicts the same; nothing of coremargin is needed to use it.

        Shift and factor of columns are folded into its coefficients: the same up to rounding, which is large where
        shifts are large beside the ranges of their columns.

        Returns
        -------
        LinearSVC or Pipeline
            Of rows divided by their lengths a pipeline, whose first step does so.

        Raises
        ------
        DataError
            The coefficients overflow.
        UsageError
            A fleet has several values of C and none was chosen.
        """
        from coremargin.models.converters import as_sklearn

        return as_sklearn(self.linear())

    def to_onnx(self, precision: Literal["float64", "float32"] = "float64") -> Any:
        """An ONNX graph that predicts the same; see ``models.converters.as_onnx``. Needs the extra "onnx".

        Parameters
        ----------
        precision : {"float64", "float32"}, default "float64"
            Of input, coefficients and decision values.

        Returns
        -------
        onnx.ModelProto
            Input "X" (n, d); outputs "label" (n,) and "decision", (n,) for two classes, else (n, k).

        Raises
        ------
        UsageError
            The package onnx is not installed, or labels would not come back as they are.
        """
        from coremargin.models.converters import as_onnx

        return as_onnx(self.linear(), precision)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """What is in a folder.

        Parameters
        ----------
        path : path-like
            The folder that ``save``, ``coremargin.train`` or a command wrote.

        Returns
        -------
        Model, FleetModel or MulticlassModel
            One of the class whose ``load`` is called.

        Raises
        ------
        DataError
            Nothing is there, or a newer version, or truncated or altered files.
        """
        place = Path(os.path.abspath(path))
        return read_folder(place, lambda folder: cls.read(folder, place))

    @classmethod
    @abstractmethod
    def read(cls, folder: int, path: Path) -> Self:
        """From an open folder.

        Parameters
        ----------
        folder : int
            Its descriptor.
        path : Path
            Its path, for messages.

        Returns
        -------
        Self
            What is there.

        Raises
        ------
        DataError
            It is none, or of another kind.
        """

    def save(
        self,
        path: str | os.PathLike[str],
        run: Mapping[str, Any] | None = None,
        rounds: Sequence[Mapping[str, Any]] = (),
        report: Callable[[Path], object] | None = None,
        *,
        overwrite: bool = False,
    ) -> None:
        """Write the folder, whole or not at all.

        The caller holds the lock on ``path``.

        Parameters
        ----------
        path : path-like
            Its place. An existing model is replaced only with ``overwrite``; a folder that is not a model never is.
        run : mapping, optional
            How the run went, where that is known: ``run.json``.
        rounds : sequence of mapping
            Its rounds: ``rounds.jsonl``.
        report : callable, optional
            Called with the folder, adds ``report.html`` to it.
        overwrite : bool, default False
            Replace a model that is there.

        Raises
        ------
        OutputError
            Something is there, no room, no permission.
        """
        save_folder(path, self.write, run, rounds, report, overwrite=overwrite)

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Write what ``read`` needs.

        Parameters
        ----------
        folder : Path
            An empty folder.
        """


class Single(Trained):
    """A model with one certificate: ``model.json`` is its record, ``arrays.npz`` holds the numbers and the coreset.

    registry.py says of which problems there are which models.
    """

    RECORD: ClassVar[type[ModelRecord]]  #: what the records of such models are
    WHAT: ClassVar[str]  #: "two classes", for messages

    coreset_ids: np.ndarray
    coreset_x: Rows
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

    @property
    def facts(self) -> ModelRecord:
        """The record, typed. Raises DataError."""
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
        with np.errstate(over="ignore"):  # what is not finite is refused by who decides
            shift, factor = (None if values is None else values.astype(dtype) for values in (self.shift, self.factor))
        return Scaling(self.scaling, dtype, shift, factor)

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

    def at(self, C: float) -> Self:
        """Refused: a model alone has its own C.

        Parameters
        ----------
        C : float
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
        raise UsageError("C: this model is one alone, with its own C; only of a fleet one is chosen")

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
    def read(cls, folder: int, path: Path, below: str = "") -> Self:
        """From an open folder, or a folder below it.

        Parameters
        ----------
        folder : int
            Descriptor of the open folder.
        path : Path
            Its path, for messages.
        below : str
            Path from there to the model's own folder.

        Returns
        -------
        model
            What is there.

        Raises
        ------
        DataError
            It is none, or a model of another kind.
        """
        files = read_model_files(folder, path, below)
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

    def write(self, folder: Path) -> None:
        """Write ``model.json`` and ``arrays.npz``.

        Parameters
        ----------
        folder : Path
            An empty folder.
        """
        write_arrays(folder / ARRAYS, self.arrays())
        write_record(folder / FILE, self.record)


def frozen(values: np.ndarray, dtype: Any = None) -> np.ndarray:
    """A read-only copy."""
    copy = np.array(values, dtype=dtype or values.dtype.newbyteorder("="), order="C")
    copy.flags.writeable = False
    return copy
