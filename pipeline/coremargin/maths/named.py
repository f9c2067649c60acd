"""Nested names of arrays: ``PART.name``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray


def under(part: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The arrays with the prefix ``PART.``."""
    return {f"{part}.{name}": values for name, values in arrays.items()}


def below(part: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Inverse of ``under``: the arrays with this prefix, without it; may be empty."""
    return {name.removeprefix(f"{part}."): values for name, values in arrays.items() if name.startswith(f"{part}.")}
