"""A campaign's page in this process, and somebody who answers on it without a browser."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from campaign_kit import CLASSES, unlabelled
from coremargin.active import Campaign
from coremargin.engine.loop import Callbacks
from coremargin.page.row_view import RowView
from coremargin.page.server import FILE, serve
from coremargin.page.worker import CampaignWorker, ScanProgress
from coremargin.serve.access import open_listener

if TYPE_CHECKING:
    from browser_kit import Tab
    from coremargin.serve.access import Address

WAIT_S = 30.0
WHO = "?who=anna"
ROW = "Number(document.querySelector('#heading').textContent.replace(/\\D/g, ''))"


def until(condition: Callable[[], Any]) -> Any:
    """What it gives as soon as it is true."""
    stop = time.monotonic() + WAIT_S
    while not (found := condition()):
        assert time.monotonic() < stop, "never came true"
        time.sleep(0.02)
    return found


class Visitor:
    """Somebody with a name, who knows the address."""

    def __init__(self, address: Address, who: str = "anna") -> None:
        self.address, self.who = address, who
        self.host = f"127.0.0.1:{address.port}"

    def request(self, method: str, place: str, body: Any = None, **headers: str) -> tuple[int, Any, Any]:
        """(status, what was answered, headers); a header of None is left out."""
        own = {"Host": self.host}
        if method == "POST":
            own |= {"Origin": f"http://{self.host}", "Content-Type": "application/json"}
        own |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.address.port, timeout=WAIT_S)
        connection.putrequest(method, place, skip_host=True)
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        if data is not None:
            own["Content-Length"] = str(len(data))
        for name, value in own.items():
            if value is not None:
                connection.putheader(name, value)
        connection.endheaders(data)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        is_json = answer.headers["Content-Type"].startswith("application/json")
        return answer.status, json.loads(text) if is_json else text, answer.headers

    def get(self, place: str, **headers: str) -> tuple[int, Any, Any]:
        """Something below the address."""
        return self.request("GET", f"/{self.address.token}/{place}", **headers)

    def see(self) -> dict[str, Any]:
        """What there is to see now."""
        return dict(self.get(f"state?who={self.who}")[1])

    def asked(self) -> dict[str, Any]:
        """What there is to see as soon as there is a question."""
        return dict(until(lambda: (found := self.see()).get("question") and found))

    def post(self, view: dict[str, Any], action: str = "label", label: str | None = None, **more: Any) -> Any:
        """(status, what was answered) of an answer to the question of a view."""
        row = view["last"]["row"] if action == "undo" else view["question"]["row"]
        said = {"run": view["run"], "id": secrets.token_hex(16), "who": self.who, "row": row, "action": action}
        said |= {"label": label} if label is not None else {}
        return self.request("POST", f"/{self.address.token}/answer", said | more)[:2]


@contextmanager
def page(path: Path, **shown: Any) -> Iterator[tuple[Address, CampaignWorker, Campaign]]:
    """The page of a campaign, served by a thread of this process."""
    progress = ScanProgress()
    campaign = Campaign(path, cluster="threads", watch=Callbacks(on_scan=progress.scan, on_block=progress.block))
    address, listener = open_listener(campaign.path / FILE, None)
    loop, ready = asyncio.new_event_loop(), threading.Event()
    desks = list[CampaignWorker]()

    def make(changed: Callable[[], None]) -> tuple[CampaignWorker, RowView]:
        sight = RowView(campaign.store, **shown)
        desks.append(CampaignWorker(campaign, sight, progress, changed))
        return desks[0], sight

    task = loop.create_task(serve(make, address, listener, path.name, lambda _: ready.set()))

    def run() -> None:
        try:
            loop.run_until_complete(task)
        except asyncio.CancelledError:
            pass
        finally:
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(WAIT_S)
    try:
        yield address, desks[0], campaign
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(WAIT_S)
        assert desks[0].stop(WAIT_S)
        campaign.close()


def lines_of(path: Path) -> list[dict[str, Any]]:
    """The log of a campaign."""
    return [json.loads(line) for line in (path / "answers.jsonl").read_text().splitlines()]


@contextmanager
def served(path: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command as people start it, and the address that it shows."""
    command = [sys.executable, "-m", "coremargin", "active", "page", str(path), *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found is not None, line + process.stdout.read()
        yield process, found[0]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def begun(folder: Path, X: Any, **more: Any) -> Path:
    """A campaign about these rows."""
    store = unlabelled(folder / "rows.zarr", X, chunk_rows=more.pop("chunk_rows", 64))
    Campaign.create(folder / "c", store, **{"classes": CLASSES, "error": 0.02, **more}).close()
    return folder / "c"


def row_of(tab: Tab) -> int:
    """The row that is asked about."""
    return int(tab.until(f"document.querySelector('#heading')?.textContent.startsWith('Row') && ({ROW} + 1)")) - 1
