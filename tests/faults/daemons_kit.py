"""The daemons of a test: started, asked, waited for, and ended, whatever became of them."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Self

import psutil


def path_of_daemons() -> str:
    """PATH, and where Debian has daemons."""
    return f"{os.environ['PATH']}{os.pathsep}/usr/sbin"


def absent(*commands: str) -> str:
    """Which of these commands are not here, for a message."""
    return ", ".join(name for name in commands if shutil.which(name, path=path_of_daemons()) is None)


def dies_with_us() -> list[str]:
    """Words before a command that let it end with this process, whatever ends that."""
    return ["setpriv", "--pdeathsig", "TERM"] if shutil.which("setpriv") else []


def free_ports(number: int) -> list[int]:
    """Ports of 127.0.0.1 on which nobody listens."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    try:
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


class LocalDaemons(ABC):
    """Daemons that write below ``folder``; ``environment`` is what they and their commands need.

    To be used with ``with``: ``begin`` starts them, and they end however that ends.
    """

    def __init__(self, folder: Path, environment: dict[str, str] | None = None) -> None:
        self.folder, self.environment = folder, environment or {}
        self.running: list[psutil.Popen] = []

    @abstractmethod
    def begin(self) -> None:
        """Start them, and wait until they answer."""

    def stop(self) -> None:  # noqa: B027 - most run nothing for us
        """Take away what the daemons run for us; they may be gone."""

    def left(self) -> list[psutil.Process]:
        """Processes that are to end with the daemons: those that they started."""
        found: list[psutil.Process] = []
        for daemon in self.running:
            with suppress(psutil.Error):
                found += daemon.children(recursive=True)
        return found

    def start(self, *words: str) -> None:
        """Run a daemon that ends with this test."""
        with (self.folder / f"{Path(words[0]).name}.out").open("wb") as output:
            self.running.append(
                psutil.Popen(
                    [*dies_with_us(), *words], stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                    env=os.environ | self.environment, start_new_session=True,
                )
            )  # fmt: skip

    def attempt(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command, whatever becomes of it."""
        return subprocess.run(
            words, env=os.environ | self.environment, capture_output=True, text=True, timeout=60, check=False
        )

    def ask(self, *words: str) -> str:
        """What a command answers."""
        done = self.attempt(*words)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def wait_for(self, true: Callable[[], object], within_s: float = 60.0) -> None:
        """Until something is true; the daemons must run as long."""
        deadline = time.monotonic() + within_s
        while not true():
            assert time.monotonic() < deadline, self.log()
            assert all(daemon.poll() is None for daemon in self.running), self.log()
            time.sleep(0.1)

    def log(self) -> str:
        """The end of what the daemons said."""
        files = [file for name in ("*.out", "*.log", "*/messages") for file in sorted(self.folder.glob(name))]
        return "\n".join(file.read_text(errors="replace")[-2000:] for file in files)

    def __enter__(self) -> Self:
        try:
            self.begin()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.stop()
        finally:
            left = self.left()
            for daemon in self.running[::-1]:
                daemon.terminate()
                try:
                    daemon.wait(20)
                except psutil.TimeoutExpired:
                    daemon.kill()
                    daemon.wait()
            for process in psutil.wait_procs(left, timeout=10)[1]:
                process.kill()
