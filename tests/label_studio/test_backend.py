"""The protocol of Label Studio's ML backends: its people answer, and the campaign follows them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from campaign_kit import CLASSES, rows_and_labels, unlabelled
from coremargin.active import Campaign
from coremargin.active.inbox import Inbox, received_answer
from coremargin.active.log import campaign_lock
from coremargin.errors import DataError, LabelError, UsageError
from coremargin.label_studio import sync
from coremargin.label_studio.annotations import AnnotationLog
from coremargin.label_studio.client import Client, Unreachable
from coremargin.label_studio.server import run_backend
from coremargin.label_studio.tasks import configuration
from coremargin.serve.access import Address
from coremargin.verify import verify
from server_kit import Backend, Studio, backend, sent, until
from studio_kit import Project

X, LABELS = rows_and_labels(300)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for seconds."""
    monkeypatch.setattr(sync, "IDLE_S", 0.05)


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    """A campaign about 300 rows."""
    return Campaign.create(tmp_path / "c", unlabelled(tmp_path / "rows.zarr", X), classes=CLASSES, error=0.05)


@pytest.fixture
def served(campaign: Campaign) -> Iterator[Backend]:
    """Our backend, with questions."""
    with backend(campaign) as found:
        until(lambda: len(found.worker.order) == 5)
        yield found


def with_all_rows(campaign: Campaign) -> Project:
    """A project that has a task for every row, asked about or not."""
    project = Project()
    project.add({"data": {"row": row, "campaign": campaign.key}} for row in range(300))
    return project


def test_the_protocol_is_spoken(campaign: Campaign, served: Backend) -> None:
    """Health, setup and predict answer as Label Studio reads them; rows asked about come first, in their order."""
    for path in ("health", "", "health/"):
        status, found = served.request("GET", path)
        assert (status, found["status"], found["model_class"]) == (200, "UP", "coremargin")
    setup = {"project": "3.1767225600", "schema": configuration(CLASSES), "hostname": "", "access_token": "x"}
    status, found = served.request("POST", "setup", setup)
    assert (status, found) == (200, {"model_version": served.worker.version})
    project = with_all_rows(campaign)
    asked = list(served.worker.order)
    tasks = [
        project.bare(project.task(row)) for row in [*reversed(asked), next(r for r in range(300) if r not in asked)]
    ]
    sent = {"tasks": tasks, "project": "3.1767225600", "label_config": setup["schema"], "params": {"context": None}}
    status, found = served.request("POST", "predict", sent)
    assert (status, len(found["results"])) == (200, 6)
    scores = [one["score"] for one in found["results"]]
    assert scores == [0.4, 0.3, 0.2, 0.1, 0.0, 1.0]
    assert all(one["result"] == [] and one["model_version"] == found["model_version"] for one in found["results"])
    assert served.request("POST", "predict", {"tasks": {"id": 1}})[1]["results"][0]["score"] == 1.0
    assert served.request("POST", "webhook", {"action": "PROJECT_UPDATED", "project": {"id": 3}})[0] == 200


def test_a_project_with_other_labels_is_refused(served: Backend) -> None:
    """A configuration without a class of the campaign is refused at setup, in words."""
    status, found = served.request("POST", "setup", {"project": "1.1", "schema": configuration(["ham", "eggs"])})
    assert (status, "expected choices for ham, spam" in found["error"]) == (400, True)


@pytest.mark.parametrize(
    ("path", "more", "status"),
    [
        ("health", {"token": "x" * 43}, 403), ("health", {"host": "evil.example"}, 421), ("nowhere", {}, 404),
        ("webhook", {"body": b'{"action": "ANNOT'}, 400), ("webhook", {"body": [1]}, 400),
        ("predict", {"body": {}}, 400),
        ("webhook", {"body": {"action": "ANNOTATION_CREATED", "annotation": {}, "task": {"data": {"row": 1}}}}, 400),
        ("webhook", {"body": {"action": "ANNOTATION_CREATED", "annotation": 7}}, 400),
    ],
)  # fmt: skip
def test_bad_requests_are_refused(served: Backend, path: str, more: dict[str, Any], status: int) -> None:
    """A forged host or token, half a JSON, an annotation of another campaign: an error in words, and nothing heard."""
    method = "POST" if "body" in more else "GET"
    found = served.request(method, path, **more)
    assert (found[0], bool(found[1]["error"])) == (status, True)
    assert not served.worker._annotations.known


