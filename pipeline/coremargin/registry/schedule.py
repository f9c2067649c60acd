"""What starts a nightly job: a text for each scheduler, to be installed by whoever runs it.

The job may be started as often as one likes and holds its own lock, so that nothing here has to see to that; exit code
75, that another run goes on, is no failure where a scheduler can be told so.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Literal

from coremargin.errors import Running, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

On = Literal["cron", "systemd", "scrontab", "kubernetes", "airflow"]
_LONGEST_COMMAND = 990  #: bytes: cron refuses a longer one
_LONGEST_LINE = 10_000  #: characters of any line
_TIME = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")


@dataclass(frozen=True)
class Schedule:
    """job: the file, an absolute path; command: what runs coremargin; hour, minute: when; image, claim: of a cluster's
    container, and of the volume that holds the job's folder.
    """

    job: Path
    command: Sequence[str]
    hour: int
    minute: int
    image: str = "coremargin:latest"
    claim: str = "coremargin"

    @property
    def name(self) -> str:
        """A name that all schedulers take, of this file alone: others may be called the same in other folders."""
        stem = re.sub(r"[^a-z0-9]+", "-", self.job.stem.lower()).strip("-")[:32].strip("-") or "job"
        return f"coremargin-{stem}-{sha256(os.fsencode(self.job)).hexdigest()[:8]}"

    @property
    def words(self) -> list[str]:
        """The command line."""
        return [*self.command, "run", str(self.job)]

    @property
    def log(self) -> str:
        """The file that gets what the job prints."""
        log = self.job.with_suffix(".log")
        return str(log if log != self.job else self.job.with_name(f"{self.job.name}.log"))


def time_of(text: str) -> tuple[int, int]:
    """Hour and minute. Raises UsageError."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise UsageError(f"--at {text!r}: expected a time of the day such as 02:30")
    return int(found[1]), int(found[2])


def schedule_text(on: On, schedule: Schedule) -> str:
    """What to install. Raises UsageError for a path or a name that a scheduler cannot hold."""
    for word in (*schedule.words, schedule.image, schedule.claim):
        if not word.isprintable():  # line breaks, control characters, bytes that are not UTF-8, odd spaces
            raise UsageError(f"{word}: expected printable characters only, which all schedulers take; rename it")
    text = _TEXTS[on](schedule)
    if max(map(len, text.split("\n"))) > _LONGEST_LINE:
        raise UsageError(f"{schedule.job}: expected a path that fits into a line, found a longer one; shorten it")
    return text


def _cron(schedule: Schedule) -> str:
    r"""cron ends a command at %, but for \%; as some take two backslashes for one, none follows another here."""
    command = _in_shell(schedule).replace("\\", "\\''").replace("%", "\\%")
    if len(command.encode()) > _LONGEST_COMMAND:
        raise UsageError(
            f"{schedule.job}: expected a command of at most {_LONGEST_COMMAND} bytes, which is what cron takes, found "
            f"{len(command.encode()):,}; shorten the path"
        )
    return f"# to be added to the lines of `crontab -e`\n{schedule.minute} {schedule.hour} * * * {command}\n"


def _scrontab(schedule: Schedule) -> str:
    """Slurm puts the command into a script as it is, and reads #SCRON without quotes: the shell opens the log."""
    return (
        "# to be added to the lines of `scrontab -e`; memory and time are those of the training\n"
        f"#SCRON --job-name={schedule.name}\n"
        "#SCRON --time=08:00:00\n"
        "#SCRON --cpus-per-task=4\n"
        "#SCRON --mem=8G\n"
        "#SCRON --output=/dev/null\n"
        f"{schedule.minute} {schedule.hour} * * * {_in_shell(schedule)}\n"
    )


def _in_shell(schedule: Schedule) -> str:
    """The command with its output in the log; what means anything to a shell stands in single quotes."""
    return f"{shlex.join(schedule.words)} >> {shlex.quote(schedule.log)} 2>&1"


