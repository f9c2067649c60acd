"""A margin of rows whose labels are asked for, as a kind of problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.errors import DataError, UsageError
from coremargin.formats.location import storage_words
from coremargin.problems.active import describe
from coremargin.problems.active.spec import ActiveJob
from coremargin.problems.common import messages
from coremargin.problems.kind import Kind

if TYPE_CHECKING:
    from coremargin.data.source import Source
    from coremargin.models.model import Model
    from coremargin.problems.active.problem import ActiveMargin
    from coremargin.problems.kind import Outcome


class ActiveKind(Kind[ActiveJob, "ActiveMargin", "Model"]):
    """Few answers, a margin, and how many rows can be labelled wrongly."""

    name = "active"
    job = ActiveJob
    title = "a campaign"
    selected_by = 'job = "active"'

    def matches(self, options: Mapping[str, Any]) -> bool:
        """A job of its own."""
        return options.get("job") == "active"

    def problem(self, job: ActiveJob, source: Source) -> ActiveMargin:
        """The problem on these rows."""
        from coremargin.problems.active.problem import problem_of

        return problem_of(job, source)

    def model(self, job: ActiveJob, problem: ActiveMargin, state: Any) -> Model:
        """Refused: labels are known to a campaign."""
        raise UsageError(f"{job.out}: its answers are in the log of a campaign; `coremargin active run` continues one")

    def facts(self, problem: ActiveMargin, state: Any) -> dict[str, Any]:
        """Why it ended."""
        from coremargin.problems.active.model import REASONS

        return {"reason": REASONS[state.status]}

    def summary(self, model: Model, run: Mapping[str, Any]) -> dict[str, Any]:
        """Both bounds, and what the draws show."""
        evidence = model.evidence or {}
        known = {key: evidence.get(key) for key in ("draws", "wrong", "error_bound")}
        return {
            **messages.claimed_bounds(model),
            "answers": model.answers,
            **known,
            "confidence": model.parameters["confidence"],
        }

    def verdict(self, outcome: Outcome, job: ActiveJob) -> list[str]:
        """What is claimed of a model."""
        return [text for _, text in _claims(outcome.model)]

    def driver_memory(self, outcome: Outcome) -> tuple[str, str]:
        """The rows from which questions are chosen."""
        return "rows", f"{outcome.run['working_set_rows']:,} rows, from which questions are chosen"

    def describe(self, path: str | Path, model: Model, made: Sequence[tuple[str, str]]) -> list[str]:
        """Classes, margin, evidence."""
        return messages.describe_model(path, model, [*made, *_check(path)], _claims(model))

    def report(self, folder: Path, name: str) -> str:
        """One page."""
        from coremargin.problems.active import report

        return report.page_of(folder, name)


def _claims(model: Any) -> list[tuple[str, str]]:
    """What is proven of the hyperplane, what of the rows without an answer; model: of two classes, or of more."""
    record = model.record
    unsure = int(record.get("unsure") or 0)
    return [
        ("answers", f"{model.answers:,}, of {model.rows:,} rows"),
        *describe.hypothesis_pairs(record["parameters"]),
        *describe.bounds_pairs(record, messages.format_exact),
        *describe.evidence_pairs(record["evidence"], unsure=unsure, left=model.rows - model.answers - unsure),
    ]


def _check(path: str | Path) -> list[tuple[str, str]]:
    """The command that checks a model which lies in its campaign, with the log of answers."""
    from coremargin.formats.campaign import FILE, LARGEST, read_campaign
    from coremargin.formats.plain_file import read_plain

    with suppress(OSError, DataError):  # a model by itself, or nothing that says where the rows are
        folder = Path(path).parent
        facts = read_campaign(read_plain(folder / FILE, LARGEST), str(folder / FILE))
        return [("check", " ".join(["coremargin verify", str(folder), facts.store, *storage_words(facts.location)]))]
    return []


KIND = ActiveKind()
