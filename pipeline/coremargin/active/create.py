"""Start a campaign: choose missing parameters, and make its folder atomically. Also reads its file."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import tomli_w
from msgspec.structs import asdict, replace

from coremargin.active.answer_files import read_answers_of
from coremargin.active.answers import Annotation, AnswerContext, check_answers, name_of, named_classes
from coremargin.active.log import Log, campaign_lock, entry_of
from coremargin.active.penalty import with_penalty
from coremargin.active.similar import similar_rows
from coremargin.active.snapshot import Commit, digest_of_map, with_gamma, write_campaign_map
from coremargin.data.chained_log import PENDING
from coremargin.data.files import write_whole
from coremargin.data.folder import replacing
from coremargin.data.locked import Locked
from coremargin.data.owned import Kind
from coremargin.data.store import Store
from coremargin.data.transformed import transformed
from coremargin.data.view import contradicts, sha256_entry
from coremargin.errors import DataError, SpecError, StoreError, UsageError, raise_if_limit
from coremargin.formats.answers import VOTES
from coremargin.formats.campaign import (
    ANSWERS,
    FILE,
    FORMAT,
    MAP,
    MOST_PEOPLE,
    VERSION,
    CampaignSettings,
    first_hash,
    read_campaign,
)
from coremargin.formats.current_answers import CurrentAnswers
from coremargin.formats.location import Location, is_remote
from coremargin.formats.plain_file import read_plain
from coremargin.formats.strict_json import LARGEST
from coremargin.models.files import check_outside
from coremargin.problems.active.problem import problem_with_reserve
from coremargin.problems.active.spec import AUTO, ActiveJob
from coremargin.spec import Size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coremargin.data.source import Source
    from coremargin.engine.clusters.specs import Cluster

#: The temporary folder of a new campaign.
NEW = Kind(what="a campaign", records={}, files="|".join(map(re.escape, (ANSWERS, FILE, MAP, PENDING, VOTES))))
#: Fields of a job that a campaign's parameters may lack.
SAME = ("scaling", "by_class", "hypothesis", "multi_class", "loss", "C", "trial", "classes", "memory", "block")


class Rules(NamedTuple):
    """Rules for questions. expires: seconds; people, settle: as in the campaign's file."""

    expires: float | None = None
    people: int | None = None
    settle: str | None = None


def check_people(people: int | None, settle: str | None) -> tuple[int | None, str | None]:
    """Both, checked. Raises UsageError if they cannot be combined."""
    if people is None and settle is None:
        return None, None
    if isinstance(people, bool) or not isinstance(people, int) or not 2 <= people <= MOST_PEOPLE:
        raise UsageError(f"people: expected 2 to {MOST_PEOPLE} who are asked about each row, found {people!r}")
    if settle is not None and not settle.strip():
        raise UsageError("settle: expected the name of who settles what others disagree about, found none")
    return people, None if settle is None else name_of(settle)


def create_campaign(
    job: ActiveJob,
    rules: Rules,
    examples: Iterable[Annotation] = (),
    who: str = "",
    *,
    like: Any = None,
    cluster: Cluster = None,
) -> None:
    """Make the folder of a campaign at ``job.out``, with examples, recorded under the name ``who``.

    examples: in addition to those that the job names. like: rows, as of ``similar_rows``, in place of those of the job;
    cluster: where the scan for similar ones runs. Raises OutputError, UsageError, StoreError, and what
    ``similar_rows``, ``check_answers`` and ``with_penalty`` raise; then nothing is made.
    """
    place = Path(os.path.realpath(job.out))
    check_outside(place)
    with Locked(place, "a campaign there"):
        if os.path.lexists(place) and (not place.is_dir() or any(place.iterdir())):
            there = "a campaign is there already" if (place / FILE).exists() else "something is there already"
            raise UsageError(
                f"{job.out}: {there}; continue it (`coremargin active status` shows how), or choose another place"
            )
        store = Store.open(job.store)
        if not store.rows:
            raise StoreError(f"{job.store}: expected rows, found an empty store; ingest some first")
        job = with_gamma(job, store)
        rows = transformed(store, job)
        job, given = _decide(job, store, rows, examples, place)
        if (asked := job.like if like is None else like) is not None:
            job = replace(job, like=similar_rows(store, asked, cluster))
        problem_with_reserve(job, rows).check()  # raises errors before the folder is made
        data = _bytes_of(job, store, rules, digest_of_map(rows))
        settings = read_campaign(data, str(place / FILE))
        with replacing(place, NEW, overwrite=False) as folder:
            write_whole(folder / ANSWERS, [])
            write_campaign_map(folder, rows)
            write_whole(folder / FILE, [data])
            if rules.people is not None:
                write_whole(folder / VOTES, [])
            log = Log(folder / ANSWERS, first_hash(data), store.rows, settings.classes)
            log.append(entry_of(one, who, "example", None, 0) for one in given)


def _decide(
    job: ActiveJob, store: Store, rows: Source, given: Iterable[Annotation], place: Path
) -> tuple[ActiveJob, list[Annotation]]:
    """The job with its missing parameters: classes, C, the size of a trial; and the examples.

    rows: those of the store, as the job transforms them. Classes come from the job, else from the campaign whose
    answers are examples, else from the store.
    """
    more, theirs = ([], None) if job.examples is None else _examples_at(job.examples, store)
    known = job.classes or theirs or (sorted(store.classes) if len(store.classes) > 1 else None)
    current = CurrentAnswers(None if known is None else named_classes(known, str(place / FILE)))
    new = check_answers([*given, *more], AnswerContext(current, frozenset(), store.rows, examples=True))
    refuse_weightless(store, (one.row for one in new), place)
    for one in new:
        current.take(one.row, one.action, one.label)
    job = with_penalty(job, rows, current, str(job.out))
    return replace(job, classes=current.classes if current.named else None), new


