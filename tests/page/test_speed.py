"""How soon a key is answered on the page, while the campaign reads its store and solves, and while it does nothing."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from browser_kit import program
from campaign_kit import CLASSES, rows_and_labels
from coremargin.active import Campaign
from coremargin.page.worker import CampaignWorker
from page_kit import WHO, begun, page

if TYPE_CHECKING:
    from browser_kit import Browser, Tab

pytestmark = [
    pytest.mark.slow, pytest.mark.timeout(600),
    pytest.mark.skipif(program() is None, reason="no Chromium is installed"),
]  # fmt: skip

EACH, ROUNDS = 10, 5

#: From a key to the next question, as the page itself sees both.
MEASURE = """
window.spent = []; let began = null;
document.addEventListener("keydown", () => { began = [performance.now(), view.question.row]; }, true);
new MutationObserver(() => {
  if (!began || !view.question || view.question.row === began[1] || sending) return;
  window.spent.push(performance.now() - began[0]);
  began = null;
}).observe(document.body, { subtree: true, childList: true, characterData: true });
0
"""


def answered(tab: Tab, labels: list[str], done: int) -> None:
    """A few keys, each when the question is there."""
    for number in range(done, done + EACH):
        row = tab.until("view.question && !sending && view.question.row + 1") - 1
        tab.press(str(1 + CLASSES.index(labels[row])))
        tab.until(f"window.spent.length > {number}")


def test_keys_are_answered_while_scans_run(tmp_path: Path, chromium: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each, while the store is read over and over; how soon, beside when nothing is read, is told."""
    X, labels = rows_and_labels(200_000, 50)
    path = begun(tmp_path, X, error=0.005, memory="4 MiB", chunk_rows=20_000)
    with Campaign(path) as campaign:
        campaign.run(lambda rows: {row: labels[row] for row in rows}, most=40)
        assert len(campaign.ask(2 * EACH * ROUNDS + 1, who="anna")) > 2 * EACH * ROUNDS  # none has to be looked for
    scanning, scans, before = threading.Event(), list[int](), CampaignWorker._prepare

    def prepare(worker: CampaignWorker) -> None:
        before(worker)
        while scanning.is_set():
            with worker._campaign.locked():  # and takes what was answered meanwhile
                worker._campaign._state.scan()
            scans.append(1)

    monkeypatch.setattr(CampaignWorker, "_prepare", prepare)
    with page(path) as (address, worker, _):
        tab = chromium.tab(address.url + WHO)
        tab.until("typeof view !== 'undefined' && view && view.question && true")
        tab.run(MEASURE)
        try:
            for number in range(2 * ROUNDS):
                scanning.set() if number % 2 else scanning.clear()
                worker._wake.set()
                answered(tab, labels, number * EACH)
        finally:
            scanning.clear()
        spent = np.array(tab.run("window.spent")).reshape(2 * ROUNDS, EACH)
        assert tab.errors() == []
    idle, busy = spent[::2].ravel(), spent[1::2].ravel()
    print(f"{len(scans)} scans")  # noqa: T201 - figures, seen with `pytest -s`
    for name, found in (("idle", idle), ("beside scans", busy)):
        print(f"{name}: median {np.median(found):.1f} ms, 95 % {np.quantile(found, 0.95):.1f} ms")  # noqa: T201
    assert len(scans) >= ROUNDS
