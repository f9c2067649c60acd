"""Which version of coremargin this is."""

from __future__ import annotations

from functools import cache


@cache
def version() -> str:
    """As installed; "0.0.0" for a source tree that is not."""
    from importlib import metadata  # takes as long as the rest of the package

    try:
        return metadata.version("coremargin")
    except metadata.PackageNotFoundError:
        return "0.0.0"
