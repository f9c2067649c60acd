"""The hosts that ssh runs workers on: started, stopped, and started again when none of them is left."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from coremargin.engine.clusters.scripts import ssh_commands
from coremargin.engine.clusters.started import Started
from coremargin.errors import RunError

if TYPE_CHECKING:
    from coremargin.engine.clusters.specs import Ssh

log = logging.getLogger(__name__)

_LEAVE_S = 5.0  # until workers that were asked to leave have left, and their ssh with them


class Hosts:
    """An ssh per host, with workers for the scheduler at ``address``."""

    def __init__(self, ssh: Ssh, address: str) -> None:
        self._names, self._commands = ssh.hosts, ssh_commands(ssh, address)
        self.processes: list[Started] = []

    def start(self) -> None:
        """Start workers on every host."""
        for name, command in zip(self._names, self._commands, strict=True):
            self.processes.append(Started(command, f"ssh {name}"))

    def again(self) -> str:
        """Start workers anew where their ssh has ended; what was done. Raises RunError where all still run."""
        ended = []
        for k, process in enumerate(self.processes):
            if (end := process.ended()) is not None:
                log.warning("%s", end)
                self.processes[k] = Started(self._commands[k], process.name)
                ended.append(process.name)
        if not ended:
            raise RunError(f"{', '.join(process.name for process in self.processes)}: still there, without workers")
        return f"started {', '.join(ended)} again"

    def stop(self) -> None:
        """End what runs; all have the same few seconds to leave in."""
        deadline = time.monotonic() + _LEAVE_S
        for process in self.processes:
            process.stop(max(0.0, deadline - time.monotonic()))
