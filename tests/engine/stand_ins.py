"""Stand-ins for the commands of batch systems, ssh and kubectl, which start real workers on this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from coremargin.engine.clusters.specs import Batch, HtCondor, Lsf, Pbs, Sge, Slurm
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
#: Runs the script, which is in a file or comes on standard input, and answers as the batch system would. The job's
#: number is that of its process.
SUBMIT = (
    TEXT
    + """
files = [word for word in sys.argv[1:] if pathlib.Path(word).is_file()]
script = pathlib.Path(files[0]).read_text() if files else sys.stdin.read()
log.open("a").write(script)
if "condor" in __file__:
    quoted = re.search('^Arguments = "-c (.*)"$', script, re.M)[1].replace('""', '"')
    script = quoted[1:-1].replace("''", "'")
quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
job = subprocess.Popen(["sh", "-c", script], start_new_session=True, **quiet)
print({answer})
"""
)
CANCEL = TEXT + "import os, signal; os.killpg(int(sys.argv[1].split('.')[0]), signal.SIGTERM)"  # as they do first
BATCH = {
    Slurm: ("sbatch", "f'{job.pid};cluster'", "scancel"),
    Pbs: ("qsub", "f'{job.pid}.server'", "qdel"),
    Lsf: ("bsub", "f'Job <{job.pid}> is submitted to queue <normal>.'", "bkill"),
    Sge: ("qsub", "f'{job.pid}.1-1:1'", "qdel"),
    HtCondor: ("condor_submit", "f'Submitting job(s).{chr(10)}1 job(s) submitted to cluster {job.pid}.'", "condor_rm"),
}


def here() -> dict[str, str]:
    """The environment in which a worker finds coremargin and the fakes."""
    return {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def scans(executor: Executor) -> None:
    """The executor gives the right answer."""
    source = FakeHandle().open_source()
    blocks = plan_blocks(source)
    assert run_scan(executor, source, SumProbe(), blocks).bits() == expected(source, SumProbe(), blocks).bits()
