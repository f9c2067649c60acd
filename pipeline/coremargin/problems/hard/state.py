"""What a hard-margin job knows between two scans, and how it is written to a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from coremargin.errors import DataError
from coremargin.problems.common.pool import Pool
from coremargin.problems.hard.ledger import Ledger
from coremargin.problems.hard.near import FiledRows, in_memory

if TYPE_CHECKING:
    from coremargin.maths.margin import Array

Status = Literal["running", "certified", "not_separable", "stalled"]
STATUSES: tuple[Status, ...] = ("running", "certified", "not_separable", "stalled")

_NUMBERS = (
    "round",
    "lower",
    "upper",
    "low",
    "high",
    "new_rows",
    "upper_at_eviction",
    "sample_bytes",
    "lower_now",
    "stage",
    "stages",
    "slack",
)
_COUNTS = ("round", "new_rows", "sample_bytes", "stage", "stages")


@dataclass(frozen=True)
class Hypothesis:
    """w (d,) float64 with ||w|| = 1, and b: the decision value of x is w.x + b."""

    w: Array
    b: float

    @classmethod
    def zero(cls, features: int) -> Hypothesis:
        """Before anything is solved."""
        return cls(np.zeros(features), 0.0)


@dataclass(frozen=True)
class HardMarginState:
    """Between two scans.

    newest is proven by the next scan, best is the hypothesis behind ``lower``; coreset: the rows and weights behind
    ``upper``. sketch: some rows that tell where margins lie. histogram (2, bins) over [low, high] and rows_below come
    from the last scan, None before the first; lower_now is that scan's bound for its newest hypothesis.

    stage: so many of the ``stages`` of the first read are done; both 0 where it is not made in stages. While it lasts
    histogram and rows_below add up, each stage's at its own hypothesis, and those of the pool's rows are counted in
    the end; in_stages: they are of that read. move
    (d + 1,): by how much (w, b) may still move. slack: rows whose margin is within so much more come home as well, for
    hypotheses of later commits. onward: it goes on from an earlier commit; the read is one of chunks that the ledger
    does not know. near: rows that are known as those of the pool are, but lie in a file; near_lost: it was damaged, and
    their chunks were read again.
    """

    round: int
    status: Status
    pool: Pool
    newest: Hypothesis
    best: Hypothesis | None
    lower: float
    upper: float
    coreset: Pool
    ledger: Ledger
    sketch: Pool
    histogram: NDArray[np.int64]
    low: float
    high: float
    rows_below: int | None
    new_rows: int
    upper_at_eviction: float
    sample_bytes: int
    move: Array
    lower_now: float = -np.inf
    stage: int = 0
    stages: int = 0
    in_stages: bool = False
    slack: float = 0.0
    onward: bool = False
    near: FiledRows | None = None
    near_lost: bool = False

    @property
    def known(self) -> NDArray[np.int64]:
        """Ids of the rows that no floor speaks of: those of the pool, and those near."""
        return self.pool.ids if self.near is None else np.concatenate([self.pool.ids, self.near.ids])

    @property
    def both_classes(self) -> bool:
        """True when rows of both signs are known."""
        signs = self.pool.signs if self.near is None else np.append(self.pool.signs, self.near.signs)
        return bool((signs > 0).any() and (signs < 0).any())

    def at_home(self) -> HardMarginState:
        """With all rows in the pool; of chunks whose near rows are lost, for the file is damaged, nothing is known.

        To be asked for after a scan's floors are recorded, which leave near rows out.
        """
        if self.near is None:
            return self
        try:
            pool = Pool.joined([self.pool, self.near.read()])
        except DataError:
            ledger = self.ledger.unknown(self.near.chunks, len(self.ledger.which))
            return replace(self, near=None, near_lost=True, ledger=ledger)
        return replace(self, near=None, pool=pool)

    @property
    def reading(self) -> bool:
        """Whether the first read is going on, or has not begun."""
        return self.stage < self.stages

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Plain arrays, exact: ``from_arrays`` gives the same bits back."""
        return in_memory(self.to_file())

    def to_file(self) -> dict[str, Any]:
        """The same, but rows that are filed stay so."""
        arrays: dict[str, Any] = {name: np.array(getattr(self, name), np.float64) for name in _NUMBERS}
        arrays["status"] = np.array(STATUSES.index(self.status))
        arrays |= {"move": self.move, "in_stages": np.array(self.in_stages), "onward": np.array(self.onward)}
        arrays |= {"near_lost": np.array(self.near_lost)} | ({} if self.near is None else self.near.to_arrays())
        if self.rows_below is not None:
            arrays["rows_below"] = np.array(self.rows_below)
        for name in ("pool", "coreset", "sketch"):
            arrays |= getattr(self, name).to_arrays(name)
        for name in ("newest", "best"):
            hypothesis = getattr(self, name)
            if hypothesis is not None:
                arrays |= {f"{name}_w": hypothesis.w, f"{name}_b": np.array(hypothesis.b)}
        return arrays | self.ledger.to_arrays() | {"histogram": self.histogram}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> HardMarginState:
        """Inverse of ``to_arrays`` and of ``to_file``."""
        numbers: dict[str, Any] = {name: float(arrays[name]) for name in _NUMBERS}
        numbers |= {name: int(numbers[name]) for name in _COUNTS}
        numbers["rows_below"] = int(arrays["rows_below"]) if "rows_below" in arrays else None
        pools = {name: Pool.from_arrays(name, arrays) for name in ("pool", "coreset", "sketch")}
        hypotheses = {
            name: Hypothesis(arrays[f"{name}_w"], float(arrays[f"{name}_b"])) if f"{name}_w" in arrays else None
            for name in ("newest", "best")
        }
        ledger = Ledger.from_arrays(arrays)
        status = STATUSES[int(arrays["status"])]
        return cls(
            **numbers, **pools, **hypotheses, ledger=ledger, histogram=arrays["histogram"], status=status,  # type: ignore[arg-type]
            move=arrays["move"], in_stages=bool(arrays["in_stages"]), onward=bool(arrays["onward"]),
            near=FiledRows.from_arrays(arrays) if "near_ids" in arrays else None,
            near_lost=bool(arrays.get("near_lost", False)),
        )  # fmt: skip
