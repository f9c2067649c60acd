"""Arrays of a part among those of a whole, by name: ``PART.name``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray


def under(part: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The arrays of a part, as the whole has them."""
    return {f"{part}.{name}": values for name, values in arrays.items()}


def below(part: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Inverse of ``under``: of the arrays of a whole those of this part; none where it has none."""
    return {name.removeprefix(f"{part}."): values for name, values in arrays.items() if name.startswith(f"{part}.")}
