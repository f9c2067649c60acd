"""The store of a campaign at its current commit, and the feature map of its rows.

A campaign begins with one commit of its store. After rows are appended, a line of the log names the commit of all later
lines. The map is fitted to the first commit and does not change: its arrays are stored next to ``campaign.toml``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import asdict, replace

from coremargin.data.extent import gamma_scale
from coremargin.data.folder import write_arrays
from coremargin.data.mapped import map_arrays
from coremargin.data.scaled import scaled
from coremargin.data.store import Store
from coremargin.data.transformed import transformed
from coremargin.data.view import contradicts, sha256_entry
from coremargin.errors import DataError, StoreError, raise_if_limit
from coremargin.formats.campaign import MAP, read_map
from coremargin.formats.feature_map import PREFIX, map_digest, map_width
from coremargin.formats.model_record import StoreHash
from coremargin.maths.feature_map import feature_map
from coremargin.problems.active.problem import problem_with_reserve

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.formats.answers import Growth
    from coremargin.formats.campaign import CampaignSettings
    from coremargin.maths.mapping import FeatureMap
    from coremargin.problems.active.problem import ActiveMargin
    from coremargin.problems.active.spec import ActiveJob

#: Bytes of the store that a process may keep mapped: campaigns scan seldom, so little is worth the memory.
MAPPED = 256 << 20


class Commit(NamedTuple):
    """A commit of a store; store_sha256: of its content, None where the store has none."""

    rows: int
    digest: str
    store_sha256: StoreHash | None

    @classmethod
    def from_record(cls, named: CampaignSettings | Growth) -> Commit:
        """The one that a campaign or a line of its log names."""
        return cls(named.rows, named.digest, named.store_sha256 or None)


@dataclass(frozen=True)
class Snapshot:
    """The store at a commit, and the problem on its rows."""

    commit: Commit
    store: Store
    problem: ActiveMargin


class CampaignStore:
    """Opens commits of the store of a campaign.

    Raises DataError for a missing or different map; methods raise StoreError if the store lost or changed rows.
    """

    def __init__(self, settings: CampaignSettings, job: ActiveJob) -> None:
        self._job, self._map = job, read_campaign_map(Path(job.out), settings)
        self._first = Commit.from_record(settings)

    def commit_after(self, growths: Iterable[Growth]) -> Commit:
        """The current commit of a campaign after these lines of its log."""
        commit = self._first
        for line in growths:
            commit = Commit.from_record(line)
        return commit

    def open(self, commit: Commit) -> Snapshot:
        """The store at a commit. Raises StoreError for one of another SHA-256."""
        store = Store.open(self._job.store, rows=commit.rows, digest=commit.digest, map_bytes=MAPPED)
        if commit.store_sha256 is not None and contradicts(store, asdict(commit.store_sha256)):
            raise StoreError(
                f"{self._job.store}: expected rows and labels of SHA-256 {commit.store_sha256.digest}, as the campaign "
                f"names them, found {store.sha256} with the same CRC-32C: some were replaced; restore it from a copy"
            )
        rows = transformed(store, self._job, () if self._map is None else (self._map,))
        return Snapshot(commit, store, problem_with_reserve(self._job, rows))

    def newest_after(self, commit: Commit) -> Commit | None:
        """The last commit of the store if it has more rows than this one, else None. Commits append rows only."""
        newest = Store.open(self._job.store, map_bytes=0)
        known = [(newest.rows, newest.digest), *((one.commit.rows, one.commit.digest) for one in newest.log)]
        if (commit.rows, commit.digest) not in known:
            raise StoreError(
                f"{self._job.store}: expected the rows that the campaign is about, {commit.digest}, found "
                f"{newest.commits:,} commits without it: the store was changed; restore it from a copy, or start "
                "another campaign"
            )
        if newest.rows <= commit.rows:
            return None
        sha256 = sha256_entry(newest).get("store_sha256")
        return Commit(newest.rows, newest.digest, None if sha256 is None else StoreHash(**sha256))


def with_gamma(job: ActiveJob, source: Source) -> ActiveJob:
    """The job with a number for the gamma of its map: "scale" is that of the present rows, scaled as in the job."""
    asked = job.asked_map
    if asked is None or asked.gamma != "scale":
        return job
    return replace(job, gamma=gamma_scale(scaled(source, job.scaling)))


def digest_of_map(source: Source) -> str | None:
    """The digest of the arrays of a source's map; None without a map."""
    arrays = map_arrays(source)
    return map_digest(arrays) if arrays else None


def write_campaign_map(folder: Path, source: Source) -> None:
    """Write the arrays of a source's map, if it has one. Raises OutputError."""
    if arrays := map_arrays(source):
        write_arrays(folder / MAP, arrays)


def read_campaign_map(folder: Path, settings: CampaignSettings) -> FeatureMap | None:
    """The map of the campaign in a folder; None without one. Raises DataError: missing, damaged, or another map."""
    asked, place = settings.asked_map, folder / MAP
    if asked is None:
        return None
    try:
        with place.open("rb") as file:
            arrays = read_map(file, settings, str(place))
    except FileNotFoundError:
        raise DataError(
            f"{place}: expected the map that the campaign began with, found none; get a whole copy"
        ) from None
    except OSError as error:
        raise_if_limit(error, place)
        raise DataError(f"{place}: cannot be read: {error.strerror}; get a whole copy") from error
    numbers = {name.removeprefix(PREFIX): values for name, values in arrays.items()}
    shape = settings.features, map_width(asked, settings.features), asked.degree, asked.coef0
    return feature_map(asked.map, numbers, shape)
