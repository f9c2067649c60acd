"""Questions go to Label Studio as tasks; an export brings the answers of the campaign to what people say there."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from msgspec import structs

from campaign_kit import CLASSES, rows_and_labels, unlabelled
from coremargin.active import Campaign
from coremargin.active.queried_rows import write_asked
from coremargin.cli import main
from coremargin.errors import DataError, LabelError, OutputError
from coremargin.label_studio.annotations import FILE, AnnotationLog
from coremargin.label_studio.export_file import take_export
from coremargin.label_studio.tasks import Tasks, configuration, write_tasks
from coremargin.page.row_view import RowView
from studio_kit import Project

X, LABELS = rows_and_labels(300)


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    """A campaign about 300 rows."""
    return Campaign.create(tmp_path / "c", unlabelled(tmp_path / "rows.zarr", X), classes=CLASSES, error=0.05)


def imported(campaign: Campaign, path: Path, n: int) -> Project:
    """A project that has imported questions from a file."""
    tasks = Tasks(campaign.key, RowView(campaign.store))
    write_tasks(path, (tasks.task(one) for one in campaign.ask(n)))
    project = Project()
    project.add(json.loads(path.read_text()))
    return project


def rows_of(project: Project) -> list[int]:
    """Of its tasks."""
    return [task["data"]["row"] for task in project.tasks]


def taken(campaign: Campaign, project: Project, path: Path, **options: Any) -> Any:
    """Take an export that is made now."""
    return take_export(campaign, AnnotationLog(campaign.path), project.export(path), **options)[1]


def log_of(campaign: Campaign) -> bytes:
    """Its bytes."""
    return (campaign.path / "answers.jsonl").read_bytes()


@pytest.fixture
def project(campaign: Campaign, tmp_path: Path) -> Project:
    """With five tasks of it."""
    return imported(campaign, tmp_path / "tasks.json", 5)


def test_answers_changes_and_deletions_are_followed(campaign: Campaign, project: Project, tmp_path: Path) -> None:
    """What people answer, change and delete in Label Studio becomes so here, by their names, and twice is once."""
    rows, path = rows_of(project), tmp_path / "export.json"
    for row in rows:
        project.answer(row, LABELS[row], who={"id": 1, "email": "anna@example.org"})
    assert taken(campaign, project, path).new == 5
    assert [campaign.answer_of(row) for row in rows] == [LABELS[row] for row in rows]
    assert {one["who"] for one in campaign.answers} == {"anna@example.org of Label Studio"}
    assert taken(campaign, project, path).new == 0
    other = next(label for label in CLASSES if label != LABELS[rows[0]])
    project.change(rows[0], other)
    project.delete(rows[1])
    assert taken(campaign, project, path).new == 2
    assert (campaign.answer_of(rows[0]), campaign.answer_of(rows[1])) == (other, None)
    assert [line.action for line in campaign._state.log.lines] == ["label"] * 5 + ["correct", "undo"]


def test_disagreement_waits_until_people_agree(campaign: Campaign, project: Project, tmp_path: Path) -> None:
    """Two annotations that differ are listed and not taken; a ground truth settles it; agreement is taken."""
    first, second = rows_of(project)[:2]
    path = tmp_path / "export.json"
    for who, label in enumerate(CLASSES, 1):
        project.answer(first, label, who=who)
        project.answer(second, "spam", who=who)
    found = taken(campaign, project, path)
    assert (found.new, campaign.answer_of(first), campaign.answer_of(second)) == (1, None, "spam")
    said = (("user 1 of Label Studio", "ham"), ("user 2 of Label Studio", "spam"))
    assert [tuple(one) for one in found.conflicts] == [(first, said)]
    project.change(first, "spam", 1, ground_truth=True)
    assert taken(campaign, project, path).new == 1
    assert campaign.answer_of(first) == "spam"


def test_an_answer_given_here_stays(campaign: Campaign, project: Project, tmp_path: Path) -> None:
    """Label Studio neither changes nor takes back what somebody answered elsewhere; a difference is told."""
    row = rows_of(project)[0]
    campaign.tell([row], ["ham"], who="ben")
    project.answer(row, "spam")
    found = taken(campaign, project, tmp_path / "export.json")
    assert [tuple(one) for one in found.conflicts] == [(row, (("ben", "ham"), ("user 1 of Label Studio", "spam")))]
    project.delete(row)
    assert taken(campaign, project, tmp_path / "export.json").new == 0
    assert campaign.answer_of(row) == "ham"


def test_an_answer_taken_back_here_is_not_given_again(campaign: Campaign, project: Project, tmp_path: Path) -> None:
    """An annotation of before an undo does not undo the undo; one that is changed after it counts."""
    row, path = rows_of(project)[0], tmp_path / "export.json"
    project.answer(row, "spam")
    taken(campaign, project, path)
    campaign.undo(row, who="ben")
    hearsay = AnnotationLog(campaign.path)
    known = next(iter(hearsay.known.values()))
    hearsay.known[known.key] = structs.replace(known, at=1.0)
    assert campaign.follow(hearsay.reports()).new == 0
    project.change(row, "ham")
    assert taken(campaign, project, path).new == 1
    assert campaign.answer_of(row) == "ham"


def test_skipped_tasks_are_put_off_once(campaign: Campaign, project: Project, tmp_path: Path) -> None:
    """A cancelled annotation puts a question off; asked again, the old one does not put it off again."""
    row, path = rows_of(project)[0], tmp_path / "export.json"
    project.answer(row, None)
    assert taken(campaign, project, path).new == 1
    assert [line.action for line in campaign._state.log.lines] == ["skip"]
    assert taken(campaign, project, path).new == 0
    asked = campaign._questions.asked.values()
    write_asked(campaign.path / "asked.json", [structs.replace(one, at=time.time() + 9, lines=1) for one in asked])
    assert row in [one.row for one in campaign.ask(again=True)]
    assert taken(campaign, project, path).new == 0


def test_tasks_that_are_missing_stay_unless_all_are_there(campaign: Campaign, project: Project, tmp_path: Path) -> None:
    """An export of some tasks takes nothing back of the others; with whole it does."""
    rows, path = rows_of(project), tmp_path / "export.json"
    for row in rows:
        project.answer(row, LABELS[row])
    taken(campaign, project, path)
    project.delete(rows[0])
    project.export(path, all_tasks=False)
    export, found = take_export(campaign, AnnotationLog(campaign.path), path)
    assert (found.new, export.absent) == (0, 1)
    assert take_export(campaign, AnnotationLog(campaign.path), path, whole=True, began=2e9)[1].new == 1
    assert campaign.answer_of(rows[0]) is None


def test_an_older_export_changes_nothing_back(campaign: Campaign, project: Project, tmp_path: Path) -> None:
    """An export of before a change and before an answer neither reverts the one nor deletes the other."""
    first, second = rows_of(project)[:2]
    project.answer(first, "ham")
    old = project.export(tmp_path / "old.json")
    project.change(first, "spam")
    project.answer(second, "ham")
    taken(campaign, project, tmp_path / "new.json")
    before = log_of(campaign)
    assert take_export(campaign, AnnotationLog(campaign.path), old)[1].new == 0
    assert log_of(campaign) == before


def broken(project: Project, kind: str) -> str:
    """The text of an export with something wrong in it."""
    tasks = json.loads(json.dumps(project.tasks))
    last = tasks[-1]
    if kind == "other campaign":
        last["data"]["campaign"] = "0" * 16
    elif kind == "other project":
        last["data"] = {"text": "hello"}
    elif kind == "unknown label":
        last["annotations"][0]["result"][0]["value"]["choices"] = ["eggs"]
    elif kind == "two choices":
        last["annotations"][0]["result"][0]["value"]["choices"] = ["ham", "spam"]
    elif kind == "json-min":
        last = tasks[-1] = {"id": 5, "row": 1, "label": "ham", "annotator": 1}
    elif kind == "never asked":
        last["data"]["row"] = next(row for row in range(300) if row not in rows_of(project))
    elif kind == "beyond the store":
        last["data"]["row"] = 300
    elif kind == "no annotations":
        del last["annotations"]
    elif kind == "twice":
        tasks.append(last)
    text = json.dumps(tasks)
    return {"truncated": text[:-30], "no end": text[:-1], "more": text + "x", "no list": "[1]"}.get(kind, text)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("other campaign", "task 5: expected a task of the campaign"), ("other project", "none of a campaign"),
        ("unknown label", "annotation 105: expected 'ham' or 'spam', found 'eggs'"), ("two choices", "one choice"),
        ("json-min", "not JSON-MIN"), ("never asked", "expected a row that was asked about"),
        ("beyond the store", "expected a row from 0 to 299"), ("no annotations", "a task with annotations"),
        ("twice", "annotation 105: expected it once"),
        ("truncated", "task 5: expected JSON, found the end of the file"),
        ("no end", "a comma or the end of the list after task 5, found the end of the file"),
        ("more", "the end of the file after task 5"), ("no list", "expected an object after task 0"),
    ],
)  # fmt: skip
def test_bad_exports_change_nothing(
    campaign: Campaign, project: Project, tmp_path: Path, kind: str, words: str
) -> None:
    """An export with anything wrong in it is refused as a whole, with a word on where; then the good one is taken."""
    for row in rows_of(project):
        project.answer(row, LABELS[row])
    path = tmp_path / "export.json"
    path.write_text(broken(project, kind))
    runner = CliRunner()
    result = runner.invoke(main, ["active", "tell", str(campaign.path), str(path)])
    assert result.exit_code == 3, result.output
    assert words in result.output
    assert log_of(campaign) == b""
    assert not AnnotationLog(campaign.path).known
    path = project.export(tmp_path / "good.json")
    result = runner.invoke(main, ["active", "tell", str(campaign.path), str(path), "--json"])
    assert json.loads(result.output)["new"] == 5


def test_half_a_line_of_what_was_heard_is_cut_off(campaign: Campaign, project: Project, tmp_path: Path) -> None:
    """What a killed writer left is no answer, and does not end up in the line after it."""
    first, second = rows_of(project)[:2]
    project.answer(first, "ham")
    taken(campaign, project, tmp_path / "export.json")
    with open(campaign.path / FILE, "ab") as file:
        file.write(b'{"project": 3, "ta')
    project.answer(second, "spam")
    assert taken(campaign, project, tmp_path / "export.json").new == 1
    assert len(AnnotationLog(campaign.path).known) == 2


def test_commands_write_and_take_every_format(campaign: Campaign, tmp_path: Path) -> None:
    """Questions go out, and answers come in and out, as CSV, JSONL and Parquet, by name or as said; none is lost."""
    runner, place = CliRunner(), str(campaign.path)
    files = [("q.csv", None), ("q.json", "jsonl"), ("q.pq", None), ("q.x", "parquet")]
    for number, (name, kind) in enumerate(files, 1):
        file = tmp_path / name
        more = [] if kind is None else ["--format", kind]
        result = runner.invoke(main, ["active", "ask", place, "-n", "3", "--to", str(file), *more])
        assert result.exit_code == 0, result.output
        rows = filled_in(file)
        source = file.rename(tmp_path / "q.parquet") if name == "q.x" else file
        result = runner.invoke(main, ["active", "tell", place, str(source), "--json"])
        assert (json.loads(result.output)["new"], len(rows)) == (3, 3), result.output
        assert len(campaign.answers) == 3 * number
    wanted = [(one["row"], one["label"]) for one in campaign.answers]
    for name in ("a.csv", "a.jsonl", "a.parquet"):
        assert runner.invoke(main, ["active", "answers", place, "--to", str(tmp_path / name)]).exit_code == 0
        copy = Campaign.create(
            tmp_path / f"of-{name}", campaign.settings.store, classes=CLASSES, examples=tmp_path / name
        )
        assert [(one["row"], one["label"]) for one in copy.answers] == wanted
    assert runner.invoke(main, ["active", "answers", place, "--to", str(tmp_path / "a.csv")]).exit_code == 5


def filled_in(file: Path) -> list[int]:
    """Put the labels into a file of questions."""
    if file.suffix in (".pq", ".x"):
        table = pq.read_table(file)
        rows = table.column("row").to_pylist()
        labels = pa.array([LABELS[row] for row in rows])
        pq.write_table(table.set_column(table.column_names.index("label"), "label", labels), file)
        return rows
    lines = file.read_text().splitlines()
    if file.suffix == ".json":
        found = [json.loads(line) for line in lines]
        file.write_text("".join(json.dumps({**one, "label": LABELS[one["row"]]}) + "\n" for one in found))
        return [one["row"] for one in found]
    rows = [int(line.split(",")[0]) for line in lines[1:]]
    file.write_text("row,label\n" + "".join(f"{row},{LABELS[row]}\n" for row in rows))
    return rows


def test_a_file_that_is_there_is_not_written_over(campaign: Campaign, tmp_path: Path) -> None:
    """Tasks are not written over a file, and the questions wait."""
    file = tmp_path / "tasks.json"
    file.write_text("mine")
    arguments = ["active", "ask", str(campaign.path), "--to", str(file), "--format", "label-studio"]
    assert CliRunner().invoke(main, arguments).exit_code == 2
    with pytest.raises(OutputError):
        write_tasks(file, [])
    assert file.read_text() == "mine"


def test_the_configuration_has_the_classes(campaign: Campaign) -> None:
    """The labelling configuration has a choice for each class, written so that XML keeps it."""
    result = CliRunner().invoke(main, ["active", "label-studio", str(campaign.path), "--configuration"])
    assert '<Choice value="ham"/>' in result.output
    assert '<Choice value="a&amp;&lt;b"/>' in configuration(["a&<b", 'c"d'])


def test_strictness_is_of_the_whole(campaign: Campaign, project: Project, tmp_path: Path) -> None:
    """Without strict all but what cannot be taken is, and what is not is told."""
    rows = rows_of(project)
    for row in rows[:2]:
        project.answer(row, LABELS[row])
    project.answer(rows[2], "eggs")
    with pytest.raises(LabelError):
        taken(campaign, project, tmp_path / "export.json")
    found = taken(campaign, project, tmp_path / "export.json", strict=False)
    assert (found.new, [one.row for one in found.refused]) == (2, [rows[2]])


def test_what_was_heard_must_be_whole(campaign: Campaign, project: Project, tmp_path: Path) -> None:
    """A line that is none is refused with its number."""
    (campaign.path / FILE).write_text("{}\n")
    with pytest.raises(DataError, match="line 1"):
        taken(campaign, project, tmp_path / "export.json")
