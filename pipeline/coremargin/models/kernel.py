"""A trained machine with a kernel: the rows that carry it, their weights, certificate, what checks it again.

On disk it is a folder as ``Model`` has it, with problem "kernel" in ``model.json``, which names the kernel and its
numbers, and in ``arrays.npz`` for k columns (of two classes one, of more one a class)

    coreset_x           (m, d) exact copies of the rows coreset_ids (m,), coreset_classes (m,) that carry it
    duals               (m, k) their dual weights, none below 0 without a relative margin
    offsets             (k,) intercepts
    lowers, uppers      (k,) the proven bounds of each column, NaN where there are none
    shift, factor       (d,) where columns are scaled

and, of a model that was reduced, what decides in the place of all these rows:

    reduced_places      (r,) those of them that carry the functions, ascending
    reduced_weights     (r, k) their weights

and, if the kernel is a function of the user's, what identifies it; the function is no part of the model:

    kernel_values       (s, s) its values of coreset rows at ``formats.kernel.reference_places`` with each other
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np

from coremargin.errors import UsageError
from coremargin.formats.function import CALLABLE, missing_function
from coremargin.maths.kernel.callables import CallableKernel
from coremargin.maths.kernel.expansion import Expansion
from coremargin.maths.kernel.functions import Kernel
from coremargin.maths.rows import take
from coremargin.models.decision import KernelScorer
from coremargin.models.single import SingleModel
from coremargin.models.user_kernel import check_same, describe_kernel

if TYPE_CHECKING:
    from coremargin.maths.kernel.functions import KernelFunction


@dataclass(frozen=True, eq=False, repr=False)
class KernelModel(SingleModel):
    """Functions sum_j y_j duals_j k(x_j, .) + offset, or near these with fewer rows; arrays are read-only.

    Parameters
    ----------
    record : mapping
        The content of ``model.json``.
    numbers : mapping of str to ndarray
        The content of ``arrays.npz`` but for the coreset's rows, by the names in ``coremargin.models.kernel``.
    coreset_x : ndarray or csr_array of shape (m, d)
        Exact copies of the rows, scaled where rows are.
    columns : ColumnsRecord, optional
        What the features come from, where the rows had names.
    function : callable, optional
        The function itself, which no file has: ``with_kernel`` gives it to a model that was loaded.

    Raises
    ------
    DataError
        The record does not fit the arrays.
    """

    WHAT = "a kernel"

    function: KernelFunction | None = None

    @property
    def duals(self) -> np.ndarray:
        """Dual weights (m, k) of the rows in each column; y is 1 for the class of a column, else -1.

        None is below 0, but with a relative margin.
        """
        return self.array("duals")

    @property
    def offsets(self) -> np.ndarray:
        """Intercepts (k,)."""
        return self.array("offsets")

    @property
    def lowers(self) -> np.ndarray:
        """Lower bounds (k,) on the margin of each column, or with a loss on its value; NaN where nothing is known."""
        return self.array("lowers")

    @property
    def uppers(self) -> np.ndarray:
        """Upper bounds (k,) of the same."""
        return self.array("uppers")

    @property
    def coreset_classes(self) -> np.ndarray:
        """Classes (m,) of the coreset's rows."""
        return self.array("coreset_classes")

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
        if "kernel_values" not in self.numbers:
            return super().with_kernel(kernel)
        its = CallableKernel(function=kernel, eta=self.record["kernel"]["error"])
        check_same(its, self.coreset_x, self.array("kernel_values"), "the model")
        return replace(self, function=kernel)

    @property
    def row_duals(self) -> np.ndarray:
        """The sizes of the dual weights of each coreset row (m,), of all columns together."""
        return np.asarray(np.abs(self.duals).sum(axis=1))

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

    @cached_property
    def whole(self) -> Expansion:
        """The functions that the whole coreset carries, for scaled rows."""
        return Expansion(self.kernel, self.coreset_x, self.weights, self.offsets)

    @cached_property
    def carriers(self) -> np.ndarray:
        """Places of the coreset rows that carry what decides."""
        return self.numbers.get("reduced_places", np.arange(len(self.coreset_ids)))

    @cached_property
    def expansion(self) -> Expansion:
        """The functions that decide, for scaled rows."""
        if "reduced_places" not in self.numbers:
            return self.whole
        rows = take(self.coreset_x, self.carriers)
        return Expansion(self.kernel, rows, self.array("reduced_weights"), self.offsets)

    def __repr__(self) -> str:
        reduced = len(self.numbers.get("reduced_places", ()))
        return (
            f"KernelModel({self.status}: kernel {self.kernel_text}, {len(self.classes)} classes, "
            f"{self.rows:,} rows x {self.features:,} features, {self.bounds_text()}, "
            f"{self.certificate.coreset_rows:,} coreset rows{f', {reduced:,} of which decide' if reduced else ''})"
        )


MODEL_CLASS = KernelModel
