"""``coremargin active stream``: learn from rows that are not stored, few of which are queried."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coremargin.cli.common import PATH, PLAIN_SECONDS, json_option, quiet_option
from coremargin.cli.options import TrainCommand, options_of
from coremargin.cli.printing import print_json, print_lines
from coremargin.interruption import terminable

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np

    from coremargin.active.stream import StreamJob
    from coremargin.active.stream_learner import StreamLearner

_MAPPED = ("map", "components", "gamma", "degree", "coef0", "map_seed")


class StreamCommand(TrainCommand):
    """A command with options for the parameters of a stream."""

    def generated_options(self) -> list[click.Option]:
        """The options."""
        from coremargin.active.stream import StreamJob
        from coremargin.problems.job import TrainJob

        own = ("epsilon", "error", "confidence", "intercept", "batch")
        return [*options_of(StreamJob, own), *options_of(TrainJob, _MAPPED)]


@click.command(cls=StreamCommand, important=("--out", "--label", "--classes", "--follow"))
@click.argument("rows", nargs=-1, required=True, metavar="ROWS...")
@click.option("--out", type=PATH, required=True, help="Folder of the stream.")
@click.option("--label", metavar="COLUMN", help="The column of the labels.  [default: a person is asked]")
@click.option("--drop", multiple=True, metavar="COLUMN", help="Leave a column out. Can be given several times.")
@click.option("--delimiter", default=",", show_default=True, help="Between the values of delimited text.")
@click.option(
    "--header/--no-header",
    default=None,
    help="Whether the first line names the columns.  [default: if it has no number]",
)
@click.option("--classes", metavar="A,B[,...]", help="The labels; of two, the negative one first.")
@click.option("--follow", is_flag=True, help="Wait for files that are added to the folder ROWS.")
@click.option("--from-start", is_flag=True, help="To continue: a pipe begins again with the rows that were seen.")
@click.option("--new-rows", is_flag=True, help="To continue: a pipe goes on after the rows that were seen.")
@json_option
@quiet_option
def stream(
    rows: tuple[str, ...], *, from_start: bool, new_rows: bool, as_json: bool, quiet: bool, **options: Any
) -> int:
    """Learn from rows as they arrive; none of them has to be stored.

    ROWS are CSV or Parquet files, folders of them, and pipes (a path, or - for standard input) with CSV or an Arrow
    stream; several are read at the same time and taken in turn. Rows near the hyperplane are queried: their label is
    taken from --label, or a person is asked. It ends when a long run of rows has shown that few are labelled wrongly,
    or with the rows. The rows have to be drawn independently, or shuffled.

    If it is killed, the same command continues. For a pipe, say --from-start or --new-rows. The result is in
    OUT/result: a model, its claim, and the rows that it was made of.

    The exit code is 0 only if the claim is proven, and 4 if it is not.

    \b
      producer | coremargin active stream - --out spam.stream --label spam
      coremargin active stream arriving/ --follow --out spam.stream --classes ham,spam
      coremargin verify spam.stream/result/model spam.stream/result/rows.zarr
    """
    from coremargin.active.stream import StreamJob
    from coremargin.data.labels import label_from_text
    from coremargin.spec import convert

    if from_start and new_rows:
        raise click.UsageError("--from-start and --new-rows cannot be combined")
    options["intercept"] = not options["intercept"]  # the flag turns it off
    if options["classes"] is not None:
        options["classes"] = [label_from_text(text) for text in options["classes"].split(",")]
    given = {name: value for name, value in options.items() if value is not None}
    given |= {"job": "stream", "rows": list(rows), "drop": list(options["drop"]), "out": str(options["out"])}
    given |= {"pipe": "from-start"} if from_start else {"pipe": "new-rows"} if new_rows else {}
    job = convert(given, StreamJob, where="active stream", base=Path())
    return run(job, {"as_json": as_json, "quiet": quiet})


def run(job: StreamJob, flags: dict[str, bool]) -> int:
    """Run a stream, print its claim, and return the exit code."""
    from coremargin.active.stream import RESULT, run_stream

    shown = time.monotonic()

    def report(learner: StreamLearner) -> None:
        nonlocal shown
        if time.monotonic() - shown > PLAIN_SECONDS:
            shown = time.monotonic()
            print_lines(f"{learner.rows_seen:,} rows, {learner.labels_asked:,} labels", err=True)

    silent = flags["quiet"] or flags["as_json"]
    with terminable():
        learner = run_stream(job, ask=_ask_person, report=None if silent else report)
    result = job.out / RESULT
    if flags["as_json"]:
        names = ("status", "rows_seen", "labels_asked", "unsure", "evidence")
        print_json({name: getattr(learner, name) for name in names} | {"result": str(result)})
    else:
        print_lines(*learner.claim.splitlines(), f"wrote {result}")
    return 0 if learner.status == "certified" else 4


def run_job_file(job: StreamJob, cluster: str | None, flags: dict[str, bool]) -> int:
    """Run a stream that a job file describes; as ``run``."""
    for name in ("resume", "restart", "overwrite"):
        if flags[name]:
            raise click.UsageError(f"--{name} cannot be used with a stream, which continues by itself")
    if cluster is not None:
        raise click.UsageError("--cluster cannot be used with a stream, whose rows come to this process")
    return run(job, flags)


def _ask_person(row: int, values: np.ndarray, features: Sequence[str], classes: list[Any]) -> Any:
    """The label that a person gives a row in the terminal; None: it cannot be labelled."""
    from coremargin.cli.terminal import ask_about_row
    from coremargin.errors import Interrupted

    found = ask_about_row(row, values, features, classes)
    if found is None:
        raise Interrupted("every answer is kept; the same command continues")
    return found.label
