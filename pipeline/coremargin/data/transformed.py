"""What is made of rows as they are read, and belongs to the model: they are scaled, then mapped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from coremargin.data.map_fit import fitted
from coremargin.data.mapped import Mapped, map_of, mapped
from coremargin.data.scaled import scaled, unscaled
from coremargin.errors import UsageError

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.formats.choices import ScalingKind
    from coremargin.formats.map_asked import MapAsked
    from coremargin.maths.mapping import FeatureMap


class Transforms(Protocol):
    """Who says what is made of rows: a job."""

    @property
    def scaling(self) -> ScalingKind | None:
        """How they are scaled."""

    @property
    def asked_map(self) -> MapAsked | None:
        """How they are mapped."""


def transformed(source: Source, how: Transforms, kept: FeatureMap | None = None) -> Source:
    """The source with its rows as a job's problem is about them; kept: the map of the model before, to go on with.

    A map is fitted to a few rows of the source, which are read. Raises BadRow, UsageError.
    """
    if how.asked_map is not None and map_of(source) is not None:
        raise UsageError(f"{source.name}: the rows are mapped already; give the source under them")
    rows = scaled(source, how.scaling)
    if how.asked_map is None:
        return rows
    return mapped(rows, fitted(rows, how.asked_map) if kept is None else kept)


def untransformed(source: Source) -> Source:
    """The source whose rows a mapped or scaled view shows; any other source itself."""
    return unscaled(source.base if isinstance(source, Mapped) else source)
