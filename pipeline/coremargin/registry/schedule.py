"""Print the configuration with which a scheduler starts a nightly job.

The job locks itself, so schedulers need no locking of their own. Exit code 75 (another run is active) counts as success
if a scheduler can be configured so.
"""

from __future__ import annotations

import os
import re
import shlex
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal

from msgspec.structs import replace

from coremargin.errors import Running, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from coremargin.engine.clusters.specs import Kubernetes

On = Literal["cron", "systemd", "scrontab", "kubernetes", "airflow"]
_LONGEST_COMMAND = 990  #: bytes: cron refuses a longer one
_LONGEST_LINE = 10_000  #: characters of any line
_TIME = re.compile(r"([01]?[0-9]|2[0-3]):([0-5][0-9])")


@dataclass(frozen=True)
class Schedule:
    """job: absolute path of the job file; command: with which coremargin is started; hour, minute: start time.

    image, claim: for Kubernetes, the container image and the claim of the volume with the job's folder. cluster: for
    Kubernetes, replaces them, and gives the pod its volume, resources, variables, account and nodes.
    """

    job: Path
    command: Sequence[str]
    hour: int
    minute: int
    image: str = "coremargin:latest"
    claim: str = "coremargin"
    cluster: Kubernetes | None = None

    @property
    def name(self) -> str:
        """Valid for all schedulers; with a hash of the path, since other folders may have a job of the same name."""
        stem = re.sub(r"[^a-z0-9]+", "-", self.job.stem.lower()).strip("-")[:32].strip("-") or "job"
        return f"coremargin-{stem}-{sha256(os.fsencode(self.job)).hexdigest()[:8]}"

    @property
    def command_line(self) -> list[str]:
        """Words of the command that runs the job."""
        return [*self.command, "run", str(self.job)]

    @property
    def log(self) -> str:
        """The file for the output of the job."""
        log = self.job.with_suffix(".log")
        return str(log if log != self.job else self.job.with_name(f"{self.job.name}.log"))


def parse_time(text: str) -> tuple[int, int]:
    """Hour and minute. Raises UsageError."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise UsageError(f"--at {text!r}: expected a time of day such as 02:30")
    return int(found[1]), int(found[2])


def schedule_text(on: On, schedule: Schedule) -> str:
    """The configuration to install. Raises UsageError for paths and names that the scheduler cannot represent."""
    for word in (*schedule.command_line, schedule.image, schedule.claim):
        if not word.isprintable():  # line breaks, control characters, bytes that are not UTF-8, odd spaces
            raise UsageError(f"{word}: expected printable characters only; rename it")
    text = _TEXTS[on](schedule)
    if max(map(len, text.split("\n"))) > _LONGEST_LINE:
        raise UsageError(f"{schedule.job}: the path is too long for a line of the configuration; shorten it")
    return text


def _cron(schedule: Schedule) -> str:
    r"""cron ends a command at %, except at \%. Some versions unescape backslashes, so that none may follow another."""
    command = _shell_command(schedule).replace("\\", "\\''").replace("%", "\\%")
    if len(command.encode()) > _LONGEST_COMMAND:
        raise UsageError(
            f"{schedule.job}: cron allows commands of at most {_LONGEST_COMMAND} bytes, this one has "
            f"{len(command.encode()):,}; shorten the path"
        )
    return f"# add this line with `crontab -e`\n{schedule.minute} {schedule.hour} * * * {command}\n"


def _scrontab(schedule: Schedule) -> str:
    """Slurm copies the command into a script, but does not unquote #SCRON lines: the shell redirects to the log."""
    return (
        "# add these lines with `scrontab -e`; adapt memory and time to the training\n"
        f"#SCRON --job-name={schedule.name}\n"
        "#SCRON --time=08:00:00\n"
        "#SCRON --cpus-per-task=4\n"
        "#SCRON --mem=8G\n"
        "#SCRON --output=/dev/null\n"
        f"{schedule.minute} {schedule.hour} * * * {_shell_command(schedule)}\n"
    )


