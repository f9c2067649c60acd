"""Which version of coremargin, or of a library that it stands on, this is."""

from __future__ import annotations

from functools import cache


@cache
def version(library: str = "coremargin") -> str:
    """As installed; "0.0.0" for a source tree that is not. Looked up once: it takes milliseconds a library."""
    from importlib import metadata  # takes as long as the rest of the package

    try:
        return metadata.version(library)
    except metadata.PackageNotFoundError:
        return "0.0.0"
