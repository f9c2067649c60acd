"""Exchange questions and answers of a campaign with other programs as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from coremargin.cli.campaigns import campaign_argument, opening
from coremargin.cli.common import PATH, json_option
from coremargin.cli.printing import print_json, print_lines

if TYPE_CHECKING:
    from coremargin.active import Campaign
    from coremargin.active.external_answers import Conflict, FollowResult
    from coremargin.active.queried_rows import Question
    from coremargin.label_studio.tasks import Tasks

LABEL_STUDIO = "label-studio"
TABLES = ("csv", "jsonl", "parquet")
FORMATS = (*TABLES, LABEL_STUDIO)
SHOWN = 12  #: most rows in a list


def tasks_of(campaign: Campaign, show: Mapping[str, str | None]) -> Tasks:
    """The factory of Label Studio tasks. show: arguments of ``RowView``. Raises UsageError, DataError."""
    from coremargin.active.external_answers import refuse_several
    from coremargin.label_studio.tasks import Tasks
    from coremargin.page.row_view import RowView

    refuse_several(campaign.settings.people)
    return Tasks(campaign.key, RowView(campaign.store, **show))


def write(questions: Sequence[Question], target: Path, kind: str | None, tasks: Tasks | None) -> None:
    """Write questions to a file. kind: of ``TABLES``; None: by name. tasks: for Label Studio. Raises OutputError."""
    from coremargin.active.answer_files import write_questions, write_waiting
    from coremargin.label_studio.tasks import write_tasks

    if tasks is not None:
        write_waiting(lambda: write_tasks(target, map(tasks.task, questions)))
    else:
        write_questions(target, questions, cast("Any", kind))


def take(
    campaign: Campaign, file: Path, who: str | None, *, examples: bool, whole: bool
) -> tuple[int, dict[str, Any], list[str]]:
    """Record answers from a file: the number of new ones, and for an export further results, as JSON and as text."""
    from coremargin.active.answer_files import read_answers_of
    from coremargin.label_studio.annotations import AnnotationLog
    from coremargin.label_studio.export_file import begins_list, take_export

    if not (file.is_file() and begins_list(file)):
        if whole:
            raise click.UsageError("--whole is of an export of Label Studio, a JSON list of tasks; leave it out")
        return campaign.answer(read_answers_of(file), who=who, examples=examples), {}, []
    export, found = take_export(campaign, AnnotationLog(campaign.path), file, examples=examples, whole=whole)
    conflicts = [{"row": one.row, "said": [list(pair) for pair in one.said]} for one in found.conflicts]
    more = {"tasks": export.tasks, "conflicts": conflicts, "absent": export.absent}
    return found.new, more, _describe_unrecorded(found, export.absent)


def _list_answers(one: Conflict) -> str:
    return ", ".join(f"{label!r} by {who}" for who, label in one.said)


def _describe_unrecorded(found: FollowResult, absent: int) -> list[str]:
    """Lines about answers that were not recorded, with advice."""
    lines = [f"row {one.row:,}: not all agree: {_list_answers(one)}" for one in found.conflicts[:SHOWN]]
    if found.conflicts:
        more = f"{len(found.conflicts) - SHOWN:,} rows more; " if len(found.conflicts) > SHOWN else ""
        lines.append(f"{more}change or delete one there, or make one a ground truth, and export again")
    if absent:
        lines.append(f"{absent:,} annotations belong to tasks that this export lacks: they are kept; with --whole")
        lines.append("they would be taken back, as deleted")
    return lines


@click.command()
@campaign_argument
@click.option("--to", "target", type=PATH, required=True, help="The file to write.")
@click.option("--format", "kind", type=click.Choice(TABLES), help="Format of the file.  [default: by its name]")
@json_option
def answers(campaign: Path, target: Path, kind: str | None, as_json: bool) -> None:
    """Write the current answers to CSV, JSONL or Parquet, with who gave them and why the row was asked.

    \b
      coremargin active answers rows.campaign --to answers.parquet
    """
    from coremargin.active.answer_files import write_table
    from coremargin.report.text import count

    columns = {"row": int, "label": str, "who": str, "when": str, "why": str, "attempt": int}
    with opening(campaign) as opened:
        rows = opened.answers
    write_table(target, rows, columns, cast("Any", kind))
    if as_json:
        print_json({"answers": len(rows), "file": str(target)})
    else:
        print_lines(f"{count(len(rows), 'answer')} in {target}")