def _shell_command(schedule: Schedule) -> str:
    """The command with its output redirected to the log, quoted for a shell."""
    return f"{shlex.join(schedule.command_line)} >> {shlex.quote(schedule.log)} 2>&1"


def _systemd(schedule: Schedule) -> str:
    if set(schedule.command_line[0]) & set("$'\"\\"):
        raise UsageError(
            f"{schedule.command_line[0]}: systemd needs a program without $, quotes and backslashes in its path; "
            "install coremargin elsewhere"
        )
    program = _quote_for_systemd(schedule.command_line[0])
    command = " ".join([program, *(_quote_for_systemd(word.replace("$", "$$")) for word in schedule.command_line[1:])])
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


def _quote_for_systemd(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return escaped if re.fullmatch(r"[\w/.+=:@%-]+", escaped, re.ASCII) else f'"{escaped}"'


def _kubernetes(schedule: Schedule) -> str:
    import yaml

    command = ["coremargin", "run", str(schedule.job).replace("$", "$$")]  # $(NAME) would be filled in
    metadata = {"name": schedule.name}
    template: dict[str, Any]
    if schedule.cluster is None:
        claim, folder = schedule.claim, str(schedule.job.parent)
        if ":" in folder or folder == "/":
            raise UsageError(f"{folder}: Kubernetes cannot mount this folder; use a folder without colons in its path")
        container = {
            "name": "coremargin",
            "image": schedule.image,
            "command": command,
            "resources": {"requests": {"cpu": "2", "memory": "4Gi"}, "limits": {"memory": "8Gi"}},
            "volumeMounts": [{"name": "work", "mountPath": folder}],
        }
        volume = {"name": "work", "persistentVolumeClaim": {"claimName": claim}}
        template = {"spec": {"restartPolicy": "Never", "containers": [container], "volumes": [volume]}}
    else:
        # only here: without a cluster file nothing of clusters is needed
        from coremargin.engine.clusters.kubernetes import pod_spec, worker_resources

        cluster = replace(schedule.cluster, tls_secret=None)  # certificates are those of schedulers and workers
        if cluster.volume_claim is None:
            raise UsageError("the cluster file has no volume_claim; give that of the volume with the job's folder")
        if not schedule.job.is_relative_to(cluster.mount):
            raise UsageError(
                f"{schedule.job}: expected a job below {cluster.mount}, where the cluster file mounts the volume "
                f"{cluster.volume_claim}; give the path that the job has there"
            )
        claim, folder = cluster.volume_claim, cluster.mount
        metadata["namespace"] = cluster.namespace
        container = {"name": "coremargin", "command": command, "resources": worker_resources(cluster)}
        template = {"spec": {"restartPolicy": "Never", **pod_spec(cluster, container, environment={})}}
        if cluster.annotations:
            template = {"metadata": {"annotations": dict(cluster.annotations)}, **template}
    job = {"backoffLimit": 0, "template": template}  # a run that fails starts again the next night
    found = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": metadata,
        "spec": {
            "schedule": f"{schedule.minute} {schedule.hour} * * *",
            "concurrencyPolicy": "Forbid",
            "successfulJobsHistoryLimit": 3,
            "failedJobsHistoryLimit": 3,
            "jobTemplate": {"spec": job},
        },
    }
    return f"# kubectl apply -f THIS; the volume {claim} holds {folder}\n{yaml.safe_dump(found, sort_keys=False)}"


def _airflow(schedule: Schedule) -> str:
    """Airflow renders the command as a Jinja template: a quote after each { breaks up Jinja's delimiters."""
    command = ascii(shlex.join(schedule.command_line).replace("{", "{''") + " ")
    when = f"{schedule.minute} {schedule.hour} * * *"
    return f'''"""{schedule.name}, every night. Put this file into Airflow's folder of DAGs; Airflow 2.6 or newer."""

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
        task_id="nightly",
        # a space at the end: a command that ends in .sh or .bash would be read as a template file
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
