"""Processes that run beside a job: who may end them, and how long their end is waited for."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, cast

import psutil

from coremargin.engine.clusters import ssh as ssh_module
from coremargin.engine.clusters.processes import BackgroundProcess
from coremargin.engine.clusters.specs import Ssh
from coremargin.engine.clusters.ssh import SshHosts

if TYPE_CHECKING:
    import pytest

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


def test_a_terminal_does_not_reach_what_runs_beside_a_job() -> None:
    """Ctrl-C goes to the process group of the terminal, and an ssh or a forwarded port is not in it."""
    before = {child.pid for child in psutil.Process().children()}
    process = BackgroundProcess(SLEEP, "sleep")
    try:
        (pid,) = {child.pid for child in psutil.Process().children()} - before
        assert os.getpgid(pid) not in (os.getpgid(0), os.tcgetpgrp(0) if os.isatty(0) else -1)
        assert process.exit_message() is None
    finally:
        process.stop(0.0)
    assert process.exit_message() is not None


class _Hangs:
    """Stands for an ssh to a host that does not answer."""

    waited_s = 0.0

    def stop(self, grace_s: float) -> None:
        try:
            subprocess.run(SLEEP, timeout=max(grace_s, 1e-3), check=False)
        except subprocess.TimeoutExpired:
            _Hangs.waited_s += grace_s


def test_many_hosts_that_hang_are_waited_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """All hosts have the same few seconds to leave in, however many there are."""
    monkeypatch.setattr(ssh_module, "_LEAVE_S", 0.2)
    hosts = SshHosts(Ssh(hosts=("one",), insecure=True), "tcp://127.0.0.1:1")
    hosts.processes = [cast("BackgroundProcess", _Hangs()) for _ in range(5)]
    hosts.stop()
    assert _Hangs.waited_s <= 0.2
