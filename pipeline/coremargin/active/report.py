"""The report of a campaign: claims, queries, answers, annotators, and published bounds."""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from coremargin.active.status import current_model, status_of
from coremargin.data.weights import rows_left
from coremargin.learn.record import run_record
from coremargin.maths import published_bounds as bounds
from coremargin.maths.rows import lengths
from coremargin.problems.active.report import evidence_view
from coremargin.report import charts, numbers, page, rounds
from coremargin.report import view as pages
from coremargin.report.nearness import nearness
from coremargin.report.view import claims_of

if TYPE_CHECKING:
    from pathlib import Path

    from markupsafe import Markup

    from coremargin.active.campaign_state import CampaignState
    from coremargin.active.votes import Votes

WHY = {"start": "at the beginning", "query": "near a boundary", "draw": "drawn by lot", "example": "given before"}
ACTIONS = ("label", "correct", "undo", "skip", "unsure")
SHOWN = 200  #: most conflicts, and people, in the report


def write_report(campaign: CampaignState, votes: Votes, path: Path) -> Path:
    """Write ``report.html`` into a campaign's folder; return its path. Raises UsageError without two classes."""
    return page.write_report_page(path, _page(campaign, votes, path.name))


def _page(campaign: CampaignState, votes: Votes, name: str) -> str:
    model, records = current_model(campaign), campaign.meters.rounds
    run = run_record(campaign.job, campaign.problem, campaign.state, campaign.meters, campaign.used_executor)
    claims = claims_of(model.record, name)
    of = "value" if campaign.job.loss is not None else "margin"
    memory = rounds.counted("Rows in memory", "working_set_rows")
    bare = rounds.bare_bounds(claims.precision, *(("Dual", "Value") if of == "value" else ()))
    view = pages.view(model.record, run, records, (rounds.NUMBER, rounds.KIND, *bare, memory, *rounds.COSTS), name)
    drawn = charts.by_round(records, run, claims, of=of, closing=False)
    view |= claims.view() | {
        "charts": drawn | {"ruler": None, "near": _near(campaign)},
        "campaign_status": status_of(campaign, 0),
        "lines": len(campaign.log.entries),
        "asked": _asked(campaign),
        "answered": _answered(campaign),
        "people": _people(campaign, votes),
        "papers": _published_bounds(campaign),
    }
    left = campaign.problem.source.rows - len(campaign.labels) - int(model.record.get("unsure") or 0)
    view |= evidence_view(model.record, left) | {"with_loss": None}
    return page.template("active/report.html.j2").render(view)


def _asked(campaign: CampaignState) -> list[dict[str, Any]]:
    """The number of lines of the log for each reason and each action."""
    counts = Counter[tuple[str, str]]((line.why, line.action) for line in campaign.log.lines)
    return [
        {"why": text, "counts": [counts[why, action] for action in ACTIONS]}
        for why, text in WHY.items()
        if any(counts[why, action] for action in ACTIONS)
    ]


def _answered(campaign: CampaignState) -> list[dict[str, Any]]:
    """The number of rows with each label, for each reason of the query."""
    last = {line.row: line.why for line in campaign.log.lines if line.label is not None}
    found = []
    for label in campaign.classes:
        mine = [row for row, known in campaign.labels.items() if known == label]
        found.append({"label": numbers.label_text(label), "counts": [sum(last[r] == why for r in mine) for why in WHY]})
    return found


def _people(campaign: CampaignState, votes: Votes) -> dict[str, Any]:
    """The annotators, their agreement, and their conflicts."""
    lines = [line for line in campaign.log.lines if line.label is not None]
    counts = Counter(line.who for line in lines)
    rows, fleiss = votes.fleiss()
    conflicts = [(row, labels) for row, labels in votes.conflicts().items() if row not in campaign.labels]
    return {
        "each": counts.most_common(SHOWN),
        "several": votes.several,
        "asked": votes.people,
        "pairs": votes.pairs(),
        "rows": rows,
        "fleiss": fleiss,
        "conflicts": [
            {"row": row, "labels": ", ".join(f"{who}: {label}" for who, label in labels.items())}
            for row, labels in conflicts[:SHOWN]
        ],
        "judge": votes.judge,
        "unsure": len(campaign.log.current.unsure),
    }


