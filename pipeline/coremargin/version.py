"""Versions of coremargin and of libraries."""

from __future__ import annotations

from functools import cache


@cache
def version(library: str = "coremargin") -> str:
    """The installed version, "0.0.0" if not installed. Cached, since a look-up takes milliseconds."""
    from importlib import metadata  # takes as long as the rest of the package

    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return "0.0.0"
