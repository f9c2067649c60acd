"""``coremargin schedule``: print the configuration with which a scheduler starts a nightly job."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import get_args

import click

from coremargin.cli.common import PATH
from coremargin.cli.printing import print_lines

SECTION = "Registry"


@click.command(no_args_is_help=True)
@click.argument("job_file", metavar="JOB", type=PATH)
@click.option(
    "--on",
    required=True,
    metavar="SCHEDULER",
    type=click.Choice(["cron", "systemd", "scrontab", "kubernetes", "airflow"]),
    help="cron, systemd, scrontab (of Slurm), kubernetes or airflow.",
)
@click.option("--at", default="02:30", show_default=True, metavar="TIME", help="Time of day.")
@click.option("--image", help="Kubernetes: container image.  [default: coremargin:latest]")
@click.option("--claim", help="Kubernetes: volume claim of the folder.  [default: coremargin]")
@click.option(
    "--cluster",
    metavar="FILE",
    help="Kubernetes: a cluster file with the image, volume, secrets, account and nodes of the pod.",
)
def schedule(job_file: Path, *, on: str, at: str, image: str | None, claim: str | None, cluster: str | None) -> None:
    """Print the configuration with which a scheduler starts the nightly JOB. Nothing is installed.

    The job may be started as often as you like and never runs twice at once.

    Exit codes of a run: 0 done, 10 refused by a gate, 11 files are in quarantine, 12 rows were not expired because
    the clock is in doubt, 75 another run of the job is active. Schedulers report all codes except 0 as failures, and
    75 as well if they cannot be configured otherwise; no run needs to be repeated.

    \b
      coremargin schedule jobs/nightly.toml --on cron
      coremargin schedule jobs/nightly.toml --on kubernetes --image registry.example/coremargin:1
      coremargin schedule /data/jobs/nightly.toml --on kubernetes --cluster cluster/kubernetes.toml
    """
    from coremargin.engine.clusters.specs import Kubernetes, load_cluster
    from coremargin.errors import SpecError, UsageError
    from coremargin.registry.nightly import load_nightly_job
    from coremargin.registry.schedule import On, Schedule, parse_time, schedule_text

    if load_nightly_job(job_file) is None:
        raise SpecError(f'{job_file}: expected a nightly job (job = "nightly"), found a job of another kind')
    pods: Kubernetes | None = None
    if cluster is not None:
        if on != "kubernetes":
            raise UsageError(f"--cluster is for --on kubernetes, not for {on}: the job file names where scans run")
        if image is not None or claim is not None:
            raise UsageError("--cluster cannot be combined with --image and --claim: the cluster file has both")
        spec = load_cluster(cluster)
        if not isinstance(spec, Kubernetes):
            raise UsageError(f'{cluster}: expected kind = "kubernetes", found {spec.__struct_config__.tag!r}')
        pods = spec
    program = shutil.which("coremargin")
    command = [os.path.abspath(program)] if program else [sys.executable, "-m", "coremargin"]
    configuration = Schedule(
        job_file.absolute(),
        command,
        *parse_time(at),
        image=Schedule.image if image is None else image,
        claim=Schedule.claim if claim is None else claim,
        cluster=pods,
    )
    scheduler = next(one for one in get_args(On) if one == on)
    text, encoding = schedule_text(scheduler, configuration), getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{job_file}: the output encoding {encoding} cannot represent {text[error.start]!r}; set "
            "PYTHONIOENCODING=utf-8"
        ) from error
    print_lines(*text.rstrip("\n").split("\n"))


COMMANDS = (schedule,)
