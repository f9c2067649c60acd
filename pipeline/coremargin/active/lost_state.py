"""Where a campaign stands whose state was lost: what its log and its model say, without a look at the store."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.active.facts import job_of, read_facts, said_of
from coremargin.active.labels import counts_of
from coremargin.active.lock import campaign_lock
from coremargin.active.log import Log
from coremargin.active.player import STATE
from coremargin.active.queried_rows import passed_of, read_asked, still_open
from coremargin.active.questions import FILE
from coremargin.active.state_folder import Kept
from coremargin.active.summary import PLACE
from coremargin.data.store import Store
from coremargin.errors import DataError
from coremargin.formats.answers import Growth
from coremargin.formats.campaign import ANSWERS
from coremargin.formats.current_answers import unsure_of
from coremargin.formats.local_path import local_path
from coremargin.maths.margin import ratio
from coremargin.models.registry import load
from coremargin.report.text import count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.active.queried_rows import Asked
    from coremargin.formats.answers import Line
    from coremargin.formats.campaign import Campaign


def standing_of(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """As ``Campaign.status``, of a campaign whose state has to be computed again by scans; None where it is there.

    Raises DataError, StoreError and Busy as opening the campaign does.
    """
    place = Path(os.path.realpath(local_path(path)))
    facts, first = read_facts(place)
    log = Log(place / ANSWERS, first, facts.rows, facts.classes)
    with campaign_lock(place):
        log.refresh()
        scans = log.entries[-1].scans if log.entries else 0
        marked = Kept(place / STATE, first).found(scans)
        hashes = (first, *log.answers.hashes)
        if marked is not None:
            log.refuse_fewer(marked.mark.lines)
            if hashes[marked.mark.lines] == marked.mark.last and marked.round >= scans:
                return None
        asked = read_asked(place / FILE)
        since, claims = _model(place, hashes)
    labels, unsure = log.held.labels, unsure_of(log.lines)
    passed, waiting = passed_of(log.lines), still_open(asked, log, _drawn(asked, log), facts.expires, time.time())
    reads = f"a sample of the store and {count(scans, 'scan')}"
    why = f"its state was lost: the next command computes it again from the log, with {reads}"
    return {
        **_claimed(claims if since == 0 else {}),
        "people": facts.people or 1,
        "settle": facts.settle,
        "conflicts": [],
        "status": claims["status"] if since == 0 and claims["status"] != "stopped" else "unknown",
        "reason": why,
        "labels_asked": sum(line.label is not None for line in log.lines),
        "labels": len(labels),
        "answered_by_class": counts_of(labels, log.held.classes),
        "draws": len({line.row for line in log.lines if line.why == "draw"} & set(labels)),
        "scans": scans,
        "awaited": len(waiting),
        "passed": len(passed),
        "passed_rows": sorted(passed),
        "unsure": len(unsure),
        "unsure_rows": sorted(unsure),
        "classes": log.held.classes,
        **_asked(facts, log, place),
    }


def _drawn(asked: Mapping[int, Asked], log: Log) -> set[int]:
    """Draws that were asked about, of the attempt that is on as far as the log says.

    It ends with an answer about another row, with one that is changed, and with the store's growth; that a draw was
    foretold wrongly only the state knows.
    """
    attempts = [one.attempt for one in asked.values()] + [line.attempt for line in log.lines]
    last = max((attempt or 0 for attempt in attempts), default=0)
    over = 0  # number of the last line that ends the attempt
    for entry in log.entries:
        if isinstance(entry, Growth) or entry.action in ("undo", "correct") or _elsewhere(entry, last):
            over = entry.number
    return {one.row for one in asked.values() if one.attempt == last and one.lines >= over}


def _elsewhere(line: Line, attempt: int) -> bool:
    """Whether a line is an answer about a row that was not drawn for an attempt."""
    return line.action == "label" and line.attempt != attempt


def _asked(facts: Campaign, log: Log, place: Path) -> dict[str, Any]:
    """What the campaign is about, and what is not known of it."""
    job, grown = job_of(facts, place), log.answers.growths
    rows, digest = (grown[-1].rows, grown[-1].digest) if grown else (facts.rows, facts.digest)
    return {
        "confidence": facts.confidence,
        "rows": rows,
        "store": facts.store,
        "out": str(place),
        "loss": job.loss,
        "C": job.cost,
        "trial": job.trial,
        "by_class": job.by_class,
        "parameters": said_of(job),
        "store_bytes": Store.open(facts.store, digest=digest).nbytes,
        "bytes_read": None,
        "draws_wrong": None,
        "attempt": None,
        "draws_open": 0,
        "draws_done": 0,
        "contradiction": [],
        "against_rest": None,
        "seconds": None,
        "peak_rss_bytes": None,
        "grown": len(grown),
    }


def _model(place: Path, hashes: tuple[str, ...]) -> tuple[int | None, Mapping[str, Any]]:
    """How many lines of the log came after what the model is about, and its record; None where there is none."""
    try:
        record = load(place / PLACE).record
    except DataError:
        return None, {}
    log = record.get("log")
    return (len(hashes) - 1 - hashes.index(log), record) if log in hashes else (None, {})


def _claimed(record: Mapping[str, Any]) -> dict[str, Any]:
    """What a model claims that all answers are known to."""
    certificate, evidence = record.get("certificate") or {}, record.get("evidence")
    lower, upper = certificate.get("lower"), certificate.get("upper")
    shown = evidence or {}
    return {
        "lower": lower,
        "upper": upper,
        "ratio": ratio(lower, upper) if lower is not None and upper else None,
        "evidence": evidence,
        **{name: shown.get(name) for name in ("error_bound", "error_least", "population")},
    }
