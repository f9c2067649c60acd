"""The map of a campaign: fitted to rows of its store when it begins, and kept beside its file from then on.

A store grows, and what a map is fitted to with it: so the arrays are kept, and not made again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from coremargin.data.folder import write_arrays
from coremargin.data.mapped import map_arrays
from coremargin.data.scaled import scaled
from coremargin.data.spread import gamma_scale
from coremargin.errors import DataError, raise_if_limit
from coremargin.formats.campaign import MAP
from coremargin.formats.campaign_map import read_map
from coremargin.formats.feature_map import PREFIX, map_digest, map_width
from coremargin.maths.feature_map import feature_map

if TYPE_CHECKING:
    from pathlib import Path

    from coremargin.data.source import Source
    from coremargin.formats.campaign import Campaign
    from coremargin.maths.mapping import FeatureMap
    from coremargin.problems.active.spec import ActiveJob


def with_gamma(job: ActiveJob, source: Source) -> ActiveJob:
    """The job with a number for the gamma of its map: "scale" is that of the rows of now, scaled as the job says."""
    asked = job.asked_map
    if asked is None or asked.gamma != "scale":
        return job
    return replace(job, gamma=gamma_scale(scaled(source, job.scaling)))


def digest_of(source: Source) -> str | None:
    """The digest of the arrays that a source's rows are mapped by; None of rows that are not mapped."""
    arrays = map_arrays(source)
    return map_digest(arrays) if arrays else None


def write_kept_map(folder: Path, source: Source) -> None:
    """Write the arrays that a source's rows are mapped by; nothing of rows that are not mapped. Raises OutputError."""
    if arrays := map_arrays(source):
        write_arrays(folder / MAP, arrays)


def read_kept_map(folder: Path, facts: Campaign) -> FeatureMap | None:
    """The map of the campaign in a folder, None where it maps no rows. Raises DataError: lost, damaged, another one."""
    asked, place = facts.asked_map, folder / MAP
    if asked is None:
        return None
    try:
        with place.open("rb") as file:
            arrays = read_map(file, facts, str(place))
    except FileNotFoundError:
        raise DataError(
            f"{place}: expected the map that the campaign began with, found none; get a whole copy"
        ) from None
    except OSError as error:
        raise_if_limit(error, place)
        raise DataError(f"{place}: cannot be read: {error.strerror}; get a whole copy") from error
    numbers = {name.removeprefix(PREFIX): values for name, values in arrays.items()}
    shape = facts.features, map_width(asked, facts.features), asked.degree, asked.coef0
    return feature_map(asked.map, numbers, shape)
