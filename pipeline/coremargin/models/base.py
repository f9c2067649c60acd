"""What all trained models have, one alone or a fleet: a record, labels, decisions, a folder, others' formats."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, cast

import numpy as np

from coremargin.data.storages import open_storage
from coremargin.errors import UsageError
from coremargin.formats.columns import read_columns
from coremargin.formats.function import refuse_function
from coremargin.formats.location import location
from coremargin.formats.model_record import FILE
from coremargin.models.decision import KernelScorer, Scorer, decided, label_array
from coremargin.models.files import save_folder
from coremargin.models.raw_rows import decision_values

if TYPE_CHECKING:
    from pathlib import Path

    from coremargin.data.storage import Storage
    from coremargin.data.storages import Address
    from coremargin.formats.columns import ColumnsRecord
    from coremargin.formats.storage import ReadableStorage
    from coremargin.maths.kernel.functions import KernelFunction
    from coremargin.models.coefficients import Hyperplane
    from coremargin.models.sklearn_objects import Functions, Linear


class BaseModel(ABC):
    """A hypothesis, or several that decide together.

    Attributes
    ----------
    record : mapping
        What was trained and what is claimed about it.
    columns : ColumnsRecord or None
        What the features come from, where the rows had names.
    """

    FILE: ClassVar[str] = FILE  #: the record; a folder with another one than most is known by it

    record: Mapping[str, Any]
    columns: ColumnsRecord | None = None  #: models of other packages may know of none

    @property
    def problem(self) -> str:
        """Which problem was solved, e.g. "hard_margin"; of a fleet, by all members."""
        return str(self.record["problem"])

    def __getstate__(self) -> dict[str, Any]:
        """What copies and pickles hold: the fields, not what was worked out from them; columns as in their file."""
        its: Any = self  # every model is a dataclass
        state = {field.name: getattr(self, field.name) for field in fields(its)}
        return state if self.columns is None else {**state, "columns": self.columns.encoded()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Raises DataError for columns that are none."""
        columns = state.get("columns")
        if isinstance(columns, bytes):
            state = {**state, "columns": read_columns(columns, "columns of a model")}
        self.__dict__.update(state)

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
        """The labels of the classes, in order; empty if the model has none."""
        return tuple(self.record.get("classes", ()))

    @property
    def labels(self) -> tuple[Any, ...]:
        """What ``predict`` may give: the classes; of a model without classes -1 for rows outside and 1 for others."""
        return self.classes or (-1, 1)

    @property
    def grouped(self) -> bool:
        """Whether the rows of a group are labelled together: rows must then be in groups."""
        return False

    @property
    def ranks(self) -> bool:
        """Whether rows are given scores, which order those of a group, and no labels."""
        return False

    @property
    def parameters(self) -> dict[str, Any]:
        """What was asked for: epsilon, intercept, strategy; what the loss, several classes and fleets add to it."""
        return dict(self.record["parameters"])

    @property
    def features(self) -> int:
        """Features per row, d."""
        return int(self.record["features"])

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Names of the features, in order; None where the rows had none."""
        return None if self.columns is None else tuple(self.columns.features)

    def with_columns(self, columns: ColumnsRecord | None) -> Self:
        """The same, of rows with these columns.

        Parameters
        ----------
        columns : ColumnsRecord or None
            What the features come from.

        Returns
        -------
        model
            It shares all arrays.
        """
        made = copy(self)
        object.__setattr__(made, "columns", columns)  # every model is frozen
        return made

    def with_structure(self, structure: Any) -> Self:
        """The same with the user's structure that it was trained with; of most models there is none.

        Parameters
        ----------
        structure : object
            It has size, joint, argmax and loss.

        Returns
        -------
        model
            One that decides.

        Raises
        ------
        UsageError
            It has no structure of the user, or this is another one.
        """
        raise UsageError(f"structure: this model of problem {self.problem!r} has none of yours; leave it out")

    def with_kernel(self, kernel: KernelFunction) -> Self:
        """The same with the function that is its kernel; of most models there is none.

        Parameters
        ----------
        kernel : callable
            Function k(X, Z) of rows (n, d) and (m, d), as it was trained with.

        Returns
        -------
        model
            One that decides.

        Raises
        ------
        UsageError
            It has no kernel that is a function, or this is another function.
        """
        raise UsageError(f"kernel: this model of problem {self.problem!r} has none that is a function; leave it out")

    @property
    def rows(self) -> int:
        """Rows of the store that the certificate is about."""
        return int(self.record["rows"])

    @property
    @abstractmethod
    def store_digest(self) -> str:
        """Identity of the rows that the certificate is about."""

    @property
    def store_sha256(self) -> Mapping[str, Any] | None:
        """SHA-256 of these rows, ``digest``, in chunks of ``chunk_rows``; None for rows in memory and older stores."""
        found: Mapping[str, Any] | None = self.record.get("certificate", self.record).get("store_sha256")
        return found

    @property
    @abstractmethod
    def proof(self) -> dict[str, Any]:
        """What predictions say of the model that made them: its certificate, or which of many decided."""

    @abstractmethod
    def at(self, C: float | None = None, gamma: str | float | None = None) -> BaseModel:
        """The same, with the members for this C (and gamma, of a kernel) deciding.

        Parameters
        ----------
        C : float, optional
            One of those that were trained.
        gamma : float or "scale", optional
            One of those that were trained, as it was asked for.

        Returns
        -------
        BaseModel
            What decides by it.

        Raises
        ------
        UsageError
            There is no such C to choose.
        """

    @abstractmethod
    def deciders(self) -> Sequence[BaseModel]:
        """The models that decide, one a class or one for all.

        Returns
        -------
        sequence of BaseModel
            Models with a certificate each.
        """

    @abstractmethod
    def with_deciders(self, models: Sequence[Any]) -> BaseModel:
        """The same with other models, all about the same rows, in the place of those that decide.

        Parameters
        ----------
        models : sequence of models
            As many as decide, in their order.

        Returns
        -------
        BaseModel
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
        X : array_like, sparse matrix or table of n rows
            Numbers (n, d): an array or a SciPy sparse matrix. Of a model with columns also a table, such as a data
            frame: its columns are found by their names, in any order, and become features as in training.

        Returns
        -------
        ndarray of shape (n,) or (n, k)
            Of two classes one value, positive towards the second; else one for each class.

        Raises
        ------
        UsageError
            X has another shape or kind, or a fleet has several values of C and none was chosen.
        DataError
            A table has other columns than the model.
        BadRow
            A row is not finite, or a value of a table does not fit its column.
        """
        return decision_values(self.scorer(), X, self.columns)

    def predict(self, X: Any) -> np.ndarray:
        """The label of each row.

        Of two classes the second where the decision value is positive, else the first; of more that of the largest.
        Without classes 1 where the decision value is positive, else -1.

        Parameters
        ----------
        X : array_like, sparse matrix or table of n rows
            As for ``decision_function``.

        Returns
        -------
        ndarray of shape (n,)
            Labels as they were given.
        """
        return np.asarray(label_array(self.labels)[decided(self.decision_function(X))])

    def linear(self) -> Linear:
        """The hypotheses and what scales the rows for them.

        Returns
        -------
        Linear
            Weights and intercepts, the labels, the scaling.

        Raises
        ------
        UsageError
            A fleet has several values of C and none was chosen; functions of a kernel have no weights of features.
        """
        from coremargin.models.sklearn_objects import Linear

        found = self._hypotheses()
        if not isinstance(found, Linear):
            raise UsageError(
                f"a model of the kernel {found.expansion.kernel.name!r} has no weights of features: it is a sum over "
                f"{found.expansion.rows.shape[0]:,} rows; `predict` and `evaluate` use it as it is"
            )
        return found

    def _hypotheses(self) -> Linear | Functions:
        """What other formats need of the model."""
        from coremargin.models.sklearn_objects import Functions, Linear

        scorer, members = self.scorer(), self.deciders()
        claims = [member.record["certificate"] for member in members]
        about = {
            "problem": self.problem,
            "status": (members[0] if len(members) == 1 else self).status,
            "certificate": json.dumps(claims[0] if len(claims) == 1 else claims, sort_keys=True),
        }
        if self.columns is not None:
            about["columns"] = json.dumps(list(self.columns.names))
        labels, names = label_array(self.labels), self.feature_names
        if isinstance(scorer, KernelScorer):
            return Functions(scorer.functions, labels, about, scorer.scaling, names)
        return Linear(*scorer.planes(), labels, about, scorer.scaling, names, scorer.map)

    def coefficients(self, top: int | None = None) -> list[Hyperplane]:
        """The weights by the names of the features, the most influential first.

        Parameters
        ----------
        top : int, optional
            So many of each hyperplane; all of them by default.

        Returns
        -------
        list of Hyperplane
            Of two classes one, which speaks for the second; else one for each class, in order. Each has ``label``,
            ``against``, ``intercept`` and ``coefficients``, and of these each ``feature``, ``column``, ``weight`` (for
            rows as they are) and ``effect`` (for scaled ones), by whose size they are sorted.

        Raises
        ------
        DataError
            The weights overflow.
        UsageError
            A fleet has several values of C and none was chosen; ``top`` is below 1.

        Examples
        --------
        >>> (plane,) = model.coefficients(top=3)  # doctest: +SKIP
        >>> [(one.feature, one.weight) for one in plane.coefficients]  # doctest: +SKIP
        """
        from coremargin.models.coefficients import hyperplanes

        return hyperplanes(self.linear(), self.columns, top)

    def to_sklearn(self) -> Any:
        """A fitted scikit-learn object that predicts the same; nothing of coremargin is needed to use it.

        Shift and factor of columns are folded into its coefficients: the same up to rounding, which is large where
        shifts are large compared with the ranges of their columns.

        Returns
        -------
        LinearSVC, SVC, OneVsRestClassifier or Pipeline
            SVCs of a kernel, of more than two classes one for each. A pipeline for mapped rows, for rows divided by
            their lengths, and for scaled rows of a kernel.

        Raises
        ------
        DataError
            The coefficients overflow.
        UsageError
            A fleet has several values of C and none was chosen.
        """
        from coremargin.models.sklearn_objects import as_sklearn

        return as_sklearn(self._hypotheses())

    def to_onnx(self, precision: Literal["float64", "float32"] = "float64") -> Any:
        """An ONNX graph that predicts the same; see ``models.onnx_graph.as_onnx``. Needs the extra "onnx".

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
            The package onnx is not installed, the kernel is a Python function, or labels would not come back as they
            are.
        """
        from coremargin.models.onnx_graph import as_onnx

        refuse_function(self.parameters, "an ONNX graph")
        return as_onnx(self._hypotheses(), precision)

    @classmethod
    def load(cls, path: Address, *, storage_options: Mapping[str, str] | None = None) -> Self:
        """What is in a folder.

        Parameters
        ----------
        path : path-like
            The folder that ``save``, ``coremargin.train`` or a command wrote, or its address.
        storage_options : mapping, optional
            Options of an address, as for ``Store.open``.

        Returns
        -------
        Model, KernelModel or FleetModel
            One of the class whose ``load`` is called.

        Raises
        ------
        DataError
            Nothing is there, or a newer version, or truncated or altered files.
        """
        if storage_options:
            path = location(cast("str", path), storage_options)
        return open_storage(path).read_whole(cls.read)

    @classmethod
    @abstractmethod
    def read(cls, model: ReadableStorage) -> Self:
        """From its objects.

        Parameters
        ----------
        model : ReadableStorage
            Where these are read from.

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
        path: Address,
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
            Called with the folder, of a model on this machine; adds ``report.html`` to it.
        overwrite : bool, default False
            Replace a model that is there.

        Raises
        ------
        UsageError
            Something is there.
        OutputError
            No room, no permission.
        """
        save_folder(path, self.write, run, rounds, report, overwrite=overwrite)

    @abstractmethod
    def write(self, model: Storage) -> None:
        """Write what ``read`` needs.

        Parameters
        ----------
        model : Storage
            An empty one.
        """
