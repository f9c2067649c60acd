"""``coremargin train``, ``retrain``, ``run`` and ``plan``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coremargin.cli.common import (
    MODEL,
    PATH,
    STORE,
    GroupedCommand,
    cluster_option,
    json_option,
    progress,
    quiet_option,
    storage_option,
)
from coremargin.cli.ingest import report_lines, warning_lines
from coremargin.cli.options import TrainCommand, job_parameters
from coremargin.cli.printing import print_json, print_lines
from coremargin.cli.tables import column_options, show_ingest_progress, split, suggest_columns, take_column_options
from coremargin.errors import UsageError
from coremargin.formats.location import is_remote, last_name
from coremargin.interruption import terminable

if TYPE_CHECKING:
    from coremargin.engine.checkpoint import Begin
    from coremargin.formats.location import Location
    from coremargin.learn.retrain import Retraining, RetrainJob
    from coremargin.problems.job import TrainJob


def _store_path(source: Path | Location, out: Path | Location, file_options: dict[str, Any]) -> Path | Location:
    """The store to train on; for files the one next to the model. Raises UsageError."""
    from coremargin.data.store_paths import is_store, store_beside

    if not is_store(source):
        return store_beside(out)
    for name, value in file_options.items():
        if value:
            raise UsageError(f"--{name.replace('_', '-')} is for files, {source} is a store: remove the option")
    return source


def _ingest_files(
    source: Path | Location, job: TrainJob, file_options: dict[str, Any], begin: Begin, flags: dict[str, bool]
) -> None:
    """Ingest files into the store next to the model, after checking that the model can be written."""
    from coremargin.learn.files import ingest_for_model
    from coremargin.learn.train import check_output
    from coremargin.problems.registry import kind_of

    quiet, overwrite = flags["quiet"] or flags["as_json"], flags["overwrite"]
    options = {**file_options, "drop": split(file_options["drop"]) or ()}
    if options["label"] is None and not kind_of(job).labelled:
        options["unlabelled"] = True
    with suggest_columns(), terminable():
        check_output(job, begin, overwrite=overwrite)
        with progress(quiet=quiet) as advance:
            shown = show_ingest_progress(advance)
            made = ingest_for_model(source, job.out, begin, overwrite=overwrite, on_progress=shown, **options)
    if not quiet:
        message = [made.message] if made.message else []
        print_lines(*message, *(report_lines(made.report) if made.report else []), "")
    elif made.report:
        print_lines(*warning_lines(made.report), err=True)


SECTION = "Train"

_resume = click.option("--resume", is_flag=True, help="Continue a run that was interrupted or stopped at a limit.")
_restart = click.option("--restart", is_flag=True, help="Discard the checkpoint of an interrupted run.")
_overwrite = click.option("--overwrite", is_flag=True, help="Replace an existing model, and the store made of files.")


@click.command(cls=TrainCommand, important=("--out", "--loss", "--C", "--classes", "--epsilon"))
@click.argument("store", metavar="STORE|FILE", type=STORE)
@click.option("--label", metavar="COLUMN", help="Label column: a name, or a number from 0 (files only).")
@click.option("--drop", metavar="COLUMNS", help="Columns to exclude (files only).")
@column_options
@storage_option
@cluster_option
@_resume
@_restart
@_overwrite
@json_option
@quiet_option
def train(store: Path | Location, **options: Any) -> int:
    """Train on STORE and prove the result.

    Reads the rows once, or as often as `coremargin plan` says. The margin of the model is proven to be at least
    (1 - epsilon) of the best possible. With --loss, for rows that no hyperplane separates, the objective of the soft
    margin is proven to be within epsilon of the best possible; --loss auto continues with it once it is proven that
    no hyperplane separates the rows. With --outliers, K rows are excluded so that the margin is largest, and it is
    proven that no other K rows do better; Ctrl-C ends that search, saves the best result and bound so far, and exits
    with 130.

    STORE may also be a file, or a quoted pattern, that `coremargin ingest` accepts: it is first ingested into
    rows.zarr, next to rows.model, at an address too. The same command again, or with --resume, uses that store if the
    file has not changed.

    The exit code is 0 only if the model is certified, and 4 if the run stopped before or nothing separates the
    classes. The model is saved in both cases, with the bounds reached.

    \b
      coremargin train rows.zarr --out rows.model --epsilon 1e-3
      coremargin train rows.zarr --out rows.model --loss auto
      coremargin train adult.csv --out adult.model --loss auto \\
          --label income --categorical auto --missing median
      coremargin train noisy.zarr --out noisy.model --loss hinge --C 0.1
      coremargin train noisy.zarr --out noisy.model --outliers 10
      coremargin train digits.zarr --out digits.model --classes ovr \\
          --loss hinge --C 0.1,1,10 --folds 5
    """
    from coremargin.problems.registry import job_of

    flags = {name: options.pop(name) for name in ("resume", "restart", "overwrite", "as_json", "quiet")}
    cluster = options.pop("cluster")
    file_options = {name: options.pop(name) for name in ("label", "drop")} | take_column_options(options)
    rows = _store_path(store, options["out"], file_options)
    job = job_of(
        {"job": "train", "store": rows if is_remote(rows) else str(rows), **job_parameters(options)},
        where="coremargin train",
    )
    if rows != store:
        _ingest_files(store, job, file_options, _begin(flags), flags)
    return _run(job, cluster, flags)


@click.command(cls=GroupedCommand, important=("--out", "--epsilon"))
@click.argument("model", type=MODEL)
@click.argument("store", type=STORE)
@click.option("--out", type=STORE, required=True, help="Folder of the new model, or its address.")
@click.option("--kernel", metavar="MODULE:FUNCTION", help="The kernel function of a model that has one.")
@click.option("--epsilon", type=float, help="Relative gap between the bounds.  [default: that of MODEL]")
@click.option("--memory", help="Memory for rows on the driver.  [default: a quarter of the available memory]")
@click.option(
    "--keep-for-retraining",
    help="Most bytes of warm-start state for the next retraining; 0: none.  [default: that of MODEL]",
)
@click.option("--block", help="Bytes that one task reads.  [default: that of MODEL]")
@click.option("--max-scans", type=int, help="Stop after this many scans, with the bounds reached.")
@click.option("--time-limit", help='Stop after this time, such as "2 h", with the bounds reached.')
@storage_option
@cluster_option
@_resume
@_restart
@_overwrite
@json_option
@quiet_option
def retrain(model: Path | Location, store: Path | Location, **options: Any) -> int:
    """Retrain MODEL on the current rows of STORE.

    STORE is the one that MODEL was trained on, with rows appended or removed, or labels or weights changed since. The
    new model has the same parameters and the same certificate as one that is trained from scratch. Only new and
    changed rows are read, and old rows where the change leaves something unproven. Models without warm-start state,
    soft margins that took several scans or have few rows for their features, and scalings that depend on all rows are
    trained from scratch, with a message.

    The exit code is 0 only if the model is certified, and 4 if it is not, as for `coremargin train`.

    \b
      coremargin ingest tuesday.csv rows.zarr --append
      coremargin retrain monday.model rows.zarr --out tuesday.model
      coremargin verify tuesday.model rows.zarr
    """
    from coremargin.learn.retrain import retrain_job_of

    flags = {name: options.pop(name) for name in ("resume", "restart", "overwrite", "as_json", "quiet")}
    cluster = options.pop("cluster")
    job = retrain_job_of({"model": model, "store": store, **options}, where="coremargin retrain")
    return _run_retraining(job, cluster, flags)


@click.command()
@click.argument("job_file", metavar="JOB", type=PATH)
@cluster_option
@_resume
@_restart
@_overwrite
@click.option(
    "--step", metavar="NAME", help="Only this step of a nightly job: ingest, retrain, gates, promote or predict."
)
@click.option("--check", is_flag=True, help="Read the job file and its cluster file strictly, and run nothing.")
@json_option
@quiet_option
def run(job_file: Path, cluster: str | None, step: str | None, check: bool, **flags: bool) -> int:
    """Run the job that a file describes.

    Paths in the file are relative to the file; --cluster replaces the file's cluster.

    The exit code is 0 only if the model is certified, and 4 if it is not, as for `coremargin train`.

    A nightly job ingests new files, retrains, checks the new version against its gates, promotes it and predicts
    labels, each step only if there is something to do: it can be started as often as you like, and exits with 0 if
    nothing is new. A refusing gate and another active run have exit codes of their own.

    \b
      coremargin run jobs/train.toml --cluster cluster/slurm.toml
      coremargin run jobs/nightly.toml
      coremargin run jobs/nightly.toml --step ingest
    """
    if check:
        for name, given in {"step": step, **flags}.items():
            if given and name not in ("as_json", "quiet"):
                raise click.UsageError(f"--check runs nothing: it cannot be combined with --{name}")
        _check_files(job_file, cluster, flags)
        return 0
    from coremargin.cli.nightly import run_if_nightly

    code = run_if_nightly(job_file, cluster, step, flags)
    if code is not None:
        return code
    from coremargin.active.stream import load_stream_job
    from coremargin.cli.kinds import own_run
    from coremargin.cli.stream import run_job_file
    from coremargin.learn.retrain import load_retrain_job
    from coremargin.problems.registry import load_job

    stream_job = load_stream_job(job_file)
    if stream_job is not None:
        return run_job_file(stream_job, cluster, flags)
    retrain_job = load_retrain_job(job_file)
    if retrain_job is not None:
        return _run_retraining(retrain_job, cluster, flags)
    job = load_job(job_file)
    return (own_run(job) or _run)(job, cluster, flags)


@click.command()
@click.argument("job_file", metavar="JOB", type=PATH)
@cluster_option
@json_option
def plan(job_file: Path, cluster: str | None, as_json: bool) -> None:
    """Show what a job would do: blocks, tasks, bytes, memory, time, and what would be submitted.

    Reads the store's metadata and one chunk, and runs nothing. For a retraining it also reads the new rows, and shows
    what has changed and how many rows will be read first.

    \b
      coremargin plan jobs/train.toml --cluster cluster/slurm.toml
    """
    from coremargin.cli.plan import describe_plan, plan_job
    from coremargin.learn.retrain import load_retrain_job, prepare_retraining
    from coremargin.problems.registry import kind_of, load_job

    retrain_job = load_retrain_job(job_file)
    retraining = None if retrain_job is None else prepare_retraining(retrain_job)
    job = load_job(job_file) if retraining is None else retraining.job
    plan = plan_job(job, cluster, retraining)
    if as_json:
        print_json(plan)
    else:
        print_lines(*describe_plan(plan, kind_of(job)))


def _check_files(job_file: Path, cluster: str | None, flags: dict[str, bool]) -> None:
    """Read a job file and its cluster file. Raises SpecError, and UsageError for a cluster that needs an extra."""
    from coremargin.active.stream import load_stream_job
    from coremargin.engine.clusters.specs import load_cluster
    from coremargin.learn.retrain import load_retrain_job
    from coremargin.problems.registry import load_job
    from coremargin.registry.nightly import load_nightly_job

    job = load_nightly_job(job_file) or load_stream_job(job_file) or load_retrain_job(job_file) or load_job(job_file)
    where = getattr(job, "cluster", None) if cluster is None else cluster
    found = {"job": str(job.__struct_config__.tag), "cluster": str(load_cluster(where).__struct_config__.tag)}
    if flags["as_json"]:
        print_json(found)
    elif not flags["quiet"]:
        names = [(job_file, "job"), *([] if where is None else [(where, "cluster")])]
        print_lines(*(f'{name}: a valid {what}, "{found[what]}"' for name, what in names))


def _begin(flags: dict[str, bool]) -> Begin:
    if flags["resume"] and flags["restart"]:
        raise click.UsageError("--resume and --restart cannot be combined")
    return "resume" if flags["resume"] else "restart" if flags["restart"] else "new"


def _run_retraining(job: RetrainJob, cluster: str | None, flags: dict[str, bool]) -> int:
    from coremargin.learn.retrain import prepare_retraining
    from coremargin.problems.resuming import with_cluster

    retraining = prepare_retraining(with_cluster(job, cluster), _begin(flags))
    return _run(retraining.job, cluster, flags, retraining)


def _run(job: TrainJob, cluster: str | None, flags: dict[str, bool], retraining: Retraining | None = None) -> int:
    from functools import partial

    from coremargin.cli.messages import describe_outcome
    from coremargin.cli.progress_line import show_progress
    from coremargin.engine.clusters.connect import connect
    from coremargin.engine.clusters.specs import load_cluster
    from coremargin.learn.record import summary_of
    from coremargin.learn.train import check_output, open_store, train_job
    from coremargin.problems.registry import kind_of, write_report
    from coremargin.problems.resuming import with_cluster

    as_json, quiet = flags.pop("as_json"), flags.pop("quiet")
    begin = _begin(flags)
    with terminable():
        spec = load_cluster(job.cluster if cluster is None else cluster)
        job = with_cluster(job, cluster)
        source = open_store(job, begin)
        check_output(job, begin, overwrite=flags["overwrite"])
        with (
            connect(spec, source) as executor,
            show_progress(source, executor, kind_of(job), quiet=quiet or as_json) as callbacks,
        ):
            report = partial(write_report, name=last_name(job.out))
            outcome = train_job(
                job,
                source,
                executor,
                begin=begin,
                overwrite=flags["overwrite"],
                report=report,
                progress=callbacks,
                retraining=retraining,
            )
    if as_json:
        print_json(summary_of(outcome))
    else:
        print_lines(*describe_outcome(outcome, job))
    return 0 if outcome.model.status == "certified" else 4


COMMANDS = (train, retrain, run, plan)
