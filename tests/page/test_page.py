"""The page over HTTP: who may talk to it, what becomes of answers, and what people are shown."""

from __future__ import annotations

import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from campaign_kit import CLASSES, rows_and_labels, unlabelled
from coremargin.active import Campaign
from coremargin.errors import OutputError
from page_kit import Visitor, lines_of, page, until

if TYPE_CHECKING:
    from coremargin.page.worker import CampaignWorker
    from coremargin.serve.access import Address

X, LABELS = rows_and_labels(300, 3)
TEXTS = [f"row {k} <script>document.title='run'</script> & \u2028 \U0001f642" for k in range(300)]

Open = tuple["Address", "CampaignWorker", Campaign]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """The page of a campaign: of one that all tests share, those who were there before might have all that is left."""
    folder = tmp_path
    store = unlabelled(folder / "rows.zarr", X)
    (folder / "texts.txt").write_text("\n".join(text.replace("\u2028", " ") for text in TEXTS) + "\n")
    Campaign.create(folder / "c<b>", store, classes=CLASSES, error=0.05).close()
    with page(folder / "c<b>", text=str(folder / "texts.txt")) as found:
        yield found


def label_of(view: dict[str, Any]) -> str:
    """The right answer to the question of a view."""
    return LABELS[view["question"]["row"]]


def test_only_our_own_page_is_answered(opened: Open) -> None:
    """A forged Host, token or Origin, none at all, another kind of content, another method: refused, whatever is asked,
    and nothing is told to who has no token.
    """
    address, _, campaign = opened
    anna = Visitor(address)
    view, before = anna.asked(), lines_of(campaign.path)
    token = address.token
    assert anna.get("", Host="evil.example")[0] == 421
    assert anna.get("", Host=f"evil.example:{address.port}")[0] == 421
    assert anna.get("state?who=anna", Host="localhost")[0] == 421
    assert anna.get("state?who=anna", Host=f"localhost:{address.port}")[0] == 200
    for place in (f"/{'x' * 43}/", f"/{token[:-1]}/", f"/{token}x/state?who=anna", f"/{'x' * 43}/answer"):
        status, text, headers = anna.request("GET", place)
        assert status == 403, place
        assert token not in text.decode()
        assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert anna.request("GET", "/")[0] == anna.request("GET", f"/{token}/../../etc/passwd")[0] == 404
    said = {"run": view["run"], "id": "0" * 32, "who": "anna", "row": view["question"]["row"], "action": "skip"}
    for headers in (
        {"Origin": None}, {"Origin": "null"}, {"Origin": "https://evil.example"}, {"Host": "evil.example"},
        {"Origin": f"http://127.0.0.1:{address.port + 1}"}, {"Content_Type": "text/plain"},
        {"Content_Type": "application/x-www-form-urlencoded"},
    ):  # fmt: skip
        assert anna.request("POST", f"/{token}/answer", said, **headers)[0] in (403, 415, 421), headers  # type: ignore[arg-type]
    assert anna.request("POST", f"/{'x' * 43}/answer", said)[0] == 403
    assert anna.request("GET", f"/{token}/answer")[0] == 405
    with suppress(ConnectionError):  # it may hang up before it has heard all of that
        assert anna.request("POST", f"/{token}/answer", b"{" * 70_000)[0] in (400, 413)
    for wrong in (b"[]", b"{", json.dumps({**said, "x": 1}).encode(), json.dumps({**said, "row": -1}).encode()):
        assert anna.request("POST", f"/{token}/answer", wrong)[0] == 400
    assert lines_of(campaign.path) == before


@pytest.mark.parametrize("row", ["300", "301", str(2**53), "9" * 18, "9" * 19, "-1", "x", "1.5", "0x1", "", "%30%30"])
def test_an_image_of_no_row_is_not_found(tmp_path: Path, row: str, caplog: pytest.LogCaptureFixture) -> None:
    """Rows beyond the store, whatever their number, are 404, with and without files for images; nothing is logged."""
    X4 = np.hstack([X, X[:, :1]])
    store = unlabelled(tmp_path / "rows.zarr", X4)
    Campaign.create(tmp_path / "c", store, classes=CLASSES, error=0.05).close()
    (tmp_path / "301.png").write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01")
    for shown in ({"pixels": "2x2"}, {"image": str(tmp_path / "{row}.png")}):
        with page(tmp_path / "c", **shown) as (address, _, _):
            assert Visitor(address).get(f"image/{row}")[0] == 404
    assert not caplog.records


