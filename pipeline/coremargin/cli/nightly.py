"""``coremargin run`` for a nightly job: print each step, and return the exit code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from coremargin.cli.common import compiler_announced
from coremargin.cli.printing import print_json, print_lines
from coremargin.interruption import terminable

if TYPE_CHECKING:
    from coremargin.registry.nightly_job import StepResult


def run_if_nightly(job_file: Path, cluster: str | None, step: str | None, flags: dict[str, bool]) -> int | None:
    """Run a nightly job and return its exit code; None for a job of another kind."""
    from msgspec.structs import replace

    from coremargin.engine.clusters.specs import ClusterChoice
    from coremargin.registry.nightly import load_nightly_job

    job = load_nightly_job(job_file)
    if job is None:
        if step is not None:
            raise click.UsageError("--step can be used with nightly jobs only")
        return None
    for name in ("resume", "restart", "overwrite"):
        if flags[name]:
            raise click.UsageError(f"--{name} cannot be used with a nightly job, which resumes by itself")
    if cluster is not None:
        job = replace(job, cluster=ClusterChoice.from_text(cluster, Path.cwd()))
    from coremargin.errors import ExpiryRefused, FilesQuarantined, GateRefused
    from coremargin.registry.nightly_job import run_nightly_job

    texts = dict[str, str]()
    silent = flags["quiet"] or flags["as_json"]

    def report_step(name: str, result: StepResult) -> None:
        texts[name] = result.text
        if not silent:
            print_lines(*(f"{name * (number == 0):<8} {line}" for number, line in enumerate(result.lines)))

    with terminable(), compiler_announced(quiet=silent):
        try:
            results = run_nightly_job(job, only=step, report=report_step)
        except (GateRefused, FilesQuarantined, ExpiryRefused) as error:
            if flags["as_json"]:
                print_json({"steps": texts, "exit_code": error.exit_code})
            raise
    code = 0 if step is None else results[step].exit_code
    changed = any(result.changed for result in results.values())
    if flags["as_json"]:
        print_json({"steps": texts, "exit_code": code, "anything_new": changed})
    elif not changed and not silent:
        print_lines("nothing new: nothing was done" if step is None else "nothing to do")
    return code
