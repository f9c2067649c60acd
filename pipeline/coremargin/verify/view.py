"""Which rows and labels of a store a member of a fleet is about, as ``verify`` understands the format.

A member's ``view`` names a class, which stands against all other labelled rows, or none: then the store's two classes
are its own; and a fold that is held out: its rows count for nothing. The fold of row i is x mod folds, x being the
number at place i of SplitMix64's sequence, 64 bits without sign throughout:

    m(z) = z ^ z >> 30, times BF58476D1CE4E5B9;  then z ^ z >> 27, times 94D049BB133111EB;  then z ^ z >> 31
    x = m(m(fold_seed) + (i + 1) * 9E3779B97F4A7C15)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

_STEPS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))
_STRIDE = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class View:
    """label: the class against the rest, None: the store's own two; fold of ``folds``, None: no row is held out."""

    label: Any = None
    fold: int | None = None
    folds: int = 0
    seed: int = 0

    def held(self, start: int, rows: int) -> np.ndarray:
        """Which (rows,) of the rows from ``start`` on are held out."""
        if self.fold is None:
            return np.zeros(rows, dtype=bool)
        return np.asarray(folds_of(start, rows, self.folds, self.seed) == self.fold)

    @property
    def text(self) -> str:
        """For messages."""
        what = "the store's two classes" if self.label is None else f"class {self.label!r} against the rest"
        return what if self.fold is None else f"{what}, fold {self.fold} of {self.folds} held out"


def read_view(record: dict[str, Any]) -> View:
    """The view of a model's record. Raises KeyError, TypeError, ValueError when it makes no sense."""
    if "view" not in record:
        return View()
    view = record["view"]
    if set(view) != {"class", "fold", "folds", "fold_seed"} or not isinstance(view["class"], str | int | float | None):
        raise ValueError(f"view: found {view!r}")
    if view["fold"] is None:
        return View(view["class"])
    fold, folds, seed = (_whole(view[key]) for key in ("fold", "folds", "fold_seed"))
    if not (0 <= fold < folds and seed <= _MASK):
        raise ValueError(f"view: no fold {fold} of {folds} with seed {seed}")
    return View(view["class"], fold, folds, seed)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"expected a whole number, got {value!r}")
    return value


def folds_of(start: int, rows: int, folds: int, seed: int) -> np.ndarray:
    """Folds (rows,) of the rows from ``start`` on."""
    first = seed
    for shift, factor in _STEPS:
        first = ((first ^ (first >> shift)) * factor) & _MASK
    places = np.arange(start + 1, start + rows + 1, dtype=np.uint64)
    z = places * np.uint64(_STRIDE) + np.uint64(first)  # modulo 2^64, as arrays of this kind are
    for shift, factor in _STEPS:
        z = (z ^ (z >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(z % np.uint64(folds))
