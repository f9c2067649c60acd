"""What a training job is: one strict spec for the command line, for job files and for Python."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta

from coremargin.formats.limits import MOST_FOLDS, MOST_SEED
from coremargin.formats.outlier_counts import outlier_counts
from coremargin.maths.scaling import Kind
from coremargin.spec import Seconds, Size, Spec

if TYPE_CHECKING:
    from collections.abc import Callable

#: Values of C whose products with squares of margins neither over- nor underflow.
COSTS = (1e-100, 1e100)


class TrainJob(Spec, tag_field="job", tag="train", frozen=True, kw_only=True):
    """Train a maximum-margin classifier on a store and prove it.

    epsilon: what may be missing of the best possible margin, as a share; with a loss, of its value. loss: None for
    the hard margin; "hinge" or "squared_hinge" for rows that no hyperplane separates, with C, the price of a row's
    loss, and class_weight, factors of C for the negative and the positive class, or "balanced": n / (2 n_class).
    Weights that the store has of its rows are factors of C too, and n are their sums; a row of weight 0 is left out.
    A fleet, many models from the same scans: classes "ovr" trains each class against the rest; C may be a list; folds
    is for cross-validation, the fold of a row being a hash of its id and fold_seed.
    classes "crammer-singer" is one model of all classes at once, hard or with the hinge; its intercepts are penalised
    as those of a constant feature as long as the longest row, and "balanced" is n / (classes n_class).
    scaling: rows are scaled as they are read, from the store's statistics of all its rows: "standard" (mean 0 and
    standard deviation 1 in every column), "minmax" (from 0 to 1), "maxabs" (within 1 of 0) or "rownorm" (every row of
    length 1). The proof is about the scaled rows, and the model carries the scaling. intercept: False for a hyperplane
    through the origin of the (scaled) rows: centred ones have it at their mean.
    outliers: how many rows may be left out for a wider margin: a number, a share such as "1%" of the rows that have a
    label and a weight (rounded down), or several values, such as "0..10" or [0, 1, 2, 5], for the margin against them;
    the model is that of the largest. outlier_search: "exact" for a proof that no others do better, "heuristic" for a
    good answer with an upper bound whatever the distance; None: exact up to 1,000 outliers. With outliers epsilon may
    be 0: as close as float64 can tell (1e-8).
    strategy (hard margin only): "fast"; "paper" (one example a scan) and "any-violator" are the references. memory: for
    the rows in the driver. sample: share of the store read first; for the hinge of classes "crammer-singer" with fewer
    than 50 rows for each number of the hypothesis as much as memory takes. block: bytes that one task reads. max_scans,
    time_limit: stop there, with what is proven. cluster: a file that says where to run; None chooses by the store's
    size.
    """

    store: Path
    out: Path
    epsilon: float = 1e-3
    intercept: bool = True
    loss: Literal["hinge", "squared_hinge"] | None = None
    C: float | tuple[float, ...] = 1.0
    class_weight: Literal["balanced"] | tuple[float, float] | None = None
    classes: Literal["ovr", "crammer-singer"] | None = None
    folds: Annotated[int, Meta(ge=2, le=MOST_FOLDS)] | None = None
    fold_seed: Annotated[int, Meta(ge=0, le=MOST_SEED)] = 0
    scaling: Kind | None = None
    outliers: int | str | tuple[int, ...] | None = None
    outlier_search: Literal["exact", "heuristic"] | None = None
    strategy: Literal["fast", "paper", "any-violator"] = "fast"
    memory: Size = Size(256 * 2**20)
    sample: float = 0.04
    block: Size = Size(128 * 2**20)
    max_scans: Annotated[int, Meta(ge=1)] | None = None
    time_limit: Seconds | None = None
    cluster: Path | None = None

    def __post_init__(self) -> None:
        """Refuse what is out of range, with the whole range; NaN is never in it."""
        self._check_outliers()
        if not (0 < self.epsilon < 1 or (self.outliers is not None and self.epsilon == 0)):
            raise ValueError(f"epsilon: expected a number between 0 and 1, both excluded; found {self.epsilon}")
        if not 0 < self.sample <= 1:
            raise ValueError(f"sample: expected a share above 0 and up to 1; found {self.sample}")
        self._check_costs()
        if isinstance(self.class_weight, tuple) and not all(0 < weight < float("inf") for weight in self.class_weight):
            raise ValueError(f"class_weight: expected two numbers above 0; found {list(self.class_weight)}")
        if self.loss is None and (self.C != 1.0 or self.class_weight is not None):
            raise ValueError("C and class_weight: a hard margin has none; give loss too")
        if self.strategy != "fast" and (self.loss is not None or self.is_fleet):
            what = "with a loss" if self.loss is not None else "for many models at once"
            raise ValueError(f"strategy: {self.strategy!r} is for one hard margin; {what} there is only 'fast'")
        if self.classes == "crammer-singer":
            self._check_classes()
        if self.fold_seed and self.folds is None:
            raise ValueError("fold_seed: it says which rows each fold has; give folds too")
        for name in ("memory", "block"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: expected at least 1 byte; found {getattr(self, name)}")

    def _check_outliers(self) -> None:
        if self.outliers is None:
            if self.outlier_search is not None:
                raise ValueError("outlier_search: it says how outliers are searched; give outliers too")
            return
        outlier_counts(self.outliers)
        if self.loss is not None or self.is_fleet or self.classes is not None or self.strategy != "fast":
            raise ValueError(
                "outliers: they are left out of one hard margin; not with loss, classes, folds or strategy"
            )

    def counts(self, rows: Callable[[], int]) -> tuple[int, ...]:
        """The numbers of rows that may be left out, in increasing order; outliers are asked for.

        rows: counts those that may be: they have a label and a weight. It is called for a share of them.
        """
        return outlier_counts(self.outliers or 0, rows)

    def _check_classes(self) -> None:
        """Refuse what there is for models of two classes only."""
        if self.is_fleet:
            raise ValueError(
                "classes: 'crammer-singer' is one model of all classes: give one C and no folds, or take classes 'ovr'"
            )
        if self.loss == "squared_hinge":
            raise ValueError(
                "loss: with classes 'crammer-singer' there is only 'hinge'; found 'squared_hinge'; take 'hinge', or "
                "classes 'ovr'"
            )
        if isinstance(self.class_weight, tuple):
            raise ValueError("class_weight: classes 'crammer-singer' take 'balanced' or none; found two numbers")
        if self.strategy != "fast":
            raise ValueError(f"strategy: {self.strategy!r} is for two classes; 'crammer-singer' has only 'fast'")

    def _check_costs(self) -> None:
        for cost in self.costs:
            if not COSTS[0] <= cost <= COSTS[1]:
                raise ValueError(f"C: expected a number above 0, from {COSTS[0]:g} to {COSTS[1]:g}; found {cost}")
        if not self.costs or len(set(self.costs)) < len(self.costs):
            raise ValueError(f"C: expected different numbers; found {list(self.costs)}")

    @property
    def costs(self) -> tuple[float, ...]:
        """The values of C, from small to large."""
        return tuple(sorted(self.C)) if isinstance(self.C, tuple) else (self.C,)

    @property
    def is_fleet(self) -> bool:
        """True when the job asks for many models at once, be it only one class or one value of C that is left."""
        return self.classes == "ovr" or self.folds is not None or isinstance(self.C, tuple)

    def parameters(self) -> dict[str, Any]:
        """What the model's record keeps: everything that decides about the result, nothing about the machine."""
        if not self.is_fleet:
            return self.parameters_of(self.costs[0])
        fleet = {"classes": self.classes, "folds": self.folds, "fold_seed": self.fold_seed}
        return {**self.parameters_of(self.costs[0]), **({"C": list(self.costs)} if self.loss else {}), **fleet}

    def parameters_of(self, cost: float) -> dict[str, Any]:
        """The parameters of one model, with this C."""
        shared: dict[str, Any] = {"epsilon": self.epsilon, "intercept": self.intercept, "strategy": self.strategy}
        if self.scaling is not None:  # models of rows as they are have no such key
            shared["scaling"] = self.scaling
        if self.outliers is not None:
            asked = list(self.outliers) if isinstance(self.outliers, tuple) else self.outliers
            shared |= {"outliers": asked, "outlier_search": self.outlier_search}
        if self.classes == "crammer-singer":
            shared["classes"] = self.classes
        if self.loss is None:
            return shared
        weight = list(self.class_weight) if isinstance(self.class_weight, tuple) else self.class_weight
        return {**shared, "loss": self.loss, "C": cost, "class_weight": weight}

    def identity(self) -> dict[str, Any]:
        """What must be equal for a checkpoint to be of use."""
        sizes = {"memory": int(self.memory), "sample": self.sample, "block": int(self.block)}
        return {"problem": self.problem, **self.parameters(), **sizes}

    @property
    def problem(self) -> str:
        """Its name in the record of a model."""
        if self.outliers is not None:
            return "outliers"
        if self.classes == "crammer-singer":
            return "crammer_singer"
        return "hard_margin" if self.loss is None else "soft_margin"