def _near(campaign: CampaignState) -> Markup | None:
    """Distances of queried rows, and of random rows, from the hyperplane; for two classes without a loss."""
    problem, state = campaign.problem, campaign.state
    if problem.planes > 1 or problem.loss is not None or not np.isfinite(state.upper[0]) or not state.upper[0] > 0:
        return None
    why = {line.row: line.why for line in campaign.log.lines if line.label is not None and line.row in campaign.labels}
    asked = [row for row, reason in why.items() if reason != "draw"]
    drawn = [row for row, reason in why.items() if reason == "draw"]
    if len(asked) < 2 or len(drawn) < 2:
        return None
    sizes = [
        (np.abs(problem.decisions(state, np.array(rows, np.int64))[:, 0]) / float(state.upper[0])).tolist()
        for rows in (asked, drawn)
    ]
    return charts.drawings(charts.FULL, partial(nearness, *sizes))


def _published_bounds(campaign: CampaignState) -> list[dict[str, Any]]:
    """Published bounds next to the numbers of this campaign, for two classes without a loss; only bounds that apply.

    rho: the largest margin of the answered rows; R: the length of the longest of them. Corollary 3.2 is about rows
    within the slab of that margin's hyperplane: it does not apply to random rows and rows of the slab method, for which
    Har-Peled 2015 bounds the steps, nor to a centre, which all answered rows determine together. Lemma 4.2's |C| is
    that bound, not the rows that were added.
    """
    problem, state = campaign.problem, campaign.state
    rho = float(state.upper[0]) if problem.planes == 1 and problem.loss is None else 0.0
    if not (np.isfinite(rho) and rho > 0):
        return []
    R, delta = float(lengths(state.answered.rows).max()), 1.0 - problem.confidence
    core = len(state.answered) if problem.centre else len(state.answered.support)
    in_slab = campaign.job.method != "random" and not problem.centre
    why = {line.row: line.why for line in campaign.log.lines if line.label is not None and line.row in campaign.labels}
    added = sum(reason == "query" for reason in why.values()) + campaign.position.wrong
    asked, rows = sum(line.label is not None for line in campaign.log.lines), rows_left(problem.source)
    found: list[dict[str, Any]] = []
    most = bounds.any_row(R, rho, problem.epsilon)
    if campaign.job.method == "slab":
        most = bounds.slab_steps(2 * R, 2 * rho, problem.epsilon)
        found.append(
            {
                "name": "Steps of the slab, one at a time",
                "needed": added,
                "bound": most,
                "published": "O((Δ/γ)² / ε²)",
                "constant": "4, Δ at most 2R, γ = 2ρ",
                "source": "Har-Peled 2015, Lemma 1.1",
            }
        )
    elif in_slab:
        found.append(
            {
                "name": "Rows asked within the slab, one at a time",
                "needed": added,
                "bound": most,
                "published": "O((R/ρ)² / ε²)",
                "constant": "4",
                "source": "Har-Peled, Roth, Zimak 2006, Corollary 3.2",
            }
        )
    if in_slab:
        found.append(
            {
                "name": "Labels, those of draws among them, with the bound above for |C|",
                "needed": asked,
                "bound": bounds.labels_asked(max(1.0, most), problem.error, delta),
                "published": "O(|C| / e (ln |C| + ln 1/δ))",
                "constant": "1",
                "source": "the same, Lemmas 4.1 and 4.2",
            }
        )
    found.append(
        {
            "name": f"Share of new rows labelled wrongly, if all {rows:,} rows are drawn independently and the model "
            "labels each of them as it is",
            "needed": None,
            "bound": bounds.compression(rows, core, delta),
            "published": "O(√(1 / (N − |S|)))",
            "constant": "none: Floyd and Warmuth’s bound",
            "source": "Louche, Ralaivola 2015, (8)",
        }
    )
    return found
