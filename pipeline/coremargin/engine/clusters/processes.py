"""Commands of other programs: those that end with an answer (sbatch, kubectl apply), and those that run in the

background while a job runs (ssh, kubectl port-forward), whose end is noticed at once, with their last line of output.
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
_SHOWN = 300  # characters of a line in a message
_DRAIN_S = 1.0  # to read what an ended process left in the pipe, which a process of its own may hold open
_GRACE_S = 5.0  # from SIGTERM to SIGKILL

# Runs the command "$@", and kills it at the end of standard input: a pipe whose other end the kernel closes with the
# driver, even after SIGKILL. (PR_SET_PDEATHSIG does the same on Linux only, and when the thread ends that started the
# command.) The last redirection keeps the shell's own "Terminated" out of the output.
_END_WITH_DRIVER = """
exec 3<&0 </dev/null
trap 'kill -TERM "$command"' TERM
"$@" 3<&- &
command=$!
{ read -r _ <&3; kill -KILL "$command"; } >/dev/null 2>&1 &
watch=$!
exec 3<&- 2>/dev/null
wait "$command"
status=$?
while kill -0 "$command" 2>/dev/null; do wait "$command"; status=$?; done
kill -KILL "$watch"
exit "$status"
"""

# Messages of PBS, Grid Engine, SLURM, LSF and HTCondor about a job that is no longer in the queue.
_GONE = re.compile(
    r"(?i)has (already )?finished|unknown job id|does not exist|invalid job id|no matching job|already comp"
    r"|couldn.t find/remove"
)


def uninterrupted(action: Callable[[], T]) -> T:
    """Finish the action before a Ctrl-C takes effect: half a command on another host could not be undone."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(action).result()


def require_commands(*names: str) -> None:
    """Raise UsageError if a command of a batch system is missing."""
    for name in names:
        if shutil.which(name) is None:
            raise UsageError(f"the command {name!r} is not on this host; run coremargin on a submit host")


def run_command(command: list[str], text: str, submitted: str | None = None) -> str:
    """The output of a command for ``text`` as input. RunError, with its messages, if it fails or does not answer.

    It has a session of its own: a Ctrl-C, which a terminal sends to all processes, is for the driver to handle, and
    what the command started, if it is a wrapper of the real one, ends with it. submitted: the name of a job that it
    puts into the queue.
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
            output, errors = run.communicate(text, timeout=ANSWER_S)
        except BaseException as error:
            with suppress(ProcessLookupError):
                os.killpg(run.pid, SIGKILL)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            maybe = f"; it may be in the queue all the same: look for {submitted}" if submitted else ""
            raise RunError(f"{command[0]} did not answer within {format_seconds(ANSWER_S)}{maybe}") from error
    if run.returncode:
        raise RunError(f"{command[0]} failed with status {run.returncode}: {(errors or output).strip()}")
    return output


def run_if_killed(command: list[str]) -> Callable[[], None]:
    """Let a process of its own run the command if this one ends, even by SIGKILL, before it calls what is returned.

    It is no child of this process, which kills its children at a second Ctrl-C.
    """
    script = 'exec 3<&0; { read -r word <&3; [ "$word" = closed ] || exec "$@" 3<&-; } &'
    try:
        start = subprocess.Popen(
            ["/bin/sh", "-c", script, "watch", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise _not_run("/bin/sh", error) from error
    start.wait()

    def cancel() -> None:
        if start.stdin is not None:
            with suppress(OSError), start.stdin as pipe:
                pipe.write(b"closed\n")

    return cancel


def parse_job_id(answer: str, pattern: str, command: str, name: str) -> re.Match[str]:
    """The match of the id of the job ``name`` in the submit command's output; RunError unless there is exactly one:

    a wrong id could cancel another job.
    """
    found = list(re.finditer(pattern, answer, re.MULTILINE))
    if len(found) != 1:
        raise RunError(
            f"{command} answered {answer!r}; expected the id of a job, once; it may be in the queue, and cannot "
            f"be cancelled from here: look for {name}"
        )
    return found[0]


def cancel_jobs(cancel: Callable[[], object], numbers: list[str]) -> None:
    """Cancel jobs. Raises RunError, with their ids, if they may still be in the queue.

    A job that has already ended is no failure: most batch systems refuse to cancel it, and cancel all others.
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


class BackgroundProcess:
    """A process without a terminal; ``command`` comes from the cluster file of the user who runs it.

    It has a session of its own, as the driver decides what a Ctrl-C means. Its output and errors are read all the time,
    so that it never blocks on a full pipe, and discarded except for the last line.
    """

    def __init__(
        self, command: list[str], name: str, awaited: str | None = None, *, ends_with_driver: bool = False
    ) -> None:
        """name: for messages; awaited: pattern of the line that ``wait_ready`` waits for.

        ends_with_driver: the command is killed when this process ends, however it does, instead of running on.
        """
        self.name = name
        self._awaited, self._last = awaited, ""
        self._match: re.Match[str] | None = None
        self._settled = threading.Event()
        if ends_with_driver:
            command = ["/bin/sh", "-c", _END_WITH_DRIVER, name, *command]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE if ends_with_driver else subprocess.DEVNULL,
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

    def wait_ready(self, timeout_s: float) -> re.Match[str] | None:
        """The match of the awaited line; None if the process ends without it or it does not come in time."""
        self._settled.wait(max(0.0, timeout_s))
        return self._match

    def exit_message(self) -> str | None:
        """How the process ended, with the last line of its output; None while it runs."""
        status = self._process.poll()
        if status is None:
            return None
        self._reader.join(_DRAIN_S)
        return f"{self.name} ended with status {status}: {self._last or 'without any output'}"

    def last_line(self) -> str:
        """The last line of its output, for a message."""
        return self._last or f"{self.name} printed nothing"

    def stop(self, grace_s: float) -> None:
        """Wait ``grace_s`` for the process to end, then end it by signals."""
        for wait_s, signal in ((grace_s, self._process.terminate), (_GRACE_S, self._process.kill)):
            try:
                self._process.wait(wait_s)
                break
            except subprocess.TimeoutExpired:
                signal()
        self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._reader.join(_DRAIN_S)


def log_failure(action: Callable[[], object]) -> Callable[[], None]:
    """The action for closing, with failures logged, so that they do not hide the error that ended the run."""

    def run() -> None:
        try:
            action()
        except (RunError, OSError) as error:
            log.warning("while closing: %s", error)

    return run
