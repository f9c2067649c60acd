"""Run campaigns and kill them at moments drawn by lot; go on, and compare with one that nobody killed.

Usage: kill_campaign.py FOLDER MOMENTS SEED. A process dies by SIGKILL after some milliseconds, before some step of the
file system, or in the middle of a line of its log. Prints how many were killed, how many answers their campaigns had,
and how many lines were cut in half.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from campaign_kit import CLASSES, rows_and_labels, unlabelled
from coremargin.active import Campaign
from coremargin.active import log as log_module

X, LABELS = rows_and_labels(300, 3)
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


def play(path: Path, pipe: int, how: str, when: int) -> None:
    """A process of a campaign; each row goes to the pipe when its answer was taken."""
    if how == "step":
        fate = [when]
        for name in STEPS:
            setattr(os, name, before(getattr(os, name), fate))
    campaign = Campaign(path, cluster="threads")
    tell, told = campaign.tell, 0

    def counted(ids: Any, labels: Any, **options: Any) -> int:
        nonlocal told
        rows = list(ids)
        told += 1
        if how == "half" and told == when:
            log_module.Log._write = halved  # type: ignore[method-assign]
        found = tell(rows, labels, **options)
        os.write(pipe, b"".join(f"{row}\n".encode() for row in rows))
        return found

    campaign.tell = counted  # type: ignore[method-assign]
    campaign.run(lambda rows: {row: LABELS[row] for row in rows})
    campaign.close()
    os.write(pipe, b"end\n")


def attempt(path: Path, rng: np.random.Generator, *, harm: bool) -> tuple[set[int], bool]:
    """Rows whose answers were taken by a process, and whether it came to its end."""
    how = str(rng.choice(["time", "step", "half"])) if harm else "never"
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
        time.sleep(float(rng.uniform(0.0, 0.4)))
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


def main() -> None:
    """Kill as often as was asked for; each campaign goes on until it is certified."""
    folder, moments, rng = Path(sys.argv[1]), int(sys.argv[2]), np.random.default_rng(int(sys.argv[3]))
    store = unlabelled(folder / "rows.zarr", X)
    asked = {"classes": CLASSES, "error": 0.1, "confidence": 0.9}
    Campaign.create(folder / "alone", store, **asked).close()
    assert attempt(folder / "alone", rng, harm=False)[1]
    expected = claims_of(folder / "alone")
    killed = answers = number = halves = 0
    while killed < moments:
        path, number, taken, ended = folder / f"c{number}", number + 1, set[int](), False
        Campaign.create(path, store, **asked).close()
        while not ended:
            rows, ended = attempt(path, rng, harm=killed < moments)
            killed += not ended
            assert not rows & taken, "asked twice"
            taken |= rows
            data = (path / "answers.jsonl").read_bytes()
            halves += not data.endswith(b"\n") and bool(data)
            logged = [json.loads(line)["row"] for line in data.split(b"\n")[:-1]]
            assert len(set(logged)) == len(logged), "answered twice"
            assert taken <= set(logged), "an answer is lost"
            taken |= set(logged)  # the last may have been taken without anybody hearing of it
        answers += len(logged)
        assert claims_of(path) == expected, "another model"
    sys.stdout.write(f"{killed} {answers} {halves}\n")


if __name__ == "__main__":
    main()
