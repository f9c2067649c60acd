"""Workers on other hosts through the ``ssh`` command: started, stopped, and started again when none is left.

It is not left to distributed's SSHCluster, which runs through asyncssh: the end of the command ``ssh`` and its last
line are known at once, and it can be started again. tests/faults/test_ssh.py runs it on a real server.
"""

from __future__ import annotations

import logging
import shlex
import time
from typing import TYPE_CHECKING

from coremargin.engine.clusters.processes import BackgroundProcess
from coremargin.engine.clusters.worker_command import PLACEHOLDER, body
from coremargin.errors import RunError

if TYPE_CHECKING:
    from coremargin.engine.clusters.specs import Ssh

log = logging.getLogger(__name__)

_LEAVE_S = 5.0  # for workers that were asked to leave, and their ssh


def ssh_commands(ssh: Ssh, scheduler: str = PLACEHOLDER) -> list[list[str]]:
    """One ssh command, as words, per host."""
    line = "; ".join(body(ssh, scheduler))
    return [["ssh", "-o", "BatchMode=yes", *ssh.options, host, line] for host in ssh.hosts]


def ssh_script(ssh: Ssh) -> str:
    """The ssh commands as shell lines."""
    return "".join(shlex.join(command) + "\n" for command in ssh_commands(ssh))


class SshHosts:
    """An ssh process per host, with workers for the scheduler at ``address``."""

    def __init__(self, ssh: Ssh, address: str) -> None:
        self._names, self._commands = ssh.hosts, ssh_commands(ssh, address)
        self.processes: list[BackgroundProcess] = []

    def start(self) -> None:
        """Start workers on every host."""
        for name, command in zip(self._names, self._commands, strict=True):
            self.processes.append(BackgroundProcess(command, f"ssh {name}"))

    def restart(self) -> str:
        """Start workers again on hosts whose ssh has ended; returns a message. Raises RunError if all still run."""
        ended = []
        for k, process in enumerate(self.processes):
            if (end := process.exit_message()) is not None:
                log.warning("%s", end)
                self.processes[k] = BackgroundProcess(self._commands[k], process.name)
                ended.append(process.name)
        if not ended:
            raise RunError(f"{', '.join(process.name for process in self.processes)}: still there, without workers")
        return f"started {', '.join(ended)} again"

    def stop(self) -> None:
        """End all processes, which leave within the same few seconds."""
        deadline = time.monotonic() + _LEAVE_S
        for process in self.processes:
            process.stop(max(0.0, deadline - time.monotonic()))