#: What foreign programs may put in the place of any value; None leaves it out.
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 300, 2**53, 2**53 + 1, 2**60, 2**62, 2**63, 1e308, -0.5, "", "0", "9" * 19, "9" * 5000,
    "a", "x" * 1000, "x" * 1001, "x" * 70_000, "\0", "\u2028\n\r", "\U0001f642" * 900, "2026-01-01",
    "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59", [], {}, [{}], {"id": 2**60}, {"email": "x" * 70_000},
)  # fmt: skip
PLACES = ("project", "task", "row", "campaign", "updated", "annotation", "who", "created", "choice", "truth")


def odd_event(key: str, **odd: Any) -> dict[str, Any]:
    """An event with some values replaced."""
    said = {"project": 1, "task": 1, "row": 1, "campaign": key, "updated": "2026-01-01T00:00:00Z", "annotation": 1}
    said |= {"who": 1, "created": "2026-01-01T00:00:00Z", "choice": "spam", "truth": False, **odd}
    data = {"row": said["row"], "campaign": said["campaign"]}
    task = {"id": said["task"], "project": said["project"], "data": data, "updated_at": said["updated"]}
    result = [{"type": "choices", "from_name": "label", "value": {"choices": [said["choice"]]}}]
    annotation = {"id": said["annotation"], "completed_by": said["who"], "result": result}
    annotation |= {"created_at": said["created"], "ground_truth": said["truth"]}
    return {"action": "ANNOTATION_CREATED", "project": {"id": 1}, "task": task, "annotation": annotation}


@pytest.mark.parametrize("place", PLACES)
def test_whatever_is_accepted_can_be_read_again(campaign: Campaign, place: str) -> None:
    """An event is refused with a DataError, and adds nothing, or the next start reads what it says."""
    worker = sync.Synchronizer(campaign, ahead=5)
    for value in ODD:
        before = len(AnnotationLog(campaign.path).known)
        try:
            worker.receive(odd_event(campaign.key, **{place: value}))
        except DataError:
            assert len(AnnotationLog(campaign.path).known) == before
    assert all(one.row < 300 for one in AnnotationLog(campaign.path).known.values())
    worker._synchronize()  # and the campaign follows it, or says why it does not


def test_files_of_lines_are_no_programs(campaign: Campaign) -> None:
    """What is heard and received lies in files with the mode that the umask leaves of 666."""
    before = os.umask(0o027)
    try:
        sync.Synchronizer(campaign, ahead=5).receive(odd_event(campaign.key))
        Inbox(campaign.path).put(received_answer(1, "spam", "label", "anna", "0" * 32))
    finally:
        os.umask(before)
    files = [campaign.path / name for name in ("label-studio.jsonl", "inbox.jsonl")]
    assert [file.stat().st_mode & 0o777 for file in files] == [0o640, 0o640]


def test_a_line_without_an_end_is_refused_at_once(campaign: Campaign) -> None:
    """A file of one endless line is refused when it is longer than any line of ours."""
    (campaign.path / "label-studio.jsonl").write_bytes(b"x" * (1 << 22))
    with pytest.raises(DataError, match="line 1: expected at most 65,536 bytes"):
        AnnotationLog(campaign.path)


@pytest.mark.parametrize("schema", ["<Choices>" * 40_000, "<Choices>" + "<Choice " * 40_000, "<A>" * 400_000])
def test_large_configurations_take_no_time(served: Backend, schema: str) -> None:
    """What is no XML, or larger than any configuration, is refused in a moment."""
    began = time.process_time()
    assert served.request("POST", "setup", {"schema": schema})[0] == 400
    assert time.process_time() - began < 0.5


