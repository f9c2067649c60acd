"""Refusals of what does not fit into memory and cannot be read in pieces."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from coremargin.data.machine_memory import available_bytes
from coremargin.data.sources.paths import is_path
from coremargin.errors import DataError
from coremargin.spec import format_size

P = ParamSpec("P")
R = TypeVar("R")

_ALWAYS = 8 << 20  # bytes that a batch of any source takes


def refuse_beyond_memory(needed: int, what: str, advice: str) -> None:
    """Raise DataError when more memory is needed than there is. what: names the place and what takes so much."""
    if needed <= _ALWAYS:
        return
    there = available_bytes()
    if needed > there:
        raise DataError(f"{what}: takes {format_size(needed)} of memory, {format_size(there)} are there; {advice}")


def memory_errors_named(function: Callable[P, R]) -> Callable[P, R]:
    """The function, whose MemoryError becomes a DataError that names its first argument."""

    @wraps(function)
    def guarded(*args: P.args, **options: P.kwargs) -> R:
        try:
            return function(*args, **options)
        except MemoryError as error:
            there, name = format_size(available_bytes()), _named(args[0] if args else None)
            raise DataError(
                f"{name}: takes more memory than the {there} that are there ({error}); allow more, or give rows of "
                "fewer features"
            ) from error

    return guarded


def _named(source: Any) -> str:
    """A source as messages name it."""
    first = source[0] if isinstance(source, list | tuple) and source else source
    return os.fsdecode(first) if is_path(first) else "rows"
