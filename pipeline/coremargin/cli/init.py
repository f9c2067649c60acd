"""``coremargin init``: write job files, cluster files and the Dockerfile, with comments, to be edited.

The files are those of the repository: ``coremargin/templates`` has symbolic links to ``jobs/`` and ``cluster/``, and a
wheel has the files.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import click

from coremargin.cli.printing import print_lines

SECTION = "Train"


class Template(NamedTuple):
    """A file of the package, and of the user.

    path: below ``coremargin/templates``, and of the new file below the current folder; edit: what to edit in it.
    """

    path: str
    summary: str
    edit: str

    @property
    def then(self) -> str:
        """The command to run next."""
        if self.path.startswith("jobs/"):
            return f"coremargin run {self.path} --check"
        if self.path.endswith(".toml"):
            return f"coremargin run JOB --check --cluster {self.path}"
        return f"docker build --tag coremargin:0.1 --file {self.path} ."


#: By name, in the order in which the command lists them.
TEMPLATES = {
    Path(template.path).stem.lower(): template
    for template in (
        Template("jobs/train.toml", "a training job: all keys, with their defaults", "store and out"),
        Template("jobs/retrain.toml", "the model of a store that has changed", "model, store and out"),
        Template(
            "jobs/nightly.toml",
            "a scheduled job: ingest, retrain, gates, promote, predict",
            "store, registry, [ingest] and [train]",
        ),
        Template("jobs/active.toml", "a campaign whose answers come from a file", "store, out and oracle"),
        Template("jobs/stream.toml", "learning from files as they arrive", "rows, out and label"),
        Template("cluster/threads.toml", "threads of the job's process", "nothing, or threads"),
        Template("cluster/embedded.toml", "worker processes on this machine", "nothing, or workers and threads"),
        Template("cluster/address.toml", "a running Dask scheduler", "address and [tls]"),
        Template(
            "cluster/slurm.toml",
            "workers as a job array of SLURM",
            "sizes, queue, account, logs, host, setup, directives and insecure",
        ),
        Template(
            "cluster/sge.toml",
            "workers as an array job of Grid Engine",
            "sizes, queue, parallel_environment, host and insecure",
        ),
        Template("cluster/pbs.toml", "workers as jobs of PBS", "sizes, queue, host and insecure"),
        Template("cluster/lsf.toml", "workers as jobs of LSF", "sizes, queue, account, host, directives and insecure"),
        Template(
            "cluster/htcondor.toml",
            "workers as jobs of HTCondor",
            "sizes, account, logs, host, environment and insecure",
        ),
        Template("cluster/ssh.toml", "workers on other hosts", "hosts, options, threads, workers, host and insecure"),
        Template(
            "cluster/kubernetes.toml",
            "scheduler and workers as pods",
            "image, namespace, sizes, volume_claim, mount, tls_secret and [tls]",
        ),
        Template(
            "cluster/Dockerfile",
            "the container image for Kubernetes",
            "PYTHON, the version where jobs are started",
        ),
    )
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
    texts = {one.path: _read_template(one.path) for one in wanted}
    for path in texts:
        if os.path.lexists(path):
            raise UsageError(f"{path} already exists and is not replaced: rename or remove it; nothing was written")
    for one in wanted:
        _write_new(Path(one.path), texts[one.path])
        print_lines(f"{one.path}: edit {one.edit}; then: {one.then}")


def _read_template(path: str) -> bytes:
    """The content of a template. Raises UsageError if the installation lacks it."""
    from importlib import resources

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
