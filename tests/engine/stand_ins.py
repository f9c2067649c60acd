"""Stand-ins for the commands of batch systems, ssh and kubectl, which start real workers on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coremargin.engine.clusters.specs import Batch, HtCondor, JobQueue, Lsf, Pbs, Sge, Slurm
from coremargin.engine.plan import plan_blocks
from coremargin.engine.scan import run_scan
from scan_fakes import FakeHandle, SumProbe, expected

if TYPE_CHECKING:
    from coremargin.engine.protocols import Executor

Command = Callable[[str, str], Path]  #: puts a text on PATH as a command of this name
BatchSystem = Callable[[type[Batch]], tuple[Path, Path]]  #: puts its commands to submit and to cancel on PATH

#: The head of each: it notes its arguments beside itself.
TEXT = """#!{python}
import pathlib, re, subprocess, sys
log = pathlib.Path(__file__ + ".log")
log.open("a").write(" ".join(sys.argv[1:]) + chr(10))
"""
#: Runs the script, which comes on standard input, and answers as the batch system would. The job's number is that of
#: its process.
SUBMIT = (
    TEXT
    + """
script = sys.stdin.read()
log.open("a").write(script)
if "condor" in __file__:
    quoted = re.search('^Arguments = "-c (.*)"$', script, re.M)[1].replace('""', '"')
    script = quoted[1:-1].replace("''", "'")
quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
job = subprocess.Popen(["sh", "-c", script], start_new_session=True, **quiet)
print({answer})
"""
)
#: Ends the jobs, gently first, as they do: all of them, and fails in the end where one had ended already.
CANCEL = (
    TEXT
    + """
import os, signal
gone = []
words = sys.argv[3:] if sys.argv[1] == "-M" else sys.argv[1:]  # one cluster of SLURM's
for word in words:
    try:
        os.killpg(int(word.split(".")[0]), signal.SIGTERM)
    except ProcessLookupError:
        gone.append(word)
sys.exit(f"{gone_words}: {' '.join(gone)}" if gone else 0)
"""
)
#: What each says then.
GONE = {
    Slurm: "scancel: error: Invalid job id specified",
    Pbs: "qdel: Job has finished",
    Lsf: "Job has already finished",
    Sge: "denied: job does not exist",
    HtCondor: "Couldn't find/remove all jobs in cluster",
}
BATCH = {
    Slurm: ("sbatch", "f'{job.pid};cluster'", "scancel"),
    Pbs: ("qsub", "f'{job.pid}.server'", "qdel"),
    Lsf: ("bsub", "f'Job <{job.pid}> is submitted to queue <normal>.'", "bkill"),
    Sge: ("qsub", "f'{job.pid}.1-1:1'", "qdel"),
    HtCondor: ("condor_submit", "f'Submitting job(s).{chr(10)}1 job(s) submitted to cluster {job.pid}.'", "condor_rm"),
}


def noted(file: Path) -> list[str]:
    """What a stand-in noted: its arguments, a line for each time that it ran."""
    note = Path(f"{file}.log")
    return note.read_text().splitlines() if note.exists() else []


def here() -> dict[str, str]:
    """The environment in which a worker finds coremargin and the fakes."""
    return {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def jobs_here(kind: type[JobQueue], **options: Any) -> JobQueue:
    """Workers on this machine, as jobs that dask-jobqueue submits."""
    its = {"host": "127.0.0.1", "python": sys.executable, "environment": here()} | options
    return kind(**its, insecure=its.get("tls") is None)


def scans(executor: Executor) -> None:
    """The executor gives the right answer."""
    source = FakeHandle().open_source()
    blocks = plan_blocks(source)
    assert run_scan(executor, source, SumProbe(), blocks).bits() == expected(source, SumProbe(), blocks).bits()