def test_a_failure_is_logged_without_the_address(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    """The log has the traceback, and neither the path of the request nor the token, wherever that stands."""
    address, worker, _ = opened

    def fail(who: str) -> str:
        raise RuntimeError(f"{who} {address.url}")

    worker.arrive = fail  # type: ignore[method-assign]
    assert Visitor(address).get("state?who=anna")[0] == 500
    assert "RuntimeError" in caplog.text
    assert address.token not in caplog.text


def test_what_every_answer_says(opened: Open) -> None:
    """Nothing is loaded from elsewhere, nothing kept, nothing framed; markup in names and texts is text."""
    address, _, campaign = opened
    anna = Visitor(address, "anna%3Cb%3E%22")
    status, text, headers = anna.get(f"?who={anna.who}")
    assert status == 200
    assert b"http:" not in text.replace(b"http-equiv", b"")
    assert b"https:" not in text
    assert b"anna&lt;b&gt;&#34;" in text
    assert b"<b>anna" not in text
    assert b"c&lt;b&gt;" in text
    policy = headers["Content-Security-Policy"]
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert (headers["Cache-Control"], headers["Referrer-Policy"]) == ("no-store", "no-referrer")
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert b"Who answers?" in anna.get("")[1]
    for name in ("style.css", "script.js"):
        status, text, _ = anna.get(name)
        assert (status, b"http:" in text, b"https:" in text) == (200, False, False)
    assert b"innerHTML" not in text
    assert anna.get("server.py")[0] == 404
    ben = Visitor(address, "ben")
    raw = ben.asked()["question"]["text"]
    assert raw.startswith("row ")
    assert "<script>" in raw  # as a string of JSON, in which no tag can begin
    assert (campaign.path / "page.json").stat().st_mode & 0o077 == 0


def test_an_answer_is_in_the_log_once(opened: Open) -> None:
    """However often it is sent; the next question comes with it, and another row is not taken."""
    address, _, campaign = opened
    anna = Visitor(address)
    view = anna.asked()
    row, one = view["question"]["row"], secrets.token_hex(16)
    status, after = anna.post(view, label=label_of(view), id=one)
    assert status == 200
    assert after["question"] is None or after["question"]["row"] != row
    assert after["last"] == {"row": row, "label": LABELS[row]}
    assert anna.post(view, label=label_of(view), id=one)[0] == 200
    assert anna.post(view, label=label_of(view), id=one, run="before")[0] == 200  # sent again after a restart
    status, found = anna.post(view, label=label_of(view))
    assert (status, found["kind"]) == (409, "gone")
    until(lambda: [line for line in lines_of(campaign.path) if line.get("id") == one])
    lines = [line for line in lines_of(campaign.path) if line["row"] == row]
    assert [(line["label"], line["who"], line["id"]) for line in lines] == [(LABELS[row], "anna", one)]
    assert anna.post(view, label=label_of(view), id=one)[0] == 200
    assert len([line for line in lines_of(campaign.path) if line["row"] == row]) == 1


def test_what_is_no_answer(opened: Open) -> None:
    """A label that there is not, none at all, a page of another run: refused, and why."""
    address, _, _ = opened
    anna = Visitor(address)
    view = anna.asked()
    status, found = anna.post(view, label="egg")
    assert (status, found["kind"]) == (422, "wrong")
    assert "expected 'ham' or 'spam', found 'egg'" in found["message"]
    assert anna.post(view)[0] == anna.post(view, "skip", label="ham")[0] == 400
    status, found = anna.post(view, label="ham", run="0" * 16)
    assert (status, found["kind"], found["run"]) == (409, "stale", view["run"])
    assert anna.see()["question"] == view["question"]


def test_undo_skip_and_unsure(opened: Open) -> None:
    """An answer that is taken back is asked about again at once; what is put off, or nobody can tell, is not."""
    address, _, campaign = opened
    cleo = Visitor(address, "cleo")
    view = cleo.asked()
    row = view["question"]["row"]
    wrong = CLASSES[1 - CLASSES.index(LABELS[row])]
    after = cleo.post(view, label=wrong)[1]
    back = cleo.post(after, "undo")[1]
    assert (back["question"]["row"], back["last"]) == (row, None)
    again = cleo.post(back, label=LABELS[row])[1]
    assert again["last"] == {"row": row, "label": LABELS[row]}
    until(lambda: campaign.answer_of(row) == LABELS[row])
    actions = [line["action"] for line in lines_of(campaign.path) if line["row"] == row]
    assert actions == ["label", "undo", "label"]
    for action in ("skip", "unsure"):
        view = cleo.asked()
        row = view["question"]["row"]
        after = cleo.post(view, action)[1]
        assert after["question"] is None or after["question"]["row"] != row
        until(lambda row=row, action=action: [action] == [  # type: ignore[misc]
            line["action"] for line in lines_of(campaign.path) if line["row"] == row
        ])  # fmt: skip


def test_nobody_waits_for_who_is_at_work(opened: Open) -> None:
    """While the campaign is held, as by a scan, answers are on disk within moments, and questions lie ready."""
    address, worker, campaign = opened
    anna, taken, spent = Visitor(address), [], []
    until(lambda: len(anna.asked()) and len(worker.queue._people["anna"].queue) >= 4)
    with campaign.locked():
        view = anna.asked()
        for _ in range(3):
            taken.append(view["question"]["row"])
            began = time.perf_counter()
            status, view = anna.post(view, label=LABELS[taken[-1]])
            spent.append(time.perf_counter() - began)
            assert status == 200
            assert view["question"]["row"] not in taken
        rows = [one.row for one in worker.inbox.read()[0]]
        assert rows[-3:] == taken
        assert not set(taken) & {line["row"] for line in lines_of(campaign.path)}
    until(lambda: set(taken) <= {line["row"] for line in lines_of(campaign.path)})
    assert until(lambda: worker.inbox.read()[0] == [])
    assert min(spent) < 0.05


def test_two_people_at_once(opened: Open) -> None:
    """Each is asked other rows; both at one moment lose nothing, and who is told of one's answers by the log is the
    other.
    """
    address, _, campaign = opened
    people = [Visitor(address, "dora"), Visitor(address, "emil")]
    views = [one.asked() for one in people]
    assert views[0]["question"]["row"] != views[1]["question"]["row"]
    given: dict[str, list[int]] = {one.who: [] for one in people}

    def work(one: Visitor) -> None:
        for _ in range(6):
            view = one.asked()
            assert one.post(view, label=label_of(view))[0] == 200
            given[one.who].append(view["question"]["row"])

    threads = [threading.Thread(target=work, args=(one,)) for one in people]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    rows = given["dora"] + given["emil"]
    assert len(rows) == len(set(rows)) == 12
    until(lambda: set(rows) <= {line["row"] for line in lines_of(campaign.path)})
    assert {line["row"] for line in lines_of(campaign.path) if line["who"] == "emil"} == set(given["emil"])


def test_a_disk_that_takes_nothing(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that cannot be written was not given: it is said, and the same one is taken when there is room."""
    address, worker, campaign = opened
    anna = Visitor(address)
    view, one = anna.asked(), secrets.token_hex(16)

    def full(_: Any) -> None:
        raise OutputError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(worker.inbox, "put", full)
        status, found = anna.post(view, label=label_of(view), id=one)
    assert (status, found["kind"]) == (507, "unwritten")
    assert "the disk is full" in found["message"]
    assert anna.see()["question"]["row"] == view["question"]["row"]
    assert anna.post(view, label=label_of(view), id=one)[0] == 200
    until(lambda: campaign.answer_of(view["question"]["row"]))


def test_a_campaign_to_its_end(tmp_path: Path) -> None:
    """Whoever answers on the page comes to a model that is certified, of classes that were not named before; rows that
    somebody left behind are asked of who is there.
    """
    store = unlabelled(tmp_path / "rows.zarr", X[:150])
    with Campaign.create(tmp_path / "c", store, error=0.3, confidence=0.8) as begun:
        left = [one.row for one in begun.ask(3, who="gone")]
    with page(tmp_path / "c", pixels="1x3") as (address, _, campaign):
        anna = Visitor(address)
        view = anna.asked()
        seen = {view["question"]["row"]}
        assert anna.post(view, label=label_of(view))[0] == 200
        while not (view := until(lambda: ((v := anna.see())["question"] and v) or (v["ended"] and v)))["ended"]:
            seen.add(view["question"]["row"])
            assert anna.get(view["question"]["image"])[1].startswith(b"\x89PNG")
            status, found = anna.post(view, label=label_of(view))
            if found.get("kind") == "new":
                assert "is new: is it the other label?" in found["message"]
                status, found = anna.post(view, label=label_of(view), new=True)
            assert status == 200, found
        assert "labelled wrongly, with confidence 0.8" in view["ended"]
        assert view["left"] == 0
        assert campaign.status["status"] == "certified"
        status, found = anna.post(view, "undo")
        assert (status, found["kind"]) == (200, "ends")
        assert "This ends attempt" in found["message"]
        assert anna.post(view, "undo", ends=True)[0] == 200
    assert set(left) <= seen


def test_several_people_about_a_row(tmp_path: Path) -> None:
    """Both are asked about the same rows, each may take back what was said, and a row is in the log when both agree."""
    store = unlabelled(tmp_path / "rows.zarr", X)
    Campaign.create(tmp_path / "c", store, classes=CLASSES, people=2).close()
    with page(tmp_path / "c") as (address, _, campaign):
        anna, ben = Visitor(address), Visitor(address, "ben")
        view = anna.asked()
        row = view["question"]["row"]
        after = anna.post(view, label=label_of(view))[1]
        assert after["last"] == {"row": row, "label": LABELS[row]}
        until(lambda: campaign.answers_of("anna"))
        again = anna.post(anna.see(), "undo")[1]
        assert again["question"]["row"] == row
        assert anna.post(again, label=LABELS[row])[0] == 200
        theirs = until(lambda: (found := ben.see()).get("question") and found["question"]["row"] == row and found)
        assert campaign.answer_of(row) is None
        assert ben.post(theirs, label=LABELS[row])[0] == 200
        until(lambda: campaign.answer_of(row) == LABELS[row])
    assert [line["who"] for line in lines_of(tmp_path / "c") if line["row"] == row] == ["anna, ben"]
