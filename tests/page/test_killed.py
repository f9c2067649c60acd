"""The page whose program and whose browser are killed, again and again: no answer is lost, none is there twice."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from browser_kit import browser, program
from campaign_kit import CLASSES, rows_and_labels
from coremargin.active import Campaign
from page_kit import begun, lines_of, served

pytestmark = [
    pytest.mark.slow, pytest.mark.faults, pytest.mark.timeout(900),
    pytest.mark.skipif(program() is None, reason="no Chromium is installed"),
]  # fmt: skip

KILLS = 50
SCAN_WAIT_S = 2.0  #: for a scan to be killed in

#: Tells what the page sends, and what it has heard to be taken, before it shows that.
LISTEN = """
const before = window.fetch;
window.fetch = async (...given) => {
  if (given[0] !== "answer") return before(...given);
  told("sent " + given[1].body);
  const found = await before(...given);
  if (found.ok && !(await found.clone().json()).kind) told("taken " + given[1].body);
  return found;
};
"""
BACK = "typeof view !== 'undefined' && view && view.ready && !away && sending === null"
QUESTION = "(view.question && !confirming && view.question.row + 1) || (view.ended && -1) || 0"


class Sitting:
    """Somebody at a page. sent: answers by their ids; taken: ids of those that the page was told are taken.

    left: ids of answers that were on their way when the browser was killed: nobody was told that they are taken.
    start_s: CPU time of each start of the program until it shows its address.
    """

    def __init__(self, folder: Path, path: Path, labels: list[str]) -> None:
        self._folder, self._path, self._labels = folder, path, labels
        self._program, self._browser = ExitStack(), ExitStack()
        self.sent, self.taken, self.left = dict[str, dict[str, Any]](), set[str](), set[str]()
        self.start_s = list[float]()

    def start_program(self) -> None:
        """Until it shows its address; the same one each time."""
        self._process, self._url = self._program.enter_context(served(self._path))
        spent = psutil.Process(self._process.pid).cpu_times()
        self.start_s.append(spent.user + spent.system)

    def start_browser(self) -> None:
        """With a tab on the page."""
        profile = self._folder / "profile"
        shutil.rmtree(profile, ignore_errors=True)
        profile.mkdir()
        self._chromium = self._browser.enter_context(browser(profile))
        self.tab = self._chromium.tab()
        self.tab.call("Runtime.addBinding", name="told")
        self.tab.call("Page.addScriptToEvaluateOnNewDocument", source=LISTEN)
        self.tab.open(self._url + "?who=anna")

    def back(self) -> None:
        """Wait for the page; what it kept is sent by then."""
        self.tab.until(BACK)
        self._hear()
        assert self.sent.keys() <= self.taken | self.left, "an answer that was kept in the tab was not sent again"

    def answer(self, rng: np.random.Generator) -> None:
        """A key, without waiting for what comes of it."""
        row = self.tab.run(f"{BACK} && ({QUESTION})") or 0
        assert row >= 0, "the campaign has ended: nothing more is tried"
        if row:
            key = "u" if rng.random() < 0.1 else str(1 + CLASSES.index(self._labels[row - 1]))
            self.tab.press(key)
        elif self.tab.run("confirming !== null"):
            self.tab.press("n")

    def kill_program(self) -> None:
        """Its whole process group is it alone."""
        self._process.send_signal(signal.SIGKILL)
        self._program.close()

    def kill_browser(self) -> None:
        """All its processes at once."""
        os.killpg(self._chromium.process.pid, signal.SIGKILL)
        self.tab.drain()
        self._hear()
        self.left = self.sent.keys() - self.taken
        self._browser.close()

    def scans(self) -> bool:
        """Whether a scan is on, as far as the page knows."""
        return bool(self.tab.run("typeof view !== 'undefined' && view && view.busy.startsWith('Looking')"))

    def close(self) -> None:
        """End what runs."""
        self._browser.close()
        self._program.close()

    def _hear(self) -> None:
        for one in self.tab.events:
            if one["method"] == "Runtime.bindingCalled":
                what, _, body = one["params"]["payload"].partition(" ")
                answer = json.loads(body)
                self.sent[answer["id"]] = answer
                if what == "taken":
                    self.taken.add(answer["id"])
        self.tab.events.clear()


def until_killed(sitting: Sitting, rng: np.random.Generator, *, in_scan: bool) -> bool:
    """Answer until a moment drawn by lot or, where that is wanted, until a scan is on; whether one was."""
    stop = time.monotonic() + (SCAN_WAIT_S if in_scan else float(rng.uniform(0.0, 1.0)))
    while time.monotonic() < stop:
        if in_scan and sitting.scans():
            return True
        sitting.answer(rng)
        if not in_scan:
            time.sleep(float(rng.uniform(0.0, 0.05)))
    return False


def test_whatever_is_killed(tmp_path: Path) -> None:
    """Program, browser or both are killed at 50 moments, by lot or in a scan: every answer that the page was told is
    taken is in the log once, as it was given; one that a living tab had sent comes there, and nothing else does.
    """
    rng = np.random.default_rng(17)
    X, labels = rows_and_labels(6000, 60, margin=0.1)
    path = begun(tmp_path, X, memory=16_000, error=0.002, chunk_rows=16)
    sitting, in_scans = Sitting(tmp_path, path, labels), 0
    try:
        sitting.start_program()
        sitting.start_browser()
        for kill in range(KILLS):
            sitting.back()
            in_scans += until_killed(sitting, rng, in_scan=kill % 2 == 1)
            if kill % 3 != 1:
                sitting.kill_program()
            if kill % 3 != 0:
                sitting.kill_browser()
            if kill % 3 != 1:
                sitting.start_program()
            if kill % 3 != 0:
                sitting.start_browser()
        sitting.back()
    finally:
        sitting.close()
    Campaign(path).close()  # takes what the inbox has
    lines = {line["id"]: line for line in lines_of(path)}
    assert len(lines) == len(lines_of(path)), "an answer is there twice"
    assert sitting.taken <= lines.keys() <= sitting.sent.keys()
    said = ("row", "action", "who")
    assert all(line[name] == sitting.sent[one][name] for one, line in lines.items() for name in said)
    assert all(line["label"] == sitting.sent[one].get("label") for one, line in lines.items())
    assert len(sitting.taken) > 100
    assert in_scans > 5
    starts = np.round([np.median(sitting.start_s), max(sitting.start_s)], 2).tolist()
    told = f"{len(sitting.taken)} answers, {in_scans} kills in scans; CPU of a start in s, median and most: {starts}"
    print(told)  # noqa: T201 - figures, seen with `pytest -s`