def test_choices_are_read_as_xml_has_them(served: Backend) -> None:
    """Entities and quotes mean what they do in XML; a document type, which may define entities, is refused."""
    schema = (
        "<View><Choices name='label'><Choice value='h&#97;m'/><Choice alias=\"v\" value=\"spam\"/></Choices></View>"
    )
    assert served.request("POST", "setup", {"schema": schema})[0] == 200
    status, found = served.request("POST", "setup", {"schema": "<!DOCTYPE x [<!ENTITY a 'b'>]>" + schema})
    assert (status, "document type" in found["error"]) == (400, True)


def test_people_of_label_studio_end_a_campaign(campaign: Campaign, served: Backend) -> None:
    """Answered over webhooks alone, in our order of questions, a campaign comes to a proof that holds."""
    project = with_all_rows(campaign)
    while campaign.status["status"] == "running":
        before = served.worker.version
        for row in list(served.worker.order):
            assert served.send(project.answer(row, LABELS[row])) == 201
        until(lambda before=before: served.worker.version != before or campaign.status["status"] != "running")
        until(lambda: served.worker.order or campaign.status["status"] != "running")
    assert campaign.status["status"] == "certified"
    assert not served.worker.found.refused
    assert {one["who"] for one in campaign.answers} == {"user 1 of Label Studio"}
    assert verify(campaign.path, campaign.settings.store).ok


def test_changes_deletions_and_what_was_not_asked(campaign: Campaign, served: Backend) -> None:
    """Changed is corrected, deleted is taken back; what nobody asked about waits, and is taken once it is asked."""
    project = with_all_rows(campaign)
    first, second = list(served.worker.order)[:2]
    other = next(row for row in range(300) if row not in served.worker.order)
    for row in (first, second, other):
        served.send(project.answer(row, LABELS[row]))
    until(lambda: campaign.answer_of(second))
    assert campaign.answer_of(other) is None
    until(lambda: served.request("GET", "health")[1]["unasked"] == [other])
    turned = next(label for label in CLASSES if label != LABELS[first])
    assert served.send(project.change(first, turned)) == 201
    assert served.send(project.delete(second)) == 201
    until(lambda: campaign.answer_of(first) == turned and campaign.answer_of(second) is None)
    served.send(project.answer(second, "ham", who=2))
    served.send(project.answer(second, "spam", who=3))
    until(lambda: served.request("GET", "health")[1]["conflicts"])
    assert served.request("GET", "health")[1]["conflicts"][0]["row"] == second


@pytest.mark.slow
def test_what_is_heard_waits_for_the_campaign(campaign: Campaign, served: Backend) -> None:
    """While another program works on the campaign an answer is on disk, and it is taken when that has ended."""
    project, row = with_all_rows(campaign), next(iter(served.worker.order))
    other = AnnotationLog(campaign.path)
    with campaign_lock(campaign.path):
        assert served.send(project.answer(row, LABELS[row])) == 201
        other.refresh()
        assert len(other.known) == 1
        until(lambda: "another program" in served.request("GET", "health")[1]["trouble"])
    until(lambda: campaign.answer_of(row) == LABELS[row])


def test_tasks_are_put_and_missed_events_are_fetched(campaign: Campaign) -> None:
    """Questions become tasks, once each; answers whose webhook was lost and deletions without a number are found."""
    project = Project()
    studio = Studio(project, key="a.b.c")
    try:
        with backend(campaign, client=Client(studio.url, 3, "a.b.c")) as served:
            until(lambda: len(project.tasks) == 5)
            row = project.tasks[0]["data"]["row"]
            project.answer(row, LABELS[row])  # whose event is lost
            served.send({"action": "ANNOTATION_DELETED", "project": {"id": 3}})
            until(lambda: campaign.answer_of(row) == LABELS[row])
            project.delete(row)
            served.send({"action": "ANNOTATIONS_DELETED", "project": {"id": 3}})
            until(lambda: campaign.answer_of(row) is None)
        with backend(campaign, client=Client(studio.url, 3, "a.b.c")):
            until(lambda: studio.exports >= 4)
        rows = [task["data"]["row"] for task in project.tasks]
        assert len(rows) == len(set(rows))
    finally:
        studio.close()


