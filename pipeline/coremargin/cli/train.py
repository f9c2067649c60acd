"""``coremargin train``, ``retrain``, ``run`` and ``plan``: from a store to a proof."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coremargin.cli.common import MODEL, PATH, GroupedCommand, cluster_option, json_option, progress, quiet_option
from coremargin.cli.ingest import report_lines, warning_lines
from coremargin.cli.options import TrainCommand, job_parameters
from coremargin.cli.printing import print_json, print_lines
from coremargin.cli.tables import column_options, column_words, ingest_shown, split, suggesting
from coremargin.errors import UsageError
from coremargin.interruption import terminable

if TYPE_CHECKING:
    from coremargin.learn.retrain import RetrainJob
    from coremargin.learn.start import Beginning
    from coremargin.learn.train import Begin
    from coremargin.problems.job import TrainJob

# Files in the place of a store: what `train` makes of them before it begins.


def rows_of(given: Path, out: Path, of_files: dict[str, Any]) -> Path:
    """The store to train on: the one that is given, or that of the files that are. Raises UsageError."""
    from coremargin.data.store_paths import is_store, store_beside

    if not is_store(given):
        return store_beside(Path(out))
    said = [name for name, value in of_files.items() if value]
    if said:
        option = "--" + said[0].replace("_", "-")
        raise UsageError(f"{option} does not apply to {given}, a store, whose columns are what they are: leave it out")
    return given


def ingest_files(source: Path, job: TrainJob, of_files: dict[str, Any], begin: Begin, flags: dict[str, bool]) -> None:
    """Make the store beside a model, where it is not there, and say so; refuse before what would fail after it."""
    from coremargin.learn.files import ingest_beside
    from coremargin.learn.train import check_output
    from coremargin.problems.registry import kind_of

    quiet, overwrite = flags["quiet"] or flags["as_json"], flags["overwrite"]
    options = {**of_files, "drop": split(of_files["drop"]) or ()}
    if options["label"] is None and not kind_of(job).labelled:
        options["unlabelled"] = True
    with suggesting(), terminable():
        check_output(job, begin, overwrite=overwrite)
        with progress(quiet=quiet) as advance:
            shown = ingest_shown(advance)
            made = ingest_beside(str(source), job.out, begin, overwrite=overwrite, on_progress=shown, **options)
    if not quiet:
        told = [made.told] if made.told else []
        print_lines(*told, *(report_lines(made.report) if made.report else []), "")
    elif made.report:
        print_lines(*warning_lines(made.report), err=True)


SECTION = "Train"

_resume = click.option("--resume", is_flag=True, help="Continue a run that was interrupted or stopped at a limit.")
_restart = click.option("--restart", is_flag=True, help="Discard the checkpoint of an interrupted run.")
_overwrite = click.option("--overwrite", is_flag=True, help="Replace an existing model, and the store made of files.")


@click.command(cls=TrainCommand, important=("--out", "--loss", "--C", "--classes", "--epsilon"))
@click.argument("store", metavar="STORE|FILE", type=PATH)
@click.option("--label", metavar="COLUMN", help="Label column: a name, or a number from 0 (files only).")
@click.option("--drop", metavar="COLUMNS", help="Columns to exclude (files only).")
@column_options
@cluster_option
@_resume
@_restart
@_overwrite
@json_option
@quiet_option
def train(store: Path, **options: Any) -> int:
    """Train on STORE and prove the result.

    Reads the rows once, or as often as `coremargin plan` says. The margin of the model is proven to be at least
    (1 - epsilon) of the best possible. With --loss, for rows that no hyperplane separates, the objective of the soft
    margin is proven to be within epsilon of the best possible; --loss auto continues with it once it is proven that
    no hyperplane separates the rows. With --outliers, K rows are left out so that the margin is widest, and no other
    K rows do better; Ctrl-C ends that search, saves the best answer and bound so far, and exits with 130.

    STORE may also be a file, or a quoted pattern, that `coremargin ingest` accepts: it is written to rows.zarr beside
    rows.model first. The same command again, or with --resume, uses that store if the file has not changed.

    The exit code is 0 only if the model is certified, and 4 if the run stopped before or nothing separates the
    classes. The model is saved in both cases and says what is proven.

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
    of_files = {name: options.pop(name) for name in ("label", "drop")} | column_words(options)
    rows = rows_of(store, options["out"], of_files)
    job = job_of({"job": "train", "store": str(rows), **job_parameters(options)}, where="coremargin train")
    if rows != store:
        ingest_files(store, job, of_files, _begin(flags), flags)
    return _run(job, cluster, flags)


