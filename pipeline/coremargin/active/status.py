"""The status of a campaign: answers, draws, bounds, and an estimate of the remaining answers.

If the state was lost, the status comes from the log and the model, without a scan of the store.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.active.answers import counts_of
from coremargin.active.checkpoint import StateCheckpoint
from coremargin.active.create import job_of, parameters_of, read_settings
from coremargin.active.log import Log, campaign_lock
from coremargin.active.queried_rows import FILE, read_asked, still_open
from coremargin.data.store import Store
from coremargin.data.view import columns_of, scan_bytes
from coremargin.errors import DataError, UsageError
from coremargin.formats.answers import Growth
from coremargin.formats.campaign import ANSWERS, MODEL, STATE
from coremargin.formats.local_path import local_path
from coremargin.formats.strict_json import cut
from coremargin.maths.evidence import draws_needed, trial_size
from coremargin.maths.margin import ratio
from coremargin.maths.published_bounds import any_row, labels_asked
from coremargin.models.registry import load
from coremargin.problems.active.model import found_of, reason_of
from coremargin.problems.active.problem import open_rows
from coremargin.problems.common.balls import enclosing_radius
from coremargin.report.text import count

if TYPE_CHECKING:
    from collections.abc import Mapping

    from coremargin.active.campaign_state import CampaignState
    from coremargin.active.learner import Learner
    from coremargin.active.queried_rows import AskedRow
    from coremargin.formats.answers import Line
    from coremargin.models.model import Model
    from coremargin.problems.active.problem import ActiveMargin
    from coremargin.problems.active.state import ActiveState


def status_of(campaign: CampaignState, awaited: int) -> dict[str, Any]:
    """The status as one flat mapping, for JSON; awaited: open questions.

    labels_asked: number of labels given, including those corrected or taken back since; labels: number of current ones.
    """
    campaign.count_fetched()
    learner, job, lines, labels = campaign.learner, campaign.job, campaign.log.lines, campaign.labels
    problem, state, classes = learner.problem, learner.state, campaign.classes
    found, evidence = found_of(problem, state), learner.evidence(classes) or {}
    both = found.lower is not None and found.upper is not None and found.upper > 0
    skipped, lacks = campaign.log.current.skipped, learner.lacks_classes
    ended = "running" if learner.running else found.status
    return {
        "status": "stopped" if lacks else ended,
        "reason": _missing_classes(campaign) if lacks else reason_of(problem, state, found),
        "labels_asked": sum(line.label is not None for line in lines),
        "labels": len(labels),
        "draws": len({line.row for line in lines if line.why == "draw"} & set(labels)),
        "draws_wrong": campaign.position.wrong,
        "scans": campaign.meters.scans,
        "bytes_read": campaign.meters.bytes_read,
        "store_bytes": scan_bytes(problem.source),
        "lower": found.lower,
        "upper": found.upper,
        "ratio": ratio(found.lower, found.upper) if both else None,  # type: ignore[arg-type]
        "error_bound": evidence.get("error_bound"),
        "population": evidence.get("population"),
        "confidence": problem.confidence,
        "attempt": state.attempt,
        "draws_open": int((~state.draws.is_answered).sum()),
        "draws_done": int(state.draws.is_answered.sum()),
        "awaited": awaited,
        "passed": len(skipped),
        "passed_rows": sorted(skipped),
        "classes": classes,
        "rows": problem.source.rows,
        "grown": len(campaign.log.answers.growths),
        "labels_at_most": _labels_at_most(problem, state),
        "expected": expected_answers(learner),
        "contradiction": _contradiction(campaign),
        "against_rest": classes[state.failed] if state.status == "contradiction" and problem.slabs > 1 else None,
        "answered_by_class": counts_of(labels, classes),
        "parameters": parameters_of(job),
        "like": job.like or [],
        "loss": job.loss,
        "C": job.cost,
        "trial": job.trial,
        "by_class": job.by_class,
        "evidence": evidence or None,
        "error_least": evidence.get("error_least"),
        "unsure": len(state.unsure),
        "unsure_rows": state.unsure.tolist(),
        "seconds": campaign.meters.seconds,
        "peak_rss_bytes": campaign.used_executor.peak_rss_bytes(),
        "store": campaign.settings.store,
        "store_options": campaign.settings.store_options or {},
        "out": str(campaign.path),
    }


def _labels_at_most(problem: ActiveMargin, state: ActiveState) -> dict[str, Any] | None:
    """Lemma 4.2 of Har-Peled, Roth and Zimak before a margin is known: rows near the hyperplane, and labels in all.

    For margins of a tenth and of a hundredth of R, the length of the longest row; |C| is the 4 (R / margin)^2 /
    epsilon^2 of Corollary 3.2. None once a margin is known, and where the lemma does not apply: with a loss, several
    classes, or rows that are chosen otherwise.
    """
    known = problem.planes > 1 or problem.loss is not None or np.isfinite(state.upper).any()
    if known or problem.centre or problem.method in ("random", "slab"):
        return None
    radius, delta = enclosing_radius(problem.source, origin=True), 1.0 - problem.confidence
    if not 0 < radius < np.inf:
        return None
    cases = []
    for share in (0.1, 0.01):
        coreset = any_row(1.0, share, problem.epsilon)
        labels = labels_asked(coreset, problem.error, delta)
        cases.append({"margin": share * radius, "coreset": coreset, "labels": labels})
    return {"radius": radius, "cases": cases}


def _missing_classes(campaign: CampaignState) -> str:
    seen = campaign.state.answered.seen_classes
    missing = [repr(label) for code, label in enumerate(campaign.classes) if code not in seen]
    if missing:
        return f"no answer has {cut(', '.join(missing))}"
    return f"all answers are {cut(repr(campaign.classes[0]))}: no row of a second class is known"


def _contradiction(campaign: CampaignState) -> list[dict[str, Any]]:
    """The rows whose convex hulls intersect, or whose pairs with rivals add up to nothing, and their labels."""
    if campaign.state.status != "contradiction":
        return []
    answered, failed = campaign.state.answered, campaign.state.failed
    weights = answered.weights if campaign.problem.at_once else answered.weights[:, [failed]]
    meeting = answered.ids[(weights > 0).any(axis=1)]
    return [{"row": int(row), "label": campaign.labels.get(int(row))} for row in meeting]


def current_model(campaign: CampaignState) -> Model:
    """The model of the answers so far. Raises UsageError if they are of one class only."""
    if not campaign.state.answered.both_classes:
        seen = f"{len(campaign.labels):,}, all of them {campaign.classes[0]!r}" if campaign.labels else "none"
        raise UsageError(f"{campaign.path}: expected answers of two classes, found {seen}; answer more questions")
    found = campaign.learner.model(campaign.classes, campaign.job.parameters(), campaign.position.about)
    return found.with_columns(columns_of(campaign.problem.source))


# The remaining answers: the number of draws is known, that of rows near the hyperplanes is an estimate.

#: Answers near a hyperplane per coordinate of it: measured campaigns needed between one and three.
NEAR_PER_COORDINATE = 2


@dataclass(frozen=True)
class Forecast:
    """draws: open draws of the current or next attempt, if none of them is wrong.

    near: a rough upper estimate of the answers about rows near the hyperplanes that come before.
    """

    draws: int
    near: int

    @property
    def total(self) -> int:
        """The sum of both."""
        return self.draws + self.near


def forecast(learner: Learner) -> Forecast:
    """An estimate of the answers that are still needed; zeros if the campaign has ended."""
    learner = learner.after_trial()
    problem, state = learner.problem, learner.state
    if not learner.running:
        return Forecast(0, 0)
    if len(state.draws):
        return Forecast(int((~state.draws.is_answered).sum()), 0)
    left = problem.source.rows - len(state.known)
    rows = state.scanned.population or left
    parts = problem.trials.populations(state.scanned.sides) if state.scanned.was_scanned else [rows]
    needed = sum(problem.trials.needed(part, state.attempt) for part in parts)
    if problem.by_class and not state.scanned.was_scanned:
        needed = min(rows, needed * problem.classes)
    return Forecast(min(needed, left), min(_near(learner), left))


def _near(learner: Learner) -> int:
    """From the rows in memory within a slab; most of these leave it once the nearest are answered."""
    problem, state = learner.problem, learner.state
    known = len(state.answered)
    usual = NEAR_PER_COORDINATE * (problem.coordinates + 1) * problem.planes
    if not state.answered.both_classes:
        return usual if problem.trial is None else min(usual, problem.trial)
    rows, hypothesis = open_rows(state), state.hypothesis
    if not len(rows):
        return 0
    sides = hypothesis.sides(hypothesis.decisions(rows.rows)) if problem.slabs > 1 else np.zeros(len(rows), np.int32)
    within = int((hypothesis.nearness(hypothesis.distances(rows.rows), sides) < hypothesis.limit).sum())
    if problem.trial is not None:  # a trial starts after as many new answers as it has draws
        return min(within, max(problem.trial, state.tried) - (known - state.tried))
    return min(within, max(usual - known, within // 10))


#: Share of the rows from which on a campaign asks about nearly every row.
NEARLY_ALL = 0.8
#: Shares of wrong labels that are proposed instead.
ERRORS = (0.02, 0.05, 0.1, 0.2)


def expected_answers(learner: Learner) -> dict[str, Any] | None:
    """The forecast before two classes are known; then None.

    remedy: where nearly every row would be asked about, other parameters with which it would be at most half of them:
    with a larger error fewer are drawn, and with a loss no more are asked about near the hyperplane than are drawn.
    """
    problem, left = learner.problem, learner.problem.source.rows - len(learner.state.known)
    if learner.state.answered.both_classes or not learner.running:
        return None
    found = forecast(learner)
    total = min(found.total, left)
    nearly_all = total >= NEARLY_ALL * left
    remedy = _remedy(problem, found.near, left) if nearly_all else None
    return {"answers": total, "near": found.near, "draws": found.draws, "nearly_all": nearly_all, "remedy": remedy}


def _remedy(problem: ActiveMargin, near: int, rows: int) -> dict[str, Any] | None:
    """The least change of the parameters that halves the work; None where there is none."""
    strata = problem.classes if problem.by_class else 1
    for error in (problem.error, *(one for one in ERRORS if one > problem.error)):
        draws = strata * draws_needed(rows, error, (1.0 - problem.confidence) / (2 * strata))  # of the first attempt
        if problem.loss is None and error > problem.error and near + draws <= rows / 2:
            return {"error": error, "loss": None, "answers": near + draws}
    for error in (problem.error, *(one for one in ERRORS if one > problem.error)):
        draws = strata * trial_size(error, problem.confidence, strata=strata, rows=rows)
        if min(near, draws) + draws <= rows / 2:
            return {"error": error, "loss": problem.loss or "hinge", "answers": min(near, draws) + draws}
    return None


def distance_of(learner: Learner, row: int) -> tuple[float, float] | None:
    """The distance of a row from the nearest hyperplane, and half the width of its slab; None without a hyperplane.

    With several slabs, the hyperplane is the one in whose slab the row lies deepest.
    """
    state = learner.state
    if not state.answered.both_classes:
        return None
    values = state.hypothesis.sizes(learner.problem.decisions(state, np.array([row], np.int64)))
    plane = int(state.hypothesis.in_slabs(values)[0].argmin())
    return float(values[0, plane]), float(state.hypothesis.slab[plane])


# Without the state: from the log and the model.


def status_without_state(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """As ``Campaign.status``, for a campaign whose state has to be computed again by scans; None if the state exists.

    Raises DataError, StoreError and Busy as opening the campaign does.
    """
    place = Path(os.path.realpath(local_path(path)))
    settings, first = read_settings(place)
    log = Log(place / ANSWERS, first, settings.rows, settings.classes)
    with campaign_lock(place):
        log.refresh()
        scans = log.entries[-1].scans if log.entries else 0
        saved = StateCheckpoint(place / STATE, first).load_state(scans)
        hashes = (first, *log.answers.hashes)
        if saved is not None:
            log.refuse_fewer(saved.position.lines)
            if hashes[saved.position.lines] == saved.position.last and saved.round >= scans:
                return None
        asked = read_asked(place / FILE)
        since, record = _model_record(place, hashes)
    labels, unsure, skipped = log.current.labels, log.current.unsure, log.current.skipped
    waiting = still_open(asked, log, _drawn_rows(asked, log), settings.expires, time.time())
    reads = f"a sample of the store and {count(scans, 'scan')}"
    job, grown = job_of(settings, place), log.answers.growths
    rows, digest = (grown[-1].rows, grown[-1].digest) if grown else (settings.rows, settings.digest)
    return {
        **_claims(record if since == 0 else {}),
        "people": settings.people or 1,
        "settle": settings.settle,
        "conflicts": [],
        "status": record["status"] if since == 0 and record["status"] != "stopped" else "unknown",
        "reason": f"its state was lost: the next command computes it again from the log, with {reads}",
        "labels_asked": sum(line.label is not None for line in log.lines),
        "labels": len(labels),
        "answered_by_class": counts_of(labels, log.current.classes),
        "draws": len({line.row for line in log.lines if line.why == "draw"} & set(labels)),
        "scans": scans,
        "awaited": len(waiting),
        "passed": len(skipped),
        "passed_rows": sorted(skipped),
        "unsure": len(unsure),
        "unsure_rows": sorted(unsure),
        "classes": log.current.classes,
        "confidence": settings.confidence,
        "rows": rows,
        "store": settings.store,
        "store_options": settings.store_options or {},
        "out": str(place),
        "loss": job.loss,
        "C": job.cost,
        "trial": job.trial,
        "by_class": job.by_class,
        "parameters": parameters_of(job),
        "like": job.like or [],
        "store_bytes": Store.open(settings.location, digest=digest).scan_bytes,
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
        "labels_at_most": None,
        "expected": None,
    }


def _drawn_rows(asked: Mapping[int, AskedRow], log: Log) -> set[int]:
    """Queried draws of the current attempt, as far as the log shows.

    An attempt ends with an answer about another row, a changed answer, or appended rows. It also ends with a wrongly
    predicted draw, which only the state knows.
    """
    attempts = [one.attempt for one in asked.values()] + [line.attempt for line in log.lines]
    last = max((attempt or 0 for attempt in attempts), default=0)
    over = 0  # number of the last line that ends the attempt
    for entry in log.entries:
        if isinstance(entry, Growth) or entry.action in ("undo", "correct") or _is_about_other_row(entry, last):
            over = entry.number
    return {one.row for one in asked.values() if one.attempt == last and one.lines >= over}


def _is_about_other_row(line: Line, attempt: int) -> bool:
    return line.action == "label" and line.attempt != attempt


def _model_record(place: Path, hashes: tuple[str, ...]) -> tuple[int | None, Mapping[str, Any]]:
    """The number of lines of the log after the model's last one, and the model's record; None without a model."""
    try:
        record = load(place / MODEL).record
    except DataError:
        return None, {}
    log = record.get("log")
    return (len(hashes) - 1 - hashes.index(log), record) if log in hashes else (None, {})


def _claims(record: Mapping[str, Any]) -> dict[str, Any]:
    """The claims of a model that is computed from all answers."""
    certificate, evidence = record.get("certificate") or {}, record.get("evidence")
    lower, upper = certificate.get("lower"), certificate.get("upper")
    return {
        "lower": lower,
        "upper": upper,
        "ratio": ratio(lower, upper) if lower is not None and upper else None,
        "evidence": evidence,
        **{name: (evidence or {}).get(name) for name in ("error_bound", "error_least", "population")},
    }