def test_a_backend_without_questions_is_refused(campaign: Campaign) -> None:
    """As nothing could ever be answered there: at once, not in a line of the log again and again."""
    with pytest.raises(UsageError, match="at least one"):
        run_backend(campaign.path, ahead=0, client=None, show={}, ready=lambda _: None)


def test_answers_that_are_all_the_same_are_reported_once(
    campaign: Campaign, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """However often questions are topped up; and ``health`` says it as long as it is so."""
    tried = list[int]()

    def ask(n: int, **asked: Any) -> Any:
        if asked.get("again"):
            return []
        tried.append(n)
        raise LabelError("all answers are the same")

    monkeypatch.setattr(campaign, "ask", ask)
    with backend(campaign) as served:
        until(lambda: len(tried) > 3)
        assert served.request("GET", "health")[1]["trouble"] == "all answers are the same"
    assert sum("all answers are the same" in line for line in caplog.messages) == 1


def test_a_label_studio_that_goes_away_loses_nothing(campaign: Campaign) -> None:
    """Errors of Label Studio are told; answers are taken all the same, and tasks are put when it is back."""
    project = Project()
    studio = Studio(project)
    try:
        studio.status = 500
        with backend(campaign, client=Client(studio.url, 3, "secret", timeout_s=5)) as served:
            until(lambda: "answered 500" in served.worker.trouble and len(served.worker.order) == 5)
            seen = with_all_rows(campaign)
            row = next(iter(served.worker.order))
            served.send(seen.answer(row, LABELS[row]))
            until(lambda: campaign.answer_of(row) == LABELS[row])
            assert not project.tasks
            studio.status = 0
            until(lambda: len(project.tasks) >= 4)
            assert campaign.answer_of(row) == LABELS[row]
    finally:
        studio.close()
    with pytest.raises(Unreachable, match="does not answer"):
        Client(studio.url, 3, "secret", timeout_s=5).add([])


def test_errors_of_a_client_say_what_to_do(tmp_path: Path) -> None:
    """A wrong key, a project that is not there, and an address that is none."""
    studio = Studio(Project())
    try:
        with pytest.raises(Unreachable, match="the key in LABEL_STUDIO_API_KEY is not accepted"):
            Client(studio.url, 3, "wrong").export(tmp_path / "export.json")
        with pytest.raises(Unreachable, match="there is no project 4"):
            Client(studio.url, 4, "secret").export(tmp_path / "export.json")
    finally:
        studio.close()
    with pytest.raises(UsageError, match="--url"):
        Client("file:///etc/passwd", 3, "secret")


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_killed_at_any_moment_it_loses_no_answer(campaign: Campaign) -> None:
    """Whatever Label Studio was told is taken is an answer after kill -9 at eight moments."""
    project, told = with_all_rows(campaign), dict[int, str]()
    command = [sys.executable, "-m", "coremargin", "active", "label-studio", str(campaign.path)]
    for moment in range(8):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                found = re.search(r"http://127\.0\.0\.1:(\d+)/(\S+)/", process.stdout.readline())
                assert found is not None
                address = Address(port=int(found[1]), token=found[2])
                for row in [row for row in range(300) if row not in told][: 3 * moment]:
                    if sent(address, project.answer(row, LABELS[row])) == 201:
                        told[row] = LABELS[row]
                time.sleep(0.01 * (moment % 4))
            finally:
                process.send_signal(signal.SIGKILL)
    heard = {one.row: one.label for one in AnnotationLog(campaign.path).known.values()}
    assert told
    assert told.items() <= heard.items()
    campaign.follow(AnnotationLog(campaign.path).reports(), examples=True)
    assert {one["row"]: one["label"] for one in campaign.answers}.items() >= told.items()
