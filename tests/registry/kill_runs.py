"""A scheduled run, killed before every change that it makes on disk; what the next run makes of what is left.

Usage: kill_runs.py FOLDER first|second|new-job FIRST STRIDE. Prints how many changes an undisturbed run makes.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from changes_kit import in_child
from coremargin.registry.nightly_job import run_nightly_job
from coremargin.registry.registry import Registry
from night_kit import JOB, expected, job_in, put, taken
from registry_kit import check_whole

QUARANTINED = 11
OTHER_JOB = JOB.replace("[train]", '[train]\nloss = "hinge"')


def prepared(folder: Path, what: str) -> str:
    """What a run finds; the text of its job."""
    job_in(folder)
    put(folder, "a.csv", 40, 1)
    put(folder, "b.csv", 30, 2)
    if what != "first":
        assert in_child(lambda: run_nightly_job(job_in(folder))) == 0
        put(folder, "a.csv", 20, 3)
        put(folder, "c.csv", 25, 4)
    bad = folder / "inbox" / "bad.csv"
    bad.write_text("x,z,from,paid\n1,2,oops,yes\n")
    os.utime(bad, (1e9, 1e9))
    return OTHER_JOB if what == "new-job" else JOB


def answer(folder: Path) -> dict[str, Any]:
    """What came of all runs, apart from times and places."""
    registry = Registry(folder / "models")
    check_whole(registry)
    state = registry.state()
    champion = state.aliases["champion"].version
    record = registry.record(champion)
    # locks are freed by the kernel: the empty file of one that a kill left is taken again by the next claim
    left = [
        path
        for path in (folder / "inbox").rglob("*")
        if (path.is_file() and path.suffix != ".lock") or path.name == ".claimed"
    ]
    return {
        "rows": taken(folder), "champion": champion, "digest": record.store_digest, "status": record.status,
        "arrays": (registry.folder(champion) / "arrays.npz").read_bytes(),
        "labels": (folder / "labels.csv").read_bytes(),
        "files": sorted(str(path.relative_to(folder)) for path in left),
        "work": sorted({path.name for path in (folder / "models" / "work").iterdir()} - {"model"}),  # may be used again
        "registry": sorted(path.name for path in (folder / "models").iterdir()),
    }  # fmt: skip


def main() -> None:
    """Kill a run before each change, let the next one go on, and compare with one that nobody disturbed."""
    base, what, first, stride = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    calm = base / "calm"
    text = prepared(calm, what)
    start = base / "start"
    shutil.copytree(calm, start, symlinks=True)
    assert in_child(lambda: run_nightly_job(job_in(calm, text))) == QUARANTINED
    wanted, rows = answer(calm), [(40, 1), (30, 2)] + ([] if what == "first" else [(20, 3), (25, 4)])
    assert wanted["rows"] == expected(*rows)
    for number in range(first, 100_000, stride):
        folder = base / "folder" / "night"
        shutil.rmtree(folder.parent, ignore_errors=True)
        shutil.copytree(start, folder, symlinks=True)
        code = in_child(lambda: run_nightly_job(job_in(folder, text)), kill_before=number)  # noqa: B023 - called now
        assert code in (-9, QUARANTINED), f"change {number}: the run ended with {code}"
        after = in_child(lambda: run_nightly_job(job_in(folder, text)))  # noqa: B023
        assert after in (0, QUARANTINED), f"change {number}: the next run ended with {after}"
        found = answer(folder)
        differ = [name for name in wanted if found[name] != wanted[name]]
        assert not differ, (
            f"change {number}: {[(n, found[n], wanted[n]) for n in differ if n not in ('arrays', 'labels')]} {differ}"
        )
        assert in_child(lambda: run_nightly_job(job_in(folder, text))) == 0  # noqa: B023
        assert answer(folder) == wanted
        if code != -9:
            sys.stdout.write(f"{number - 1}\n")
            return


if __name__ == "__main__":
    main()