def _examples_at(path: Path, store: Store) -> tuple[list[Annotation], list[Any] | None]:
    """The answers in a file, or the current answers of the campaign in a folder, its unsure rows included.

    Also the classes, if that campaign names them. Raises DataError, also for a campaign about other rows than those of
    the store.
    """
    if not path.is_dir():
        return read_answers_of(path), None
    settings, first = read_settings(path)
    log = Log(path / ANSWERS, first, settings.rows, settings.classes)
    with campaign_lock(path):
        log.refresh()
    commit = Commit.from_record(log.answers.growths[-1] if log.answers.growths else settings)
    digest, sha256 = commit.digest, commit.store_sha256
    try:
        then = Store.open(store.storage, digest=digest)
        if contradicts(then, None if sha256 is None else asdict(sha256)):
            raise StoreError(f"{store.name}: rows or labels of another SHA-256")
    except StoreError:
        raise DataError(
            f"{path}: expected a campaign about rows of {store.name}, found one about {settings.store} with the digest "
            f"{digest}, which is none of its commits; give its answers as a file, if its rows are these"
        ) from None
    labels = [Annotation(row, label, "label", f"{path}, row {row:,}") for row, label in log.current.labels.items()]
    unsure = sorted(log.current.unsure - set(log.current.labels))
    return labels + [Annotation(row, None, "unsure", f"{path}, row {row:,}") for row in unsure], settings.classes


def refuse_weightless(source: Source, rows: Iterable[int], place: Path) -> None:
    """Raises DataError for rows of weight 0, which no claim is about."""
    for row in rows:
        weights = source.weights(row // source.chunk_rows) if 0 <= row < source.rows else None
        if weights is not None and not weights[row % source.chunk_rows] > 0:
            raise DataError(f"{place}: row {row:,}: expected a weight above 0, found 0; leave the row out")


def _bytes_of(job: ActiveJob, store: Store, rules: Rules, map_digest: str | None) -> bytes:
    """The bytes of a ``campaign.toml``."""
    content = {
        "format": FORMAT,
        "version": VERSION,
        "store": str(store.storage.name),
        "store_options": getattr(store.storage.name, "options", None) or None,
        "digest": store.digest,
        **sha256_entry(store),
        "rows": store.rows,
        "features": store.features,
        **job.parameters(),
        "memory": job.memory_bytes,
        "block": int(job.block),
        "classes": job.classes,
        "like": job.like,
        "map_digest": map_digest,
        **rules._asdict(),
    }
    return tomli_w.dumps({key: value for key, value in content.items() if value is not None}).encode("utf-8")


# The file of a campaign, read again.


def read_settings(folder: Path) -> tuple[CampaignSettings, str]:
    """The settings of a campaign, and the hash that its log begins with. Raises DataError."""
    try:
        data = read_plain(folder / FILE, LARGEST)
    except (FileNotFoundError, NotADirectoryError):
        raise DataError(
            f"{folder}: expected a campaign, found no {FILE}; `coremargin active start STORE --out {folder}` begins one"
        ) from None
    except OSError as error:
        raise_if_limit(error, folder)
        raise DataError(f"{folder / FILE}: cannot be read: {error.strerror}; get a whole copy") from error
    return read_campaign(data, str(folder / FILE)), first_hash(data)


def job_of(settings: CampaignSettings, folder: Path) -> ActiveJob:
    """The job that describes a campaign."""
    others = (
        "format",
        "version",
        "store",
        "store_options",
        "store_sha256",
        "digest",
        "rows",
        "features",
        "memory",
        "block",
        "by_class",
        "hypothesis",
        "multi_class",
        "map_digest",
    )
    left = {*others, *Rules._fields}
    asked = {name: getattr(settings, name) for name in settings.__struct_fields__ if name not in left}
    return ActiveJob(
        store=settings.location,
        out=Location(str(folder)),
        memory=Size(settings.memory),
        block=Size(settings.block),
        by_class=bool(settings.by_class),
        hypothesis=settings.hypothesis or "margin",
        multi_class=settings.multi_class or "ovr",
        **asked,
    )


def parameters_of(job: ActiveJob) -> dict[str, Any]:
    """The parameters of a campaign, as one flat mapping."""
    return job.parameters() | {"memory": job.memory_bytes}


def check_same_job(job: ActiveJob) -> None:
    """Raises SpecError unless a job describes the campaign at ``job.out``.

    Parameters that the job leaves open may have any value there.
    """
    there = job_of(read_settings(Path(job.out))[0], Path(job.out))
    left = {name for name in ("classes", "trial") if getattr(job, name) is None} | ({"C"} if job.C == AUTO else set())
    if job.asked_map is not None and job.asked_map.gamma == "scale":
        left |= {"gamma"}
    for name in dict.fromkeys(("store", *there.parameters(), *job.parameters(), *SAME)):
        if name in left:
            continue
        found, known = (one.parameters().get(name, getattr(one, name)) for one in (job, there))
        if name == "store":
            found = found if is_remote(found) else Location(os.path.abspath(found))
        if found != known:
            raise SpecError(
                f"{job.out}: {name}: expected {known} as in the campaign there, found {found}; "
                f"continue it with {known}, or choose another out"
            )
