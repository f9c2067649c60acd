"""``coremargin run`` of a nightly job: its steps as they are done, and what they come to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from coremargin.cli.common import compiler_announced
from coremargin.cli.printing import print_json, print_lines
from coremargin.interruption import terminable

if TYPE_CHECKING:
    from coremargin.registry.night import Told


def run_if_nightly(job_file: Path, cluster: str | None, step: str | None, flags: dict[str, bool]) -> int | None:
    """Run the job in a file if it is a nightly one, and return the exit code; None for any other job."""
    from msgspec.structs import replace

    from coremargin.registry.nightly import load_nightly_job

    job = load_nightly_job(job_file)
    if job is None:
        if step is not None:
            raise click.UsageError("--step goes with nightly jobs only")
        return None
    for name in ("resume", "restart", "overwrite"):
        if flags[name]:
            raise click.UsageError(f"--{name} does not go with a nightly job, which goes on by itself")
    if cluster is not None:
        job = replace(job, cluster=Path(cluster))
    from coremargin.errors import ExpiryRefused, FilesQuarantined, GateRefused
    from coremargin.registry.night import run_night

    done = dict[str, str]()

    def tell(name: str, told: Told) -> None:
        done[name] = told.text
        if not (flags["quiet"] or flags["as_json"]):
            _print_step(name, told)

    with terminable(), compiler_announced(quiet=flags["quiet"] or flags["as_json"]):
        try:
            found = run_night(job, only=step, tell=tell)
        except (GateRefused, FilesQuarantined, ExpiryRefused) as attention:
            if flags["as_json"]:
                print_json({"steps": done, "exit_code": attention.exit_code})
            raise
    code = 0 if step is None else found[step].exit_code
    anything = any(told.did for told in found.values())
    if flags["as_json"]:
        print_json({"steps": done, "exit_code": code, "anything_new": anything})
    elif not anything and not flags["quiet"]:
        print_lines(_nothing(found))
    return code


def _print_step(name: str, told: Told) -> None:
    for k, line in enumerate([told.lines] if isinstance(told.lines, str) else told.lines):
        print_lines(f"{name * (k == 0):<8} {line}")


def _nothing(found: dict[str, Told]) -> str:
    return "nothing new: nothing was done" if len(found) > 1 else "nothing to do"
