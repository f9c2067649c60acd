"""What models with a hyperplane for each class have: scores of rows, coefficients, arrays and how they are read."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from coremargin.formats.model_arrays import ROWS
from coremargin.maths.rows import from_arrays
from coremargin.maths.scaling import folded
from coremargin.models.decision import PlaneScorer
from coremargin.models.single import Single, frozen

if TYPE_CHECKING:
    from collections.abc import Callable

    from coremargin.formats.model_files import ModelFiles


class Planes(Single):
    """A row of ``hypothesis`` (K, d + 1) for each class; the class of the largest score is given."""

    #: Arrays that such a model has, or may have, besides the coreset's rows.
    NAMES: ClassVar[tuple[str, ...]] = ("hypothesis", "duals", "coreset_ids", "coreset_classes", "shift", "factor")

    hypothesis: np.ndarray
    duals: np.ndarray
    coreset_classes: np.ndarray

    def __post_init__(self) -> None:
        object.__setattr__(self, "extra", {name: frozen(values) for name, values in sorted(self.extra.items())})
        kinds = dict.fromkeys((*self.NAMES, "coreset_x"), np.float64)
        self._settle({**kinds, "coreset_ids": np.int64, "coreset_classes": np.int32})

    @property
    @abstractmethod
    def constant(self) -> float:
        """The last entry of every row."""

    @property
    def row_duals(self) -> np.ndarray:
        """The dual weights of each coreset row (m,), of all hyperplanes together."""
        return np.asarray(self.duals.sum(axis=1))

    def _planes(self) -> tuple[np.ndarray, np.ndarray]:
        """Weights (K, d) and offsets (K,) for scaled rows."""
        with np.errstate(over="ignore"):  # values that are not finite are refused by the scorer
            return self.hypothesis[:, :-1], self.constant * self.hypothesis[:, -1]

    @cached_property
    def _folded(self) -> tuple[np.ndarray, np.ndarray]:
        weights, offsets = self._planes()
        if self.shift is None or self.factor is None or self.row_map is not None:
            return weights, offsets
        pairs = [folded(w, float(b), self.shift, self.factor) for w, b in zip(weights, offsets, strict=True)]
        return np.stack([w for w, _ in pairs]), np.array([b for _, b in pairs])

    @property
    def coef(self) -> np.ndarray:
        """Weights (K, d) for rows as they are; of "rownorm": divided by their lengths; of a map: for mapped rows."""
        return self._folded[0]

    @property
    def intercept(self) -> np.ndarray:
        """Scores (K,) of a row of zeros as it is; they go with ``coef``."""
        return self._folded[1]

    def scorer(self) -> PlaneScorer:
        """A hyperplane a class, for rows as they are transformed; of two classes the second's score less the first's.

        Returns
        -------
        PlaneScorer
            What gives rows as they are their decision values.
        """
        weights, offsets = self._planes()
        two = len(self.classes) == 2
        return PlaneScorer(tuple(weights), tuple(map(float, offsets)), self.row_scaling, self.row_map, difference=two)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.status}: {len(self.classes)} classes, {self.rows:,} rows x {self.features:,} "
            f"features, {self.bounds_text()}, {self.certificate.coreset_rows:,} coreset rows)"
        )

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
        arrays = {name: values for name, values in files.arrays.items() if not name.startswith(ROWS)}
        make: Callable[..., Self] = cls
        rows = from_arrays(ROWS, files.arrays)
        return make(record=files.content, coreset_x=rows, columns=files.columns, **cls._named(arrays))

    @classmethod
    def _named(cls, arrays: dict[str, Any]) -> dict[str, Any]:
        """The arrays but for the coreset's rows as the class takes them."""
        extra = {name: arrays.pop(name) for name in list(arrays) if name not in cls.NAMES}
        return arrays | {"extra": extra}

    def numbers(self) -> dict[str, np.ndarray]:
        """The content of ``arrays.npz`` but for the coreset's rows.

        Returns
        -------
        dict of str to ndarray
            The arrays by name.
        """
        arrays = {name: values for name in self.NAMES if (values := getattr(self, name)) is not None}
        return arrays | dict(self.extra)
