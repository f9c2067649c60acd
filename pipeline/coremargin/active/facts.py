"""What a campaign is about, as its folder says it, and the problem on the rows of its store."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.data.store import Store
from coremargin.data.transformed import transformed
from coremargin.errors import DataError, SpecError, StoreError, raise_if_limit
from coremargin.formats.campaign import FILE, Campaign, first_hash, read_campaign
from coremargin.formats.plain_file import read_plain
from coremargin.formats.strict_json import LARGEST
from coremargin.problems.active.problem import asked_problem
from coremargin.problems.active.spec import AUTO, ActiveJob
from coremargin.spec import Size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coremargin.data.source import Source
    from coremargin.maths.mapping import FeatureMap
    from coremargin.problems.active.problem import ActiveMargin


#: Bytes of the store that a process may keep mapped: campaigns scan seldom, and are to stay small.
MAPPED = 256 << 20
#: What a job says of a campaign that its parameters may not have.
SAME = ("scaling", "by_class", "loss", "C", "trial", "classes", "memory", "block")


def refuse_weightless(source: Source, rows: Iterable[int], place: Path) -> None:
    """Raises DataError for rows of weight 0, which count for nothing."""
    for row in rows:
        weights = source.weights(row // source.chunk_rows) if 0 <= row < source.rows else None
        if weights is not None and not weights[row % source.chunk_rows] > 0:
            raise DataError(f"{place}: row {row:,}: expected a weight above 0, found 0; leave the row out")


def read_facts(place: Path) -> tuple[Campaign, str]:
    """What a campaign is about, and the hash that its log goes on from. Raises DataError."""
    try:
        data = read_plain(place / FILE, LARGEST)
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(
            f"{place}: expected a campaign, found no {FILE}; `coremargin active start STORE --out {place}` begins one"
        ) from None
    except OSError as error:
        raise_if_limit(error, place)
        raise DataError(f"{place / FILE}: cannot be read: {error.strerror}; get a whole copy") from error
    return read_campaign(data, str(place / FILE)), first_hash(data)


def job_of(facts: Campaign, place: Path) -> ActiveJob:
    """The job that a campaign stands for."""
    names = (
        "method",
        "epsilon",
        "error",
        "confidence",
        "seed",
        "intercept",
        "scaling",
        "loss",
        "C",
        "trial",
        "classes",
        "map",
        "components",
        "gamma",
        "degree",
        "coef0",
        "map_seed",
    )
    asked = {name: getattr(facts, name) for name in names} | {"by_class": bool(facts.by_class)}
    return ActiveJob(store=Path(facts.store), out=place, memory=Size(facts.memory), block=Size(facts.block), **asked)


def said_of(job: ActiveJob) -> dict[str, Any]:
    """What a campaign was asked for, flat."""
    return job.parameters() | {"memory": job.memory_bytes}


def problem_at(job: ActiveJob, rows: int, digest: str, kept: FeatureMap | None) -> tuple[Store, ActiveMargin]:
    """The store at a commit, and the problem; kept: the map that the campaign began with.

    Raises StoreError for a store that lost or changed rows.
    """
    store = Store.open(job.store, rows=rows, digest=digest, map_bytes=MAPPED)
    return store, asked_problem(job, transformed(store, job, () if kept is None else (kept,)))


def changed(job: ActiveJob, digest: str, found: str) -> StoreError:
    """What is raised of a store that has other rows than those that a campaign is about."""
    return StoreError(
        f"{job.store}: expected the rows that the campaign is about, {digest}, found {found}: the store was changed; "
        "restore it from a copy, or start another campaign"
    )


def _said(job: ActiveJob, name: str) -> Any:
    """What a job says, or means where it says nothing."""
    return job.parameters().get(name, getattr(job, name))


def same_job(job: ActiveJob) -> None:
    """Raises SpecError where the campaign at ``job.out`` is not the one that a job describes.

    What a job leaves to be found when a campaign begins may be anything.
    """
    facts, _ = read_facts(job.out)
    there = job_of(facts, job.out)
    left = {name for name in ("classes", "trial") if getattr(job, name) is None} | ({"C"} if job.C == AUTO else set())
    if job.asked_map is not None and job.asked_map.gamma == "scale":
        left |= {"gamma"}
    for name in dict.fromkeys(("store", *there.parameters(), *job.parameters(), *SAME)):
        if name in left:
            continue
        found, known = _said(job, name), _said(there, name)
        if name == "store":
            found, known = Path(os.path.abspath(found)), Path(known)
        if found != known:
            raise SpecError(
                f"{job.out}: {name}: expected {known} as the campaign there says, found {found}; go on with what it "
                "was, or choose another out"
            )
