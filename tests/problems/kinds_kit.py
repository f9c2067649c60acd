"""A line more in the list of kinds, for as long as a test takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from coremargin.formats.kinds import KINDS, Parts


@contextmanager
def with_a_line(name: str, parts: Parts) -> Iterator[None]:
    """In front of all others: the last of these takes what is left."""
    others = dict(KINDS)
    KINDS.clear()
    KINDS.update({name: parts, **others})
    try:
        yield
    finally:
        KINDS.clear()
        KINDS.update(others)  # not by monkeypatch, which would not bring the order back
