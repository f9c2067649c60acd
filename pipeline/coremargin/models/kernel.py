"""A trained machine with a kernel: the rows that carry it, their weights, certificate, what checks it again.

On disk it is a folder as ``Model`` has it, with problem "kernel" in ``model.json``, which names the kernel and its
numbers, and in ``arrays.npz`` for k columns (of two classes one, of more one a class)

    coreset_x           (m, d) exact copies of the rows coreset_ids (m,), coreset_classes (m,) that carry it
    duals               (m, k) their dual weights, none below 0
    offsets             (k,) intercepts
    lowers, uppers      (k,) the proven bounds of each column, NaN where there are none
    shift, factor       (d,) where columns are scaled

and, of a model that was reduced, what decides in the place of all these rows:

    reduced_places      (r,) those of them that carry the functions, ascending
    reduced_weights     (r, k) their weights

and, of a kernel that is a function somebody brought, by what it is known again; the function is no part of the model:

    kernel_values       (s, s) its values of coreset rows at ``formats.kernel.reference_places`` with each other
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from coremargin.errors import UsageError
from coremargin.formats.function import CALLABLE, missing_function, refuse_function
from coremargin.formats.kernel import KernelRecord
from coremargin.formats.model_arrays import ROWS
from coremargin.maths.kernel.callables import CallableKernel
from coremargin.maths.kernel.expansion import Expansion
from coremargin.maths.kernel.functions import Kernel
from coremargin.maths.rows import from_arrays, take
from coremargin.models.decision import KernelScorer, label_array
from coremargin.models.kernel_converters import Functions, as_svc, kernel_as_onnx
from coremargin.models.single import Single
from coremargin.models.user_kernel import check_same, describe_kernel

if TYPE_CHECKING:
    from coremargin.formats.columns import ColumnsRecord
    from coremargin.formats.model_files import ModelFiles
    from coremargin.maths.kernel.functions import KernelFunction
    from coremargin.maths.rows import Rows
    from coremargin.models.converters import Linear


@dataclass(frozen=True, eq=False, repr=False)
class KernelModel(Single):
    """Functions sum_j y_j duals_j k(x_j, .) + offset, or near these with fewer rows; arrays are read-only.

    Parameters
    ----------
    record : mapping
        The content of ``model.json``.
    duals : ndarray of shape (m, k)
        Dual weights of the rows in each column, none below 0; y is 1 for the class of a column, else -1.
    offsets : ndarray of shape (k,)
        Intercepts.
    lowers, uppers : ndarray of shape (k,)
        Bounds on the margin of each column, or with a loss on its value; NaN where nothing is known.
    coreset_ids : ndarray of shape (m,)
        Int64, the rows by number.
    coreset_x : ndarray or csr_array of shape (m, d)
        Exact copies of the rows, scaled where rows are.
    coreset_classes : ndarray of shape (m,)
        Int32, their classes.
    shift, factor : ndarray of shape (d,), optional
        Where columns are scaled, what by.
    columns : ColumnsRecord, optional
        What the features come from, where the rows had names.
    reduced_places : ndarray of shape (r,), optional
        Of a model that was reduced, which coreset rows carry it.
    reduced_weights : ndarray of shape (r, k), optional
        And what they count in each function.
    kernel_values : ndarray of shape (s, s), optional
        Of a kernel that is a function, its values of some of the rows.
    function : callable, optional
        The function itself, which no file has: ``with_kernel`` gives it to a model that was loaded.

    Raises
    ------
    DataError
        The record does not fit the arrays.
    """

    RECORD = KernelRecord
    WHAT = "a kernel"

    record: Mapping[str, Any]
    duals: np.ndarray
    offsets: np.ndarray
    lowers: np.ndarray
    uppers: np.ndarray
    coreset_ids: np.ndarray
    coreset_x: Rows
    coreset_classes: np.ndarray
    shift: np.ndarray | None = None
    factor: np.ndarray | None = None
    columns: ColumnsRecord | None = None
    reduced_places: np.ndarray | None = None
    reduced_weights: np.ndarray | None = None
    kernel_values: np.ndarray | None = None
    function: KernelFunction | None = None

    def __post_init__(self) -> None:
        kinds = dict.fromkeys((*_NAMES, "coreset_x"), np.float64)
        whole = dict.fromkeys(("coreset_ids", "reduced_places"), np.int64)
        self._settle({**kinds, **whole, "coreset_classes": np.int32})

    @cached_property
    def kernel(self) -> Kernel:
        """The kernel, with its numbers. Raises UsageError for a function that was not given."""
        numbers = dict(self.record["kernel"])
        if numbers["name"] == CALLABLE:
            if self.function is None:
                raise UsageError(missing_function(numbers["function"]))
            return CallableKernel(function=self.function, eta=numbers["error"])
        dense = isinstance(self.coreset_x, np.ndarray) and len(self.coreset_x) > 0
        centre = self.coreset_x.mean(axis=0) if numbers["name"] == "rbf" and dense else None
        return Kernel(**numbers, centre=centre)

    @property
    def kernel_text(self) -> str:
        """The kernel, for people."""
        return describe_kernel(self.record["kernel"])

    def with_kernel(self, kernel: KernelFunction) -> Self:
        """The same with the function that is its kernel, which is no part of a model on disk.

        Parameters
        ----------
        kernel : callable
            Function k(X, Z) of rows (n, d) and (m, d), as it was trained with.

        Returns
        -------
        KernelModel
            One that decides.

        Raises
        ------
        UsageError
            The kernel is none that is a function, or this is another function.
        """
        if self.kernel_values is None:
            return super().with_kernel(kernel)
        its = CallableKernel(function=kernel, eta=self.record["kernel"]["error"])
        check_same(its, self.coreset_x, self.kernel_values, "the model")
        return replace(self, function=kernel)

    @property
    def row_duals(self) -> np.ndarray:
        """The dual weights of each coreset row (m,), of all columns together."""
        return np.asarray(self.duals.sum(axis=1))

    @cached_property
    def weights(self) -> np.ndarray:
        """What each row (m, k) counts in the functions of all of them: its dual weight with the sign of its side."""
        places = self.coreset_classes[:, None]
        positive = np.array([1]) if len(self.classes) == 2 else np.arange(len(self.classes))
        return np.asarray(np.where(places == positive[None, :], 1.0, -1.0) * self.duals)

    def scorer(self) -> KernelScorer:
        """The functions, for scaled rows.

        Returns
        -------
        KernelScorer
            What gives rows as they are their decision values.
        """
        return KernelScorer(self.row_scaling, self.expansion)

    def linear(self) -> Linear:
        """Refused: a function of a kernel has no weights of features.

        Returns
        -------
        Linear
            Never.

        Raises
        ------
        UsageError
            Always.
        """
        raise UsageError(
            f"a model of the kernel {self.record['kernel']['name']!r} has no weights of features: it is a sum over "
            f"{len(self.coreset_ids):,} rows; `predict` and `evaluate` use it as it is"
        )

    @cached_property
    def whole(self) -> Expansion:
        """The functions that the whole coreset carries, for scaled rows."""
        return Expansion(self.kernel, self.coreset_x, self.weights, self.offsets)

    @cached_property
    def carriers(self) -> np.ndarray:
        """Places of the coreset rows that carry what decides."""
        return np.arange(len(self.coreset_ids)) if self.reduced_places is None else self.reduced_places

    @cached_property
    def expansion(self) -> Expansion:
        """The functions that decide, for scaled rows."""
        if self.reduced_weights is None:
            return self.whole
        return Expansion(self.kernel, take(self.coreset_x, self.carriers), self.reduced_weights, self.offsets)

    def _functions(self) -> Functions:
        """The functions with what converters need besides."""
        about = {
            "problem": self.problem,
            "status": self.status,
            "certificate": json.dumps(self.record["certificate"], sort_keys=True),
        }
        if self.columns is not None:
            about["columns"] = json.dumps(list(self.columns.names))
        return Functions(self.expansion, label_array(self.labels), about, self.row_scaling, self.feature_names)

    def to_sklearn(self) -> Any:
        """A fitted scikit-learn object that predicts the same; nothing of coremargin is needed to use it.

        Returns
        -------
        SVC, OneVsRestClassifier or Pipeline
            Of more than two classes one SVC for each; of scaled rows a pipeline, whose first step scales them.
        """
        return as_svc(self._functions())

    def to_onnx(self, precision: Literal["float64", "float32"] = "float64") -> Any:
        """An ONNX graph that predicts the same. Needs the extra "onnx".

        Parameters
        ----------
        precision : {"float64", "float32"}, default "float64"
            Of input, rows, weights and decision values.

        Returns
        -------
        onnx.ModelProto
            Input "X" (n, d); outputs "label" (n,) and "decision", (n,) for two classes, else (n, k).

        Raises
        ------
        UsageError
            The kernel is a function, or the package onnx is not installed.
        """
        refuse_function(self.parameters, "an ONNX graph")
        return kernel_as_onnx(self._functions(), precision)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.status}: kernel {self.kernel_text}, {len(self.classes)} classes, "
            f"{self.rows:,} rows x {self.features:,} features, {self.bounds_text()}, "
            f"{self.certificate.coreset_rows:,} coreset rows{self._reduced_text()})"
        )

    def _reduced_text(self) -> str:
        """How many of them decide, where not all do."""
        return "" if self.reduced_places is None else f", {len(self.reduced_places):,} of which decide"

    @classmethod
    def of(cls, files: ModelFiles) -> Self:
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
        arrays: dict[str, Any] = {name: values for name, values in files.arrays.items() if not name.startswith(ROWS)}
        return cls(record=files.content, coreset_x=from_arrays(ROWS, files.arrays), columns=files.columns, **arrays)

    def numbers(self) -> dict[str, np.ndarray]:
        """The content of ``arrays.npz`` but for the coreset's rows.

        Returns
        -------
        dict of str to ndarray
            The arrays by name.
        """
        return {name: values for name in _NAMES if (values := getattr(self, name)) is not None}


_NAMES = (
    "duals",
    "offsets",
    "lowers",
    "uppers",
    "coreset_ids",
    "coreset_classes",
    "shift",
    "factor",
    "reduced_places",
    "reduced_weights",
    "kernel_values",
)

MODEL_CLASS = KernelModel
