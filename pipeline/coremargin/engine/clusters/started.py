"""Commands of other programs: those that answer (sbatch, kubectl apply), and those that run beside a job (ssh, kubectl
port-forward), whose end is known at once, with their last words.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from signal import SIGKILL
from typing import TYPE_CHECKING, TypeVar

from coremargin.errors import RunError, UsageError, machine_limit
from coremargin.spec import format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
log = logging.getLogger(__name__)

ANSWER_S = 120.0  #: for a command to answer
_LINE = 4096  # characters of a line that are read at once
_SHOWN = 300  # of a line in a message
_LAST_WORDS_S = 1.0  # to read what an ended process left in the pipe, which a process of its own may hold open
_GRACE_S = 5.0  # from SIGTERM to SIGKILL

# What PBS, Grid Engine, SLURM, LSF and HTCondor say of a job that is not in the queue any more.
_GONE = re.compile(
    r"(?i)has (already )?finished|unknown job id|does not exist|invalid job id|no matching job|already comp"
    r"|couldn.t find/remove"
)


def undisturbed(action: Callable[[], T]) -> T:
    """Do it, and let a Ctrl-C come behind it: half of what a command does elsewhere is not to be found again."""
    with ThreadPoolExecutor(1) as beside:
        return beside.submit(action).result()


def need_commands(*names: str) -> None:
    """Raise UsageError where one of the commands of a batch system is not at hand."""
    for name in names:
        if shutil.which(name) is None:
            raise UsageError(f"the command {name!r} is not on this host; run coremargin on a submit host")


def answer_of(command: list[str], text: str, submitted: str | None = None) -> str:
    """What a command answers to ``text``; RunError, with its words, when it fails or does not answer.

    It has a session of its own: a Ctrl-C, which a terminal sends to all of them, is the driver's to deal with, and what
    it started itself, where it is a wrapper of the real one, ends with it. submitted: the name of a job that it puts
    into the queue.
    """
    pipe = subprocess.PIPE
    try:
        run = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, errors="replace", start_new_session=True
        )
    except OSError as error:
        raise _not_run(command[0], error) from error
    with run:
        try:
            said, complaint = run.communicate(text, timeout=ANSWER_S)
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(run.pid, SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            maybe = f"; it may be in the queue all the same: look for {submitted}" if submitted else ""
            raise RunError(f"{command[0]} did not answer within {format_seconds(ANSWER_S)}{maybe}") from error
    if run.returncode:
        raise RunError(f"{command[0]} failed with status {run.returncode}: {(complaint or said).strip()}")
    return said


def number_in(answer: str, pattern: str, command: str, name: str) -> re.Match[str]:
    """Where a command that submitted the job ``name`` says which it is; RunError unless it says so once: another may be
    cancelled.
    """
    found = list(re.finditer(pattern, answer, re.MULTILINE))
    if len(found) != 1:
        raise RunError(
            f"{command} answered {answer!r}; expected the id of a job, once; it may be in the queue, and nobody here "
            f"can cancel it: look for {name}"
        )
    return found[0]


def take_out(cancel: Callable[[], object], numbers: list[str]) -> None:
    """Have jobs cancelled. Raises RunError, with their numbers, when they may be in the queue still.

    That a job has ended already is no failure: most batch systems refuse to cancel it, and all others are cancelled.
    """
    try:
        cancel()
    except RunError as error:
        lines = str(error).partition(": ")[2].splitlines()
        if lines and all(_GONE.search(line) for line in lines):
            log.info("%s", error)
            return
        raise RunError(f"{error}; see whether any of these is in the queue still: {', '.join(numbers)}") from error


def _not_run(name: str, error: OSError) -> RunError:
    return machine_limit(error, name) or RunError(f"{name} cannot be run: {error}")


class Started:
    """A process of ours without a terminal; ``command`` comes from the spec of the person who runs it.

    It has a session of its own, as it is the driver that decides what a Ctrl-C means.
    Its output and errors are read all the time, so that it never waits for us, and thrown away but for the last line.
    """

    def __init__(self, command: list[str], name: str, awaited: str | None = None) -> None:
        """name: in messages; awaited: pattern of the line that ``ready`` waits for."""
        self.name = name
        self._awaited, self._last = awaited, ""
        self._match: re.Match[str] | None = None
        self._settled = threading.Event()
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            raise _not_run(name, error) from error
        self._reader = threading.Thread(target=self._read, name=f"output of {name}", daemon=True)
        self._reader.start()

    def _read(self) -> None:
        output = self._process.stdout
        if output is None:
            return
        with output:
            while line := output.readline(_LINE):
                self._last = line.strip()[:_SHOWN] or self._last
                if self._awaited is not None and self._match is None:
                    self._match = re.match(self._awaited, line)
                    if self._match is not None:
                        self._settled.set()
        self._settled.set()

    def ready(self, timeout_s: float) -> re.Match[str] | None:
        """The awaited line; None when the process ends without it or it does not come in time."""
        self._settled.wait(max(0.0, timeout_s))
        return self._match

    def ended(self) -> str | None:
        """How it ended, with the last line that it wrote; None while it runs."""
        status = self._process.poll()
        if status is None:
            return None
        self._reader.join(_LAST_WORDS_S)
        return f"{self.name} ended with status {status}: {self._last or 'without a word'}"

    def last_line(self) -> str:
        """The last line that it wrote, for a message."""
        return self._last or f"{self.name} said nothing"

    def stop(self, patience_s: float) -> None:
        """End it: as it likes within ``patience_s``, else by signals."""
        for wait_s, signal in ((patience_s, self._process.terminate), (_GRACE_S, self._process.kill)):
            try:
                self._process.wait(wait_s)
                break
            except subprocess.TimeoutExpired:
                signal()
        self._process.wait()
        self._reader.join(_LAST_WORDS_S)
