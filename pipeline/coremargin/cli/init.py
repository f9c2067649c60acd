"""``coremargin init``: write job files, cluster files and the Dockerfile, with comments, to be edited.

The files are those of the repository: ``coremargin/templates`` has symbolic links to ``jobs/`` and ``cluster/``, and a
wheel has the files.
"""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import click

from coremargin.cli.printing import print_lines

SECTION = "Train"


class Template(NamedTuple):
    """path: below ``coremargin/templates``, and of the new file; edit: what to edit in it; then: the next command."""

    path: str
    summary: str
    edit: str
    then: str


_CHECK = "coremargin run JOB --check --cluster {path}"


def _job(name: str, summary: str, edit: str) -> Template:
    return Template(f"jobs/{name}.toml", summary, edit, "coremargin run {path} --check")


def _cluster(name: str, summary: str, edit: str) -> Template:
    return Template(f"cluster/{name}.toml", summary, edit, _CHECK)


#: By the name that the command takes, in the order in which it lists them.
TEMPLATES = {
    "train": _job("train", "a training job: all keys, with their defaults", "store and out"),
    "retrain": _job("retrain", "the model of a store that has changed", "model, store and out"),
    "nightly": _job(
        "nightly", "a scheduled job: ingest, retrain, gates, promote, predict", "store, registry, [ingest] and [train]"
    ),
    "active": _job("active", "a campaign whose answers come from a file", "store, out and oracle"),
    "threads": _cluster("threads", "threads of the job's process", "nothing, or threads"),
    "embedded": _cluster("embedded", "worker processes on this machine", "nothing, or workers and threads"),
    "address": _cluster("address", "a running Dask scheduler", "address and [tls]"),
    "slurm": _cluster(
        "slurm", "workers as a job array of SLURM", "sizes, queue, account, logs, host, setup, directives, insecure"
    ),
    "sge": _cluster(
        "sge", "workers as an array job of Grid Engine", "sizes, queue, parallel_environment, host and insecure"
    ),
    "pbs": _cluster("pbs", "workers as jobs of PBS", "sizes, queue, host and insecure"),
    "lsf": _cluster("lsf", "workers as jobs of LSF", "sizes, queue, account, host, directives and insecure"),
    "htcondor": _cluster("htcondor", "workers as jobs of HTCondor", "sizes, account, logs, host and insecure"),
    "ssh": _cluster("ssh", "workers on other hosts", "hosts, options, threads, host and insecure"),
    "kubernetes": _cluster(
        "kubernetes",
        "scheduler and workers as pods",
        "image, namespace, sizes, volume_claim, mount, tls_secret and [tls]",
    ),
    "image": Template(
        "cluster/Dockerfile",
        "the container image for Kubernetes",
        "PYTHON, the version where jobs are started",
        "docker build --tag coremargin:0.1 --file {path} .",
    ),
}


@click.command("init")
@click.argument("names", metavar="[NAME]...", nargs=-1)
def init(names: tuple[str, ...]) -> None:
    """Write job files and cluster files to edit; without a NAME, list them.

    Job files go to jobs/ and cluster files to cluster/ below the current folder. An existing file is never replaced.

    \b
      coremargin init
      coremargin init train slurm
      coremargin run jobs/train.toml --cluster cluster/slurm.toml --check
    """
    from coremargin.errors import UsageError
    from coremargin.spec import unknown_word

    if not names:
        width = max(map(len, TEMPLATES))
        rows = [f"{name:{width}}  {one.path:24}  {one.summary}" for name, one in TEMPLATES.items()]
        print_lines(*rows, "", "coremargin init NAME... writes them below the current folder")
        return
    for name in names:
        if name not in TEMPLATES:
            raise unknown_word("coremargin init", "NAME", name, list(TEMPLATES))
    wanted = [TEMPLATES[name] for name in dict.fromkeys(names)]
    texts = {one.path: read_template(one.path) for one in wanted}
    for path in texts:
        if os.path.lexists(path):
            raise UsageError(f"{path} already exists and is not replaced: rename or remove it; nothing was written")
    for one in wanted:
        _write_new(Path(one.path), texts[one.path])
        print_lines(f"{one.path}: edit {one.edit}; then: {one.then.format(path=one.path)}")


def read_template(path: str) -> bytes:
    """The content of a template. Raises UsageError if the installation lacks it."""
    from coremargin.errors import UsageError

    file = resources.files("coremargin").joinpath("templates", *path.split("/"))
    content = file.read_bytes() if file.is_file() else b""
    if b"\n" not in content:  # an archive without symbolic links holds the path of the file in its place
        raise UsageError(
            f"{path} is missing in this installation of coremargin; install it from a wheel, a source distribution or "
            "a clone"
        )
    return content


def _write_new(path: Path, content: bytes) -> None:
    from coremargin.data.files import output_errors, rename_new, write_whole
    from coremargin.errors import UsageError

    aside = path.with_name(f".{path.name}.new")
    with output_errors(path, len(content)):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(aside, [content])
        try:
            rename_new(aside, path)
        except FileExistsError as error:
            aside.unlink()
            raise UsageError(f"{path} already exists and is not replaced: rename or remove it") from error


COMMANDS = (init,)
