"""Types in which stores keep the values of rows, and the precision in which readers return them.

Rows of float64 are read as float64, all others as float32, which holds every value of the narrower types exactly. So a
store of these has the rows, the bounds and the certificates of a float32 store with the same numbers.

NumPy has no bfloat16. Such values are handled as their bits, in arrays of uint16: the high half of a float32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.formats.choices import ROW_TYPES

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Read as they are stored. Sparse rows have no others: their indices take more room than narrow values would save.
WIDE_TYPES = ("float32", "float64")
NARROW_TYPES = tuple(name for name in ROW_TYPES if name not in WIDE_TYPES)
BFLOAT16_BITS = np.dtype(np.uint16)
BFLOAT16_NAN = 0x7FC0


def stored_dtype(name: str) -> np.dtype[Any]:
    """The dtype of arrays that hold values as they are stored."""
    return BFLOAT16_BITS if name == "bfloat16" else np.dtype(name)


def read_dtype(name: str) -> np.dtype[Any]:
    """The precision in which values of a stored type are read: float32 or float64."""
    return np.dtype(np.float64 if name == "float64" else np.float32)


def common_row_type(names: Iterable[str]) -> str:
    """The narrow stored type that holds all values of arrays of these dtypes, by their names, else "float32"."""
    found = set(names)
    if len(found) > 1:
        found = {"float32"} if "bfloat16" in found else {np.result_type(*found).name}
    (name,) = found
    return name if name in NARROW_TYPES else "float32"


def zarr_type(dtype: np.dtype[Any]) -> str:
    """The data type of a Zarr array that holds such values; no other array of a store has uint16."""
    return "bfloat16" if dtype == BFLOAT16_BITS else dtype.name
