"""A SLURM of one node on 127.0.0.1, from Debian's packages: slurmctld and slurmd as processes of this test.

All it writes lies in one folder; it needs no munge, no systemd, no cgroups and no configuration of the machine.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

import psutil

from cluster_kit import absent, dies_with_us, free_ports, path_of_daemons

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


class LocalSlurm:
    """Two cores in a partition ``main``; ``environment`` is what its commands need."""

    name, file, queue = "Slurm", "slurm.toml", "main"

    @staticmethod
    def missing() -> str | None:
        """Why there can be no SLURM here; None where there can."""
        if names := absent(*COMMANDS):
            return f"no SLURM here ({names}): apt-get install slurmctld slurmd slurm-client"
        return None if os.geteuid() == 0 else "slurmd needs root"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "state").mkdir()
        (folder / "spool").mkdir()
        file = folder / "slurm.conf"
        host = socket.gethostname().partition(".")[0]
        file.write_text(CONFIGURATION.format(host=host, folder=folder, ports=free_ports(2)))
        self.environment = {"SLURM_CONF": str(file), "PATH": path_of_daemons()}
        self._daemons = [self._start([name, "-D", "-f", str(file)]) for name in ("slurmctld", "slurmd")]

    def _start(self, words: list[str]) -> subprocess.Popen[bytes]:
        output = (self.folder / f"{words[0]}.out").open("wb")
        with output:
            return subprocess.Popen(
                [*dies_with_us(), *words], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env=os.environ | self.environment, start_new_session=True,
            )  # fmt: skip

    def ask(self, *words: str) -> str:
        """What a command of SLURM answers."""
        done = subprocess.run(
            words, env=os.environ | self.environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, (words, done.stderr)
        return done.stdout

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
        deadline = time.monotonic() + within_s
        while self.ask("squeue", "-h") or self.ask("sinfo", "-h", "-o", "%T").strip() != "idle":
            assert time.monotonic() < deadline, self.ask("squeue") + self.ask("sinfo")
            time.sleep(0.2)

    def __enter__(self) -> Self:
        try:
            deadline = time.monotonic() + 60
            while "idle" not in self._state():
                assert time.monotonic() < deadline, self.log()
                assert all(daemon.poll() is None for daemon in self._daemons), self.log()
                time.sleep(0.2)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _state(self) -> str:
        words = ["sinfo", "-h", "-o", "%T"]
        return subprocess.run(
            words, env=os.environ | self.environment, capture_output=True, text=True, check=False
        ).stdout

    def log(self) -> str:
        """The end of what the daemons said."""
        texts = [file.read_text(errors="replace")[-2000:] for file in sorted(self.folder.glob("*.log"))]
        return "\n".join(texts)

    def __exit__(self, *_: object) -> None:
        if self._state():
            subprocess.run(["scancel", "-u", "root"], env=os.environ | self.environment, check=False)
            deadline = time.monotonic() + 20
            while self.ask("squeue", "-h") and time.monotonic() < deadline:
                time.sleep(0.2)
        # a step's keeper is no child of slurmd's for long; it is known by the log that it writes
        left = [process for process in psutil.process_iter() if self._ours(process)]
        for daemon in self._daemons[::-1]:
            daemon.terminate()
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        for process in psutil.wait_procs(left, timeout=10)[1]:
            process.kill()

    def _ours(self, process: psutil.Process) -> bool:
        try:
            files = process.open_files() if process.name().startswith("slurmstepd") else []
            return any(Path(file.path).is_relative_to(self.folder) for file in files)
        except psutil.Error:
            return False
