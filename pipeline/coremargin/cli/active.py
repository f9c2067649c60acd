"""``coremargin active``: label few of many rows, by people or from a file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coremargin.cli.annotate import label, page, report
from coremargin.cli.answer_files import FORMATS, LABEL_STUDIO, answers
from coremargin.cli.campaigns import campaign_argument, opening, print_status, shown_of, shown_options, who_option
from coremargin.cli.common import PATH, STORE, WHOLE, cluster_option, json_option, quiet_option, storage_option
from coremargin.cli.label_studio import label_studio
from coremargin.cli.options import TrainCommand, options_of
from coremargin.cli.printing import print_json, print_lines
from coremargin.cli.stream import stream
from coremargin.errors import SpecError
from coremargin.interruption import terminable

if TYPE_CHECKING:
    from coremargin.data.amend import LabelReport
    from coremargin.formats.location import Location
    from coremargin.problems.active.spec import ActiveJob

# ``coremargin active labels``: the answers of a campaign as labels of its store.


@click.command()
@click.argument("campaign", type=PATH)
@json_option
def labels(campaign: Path, as_json: bool) -> None:
    """Write the answers into the store as a commit.

    Rows without an answer keep their label. A row whose answer was undone loses its label if that label came from
    the campaign. Earlier commits can still be opened, and the campaign continues on them. If the store already has
    exactly these answers, nothing is written.

    \b
      coremargin active labels rows.campaign
      coremargin train rows.zarr --out model
    """
    with opening(campaign) as opened:
        found = opened.write_labels()
        store = str(opened.store.storage.name)
    if as_json:
        known = ("given", "added", "replaced", "removed", "digest")
        examples = [{"row": row, "before": before, "now": now} for row, before, now in found.examples]
        print_json({"store": store, **{name: getattr(found, name) for name in known}, "examples": examples})
    else:
        print_lines(*_describe_labels(found, store))


def _describe_labels(found: LabelReport, store: str) -> list[str]:
    from coremargin.report.text import count

    if not found.changed:
        return [f"nothing to write: {store} has the labels of all {count(found.given, 'answer')}"]
    there = count(found.given - found.added - found.replaced, "answer")
    got = f"{count(found.added, 'row')} without label got one, {count(found.replaced, 'row')} had another one"
    back = f", {count(found.removed, 'row')} whose answer was taken back lost theirs" if found.removed else ""
    lines = [f"{store}: {got}{back}; {there} there already"]
    for row, before, now in found.examples:
        lines.append(f"  row {row:,} was {before!r}, {'has none' if now is None else f'is {now!r}'} now")
    if found.replaced + found.removed > len(found.examples):
        lines.append(f"  and {found.replaced + found.removed - len(found.examples):,} more")
    return [*lines, f"commit  {found.digest}"]


SECTION = "Train"


class StartCommand(TrainCommand):
    """A command with options for the parameters of a campaign."""

    def generated_options(self) -> list[click.Option]:
        """The options."""
        from coremargin.problems.active.spec import ActiveJob

        proven = (
            "method",
            "hypothesis",
            "multi_class",
            "epsilon",
            "error",
            "confidence",
            "by_class",
            "loss",
            "C",
            "trial",
            "seed",
        )
        mapped = ("map", "components", "gamma", "degree", "coef0", "map_seed")
        return options_of(ActiveJob, (*proven, "intercept", "scaling", *mapped, "memory", "block"))


@click.group(no_args_is_help=True)
def active() -> None:
    """Active learning: few labels for a store that has none.

    A campaign is a folder. It asks for the labels of the most informative rows until its margin is proven, and
    random draws have shown that few rows can be labelled wrongly. It can be interrupted at any moment; no answer is
    lost.

    \b
      coremargin active start rows.zarr --out rows.campaign --classes ham,spam
      coremargin active page rows.campaign
      coremargin active label rows.campaign
      coremargin active ask rows.campaign -n 20 --to questions.csv
      coremargin active tell rows.campaign questions.csv
      coremargin active status rows.campaign
    """


@active.command(cls=StartCommand, important=("--out", "--classes", "--examples", "--loss", "--people"))
@click.argument("store", type=STORE)
@click.option("--out", type=PATH, required=True, help="Folder of the campaign.")
@storage_option
@click.option(
    "--classes",
    metavar="A,B[,...]",
    help="The labels; of two, the negative one first.  [default: the store's, else the first two answered]",
)
@click.option(
    "--examples",
    type=PATH,
    help="Known labels: a file of row,label, or another campaign.",
)
@click.option(
    "--like",
    metavar="ROWS|FILE",
    help="Ask about rows similar to these first: numbers of rows such as 7,12; a file of rows; a .txt file of texts.",
)
@click.option("--expires", metavar="TIME", help='Ask an unanswered question again after this time, such as "2 h".')
@click.option("--people", type=WHOLE, help="Number of people who label each row; the majority, or --settle, decides.")
@click.option("--settle", metavar="NAME", help="Who decides where the --people disagree.")
@json_option
def start(store: Path | Location, **options: Any) -> None:
    """Start a campaign on the rows of STORE.

    Labels in the store are ignored; only their names are used. Three or more classes must be named by --classes or
    by the store. If answers contradict each other, or no hyperplane separates the classes, start another campaign
    with a loss from the answers of the first.

    If one class is rare, --like finds the rows most similar to some examples of it, in one scan.

    \b
      coremargin active start rows.zarr --out rows.campaign --classes ham,spam
      coremargin active start texts.zarr --out texts.campaign --like texts.txt
      coremargin active start s3://bucket/rows.zarr --out rows.campaign --storage-option region=eu-central-1
      coremargin active start rows.zarr --out soft.campaign --loss hinge --C auto --examples rows.campaign
    """
    from coremargin.active import Campaign
    from coremargin.data.labels import label_from_text
    from coremargin.problems.active.spec import cost_of

    out, classes, as_json = (options.pop(name) for name in ("out", "classes", "as_json"))
    options["intercept"] = not options["intercept"]  # the flag turns it off
    if classes is not None:
        options["classes"] = [label_from_text(text) for text in classes.split(",")]
        if len(options["classes"]) < 2 or None in options["classes"]:
            raise click.BadParameter(f"expected labels such as ham,spam; found {classes}", param_hint="--classes")
    if options["like"] is not None:
        like = options["like"]
        options["like"] = [int(row) for row in like.split(",")] if re.fullmatch(r"[0-9]+(,[0-9]+)*", like) else like
    if options["C"] is not None:
        try:
            options["C"] = cost_of(options["C"])
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--C") from None
    given_options = {name: value for name, value in options.items() if value is not None}
    with terminable(), Campaign.create(out, store, **given_options) as begun:
        print_status(begun.status, as_json, f"started: {out}; `coremargin active label {out}` asks in this terminal")


@active.command()
@campaign_argument
@click.option("-n", "count", type=WHOLE, default=1, show_default=True, help="Most rows to ask about.")
@click.option("--to", "target", type=PATH, help="Write the questions to a file to fill in or to import.")
@click.option("--format", "kind", type=click.Choice(FORMATS), help="Format of the file.  [default: by its name]")
@shown_options
@click.option("--again", is_flag=True, help="Repeat unanswered questions of --who.")
@who_option
@cluster_option
@json_option
@quiet_option
def ask(campaign: Path, count: int, target: Path | None, kind: str | None, **options: Any) -> None:
    """Ask about the most informative rows.

    Scans the store if no row in memory is worth a question. --text, --image and --pixels say what Label Studio
    shows of a row; without them it shows the features.

    \b
      coremargin active ask rows.campaign -n 20 --to questions.csv
      coremargin active ask rows.campaign -n 20 --to tasks.json --format label-studio
    """
    from coremargin.active.answer_files import refuse_taken
    from coremargin.cli.answer_files import tasks_of, write
    from coremargin.cli.campaign_status import nothing_to_ask

    show = shown_of(options)
    if kind != LABEL_STUDIO and any(show.values()):
        raise click.UsageError("--text, --image and --pixels are of tasks: give them with --format label-studio")
    if target is not None:  # before questions are recorded
        refuse_taken(target, campaign)
    elif kind is not None:
        raise click.UsageError("--format is of a file: give it with --to")
    with opening(campaign, options["cluster"], quiet=options["quiet"] or options["as_json"]) as opened:
        tasks = tasks_of(opened, show) if kind == LABEL_STUDIO else None  # before questions are recorded
        questions = opened.ask(count, who=options["who"], again=options["again"])
        status = opened.status
        if target is not None and questions:
            write(questions, target, kind, tasks)
    if options["as_json"]:
        print_json({**status, "questions": [{"row": q.row, "why": q.why, "attempt": q.attempt} for q in questions]})
    elif target is not None and questions:
        then = "import them into Label Studio" if kind == LABEL_STUDIO else "fill in the labels"
        print_lines(f"{len(questions):,} questions are in {target}: {then}, then")
        print_lines(f"coremargin active tell {campaign} {'EXPORT.json' if kind == LABEL_STUDIO else target}")
    elif questions:
        print_lines(*(f"row {question.row:,}  {question.why}" for question in questions))
    else:
        print_lines(*nothing_to_ask(status))


@active.command()
@campaign_argument
@click.argument("file", type=PATH)
@click.option("--examples", is_flag=True, help="Accept answers about rows that were not asked about.")
@click.option("--whole", is_flag=True, help="The export is complete: missing tasks were deleted.")
@who_option
@json_option
def tell(campaign: Path, file: Path, **options: Any) -> None:
    """Record the answers in FILE: CSV, JSONL or Parquet with row and label, or a JSON export of Label Studio.

    A column "action" may contain skip, unsure, undo or correct instead of a label. Either the whole file is
    recorded or nothing. Annotations that were changed or deleted in Label Studio are changed or removed here;
    answers given elsewhere stay; rows on which annotators disagree are listed.

    \b
      coremargin active tell rows.campaign questions.csv
      coremargin active tell rows.campaign export.json
    """
    from coremargin.cli.answer_files import take
    from coremargin.report.text import count

    with opening(campaign) as opened:
        before = opened.status
        new, more, lines = take(opened, file, options["who"], examples=options["examples"], whole=options["whole"])
        status = opened.status
    print_status(status, options["as_json"], count(new, "new answer"), *lines, before=before, new=new, **more)


@active.command()
@campaign_argument
@click.option(
    "--oracle",
    type=PATH,
    required=True,
    help="Where answers come from: a labelled store; CSV, JSONL or Parquet of row,label; text or NPY, a label per row.",
)
@click.option("--batch", type=WHOLE, default=1, show_default=True, help="Questions per round.")
@click.option("--most", type=WHOLE, help="Stop after this many answers.")
@cluster_option
@json_option
@quiet_option
def run(campaign: Path, oracle: Path, **options: Any) -> int:
    """Run a campaign to its end with answers from a file.

    The exit code is 0 only if the model is certified, and 4 if it is not.

    \b
      coremargin active run rows.campaign --oracle labels.csv
    """
    from coremargin.active.answer_files import oracle_of

    quiet = options["quiet"] or options["as_json"]
    with opening(campaign, options["cluster"], quiet=quiet, whole=False) as opened:
        status = opened.run(
            oracle_of(oracle, opened.store.rows, opened.newest_rows),
            batch=max(1, options["batch"]),
            most=options["most"],
            who=f"file {oracle.name}",
        )
    print_status(status, options["as_json"])
    return 0 if status["status"] == "certified" else 4


def run_job(job: ActiveJob, cluster: str | None, flags: dict[str, bool]) -> int:
    """Start or continue the campaign that a job file describes; as ``run``."""
    from coremargin.active.answer_files import oracle_of
    from coremargin.active.answers import name_of
    from coremargin.active.create import Rules, check_same_job, create_campaign
    from coremargin.formats.campaign import FILE

    if flags["restart"] or flags["overwrite"]:
        raise click.UsageError("a campaign is not replaced, as people's answers are in it; choose another out")
    if job.oracle is None:
        raise SpecError("oracle: required key is missing: the file that answers; people are asked by `active label`")
    if Path(job.out, FILE).exists():
        check_same_job(job)
    else:
        create_campaign(job, Rules(), (), name_of(None))
    where = job.cluster if cluster is None else cluster
    with opening(Path(job.out), where, quiet=flags["quiet"] or flags["as_json"], whole=False) as opened:
        answers = oracle_of(job.oracle, opened.store.rows, opened.newest_rows)
        status = opened.run(answers, batch=job.batch, who=f"file {job.oracle.name}")
    print_status(status, flags["as_json"])
    return 0 if status["status"] == "certified" else 4


@active.command()
@campaign_argument
@json_option
def status(campaign: Path, as_json: bool) -> None:
    """Show the status of a campaign: answers, draws, bounds.

    Does not scan the store. If the campaign's state was lost, shows what its log and model contain.

    \b
      coremargin active status rows.campaign --json
    """
    from coremargin.active.status import status_without_state

    found = status_without_state(campaign)
    if found is None:
        with opening(campaign) as opened:
            found = opened.status
    print_status(found, as_json)


@active.command()
@campaign_argument
@who_option
@json_option
def grow(campaign: Path, who: str | None, as_json: bool) -> None:
    """Continue a finished campaign with the rows appended to its store.

    A campaign that has not finished includes them at its next scan. Everything is proven again, for all rows.

    \b
      coremargin ingest more.csv rows.zarr --append
      coremargin active grow rows.campaign
    """
    from coremargin.report.text import count

    with opening(campaign) as opened:
        more = opened.grow(who=who)
        found = opened.status
    head = f"{count(more, 'row')} more" if more else "no rows were appended: nothing has changed"
    print_status(found, as_json, head, new_rows=more)


@active.command()
@campaign_argument
@json_option
def stop(campaign: Path, as_json: bool) -> None:
    """Write the model of the answers so far; the campaign can be continued.

    \b
      coremargin active stop rows.campaign
    """
    with opening(campaign) as opened:
        _ = opened.model  # raises UsageError if all answers are of one class
        opened.stop()
        found = opened.status
    print_status(found, as_json, f"model   {campaign / 'model'}")


for command in (label, page, report, labels, label_studio, answers, stream):
    active.add_command(command)
COMMANDS = (active,)
