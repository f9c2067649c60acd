"""What a campaign is about: its folder is made whole or not at all, and read again with the store it was made for."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tomli_w

from coremargin.active.labels import named_classes
from coremargin.active.log import TELLING, Log, entry_of
from coremargin.active.told import Known, taken
from coremargin.data.files import write_whole
from coremargin.data.folder import replacing
from coremargin.data.locked import Locked
from coremargin.data.owned import Kind
from coremargin.data.scaled import scaled
from coremargin.data.store import Store
from coremargin.errors import DataError, OutputError, SpecError, StoreError, raise_if_limit
from coremargin.formats.answers import Held
from coremargin.formats.campaign import ANSWERS, FILE, FORMAT, VERSION, Campaign, first_hash, read_campaign
from coremargin.formats.plain_file import read_plain
from coremargin.formats.strict_json import LARGEST
from coremargin.models.files import check_outside
from coremargin.problems.active.make import problem_of
from coremargin.problems.active.spec import ActiveJob
from coremargin.spec import Size

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from coremargin.active.told import Given
    from coremargin.data.source import Source
    from coremargin.problems.active.problem import ActiveMargin

#: A campaign that is still being made.
NEW = Kind(what="a campaign", records={}, files="|".join(map(re.escape, (ANSWERS, FILE, TELLING))))


def begin(
    job: ActiveJob, classes: Sequence[Any] | None, expires: float | None, examples: Iterable[Given] = (), who: str = ""
) -> None:
    """Make the folder of a campaign at ``job.out``, with the answers that are there already, of ``who``.

    classes: (negative, positive); None: those of the store, if it names two, else those that are answered first. Raises
    OutputError, UsageError, what ``problem_at`` raises, and for examples what ``taken`` does; then nothing is made.
    """
    place = Path(os.path.realpath(job.out))
    check_outside(place)
    with Locked(place, "a campaign there"):
        if os.path.lexists(place) and (not place.is_dir() or any(place.iterdir())):
            there = "a campaign is there already" if (place / FILE).exists() else "something is there already"
            raise OutputError(
                f"{job.out}: {there}; go on with it (`coremargin active status`), or choose another place"
            )
        store = Store.open(job.store)
        if not store.rows:
            raise StoreError(f"{job.store}: expected rows, found an empty store; ingest some first")
        problem_of(job, scaled(store, job.scaling)).check()  # refuses what cannot be asked about
        data = _data(job, store, classes, expires, str(place / FILE))
        facts = read_campaign(data, str(place / FILE))
        given = taken(examples, Known(Held(facts.classes), frozenset(), store.rows, examples=True))
        refuse_weightless(store, (one.row for one in given), place)
        with replacing(place, NEW, overwrite=False) as aside:
            write_whole(aside / ANSWERS, [])
            write_whole(aside / FILE, [data])
            log = Log(aside / ANSWERS, first_hash(data), store.rows, facts.classes)
            log.append(entry_of(one, who, "example", None, 0) for one in given)


def _data(job: ActiveJob, store: Store, classes: Sequence[Any] | None, expires: float | None, place: str) -> bytes:
    """The bytes of a ``campaign.toml``."""
    known = named_classes(classes, place) if classes is not None else None
    if known is None and len(store.classes) == 2:
        known = sorted(store.classes)
    content = {
        "format": FORMAT, "version": VERSION, "store": str(store.path), "digest": store.digest, "rows": store.rows,
        "features": store.features, **job.parameters(), "memory": int(job.memory), "block": int(job.block),
        "classes": known, "expires": expires,
    }  # fmt: skip
    return tomli_w.dumps({key: value for key, value in content.items() if value is not None}).encode("utf-8")


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
    names = ("method", "epsilon", "error", "confidence", "seed", "intercept", "scaling")
    asked = {name: getattr(facts, name) for name in names}
    return ActiveJob(store=Path(facts.store), out=place, memory=Size(facts.memory), block=Size(facts.block), **asked)


def problem_at(facts: Campaign, job: ActiveJob, rows: int, digest: str) -> tuple[Store, ActiveMargin]:
    """The store at a commit, and the problem. Raises StoreError for a store that lost or changed rows."""
    store = Store.open(job.store, rows=rows)
    if store.digest != digest or store.features != facts.features:
        raise changed(job, digest, store.digest)
    return store, problem_of(job, scaled(store, job.scaling))


def changed(job: ActiveJob, digest: str, found: str) -> StoreError:
    """What is raised of a store that has other rows than those that a campaign is about."""
    return StoreError(
        f"{job.store}: expected the rows that the campaign is about, {digest}, found {found}: the store was changed; "
        "restore it from a copy, or start another campaign"
    )


def same_job(job: ActiveJob) -> None:
    """Raises SpecError where the campaign at ``job.out`` is not the one that a job describes."""
    facts, _ = read_facts(job.out)
    there = job_of(facts, job.out)
    for name in ("store", *job.parameters(), "scaling", "memory", "block"):
        found, known = getattr(job, name), getattr(there, name)
        if name == "store":
            found, known = Path(os.path.abspath(found)), Path(known)
        if found != known:
            raise SpecError(
                f"{job.out}: {name}: expected {known} as the campaign there says, found {found}; go on with what it "
                "was, or choose another out"
            )
