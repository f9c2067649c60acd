"""A Grid Engine of one node on 127.0.0.1, from Debian's packages: sge_qmaster and sge_execd as processes of this test.

All it writes lies in one folder; it changes nothing of the cell that the packages set up.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

import psutil

from cluster_kit import absent, dies_with_us, free_ports, path_of_daemons

COMMANDS = ("sge_qmaster", "sge_execd", "qsub", "qdel", "qstat", "qconf")
TOOLS = Path("/usr/lib/gridengine")  #: what sets a cell up
SHARED = Path("/usr/share/gridengine")
CELL = "default/common"
ENVIRONMENT = """
pe_name            smp
slots              2
user_lists         NONE
xuser_lists        NONE
start_proc_args    /bin/true
stop_proc_args     /bin/true
allocation_rule    $pe_slots
control_slaves     FALSE
job_is_first_task  TRUE
urgency_slots      min
accounting_summary FALSE
qsort_args         NONE
"""


STATES = {"running": "r", "leaving": "r", "waiting": "p", "all": "pr"}


class LocalSge:
    """Two slots in a queue ``main.q``; ``environment`` is what its commands need."""

    name, file, queue = "Sge", "sge.toml", "main.q"

    @staticmethod
    def missing() -> str | None:
        """Why there can be no Grid Engine here; None where there can."""
        if names := absent(*COMMANDS):
            return f"no Grid Engine here ({names}): apt-get install gridengine-master gridengine-exec gridengine-client"
        return None if os.geteuid() == 0 else "sge_execd needs root"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in (CELL, "spool", "qmaster", "execd"):
            (folder / name).mkdir(parents=True)
        for name in ("bin", "util", "utilbin"):
            (folder / name).symlink_to(Path("/var/lib/gridengine") / name)
        ports = free_ports(2)
        self.environment = {
            "SGE_ROOT": str(folder), "SGE_CELL": "default", "SGE_ND": "1", "PATH": path_of_daemons(),
            "SGE_QMASTER_PORT": str(ports[0]), "SGE_EXECD_PORT": str(ports[1]),
        }  # fmt: skip
        self._configure()
        self._daemons = [self._start("sge_qmaster")]

    def _configure(self) -> None:
        common, spool = self.folder / CELL, self.folder / "spool"
        (common / "act_qmaster").write_text("localhost\n")
        (common / "host_aliases").write_text(f"localhost {socket.gethostname()}\n")
        bootstrap = {"admin_user": "none", "spooling_params": spool, "qmaster_spool_dir": self.folder / "qmaster"}
        (common / "bootstrap").write_text(_with((SHARED / "default-bootstrap").read_text(), bootstrap))
        general = {
            "execd_spool_dir": self.folder / "execd", "min_uid": 0, "min_gid": 0, "mailer": "/bin/true",
            "load_report_time": "00:00:01",
        }  # fmt: skip
        configuration = self.folder / "configuration"
        configuration.write_text(_with((SHARED / "default-configuration").read_text(), general))
        self.ask(str(TOOLS / "spoolinit"), "berkeleydb", "libspoolb", str(spool), "init")
        resources = SHARED / "util" / "resources"
        for what, value in (
            ("configuration", configuration), ("complexes", resources / "centry"),
            ("usersets", resources / "usersets"), ("managers", "root"),
        ):  # fmt: skip
            self.ask(str(TOOLS / "spooldefaults"), what, str(value))

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        output = (self.folder / f"{name}.log").open("wb")
        with output:
            return subprocess.Popen(
                [*dies_with_us(), name], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                env=os.environ | self.environment, start_new_session=True,
            )  # fmt: skip

    def _try(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, env=os.environ | self.environment, capture_output=True, text=True, timeout=60, check=False
        )

    def ask(self, *words: str) -> str:
        """What a command of Grid Engine answers."""
        done = self._try(*words)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def _wait_for(self, *words: str) -> None:
        deadline = time.monotonic() + 60
        while self._try(*words).returncode != 0:
            assert time.monotonic() < deadline, self.log()
            assert all(daemon.poll() is None for daemon in self._daemons), self.log()
            time.sleep(0.2)

    def _set_up(self, option: str, text: str) -> None:
        file = self.folder / f"set{option}"
        file.write_text(text)
        self.ask("qconf", option, str(file))

    def tasks(self, states: str = "running") -> list[str]:
        """Array tasks in these states, as qdel takes them."""
        rows = [line.split() for line in self.ask("qstat", "-g", "d", "-s", STATES[states]).splitlines()[2:]]
        return [f"{row[0]}.{row[-1]}" for row in rows]

    def fill(self) -> str:
        """Somebody else's job, for all slots of the node."""
        words = ["qsub", "-terse", "-t", "1-1", "-pe", "smp", "2", "-j", "y", "-o", "/dev/null", "-b", "y"]
        return f"{self.ask(*words, 'sleep', '300').partition('.')[0]}.1"

    def cancel(self, task: str) -> None:
        """End an array task, as a person would; it may have ended by itself."""
        self._try("qdel", task)

    def wait_until_idle(self, within_s: float = 60.0) -> None:
        """Until nothing runs or waits."""
        deadline = time.monotonic() + within_s
        while said := self.ask("qstat"):
            assert time.monotonic() < deadline, said
            time.sleep(0.2)

    def __enter__(self) -> Self:
        try:
            self._wait_for("qconf", "-sconf")
            self.ask("qconf", "-as", "localhost")
            quick = {
                "schedule_interval": "0:0:1",
                "flush_submit_sec": 1,
                "flush_finish_sec": 1,
                "job_load_adjustments": "NONE",
            }
            self._set_up("-Msconf", _with(self.ask("qconf", "-ssconf"), quick))
            self._set_up("-Ap", ENVIRONMENT.lstrip())
            self._daemons.append(self._start("sge_execd"))
            self._wait_for("qconf", "-se", "localhost")
            queue = {
                "qname": "main.q",
                "hostlist": "localhost",
                "slots": 2,
                "pe_list": "smp",
                "rerun": "TRUE",
                "load_thresholds": "NONE",
                "shell": "/bin/sh",
                "tmpdir": "/tmp",
            }
            self._set_up("-Aq", _with(self.ask("qconf", "-sq"), queue))
        except BaseException:
            self.__exit__()
            raise
        return self

    def log(self) -> str:
        """The end of what the daemons said."""
        files = [*sorted(self.folder.glob("*.log")), *sorted(self.folder.glob("*/messages"))]
        return "\n".join(file.read_text(errors="replace")[-2000:] for file in files)

    def __exit__(self, *_: object) -> None:
        self._try("qdel", "-f", "-u", "*")
        left = [process for daemon in self._daemons for process in psutil.Process(daemon.pid).children(recursive=True)]
        for daemon in self._daemons[::-1]:
            daemon.terminate()
            try:
                daemon.wait(20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        for process in psutil.wait_procs(left, timeout=10)[1]:
            process.kill()


def _with(text: str, values: dict[str, object]) -> str:
    """A table of names and values, some of them replaced."""
    for name, value in values.items():
        text, found = re.subn(rf"^{name}\s.*$", f"{name} {value}", text, flags=re.MULTILINE)
        assert found == 1, (name, text)
    return text