def _systemd(schedule: Schedule) -> str:
    if set(schedule.words[0]) & set("$'\"\\"):
        raise UsageError(
            f"{schedule.words[0]}: expected a program without $, quotes and backslashes in its path, as systemd takes "
            "it; install coremargin elsewhere"
        )
    program = _in_unit(schedule.words[0])
    command = " ".join([program, *(_in_unit(word.replace("$", "$$")) for word in schedule.words[1:])])
    return (
        f"# ~/.config/systemd/user/{schedule.name}.service\n"
        "[Unit]\n"
        f"Description={schedule.name}\n\n"
        "[Service]\n"
        "Type=oneshot\n"
        f"ExecStart={command}\n"
        f"SuccessExitStatus={Running.exit_code}\n\n"
        f"# ~/.config/systemd/user/{schedule.name}.timer\n"
        "# then: systemctl --user daemon-reload\n"
        f"#       systemctl --user enable --now {schedule.name}.timer\n"
        "[Unit]\n"
        f"Description={schedule.name}, every night\n\n"
        "[Timer]\n"
        f"OnCalendar=*-*-* {schedule.hour:02d}:{schedule.minute:02d}:00\n"
        "Persistent=true\n\n"
        "[Install]\n"
        "WantedBy=timers.target\n"
    )


def _in_unit(word: str) -> str:
    """A word of a command as systemd reads it: quoted, its own marks doubled."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return escaped if re.fullmatch(r"[\w/.+=:@%-]+", escaped, re.ASCII) else f'"{escaped}"'


def _kubernetes(schedule: Schedule) -> str:
    import yaml

    folder = str(schedule.job.parent)
    if ":" in folder or folder == "/":
        raise UsageError(f"{folder}: expected a folder that Kubernetes can mount, without colons; move the job there")
    command = ["coremargin", "run", str(schedule.job).replace("$", "$$")]  # $(NAME) would be filled in
    container = {
        "name": "coremargin",
        "image": schedule.image,
        "command": command,
        "resources": {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"memory": "8Gi"}},
        "volumeMounts": [{"name": "work", "mountPath": folder}],
    }
    pod = {
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": "work", "persistentVolumeClaim": {"claimName": schedule.claim}}],
    }
    job = {"backoffLimit": 0, "template": {"spec": pod}}  # who comes too early is started again the next night
    found = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": schedule.name},
        "spec": {
            "schedule": f"{schedule.minute} {schedule.hour} * * *",
            "concurrencyPolicy": "Forbid",
            "successfulJobsHistoryLimit": 3,
            "failedJobsHistoryLimit": 3,
            "jobTemplate": {"spec": job},
        },
    }
    return (
        f"# kubectl apply -f THIS; the volume {schedule.claim} holds {folder}\n{yaml.safe_dump(found, sort_keys=False)}"
    )


def _airflow(schedule: Schedule) -> str:
    """All that is not plain stands in single quotes: none of Jinja's signs is left whole when they close behind {."""
    command = ascii(shlex.join(schedule.words).replace("{", "{''") + " ")
    when = f"{schedule.minute} {schedule.hour} * * *"
    return f'''"""Every night: {schedule.name}. To be put into Airflow's folder of DAGs; Airflow 2.6 or newer."""

from datetime import datetime

from airflow import DAG

try:
    from airflow.providers.standard.operators.bash import BashOperator
except ImportError:  # before Airflow 3
    from airflow.operators.bash import BashOperator

with DAG(
    dag_id="{schedule.name}",
    schedule="{when}",
    start_date=datetime(2026, 1, 1),
    catchup=False,
    max_active_runs=1,
    tags=["coremargin"],
):
    BashOperator(
        task_id="night",
        # a space at the end: a command that ends in .sh or .bash would be taken for a template
        bash_command={command},
        skip_on_exit_code={Running.exit_code},
        retries=0,
    )
'''


_TEXTS: dict[On, Callable[[Schedule], str]] = {
    "cron": _cron,
    "systemd": _systemd,
    "scrontab": _scrontab,
    "kubernetes": _kubernetes,
    "airflow": _airflow,
}