@click.command(cls=GroupedCommand, important=("--out", "--epsilon"))
@click.argument("model", type=MODEL)
@click.argument("store", type=PATH)
@click.option("--out", type=PATH, required=True, help="Folder of the new model.")
@click.option("--kernel", metavar="MODULE:FUNCTION", help="The kernel function of a model that has one.")
@click.option("--epsilon", type=float, help="Share of the best that may be missed.  [default: that of MODEL]")
@click.option("--memory", help="Memory for rows on the driver.  [default: a quarter of the available memory]")
@click.option(
    "--keep-for-retraining",
    help="Most bytes of warm-start state for the next retraining; 0: none.  [default: that of MODEL]",
)
@click.option("--block", help="Bytes that one task reads.  [default: that of MODEL]")
@click.option("--max-scans", type=int, help="Stop after this many scans with what is proven.")
@click.option("--time-limit", help='Stop after this time, such as "2 h", with what is proven.')
@cluster_option
@_resume
@_restart
@_overwrite
@json_option
@quiet_option
def retrain(model: Path, store: Path, **options: Any) -> int:
    """Retrain MODEL on the current rows of STORE.

    STORE is the one that MODEL was trained on, with rows appended or removed, or labels or weights changed since. The
    new model has the same parameters and the same certificate as one that is trained from scratch. Only what is new is
    read, and old rows where the change leaves something unproven. Models without warm-start state, soft margins that
    took several scans or have few rows for their features, and scalings that depend on all rows are trained from
    scratch; the command says so.

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
    return _run_again(job, cluster, flags)


@click.command()
@click.argument("job_file", metavar="JOB", type=PATH)
@cluster_option
@_resume
@_restart
@_overwrite
@click.option(
    "--step", metavar="NAME", help="Only this step of a nightly job: ingest, retrain, gates, promote or predict."
)
@json_option
@quiet_option
def run(job_file: Path, cluster: str | None, step: str | None, **flags: bool) -> int:
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
    from coremargin.cli.nightly import run_if_nightly

    code = run_if_nightly(job_file, cluster, step, flags)
    if code is not None:
        return code
    from coremargin.cli.kinds import own_run
    from coremargin.learn.retrain import load_retrain_job
    from coremargin.problems.registry import load_job

    again = load_retrain_job(job_file)
    if again is not None:
        return _run_again(again, cluster, flags)
    job = load_job(job_file)
    return (own_run(job) or _run)(job, cluster, flags)


@click.command()
@click.argument("job_file", metavar="JOB", type=PATH)
@cluster_option
@json_option
def plan(job_file: Path, cluster: str | None, as_json: bool) -> None:
    """Show what a job would do: blocks, tasks, bytes, memory, time, and what would be submitted.

    Reads the store's metadata and one chunk; runs nothing. For a retraining it also reads the new rows, and says what
    has changed and how many rows will be read first.

    \b
      coremargin plan jobs/train.toml --cluster cluster/slurm.toml
    """
    from coremargin.cli.jobs import plan_of, plan_text
    from coremargin.learn.retrain import load_retrain_job, prepared
    from coremargin.problems.registry import load_job

    again = load_retrain_job(job_file)
    begun = None if again is None else prepared(again)
    planned = plan_of(load_job(job_file) if begun is None else begun.job, cluster, begun)
    if as_json:
        print_json(planned)
    else:
        print_lines(*plan_text(planned))


def _begin(flags: dict[str, bool]) -> Begin:
    """How to begin, where a run before left something."""
    if flags["resume"] and flags["restart"]:
        raise click.UsageError("--resume and --restart cannot be combined")
    return "resume" if flags["resume"] else "restart" if flags["restart"] else "new"


def _run_again(job: RetrainJob, cluster: str | None, flags: dict[str, bool]) -> int:
    from coremargin.learn.retrain import prepared
    from coremargin.problems.resuming import with_cluster

    asked = with_cluster(job, cluster)
    begun = prepared(asked, _begin(flags))
    return _run(begun.job, cluster, flags, begun)


def _run(job: TrainJob, cluster: str | None, flags: dict[str, bool], beginning: Beginning | None = None) -> int:
    from functools import partial

    from coremargin.cli.jobs import cluster_of
    from coremargin.cli.messages import outcome_text
    from coremargin.cli.progress_line import live
    from coremargin.engine.clusters.connect import connect
    from coremargin.learn.record import summary_of
    from coremargin.learn.train import check_output, open_store, train_job
    from coremargin.problems.registry import kind_of, write_report
    from coremargin.problems.resuming import with_cluster

    as_json, quiet = flags.pop("as_json"), flags.pop("quiet")
    begin = _begin(flags)
    with terminable():
        where = cluster_of(job, cluster)
        job = with_cluster(job, cluster)
        source = open_store(job, begin)
        check_output(job, begin, overwrite=flags["overwrite"])
        with (
            connect(where, source) as executor,
            live(source, executor, kind_of(job), quiet=quiet or as_json) as progress,
        ):
            report = partial(write_report, name=job.out.name)
            outcome = train_job(
                job,
                source,
                executor,
                begin=begin,
                overwrite=flags["overwrite"],
                report=report,
                progress=progress,
                beginning=beginning,
            )
    if as_json:
        print_json(summary_of(outcome))
    else:
        print_lines(*outcome_text(outcome, job))
    return 0 if outcome.model.status == "certified" else 4


COMMANDS = (train, retrain, run, plan)
