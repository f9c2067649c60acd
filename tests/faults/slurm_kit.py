"""A SLURM of one node on 127.0.0.1, from Debian's packages: slurmctld and slurmd as processes of this test.

All it writes lies in one folder; it needs no munge, no systemd, no cgroups and no configuration of the machine.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import psutil

from daemons_kit import LocalDaemons, absent, free_ports, path_of_daemons

COMMANDS = ("slurmctld", "slurmd", "sbatch", "scancel", "squeue", "sinfo", "scontrol")
CONFIGURATION = """
ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=1,batch_sched_delay=0,sched_min_interval=0
ReturnToService=2
KillWait=5
MessageTimeout=30
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=8000 State=UNKNOWN
PartitionName=main Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


STATES = {"running": "RUNNING", "leaving": "RUNNING,COMPLETING", "waiting": "PENDING", "all": "PENDING,RUNNING"}


class LocalSlurm(LocalDaemons):
    """Two cores in a partition ``main``."""

    name, file, queue = "Slurm", "slurm.toml", "main"

    @staticmethod
    def missing() -> str | None:
        """Why there can be no SLURM here; None where there can."""
        if names := absent(*COMMANDS):
            return f"no SLURM here ({names}): apt-get install slurmctld slurmd slurm-client"
        return None if os.geteuid() == 0 else "slurmd needs root"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": path_of_daemons()})

    def begin(self) -> None:
        """Start both daemons, and wait for the node."""
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        host = socket.gethostname().partition(".")[0]
        text = CONFIGURATION.format(host=host, folder=self.folder, ports=free_ports(2))
        (self.folder / "slurm.conf").write_text(text)
        for name in ("slurmctld", "slurmd"):
            self.start(name, "-D", "-f", self.environment["SLURM_CONF"])
        self.wait_for(lambda: "idle" in self._nodes())

    def tasks(self, states: str = "running") -> list[str]:
        """Array tasks in these states, as scancel takes them."""
        return self.ask("squeue", "-h", "-r", "-t", STATES[states], "-o", "%i").split()

    def fill(self) -> str:
        """Somebody else's job, for all cores of the node."""
        words = ["sbatch", "--parsable", "--cpus-per-task=2", "--mem=100M", "--output=/dev/null"]
        return self.ask(*words, "--wrap=exec sleep 300").strip()

    def cancel(self, task: str) -> None:
        """End an array task, as a person would."""
        self.ask("scancel", task)

    def wait_until_idle(self, within_s: float = 60.0) -> None:
        """Until nothing runs or waits: the node is what it was."""
        self.wait_for(lambda: not self.ask("squeue", "-h") and self._nodes().strip() == "idle", within_s)

    def _nodes(self) -> str:
        return self.attempt("sinfo", "-h", "-o", "%T").stdout

    def stop(self) -> None:
        """End all tasks, where the daemons still answer."""
        if self.attempt("scancel", "-u", "root").returncode == 0:
            self.wait_for(lambda: not self.attempt("squeue", "-h").stdout, 20)

    def left(self) -> list[psutil.Process]:
        """A step's keeper is no child of slurmd's for long; it is known by the log that it writes."""
        return [process for process in psutil.process_iter() if self._ours(process)]

    def _ours(self, process: psutil.Process) -> bool:
        try:
            files = process.open_files() if process.name().startswith("slurmstepd") else []
            return any(Path(file.path).is_relative_to(self.folder) for file in files)
        except psutil.Error:
            return False
