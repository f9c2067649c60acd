"""The arrays by which a campaign maps rows (``map.npz``), made when it began and sealed by ``campaign.toml``.

They have the names that they have in a model (feature_map.py). The log of answers goes on from ``campaign.toml``, so
that no other map can be put in the place of this one, with its digest, without writing every line of the log anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from coremargin.errors import DataError
from coremargin.formats.campaign import FILE, Campaign
from coremargin.formats.feature_map import check_map_values, map_digest, map_schema
from coremargin.formats.model_arrays import Schema, check_arrays
from coremargin.formats.npz import read_arrays

if TYPE_CHECKING:
    from coremargin.formats.map_asked import MapAsked


@dataclass(frozen=True)
class _Map:
    """What the file of a campaign says of the arrays."""

    asked: MapAsked
    features: int

    def schema(self, names: frozenset[str]) -> Schema:
        """Those of the map."""
        return map_schema(self.asked, self.features)

    def check_values(self, arrays: Mapping[str, np.ndarray], place: str) -> None:
        """Raises DataError for numbers that are none of a map."""
        check_map_values(self.asked, self.features, arrays, place)


def read_map(file: BinaryIO, campaign: Campaign, place: str) -> dict[str, np.ndarray]:
    """The arrays in an open ``map.npz`` of a campaign that maps rows, by name; place: its path, for messages.

    Raises DataError for other arrays than those that the campaign began with.
    """
    asked = campaign.asked_map
    if asked is None:
        raise DataError(f"{place}: expected no map, as {FILE} says, found one; get an unaltered copy")
    arrays = read_arrays(file, place)
    check_arrays(_Map(asked, campaign.features), arrays, place)
    found = map_digest(arrays)
    if found != campaign.map_digest:
        raise DataError(
            f"{place}: expected the map that the campaign began with, {campaign.map_digest}, found {found}: it was "
            "changed, or is another campaign's; get an unaltered copy"
        )
    return arrays
