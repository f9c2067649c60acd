"""``coremargin train``, ``run`` and ``plan``: from a store to a proof."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coremargin.cli.common import cluster_option, json_option, quiet_option
from coremargin.cli.printing import say, say_json
from coremargin.engine.interruption import terminable

if TYPE_CHECKING:
    from coremargin.learn.job import TrainJob
    from coremargin.learn.train import Begin

SECTION = "Train"

_resume = click.option("--resume", is_flag=True, help="Go on where a run was interrupted or stopped at a limit, if so.")
_restart = click.option("--restart", is_flag=True, help="Throw the checkpoint of an interrupted run away.")
_overwrite = click.option("--overwrite", is_flag=True, help="Replace a model that is there, in one step.")


@click.command()
@click.argument("store", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), help="Folder of the model.")
@click.option("--epsilon", type=float, default=1e-3, show_default=True, help="Share of the best that may be missed.")
@click.option("--loss", type=click.Choice(["hinge", "squared_hinge"]), help="For noisy rows; without it: hard margin.")
@click.option("--C", "C", metavar="NUMBER[,...]", help="Price of a row's loss; several: a model each.  [default: 1.0]")
@click.option(
    "--classes",
    type=click.Choice(["ovr", "crammer-singer"]),
    help="More than two classes: each against the rest, or all at once.",
)
@click.option("--folds", type=int, help="Cross-validation by so many folds, in the same scans; chooses C.")
@click.option("--fold-seed", type=int, help="Which rows the folds have.  [default: 0]")
@click.option("--class-weight", metavar="balanced|NEG,POS", help="Factors of C: smaller label, larger label.")
@click.option(
    "--scaling",
    type=click.Choice(["standard", "minmax", "maxabs", "rownorm"]),
    help="Scale rows as they are read, from the store's statistics; the model keeps it.",
)
@click.option("--outliers", metavar="K", help="Rows that may be left out: 10, 1% of the labelled, 0..10, or 0,1,2,5.")
@click.option("--outlier-search", type=click.Choice(["exact", "heuristic"]), help="Proof, or margin and bound quickly.")
@click.option("--no-intercept", is_flag=True, help="A hyperplane through the origin (of the scaled rows).")
@click.option(
    "--strategy",
    type=click.Choice(["fast", "paper", "any-violator"]),
    default="fast",
    show_default=True,
    help="paper: one example a scan, as published; any-violator: the first one found.",
)
@click.option("--memory", default="256 MiB", show_default=True, help="For the rows kept in the driver.")
@click.option("--sample", type=float, default=0.04, show_default=True, help="Share of the store that is read first.")
@click.option("--block", default="128 MiB", show_default=True, help="Bytes that one task reads.")
@click.option("--max-scans", type=int, help="Stop after so many scans, with what is proven.")
@click.option("--time-limit", help='Stop after so long, such as "2 h", with what is proven.')
@cluster_option
@_resume
@_restart
@_overwrite
@json_option
@quiet_option
def train(store: Path, out: Path, **options: Any) -> int:
    """Train on STORE and prove the result.

    Reads the rows two or three times, however many there are, and ends with a model whose margin is proven to be at
    least (1 - epsilon) of the best possible. With --loss, for rows that no hyperplane separates, it is the value of the
    soft margin's objective that is proven to be within epsilon of the best possible. With --outliers, it is the margin
    once the rows that spoil it are left out: no others in that number do better. Ctrl-C then ends the search with the
    best answer and the bound so far, which are saved; the exit code is 130.

    Exit code 0 only if the model is certified, 4 if the run ended before or nothing separates the classes: then, too,
    there is a model, which says what is proven.

    \b
      coremargin train rows.zarr --out rows.model --epsilon 1e-3
      coremargin train noisy.zarr --out noisy.model --loss hinge --C 0.1
      coremargin train noisy.zarr --out noisy.model --outliers 10
      coremargin train digits.zarr --out digits.model --classes ovr \\
          --loss hinge --C 0.1,1,10 --folds 5
    """
    from coremargin import spec as specs
    from coremargin.learn.job import TrainJob

    flags = {name: options.pop(name) for name in ("resume", "restart", "overwrite", "as_json", "quiet")}
    cluster = options.pop("cluster")
    options["intercept"] = not options.pop("no_intercept")
    options["C"] = _costs(options["C"])
    options["class_weight"] = _class_weight(options["class_weight"])
    options["outliers"] = _outliers(options["outliers"])
    given = {key: value for key, value in options.items() if value is not None}
    job = specs.convert(
        {"job": "train", "store": str(store), "out": str(out), **given}, TrainJob, where="coremargin train"
    )
    return _run(job, cluster, flags)


def _costs(text: str | None) -> float | list[float] | None:
    """A number, or several with commas."""
    if text is None:
        return None
    try:
        costs = [float(word) for word in text.split(",")]
    except ValueError:
        raise click.BadParameter(f"--C: expected a number, or several as in 0.1,1,10; found {text!r}") from None
    return costs if len(costs) > 1 else costs[0]


def _outliers(text: str | None) -> str | int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else text


def _class_weight(text: str | None) -> str | list[float] | None:
    """The word balanced, or two numbers as in 1,5."""
    if text is None or text == "balanced":
        return text
    try:
        negative, positive = (float(word) for word in text.split(","))
    except ValueError:
        raise click.BadParameter(f"expected balanced, or two numbers as in 1,5; found {text!r}") from None
    return [negative, positive]


@click.command()
@click.argument("job_file", metavar="JOB", type=click.Path(path_type=Path))
@cluster_option
@_resume
@_restart
@_overwrite
@json_option
@quiet_option
def run(job_file: Path, cluster: str | None, **flags: bool) -> int:
    """Run the job that a file describes.

    Paths in the file are relative to the file; --cluster replaces what the file says about where to run.

    Exit code 0 only if the model is certified, 4 if it is not, as of `coremargin train`.

    \b
      coremargin run jobs/train.toml --cluster cluster/slurm.toml
    """
    from coremargin.cli.jobs import load_job

    return _run(load_job(job_file), cluster, flags)


@click.command()
@click.argument("job_file", metavar="JOB", type=click.Path(path_type=Path))
@cluster_option
@json_option
def plan(job_file: Path, cluster: str | None, as_json: bool) -> None:
    """Show what a job would do: blocks, tasks, bytes, memory, time, and what would be submitted.

    Reads the store's metadata and one chunk; runs nothing.

    \b
      coremargin plan jobs/train.toml --cluster cluster/slurm.toml
    """
    from coremargin.cli.jobs import load_job, plan_of, plan_text

    planned = plan_of(load_job(job_file), cluster)
    if as_json:
        say_json(planned)
    else:
        say(*plan_text(planned))


def _run(job: TrainJob, cluster: str | None, flags: dict[str, bool]) -> int:
    from functools import partial

    from coremargin.cli.jobs import cluster_of
    from coremargin.cli.live import live
    from coremargin.cli.words import outcome_text
    from coremargin.engine.clusters.connect import connect
    from coremargin.learn.train import check_output, open_store, train_job
    from coremargin.report.write import write_report

    as_json, quiet = flags.pop("as_json"), flags.pop("quiet")
    if flags["resume"] and flags["restart"]:
        raise click.UsageError("--resume and --restart exclude each other")
    begin: Begin = "resume" if flags["resume"] else "restart" if flags["restart"] else "new"
    with terminable():
        source = open_store(job, begin)
        check_output(job, begin, overwrite=flags["overwrite"])
        with (
            connect(cluster_of(job, cluster), source) as executor,
            live(source, executor, quiet=quiet or as_json) as progress,
        ):
            report = partial(write_report, name=job.out.name)
            outcome = train_job(
                job, source, executor, begin=begin, overwrite=flags["overwrite"], report=report, progress=progress
            )
    if as_json:
        say_json(outcome.summary())
    else:
        say(*outcome_text(outcome, job))
    return 0 if outcome.model.status == "certified" else 4


COMMANDS = (train, run, plan)
