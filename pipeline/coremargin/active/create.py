"""A campaign is begun: what is not said is decided, and its folder is made whole or not at all."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import tomli_w
from msgspec.structs import replace

from coremargin.active.answer_files import read_answers_of
from coremargin.active.answers import Given, Known, taken
from coremargin.active.facts import read_facts, refuse_weightless
from coremargin.active.labels import named_classes
from coremargin.active.lock import campaign_lock
from coremargin.active.log import Log, entry_of
from coremargin.active.map_file import digest_of, with_gamma, write_kept_map
from coremargin.active.penalty import settled
from coremargin.active.queried_rows import name_of
from coremargin.data.chained_log import TELLING
from coremargin.data.files import write_whole
from coremargin.data.folder import replacing
from coremargin.data.locked import Locked
from coremargin.data.owned import Kind
from coremargin.data.store import Store
from coremargin.data.transformed import transformed
from coremargin.errors import DataError, StoreError, UsageError
from coremargin.formats.campaign import ANSWERS, FILE, FORMAT, MAP, MOST_PEOPLE, VERSION, first_hash, read_campaign
from coremargin.formats.current_answers import Held, unsure_of
from coremargin.formats.votes import FILE as VOTES
from coremargin.models.files import check_outside
from coremargin.problems.active.problem import asked_problem

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coremargin.data.source import Source
    from coremargin.formats.campaign import Campaign
    from coremargin.problems.active.spec import ActiveJob

# What is known before a campaign begins: answers in a file, or those that hold in another campaign.


def examples_at(path: Path, store: Store) -> tuple[list[Given], list[Any] | None]:
    """The answers in a file, or those that hold in the campaign of a folder, with the rows that nobody could label.

    And the classes, where that campaign names them. Raises DataError, of a campaign for one about other rows than those
    of the store, too.
    """
    if not path.is_dir():
        return read_answers_of(path), None
    facts, first = read_facts(path)
    log = Log(path / ANSWERS, first, facts.rows, facts.classes)
    with campaign_lock(path):
        log.refresh()
    _same_rows(path, facts, log, store)
    labels = [Given(row, label, "label", f"{path}, row {row:,}") for row, label in log.held.labels.items()]
    unsure = sorted(unsure_of(log.lines) - set(log.held.labels))
    return labels + [Given(row, None, "unsure", f"{path}, row {row:,}") for row in unsure], facts.classes


def _same_rows(path: Path, facts: Campaign, log: Log, store: Store) -> None:
    """Raises DataError where row numbers of a campaign mean other rows than those of a store."""
    digest = log.answers.growths[-1].digest if log.answers.growths else facts.digest
    try:
        Store.open(store.path, digest=digest)
    except StoreError:
        raise DataError(
            f"{path}: expected a campaign about rows of {store.path}, found one about {facts.store} with the digest "
            f"{digest}, which is none of its commits; give its answers as a file, if its rows are these"
        ) from None


#: A campaign that is still being made.
NEW = Kind(what="a campaign", records={}, files="|".join(map(re.escape, (ANSWERS, FILE, MAP, TELLING, VOTES))))


class Rules(NamedTuple):
    """How people are asked. expires: seconds; people, settle: as a campaign's file has them."""

    expires: float | None = None
    people: int | None = None
    settle: str | None = None


def checked_people(people: int | None, settle: str | None) -> tuple[int | None, str | None]:
    """Both, where they go together. Raises UsageError."""
    if people is None and settle is None:
        return None, None
    if isinstance(people, bool) or not isinstance(people, int) or not 2 <= people <= MOST_PEOPLE:
        raise UsageError(f"people: expected 2 to {MOST_PEOPLE} who are asked about each row, found {people!r}")
    if settle is not None and not settle.strip():
        raise UsageError("settle: expected the name of who settles what others disagree about, found none")
    return people, None if settle is None else name_of(settle)


def begin(job: ActiveJob, rules: Rules, examples: Iterable[Given] = (), who: str = "") -> None:
    """Make the folder of a campaign at ``job.out``, with the answers that are there already, of ``who``.

    examples: beside those that the job names. Raises OutputError, UsageError, what ``problem_at`` raises, for examples
    what ``taken`` does, and for those of a C to be chosen what ``settled`` does; then nothing is made.
    """
    place = Path(os.path.realpath(job.out))
    check_outside(place)
    with Locked(place, "a campaign there"):
        if os.path.lexists(place) and (not place.is_dir() or any(place.iterdir())):
            there = "a campaign is there already" if (place / FILE).exists() else "something is there already"
            raise UsageError(f"{job.out}: {there}; go on with it (`coremargin active status`), or choose another place")
        store = Store.open(job.store)
        if not store.rows:
            raise StoreError(f"{job.store}: expected rows, found an empty store; ingest some first")
        job = with_gamma(job, store)
        rows = transformed(store, job)
        job, given = _decided(job, store, rows, examples, place)
        asked_problem(job, rows).check()  # refuses what cannot be asked about
        data = _data(job, store, rules, digest_of(rows))
        facts = read_campaign(data, str(place / FILE))
        with replacing(place, NEW, overwrite=False) as aside:
            write_whole(aside / ANSWERS, [])
            write_kept_map(aside, rows)
            write_whole(aside / FILE, [data])
            if rules.people is not None:
                write_whole(aside / VOTES, [])
            log = Log(aside / ANSWERS, first_hash(data), store.rows, facts.classes)
            log.append(entry_of(one, who, "example", None, 0) for one in given)


def _decided(
    job: ActiveJob, store: Store, rows: Source, given: Iterable[Given], place: Path
) -> tuple[ActiveJob, list[Given]]:
    """The job with what it leaves to be found: classes that the store names, C, a trial's size; and the examples.

    rows: those of the store, as the job transforms them. Classes are those that the job names, or the campaign whose
    answers are examples, or the store.
    """
    more, theirs = ([], None) if job.examples is None else examples_at(job.examples, store)
    known = job.classes or theirs or (sorted(store.classes) if len(store.classes) > 1 else None)
    held = Held(None if known is None else named_classes(known, str(place / FILE)))
    new = taken([*given, *more], Known(held, frozenset(), store.rows, examples=True))
    refuse_weightless(store, (one.row for one in new), place)
    for one in new:
        held.take(one.row, one.action, one.label)
    job = settled(job, rows, held, str(job.out))
    return replace(job, classes=held.classes if held.named else None), new


def _data(job: ActiveJob, store: Store, rules: Rules, digest: str | None) -> bytes:
    """The bytes of a ``campaign.toml``; digest: of the map."""
    content = {
        "format": FORMAT,
        "version": VERSION,
        "store": str(store.path),
        "digest": store.digest,
        "rows": store.rows,
        "features": store.features,
        **job.parameters(),
        "memory": job.memory_bytes,
        "block": int(job.block),
        "classes": job.classes,
        "map_digest": digest,
        **rules._asdict(),
    }
    return tomli_w.dumps({key: value for key, value in content.items() if value is not None}).encode("utf-8")
