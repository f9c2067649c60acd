"""How code is compiled that runs a million times: by numba, when it is first called, and kept on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: Without the interpreter's lock, with divisions as NumPy has them.
OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}

Compiled = Callable[..., Any]


def jit(source: Compiled) -> Compiled:
    """The function, compiled; numba is loaded here, by who needs it."""
    import numba

    try:
        made: Compiled = numba.njit(source, cache=True, **OPTIONS)
    except RuntimeError:  # no folder may be written to
        made = numba.njit(source, **OPTIONS)
    return made
