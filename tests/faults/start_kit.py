"""A cluster whose start cannot succeed, in a process of its own.

Usage: start_kit.py KIND HOW TIMEOUT_S [COMMAND ...]. KIND is "embedded", "ssh" or "slurm"; HOW is "never" (embedded
workers are waited for for ever), "killed-N" (the first N processes of embedded workers are killed) or a number of open
files, of which the check beforehand does not know, or does with a "+" behind it. Prints "starting" when it does, then
what became of it and which processes are left; with a COMMAND, that of the command line is run instead.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
import threading
import time
from contextlib import suppress

import psutil
from distributed import Nanny

from coremargin.__main__ import main as command
from coremargin.engine.clusters import embedded, launch
from coremargin.engine.clusters.connect import connect
from coremargin.engine.clusters.specs import ClusterSpec, Embedded, Slurm, Ssh
from coremargin.engine.clusters.worker_command import ENVIRONMENT
from coremargin.errors import RunError
from coremargin.spec import Seconds


async def never(_: object) -> None:
    """A worker process that does not come."""
    print("starting", flush=True)  # noqa: T201 - a script
    await asyncio.sleep(3600)


def kill_workers(count: int) -> None:
    """Kill so many processes of workers, each as soon as it is there."""
    killed = set[int]()
    while len(killed) < count:
        with suppress(psutil.Error):
            for child in psutil.Process().children(recursive=True):
                if child.pid not in killed and len(killed) < count and "spawn_main" in " ".join(child.cmdline()):
                    child.kill()
                    killed.add(child.pid)
        time.sleep(0.01)


def spoil(how: str) -> None:
    """Let no start of this process succeed."""
    if how == "never":
        Nanny.instantiate = never
        return
    if how.startswith("killed-"):
        threading.Thread(target=kill_workers, args=(int(how.removeprefix("killed-")),), daemon=True).start()
        return
    if not how.endswith("+"):
        embedded.need_files = launch.need_files = lambda *_: None  # type: ignore[assignment]
    resource.setrlimit(resource.RLIMIT_NOFILE, (int(how.strip("+")), resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def cluster(kind: str, timeout_s: float) -> ClusterSpec:
    """Two workers with a thread each."""
    if kind == "embedded":
        return Embedded(workers=2, threads=1, start_timeout=Seconds(timeout_s))
    options = {"host": "127.0.0.1", "insecure": True, "python": sys.executable, "start_timeout": Seconds(timeout_s)}
    options["environment"] = {"PYTHONPATH": os.environ["PYTHONPATH"]}
    return Ssh(hosts=("one", "two"), **options) if kind == "ssh" else Slurm(workers=2, threads=2, **options)


def ours() -> dict[str, str | None]:
    """What a start changes for its workers."""
    return {name: os.environ.get(name) for name in ENVIRONMENT}


def main() -> None:
    """Start, and tell."""
    kind, how, timeout_s, *words = sys.argv[1:]
    spoil(how)
    if words:
        sys.argv[1:] = words
        command()
    before = ours()
    try:
        connect(cluster(kind, float(timeout_s))).close()
        said = "it started"
    except RunError as error:
        said = f"{type(error).__name__}: {error}"
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    left = [child for child in psutil.Process().children(recursive=True) if "tracker" not in " ".join(child.cmdline())]
    psutil.wait_procs(left, timeout=10)
    print(said, [child.pid for child in left if child.is_running()], ours() == before, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
