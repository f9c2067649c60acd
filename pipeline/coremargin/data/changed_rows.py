"""The rows that a commit has given other labels or weights, as they were and became: ``changes/GROUP/rows.npz``.

Without this file, a comparison of two commits would read labels and weights of every chunk that has changed, twice:
if corrections are scattered, that is most of what a retraining reads. It is a cache: where it is missing, damaged, or
contradicts the checksums of chunks, labels and weights are compared. Neither readers of the store nor
``coremargin verify`` use it.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np

from coremargin.data.folder import write_arrays
from coremargin.data.format import CHANGES
from coremargin.errors import DataError
from coremargin.formats.npz import read_arrays
from coremargin.formats.storage import opened_object

if TYPE_CHECKING:
    from collections.abc import Sequence

    from coremargin.data.storage import Storage
    from coremargin.formats.storage import ReadableStorage

FILE = "rows.npz"
_KINDS = {
    "ids": "int64",
    "codes_before": "int32",
    "codes_after": "int32",
    "weights_before": "float64",
    "weights_after": "float64",
}


@dataclass(frozen=True)
class ChangedRows:
    """ids (m,), increasing; codes and weights (m,) of these as they were and as they became."""

    ids: np.ndarray
    codes_before: np.ndarray
    codes_after: np.ndarray
    weights_before: np.ndarray
    weights_after: np.ndarray

    def take(self, where: np.ndarray) -> ChangedRows:
        """Some of them."""
        return ChangedRows(**{name: getattr(self, name)[where] for name in _KINDS})

    def sound(self, classes: int) -> bool:
        """Whether they could be rows of a store of so many classes."""
        codes, weights = (self.codes_before, self.codes_after), (self.weights_before, self.weights_after)
        return (
            all(getattr(self, name).shape == (len(self.ids),) for name in _KINDS)
            and bool((np.diff(self.ids, prepend=-1) > 0).all())
            and all(bool(((some >= -1) & (some < classes)).all()) for some in codes)
            and all(bool((np.isfinite(some) & (some >= 0)).all()) for some in weights)
        )

    @property
    def other(self) -> ChangedRows:
        """Those that are not what they were."""
        changed = (self.codes_before != self.codes_after) | (self.weights_before != self.weights_after)
        return self.take(np.flatnonzero(changed))


def joined(parts: Sequence[ChangedRows]) -> ChangedRows:
    """What commits have changed one after the other: as rows were before the first, and are after the last."""
    every = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _KINDS}
    ids, first = np.unique(every["ids"], return_index=True)
    last = len(every["ids"]) - 1 - np.unique(every["ids"][::-1], return_index=True)[1]
    before = {name: every[name][first] for name in ("codes_before", "weights_before")}
    after = {name: every[name][last] for name in ("codes_after", "weights_after")}
    return ChangedRows(ids, **before, **after)


def write_changed_rows(storage: Storage, group: str, rows: ChangedRows) -> None:
    """Write those of a commit; group: its name."""
    content = BytesIO()
    write_arrays(content, vars(rows))
    storage.write(f"{CHANGES}/{group}/{FILE}", [content.getvalue()])


def read_changed_rows(storage: ReadableStorage, group: str, classes: int) -> tuple[ChangedRows, int] | None:
    """Those of a commit of a store of so many classes, and the bytes that were read for them; None where there are none
    that could be.
    """
    key = f"{CHANGES}/{group}/{FILE}"
    try:
        with opened_object(storage, key) as file:
            arrays = read_arrays(file, f"{storage.name}/{key}")
    except (OSError, DataError):
        return None
    if {name: values.dtype.name for name, values in arrays.items()} != _KINDS:
        return None
    found = ChangedRows(**arrays)
    return (found, sum(values.nbytes for values in arrays.values())) if found.sound(classes) else None
