"""``coremargin compare``: published strategies of the hard margin on the same rows."""

from __future__ import annotations

import shlex
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from coremargin.cli.common import STORE, cluster_option, json_option, quiet_option, storage_option
from coremargin.cli.printing import print_json, print_lines
from coremargin.formats.choices import ScalingKind
from coremargin.formats.location import storage_words

if TYPE_CHECKING:
    from coremargin.formats.location import Location
    from coremargin.problems.hard.comparison import Comparison, Run

SECTION = "Train"


@click.command(no_args_is_help=True)
@click.argument("store", type=STORE)
@click.option(
    "--strategies",
    metavar="all|NAME[,...]",
    default="all",
    show_default=True,
    help="Strategies to run, in this order.",
)
@click.option("--out", type=STORE, help="Write a page with charts to this file or address.")
@click.option("--overwrite", is_flag=True, help="Replace an existing page.")
@click.option("--epsilon", type=float, default=1e-2, show_default=True, help="Relative gap of a strategy's own margin.")
@click.option("--no-intercept", is_flag=True, help="Hyperplanes through the origin.")
@click.option("--scaling", type=click.Choice(get_args(ScalingKind)), help="Scale rows first.")
@click.option("--reads", type=float, default=100.0, show_default=True, help="Most reads of the store by each strategy.")
@click.option("--limit", metavar="TIME", default="60s", show_default=True, help='Most time of each; "none": no limit.')
@click.option("--memory", help="Memory for rows on the driver.  [default: a quarter of the available memory]")
@storage_option
@cluster_option
@json_option
@quiet_option
def compare(store: Path | Location, **options: Any) -> None:
    """Compare the strategies of the hard margin on STORE by what they prove.

    Every strategy runs until its own hyperplane is certified, its own rule ends it, or a limit is reached. The margin
    of its own hyperplane, and that of the exact solution of the rows that it used, are proven by scans of all rows. A
    limit of reads, with --limit none, gives the same numbers on any machine.

    Names: fast, paper, any-violator, perceptron, raw-perceptron, averaged-perceptron, uneven-perceptron, romma,
    aggressive-romma, passive-aggressive, alma, alma-p, kowalczyk, slab, cutting-planes, lp, primal-qp, dual-qp,
    chunking, osuna, smo, cvm.

    \b
    Examples:
      coremargin compare rows.zarr --out strategies.html
      coremargin compare rows.zarr --strategies fast,paper,perceptron,osuna
    """
    from coremargin.data.store import Store
    from coremargin.learn.compare import compare as run
    from coremargin.learn.compare import exponential_lesson, names_of, rescaled_lesson
    from coremargin.models.executor import executor_of
    from coremargin.models.output_file import whole_file
    from coremargin.problems.hard import comparison
    from coremargin.units import parse_seconds

    names, out, quiet = names_of(options["strategies"]), options["out"], options["quiet"] or options["as_json"]
    limit = None if options["limit"] == "none" else parse_seconds(options["limit"])
    source = Store.open(store)
    with (
        nullcontext()
        if out is None
        else whole_file(out, "a page of strategies", comparison.is_page, overwrite=options["overwrite"]) as file
    ):
        with executor_of(source, options["cluster"]) as executor:
            found = run(
                source,
                executor,
                names,
                epsilon=options["epsilon"],
                intercept=not options["no_intercept"],
                scaling=options["scaling"],
                memory=options["memory"],
                reads=options["reads"],
                limit=limit,
                on_run=(lambda _: None) if quiet else _print_run,
            )
        if file is not None:
            page = comparison.render(found, exponential_lesson(), rescaled_lesson(), _command(store, options))
            file.write(page.encode("utf-8", "backslashreplace"))
    if options["as_json"]:
        print_json(found.to_json())
    elif not quiet:
        print_lines("", *_summary(found, out))


def _print_run(run: Run) -> None:
    if run.refused:
        print_lines(f"{run.strategy:20} refused: {run.refused}")
        return
    proven = [f"{value:.6g}" if value is not None and value > 0 else "-" for value in (run.own, run.lower, run.upper)]
    theorem = "" if run.updates_at_most is None else f" of at most {run.updates_at_most:.3g}"
    updates = "" if run.updates is None else f"; {run.updates:,} updates{theorem}"
    print_lines(
        f"{run.strategy:20} {run.reads:8.2f} reads, {run.seconds:6.1f} s: own margin {proven[0]}, best {proven[1]}, at "
        f"most {proven[2]}{updates}; {run.ended}"
    )


def _summary(found: Comparison, out: Path | Location | None) -> list[str]:
    lines = ["no strategy found a hyperplane that separates the rows"]
    if found.lower is not None:
        lines = [f"the largest margin lies between {found.lower:.9g} and {found.upper:.9g}"]
    if any(run.status == "not_separable" for run in found.runs):
        lines = ["no hyperplane separates the rows, to within float64"]
    return lines + ([] if out is None else [f"page: {out}"])


def _command(store: Path | Location, options: dict[str, Any]) -> str:
    words = ["coremargin", "compare", str(store), "--strategies", options["strategies"]]
    words += ["--epsilon", repr(options["epsilon"]), "--reads", f"{options['reads']:.17g}", "--limit", options["limit"]]
    words += ["--no-intercept"] if options["no_intercept"] else []
    for name in ("scaling", "memory", "cluster"):
        words += [f"--{name}", str(options[name])] if options[name] else []
    return shlex.join([*words, *storage_words(store, options["out"]), "--out", str(options["out"])])


COMMANDS = (compare,)
