"""A Grid Engine of one node on 127.0.0.1, from Debian's packages: sge_qmaster and sge_execd as processes of this test.

All it writes lies in one folder; it changes nothing of the cell that the packages set up.
"""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

from daemons_kit import LocalDaemons, absent, free_ports, path_of_daemons

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


class LocalSge(LocalDaemons):
    """Two slots in a queue ``main.q``."""

    name, file, queue = "Sge", "sge.toml", "main.q"

    @staticmethod
    def missing() -> str | None:
        """Why there can be no Grid Engine here; None where there can."""
        if names := absent(*COMMANDS):
            return f"no Grid Engine here ({names}): apt-get install gridengine-master gridengine-exec gridengine-client"
        return None if os.geteuid() == 0 else "sge_execd needs root"

    def __init__(self, folder: Path) -> None:
        ports = free_ports(2)
        super().__init__(folder, {
            "SGE_ROOT": str(folder), "SGE_CELL": "default", "SGE_ND": "1", "PATH": path_of_daemons(),
            "SGE_QMASTER_PORT": str(ports[0]), "SGE_EXECD_PORT": str(ports[1]),
        })  # fmt: skip

    def begin(self) -> None:
        """Set a cell up, start both daemons, and make the queue."""
        for name in (CELL, "spool", "qmaster", "execd"):
            (self.folder / name).mkdir(parents=True)
        for name in ("bin", "util", "utilbin"):
            (self.folder / name).symlink_to(Path("/var/lib/gridengine") / name)
        self._configure()
        self.start("sge_qmaster")
        self._wait_for("qconf", "-sconf")
        self.ask("qconf", "-as", "localhost")
        quick = {
            "schedule_interval": "0:0:1", "flush_submit_sec": 1, "flush_finish_sec": 1, "job_load_adjustments": "NONE",
        }  # fmt: skip
        self._set_up("-Msconf", _with(self.ask("qconf", "-ssconf"), quick))
        self._set_up("-Ap", ENVIRONMENT.lstrip())
        self.start("sge_execd")
        self._wait_for("qconf", "-se", "localhost")
        queue = {
            "qname": "main.q", "hostlist": "localhost", "slots": 2, "pe_list": "smp", "rerun": "TRUE",
            "load_thresholds": "NONE", "shell": "/bin/sh", "tmpdir": "/tmp",
        }  # fmt: skip
        self._set_up("-Aq", _with(self.ask("qconf", "-sq"), queue))

    def _wait_for(self, *words: str) -> None:
        self.wait_for(lambda: self.attempt(*words).returncode == 0)

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
        self.attempt("qdel", task)

    def wait_until_idle(self, within_s: float = 60.0) -> None:
        """Until nothing runs or waits."""
        self.wait_for(lambda: not self.ask("qstat"), within_s)

    def stop(self) -> None:
        """End all tasks, where the daemons still answer."""
        self.attempt("qdel", "-f", "-u", "*")


def _with(text: str, values: dict[str, object]) -> str:
    """A table of names and values, some of them replaced."""
    for name, value in values.items():
        text, found = re.subn(rf"^{name}\s.*$", f"{name} {value}", text, flags=re.MULTILINE)
        assert found == 1, (name, text)
    return text
