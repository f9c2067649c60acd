"""What is made of rows as they are read, and belongs to the model: they are scaled, then mapped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from coremargin.data.map_fit import fitted_each
from coremargin.data.mapped import Mapped, map_of, mapped
from coremargin.data.mapped_each import LastRead, mapped_each
from coremargin.data.scaled import scaled, unscaled
from coremargin.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    def asked_maps(self) -> Sequence[MapAsked]:
        """How they are mapped: by none, by one, or by several that differ in gamma."""


def transformed(source: Source, how: Transforms, kept: Sequence[FeatureMap] = ()) -> Source:
    """The source with its rows as a job's problem is about them; kept: the maps of the model before, to go on with.

    Maps are fitted to a few rows of the source, which are read. Raises BadRow, UsageError.
    """
    asked = how.asked_maps
    if asked and map_of(source) is not None:
        raise UsageError(f"{source.name}: the rows are mapped already; give the source under them")
    rows = scaled(source, how.scaling)
    if not asked:
        return rows
    maps = kept or fitted_each(rows, asked)
    return mapped(rows, maps[0]) if len(maps) == 1 else mapped_each(rows, maps)


def untransformed(source: Source) -> Source:
    """The source whose rows a mapped or scaled view shows; any other source itself."""
    inner = source.base if isinstance(source, Mapped) else source
    return unscaled(inner.base if isinstance(inner, LastRead) else inner)
