"""Nightly jobs that are killed at random moments, and started again until one ends by itself.

Usage: kill_nights.py FOLDER KILLS SEED. Prints how many nights there were.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

from coremargin.errors import FilesQuarantined, GateRefused
from coremargin.registry.nightly_job import run_nightly_job
from coremargin.registry.registry import Registry
from night_kit import expected, job_in, put, taken
from registry_kit import check_whole

ENDED = (0, GateRefused.exit_code, FilesQuarantined.exit_code)  #: a run that ended by itself


def night(folder: Path) -> int:
    """A run in a process of its own."""
    child = os.fork()
    if child == 0:
        try:
            run_nightly_job(job_in(folder))
        except (GateRefused, FilesQuarantined) as error:
            os._exit(error.exit_code)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is to be seen
            sys.stderr.write(f"{error!r}\n")
            os._exit(1)
        os._exit(0)
    return child


def main() -> None:
    """Kill nights, and look at what they left."""
    folder, kills, chance = Path(sys.argv[1]), int(sys.argv[2]), random.Random(int(sys.argv[3]))  # noqa: S311
    job_in(folder)
    killed, nights, files = 0, 0, list[tuple[int, int]]()
    usual = 1.0
    while killed < kills:
        nights += 1
        for part in "ab":
            size = chance.randrange(20, 60)
            files.append((size, 2 * nights + (part == "b")))
            put(folder, f"day{nights}{part}.csv", *files[-1])
        (folder / "inbox" / f"bad{nights}.csv").write_text(f"x,z,from,paid\n1,{nights},oops,yes\n")
        os.utime(folder / "inbox" / f"bad{nights}.csv", (1e9, 1e9))
        while True:
            started, child = time.monotonic(), night(folder)
            time.sleep(chance.random() * usual)
            os.kill(child, signal.SIGKILL)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if (folder / "models" / "registry.json").exists():
                check_whole(Registry(folder / "models"))
            if status in ENDED or chance.random() < 0.3:
                break
            assert status == -signal.SIGKILL, status
            killed += 1
        started, child = time.monotonic(), night(folder)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status in ENDED, status
        usual = 0.9 * usual + 0.1 * 1.2 * (time.monotonic() - started)
        assert taken(folder) == expected(*files), "a row is lost, or there twice"
        state = Registry(folder / "models").state()
        check_whole(Registry(folder / "models"))
        assert state.decision(state.numbers[-1]) is not None
        assert not [path.name for path in (folder / "inbox").iterdir() if path.is_file()]
        assert (folder / "inbox" / "quarantine" / f"bad{nights}.csv.why.txt").exists()
    sys.stdout.write(f"{nights}\n")


if __name__ == "__main__":
    main()
