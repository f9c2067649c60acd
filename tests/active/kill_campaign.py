"""Run campaigns and kill them at moments drawn by lot; go on, and compare with one that nobody killed.

Usage: kill_campaign.py FOLDER MOMENTS SEED KIND, of "two" or "three" classes, or "noisy", with a loss and rows that
no annotator can label, or "mapped", with landmarks of scaled rows that no hyperplane tells apart. A process dies by
SIGKILL after some milliseconds, before some step of the file system, or in the middle of a line of its log, that of
growth too: rows are appended to its store after the fifth answer, and once more when it is certified. Prints how many
were killed, how many answers their campaigns had, and how many lines were cut in half, in all and of growth.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from campaign_kit import CLASSES, noisy_labels, rings, rows_and_labels, three_classes, unlabelled
from coremargin.active import Campaign
from coremargin.active import log as log_module
from coremargin.data.store import Store
from coremargin.data.writer import StoreWriter

KIND = sys.argv[4]
X, LABELS = three_classes(400) if KIND == "three" else rows_and_labels(400, 3)
ASKED: dict[str, Any] = {"classes": CLASSES, "error": 0.1, "confidence": 0.9, "memory": 4000}  # some scans
if KIND == "three":
    ASKED["classes"] = "abc"
if KIND == "mapped":
    X, LABELS = rings(400)
    X = X * np.linspace(0.8, 1.2, 400, dtype=np.float32)[:, None]  # rows that come later are longer: scaled otherwise
    ASKED |= {"map": "nystroem", "components": 12, "scaling": "standard"}
if KIND == "noisy":
    LABELS = noisy_labels(LABELS, 0.04)
    ASKED |= {"loss": "hinge", "C": 1.0, "error": 0.3, "trial": 60}
STEPS_OF_ROWS = (240, 320, 400)  #: rows that its store has at first, after the fifth answer, and in the end
STEPS = ("replace", "rename", "fsync", "mkdir", "unlink", "rmdir")


def died(*_: object) -> None:
    """The end of this process."""
    os.kill(os.getpid(), signal.SIGKILL)


def before(real: Callable[..., Any], fate: list[int]) -> Callable[..., Any]:
    """A step of the file system, which may be the last thing that never happens."""

    def call(*args: Any, **options: Any) -> Any:
        fate[0] -= 1
        if fate[0] == 0:
            died()
        return real(*args, **options)

    return call


def halved(self: Any, data: bytes) -> None:
    """Half a line, and no more."""
    with self._path.open("ab", buffering=0) as file:
        file.write(data[: len(data) // 2])
    died()


def more(store: Path, stop: int) -> None:
    """Append rows up to that number, where they are not there yet."""
    if (rows := Store.open(store).rows) < stop:
        with StoreWriter.append(store) as writer:
            writer.write(X[rows:stop], None, None, origin="more")


def grow_by_then(campaign: Campaign) -> None:
    """The first rows that are appended, after the fifth answer."""
    if campaign.status["labels"] >= 5:
        more(campaign.store.path, STEPS_OF_ROWS[1])


def known(campaign: Campaign, rows: Any) -> dict[int, str]:
    """What somebody says of rows: labels, or of some that nobody can tell."""
    dark = [row for row in rows if KIND == "noisy" and row % 13 == 0]
    for row in dark:
        campaign.skip(row, unsure=True)
    return {row: LABELS[row] for row in rows if row not in dark}


def play(path: Path, pipe: int, how: str, when: int) -> None:
    """A process of a campaign; each row goes to the pipe when its answer was taken."""
    if how == "step":
        fate = [when]
        for name in STEPS:
            setattr(os, name, before(getattr(os, name), fate))
    if how == "growth":
        append = log_module.Log.append

        def appended(self: Any, entries: Any) -> None:
            lines = list(entries)
            if lines[0]["action"] == "grow":
                log_module.Log._write = halved  # type: ignore[method-assign]
            append(self, lines)

        log_module.Log.append = appended  # type: ignore[method-assign]
    campaign = Campaign(path, cluster="threads")
    tell, told = campaign.tell, 0

    def counted(ids: Any, labels: Any, **options: Any) -> int:
        nonlocal told
        rows = list(ids)
        told += 1
        if how == "half" and told == when:
            log_module.Log._write = halved  # type: ignore[method-assign]
        found = tell(rows, labels, **options)
        grow_by_then(campaign)
        os.write(pipe, b"".join(f"{row}\n".encode() for row in rows))
        return found

    campaign.tell = counted  # type: ignore[method-assign]
    grow_by_then(campaign)
    run = campaign.run(lambda rows: known(campaign, rows))
    assert run["status"] == "certified"
    more(campaign.store.path, STEPS_OF_ROWS[2])
    campaign.grow()
    campaign.run(lambda rows: known(campaign, rows))
    campaign.close()
    os.write(pipe, b"end\n")


def attempt(path: Path, rng: np.random.Generator, *, harm: bool) -> tuple[set[int], bool]:
    """Rows whose answers were taken by a process, and whether it came to its end."""
    how = str(rng.choice(["time", "step", "half", "growth"])) if harm else "never"
    when = int(rng.integers(1, {"step": 40, "half": 8}.get(how, 2)))
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        code = 1
        try:
            play(path, writer, how, when)
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    if how == "time":
        time.sleep(float(rng.uniform(0.0, 0.6)))
        os.kill(child, signal.SIGKILL)
    with open(reader, "rb") as file:
        words = file.read().decode().split("\n")[:-1]
    status = os.waitpid(child, 0)[1]
    assert status == 0 or os.WIFSIGNALED(status), f"{how} {when}: exit code {os.waitstatus_to_exitcode(status)}"
    return {int(word) for word in words if word != "end"}, "end" in words


def claims_of(path: Path) -> tuple[dict[str, Any], bytes]:
    """The model of a campaign but for the times in its log, and its arrays."""
    record = json.loads((path / "model" / "model.json").read_text())
    return {key: value for key, value in record.items() if key != "log"}, (path / "model" / "arrays.npz").read_bytes()


def growths(path: Path) -> list[tuple[int, int]]:
    """Rows that a campaign has grown to, and how many lines of its log came before."""
    lines = [json.loads(line) for line in (path / "answers.jsonl").read_text().splitlines()]
    return [(line["rows"], line["number"]) for line in lines if line["action"] == "grow"]


def main() -> None:
    """Kill as often as was asked for; each campaign goes on until it is certified."""
    folder, moments, rng = Path(sys.argv[1]), int(sys.argv[2]), np.random.default_rng(int(sys.argv[3]))
    store = unlabelled(folder / "rows.zarr", X[: STEPS_OF_ROWS[0]])

    def begun(name: str) -> Path:
        """A campaign about a store of its own."""
        own = Path(shutil.copytree(store, folder / f"{name}.zarr"))
        Campaign.create(folder / name, own, **ASKED).close()
        return folder / name

    assert attempt(begun("alone"), rng, harm=False)[1]
    expected, steps = claims_of(folder / "alone"), growths(folder / "alone")
    assert [rows for rows, _ in steps] == list(STEPS_OF_ROWS[1:])
    killed = answers = number = halves = grown = 0
    while killed < moments:
        path, number, taken, ended = begun(f"c{number}"), number + 1, set[int](), False
        while not ended:
            rows, ended = attempt(path, rng, harm=killed < moments)
            killed += not ended
            assert not rows & taken, "asked twice"
            taken |= rows
            data = (path / "answers.jsonl").read_bytes()
            half = data.rpartition(b"\n")[2]
            halves, grown = halves + bool(half), grown + (b'"grow"' in half)
            logged = [entry["row"] for entry in map(json.loads, data.split(b"\n")[:-1]) if "row" in entry]
            assert len(set(logged)) == len(logged), "answered twice"
            assert taken <= set(logged), "an answer is lost"
            taken |= set(logged)  # the last may have been taken without anybody hearing of it
        answers += len(logged)
        assert claims_of(path) == expected, "another model"
        assert growths(path) == steps, "grown otherwise"
        shutil.rmtree(path)
        shutil.rmtree(folder / f"{path.name}.zarr")
    sys.stdout.write(f"{killed} {answers} {halves} {grown}\n")


if __name__ == "__main__":
    main()
