"""``coremargin verify``, ``predict`` and ``evaluate``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from coremargin.cli.common import (
    MODEL,
    STORE,
    cluster_option,
    cost_option,
    gamma_option,
    json_option,
    kernel_option,
    locate,
    progress,
    quiet_option,
    storage_option,
    structure_option,
)
from coremargin.cli.printing import print_json, print_lines, screen_width
from coremargin.cli.tables import show_ingest_progress, split
from coremargin.engine.resources import THREAD_BYTES, memory_limit, need_memory
from coremargin.errors import CoremarginError
from coremargin.interruption import terminable
from coremargin.report.numbers import plain_bounds
from coremargin.report.text import count, facts, table

if TYPE_CHECKING:
    from coremargin.cli.common import Advance
    from coremargin.formats.location import Location
    from coremargin.models.evaluate import Evaluation, GroupScores, OneClassEvaluation, Weighted
    from coremargin.models.rank_evaluation import RankEvaluation
    from coremargin.models.ranks import AtPrecision
    from coremargin.verify.outcome import Outcome, Verification

SECTION = "Models"

_model = click.argument("model", type=MODEL)
_store = click.argument("store", type=STORE)
_rows = click.argument("store", metavar="STORE|FILE", type=STORE)
_threshold = click.option(
    "--threshold",
    type=float,
    default=0.0,
    metavar="T",
    help="Of two classes, predict the second for decision values above T.  [default: 0]",
)
_drop = click.option("--drop", metavar="COLUMNS", help="Columns of the file to ignore.")


@click.command(no_args_is_help=True)
@_model
@_store
@click.option("--epsilon", type=float, metavar="E", help="Require that the bounds prove this epsilon.")
@click.option("--threads", type=click.IntRange(1), metavar="NUMBER", help="Chunks read at a time.  [default: cores]")
@click.option("--sha256", is_flag=True, help="Also compute the SHA-256 of all chunks, which no forger can match.")
@kernel_option
@structure_option
@storage_option
@json_option
@quiet_option
def verify(  # noqa: PLR0913 - one for each option
    model: Path | Location,
    store: Path | Location,
    *,
    epsilon: float | None,
    threads: int | None,
    sha256: bool,
    kernel: Any,
    structure: Any,
    as_json: bool,
    quiet: bool,
) -> None:
    """Check the certificate of MODEL against every row of STORE.

    One scan, with code that shares nothing with the trainer: coreset rows are read from the store, the upper bound is
    recomputed from them, and every row must have the claimed margin. For a soft margin, the primal and dual values
    are recomputed over every row. All models of a multi-model job are checked in one scan, and class counts are
    recomputed. For a campaign or its model, draws and their evidence are recomputed; if MODEL is the campaign's
    folder, its log of answers is checked too.

    The exit code is 0 only if every claim holds, 4 if one is false or --epsilon requires more than is proven, and 3
    if the model or the store is damaged.

    \b
    Examples:
      coremargin verify rows.model rows.zarr
      coremargin verify rows.model rows.zarr --epsilon 1e-3 && publish rows.model
    """
    from coremargin.errors import UsageError
    from coremargin.verify.examine import examine, refutation

    if epsilon is not None and not 0 < epsilon < 1:
        raise UsageError(f"--epsilon: expected a number between 0 and 1, both excluded; got {epsilon}")
    with terminable(), progress(quiet=quiet) as advance:
        shown = _show_rows_progress(advance, "verifying", store)
        workers = _check_threads(threads)
        result = examine(
            model, store, kernel=kernel, structure=structure, threads=workers, sha256=sha256, on_progress=shown
        )
    if as_json:
        print_json(result.to_dict())
    else:
        print_lines(*_describe_checks(result))
    if not result.ok:
        raise refutation(result)
    if epsilon is not None:
        for one in result.singles:
            _require_epsilon(one, epsilon)


def _check_threads(threads: int | None) -> int | None:
    """Threads for which there is memory, if it is limited; None: the verifier chooses."""
    if threads is None:
        return None if memory_limit() is None else 1  # BLAS has allocated its buffers for one thread
    need_memory(threads * THREAD_BYTES, f"--threads {threads}")
    return threads


def _describe_checks(result: Outcome) -> list[str]:
    width = max(len(check.name) for check in result.listed)
    return [
        f"{result.model}, {result.store}:",
        "",
        *(f"  {'ok   ' if c.ok else 'FALSE'}  {c.name.ljust(width)}  {c.text}" for c in result.listed),
        *(f"  {text}" for text in result.tally),
        "",
        "not checked:",
        *(f"  {text}" for text in result.unchecked),
        "",
        result.verdict(lambda upper: plain_bounds(None, upper)[1]),
    ]


def _require_epsilon(result: Verification, epsilon: float) -> None:
    """Raise NotCertified unless the verified bounds prove ``epsilon``."""
    from coremargin.errors import NotCertified
    from coremargin.verify.checks import certified

    lower, upper = result.claimed_lower, result.claimed_upper  # verified
    if not certified(lower, upper, epsilon):
        proven = f"epsilon {plain_bounds(None, 1 - lower / upper)[1]}" if lower and upper and lower > 0 else "nothing"
        raise NotCertified(
            f"{result.model}: the claims hold, but prove {proven} instead of epsilon {epsilon}; "
            f"train with --epsilon {epsilon}"
        )


@click.command(no_args_is_help=True)
@_model
@_rows
@click.argument("out", type=STORE)
@cost_option
@gamma_option
@kernel_option
@structure_option
@storage_option
@cluster_option
@_drop
@_threshold
@click.option("--overwrite", is_flag=True, help="Replace existing predictions.")
@json_option
@quiet_option
def predict(  # noqa: PLR0913 - one for each option
    model: Path | Location,
    store: Path | Location,
    out: Path | Location,
    *,
    C: float | None,
    gamma: str | float | None,
    kernel: Any,
    structure: Any,
    cluster: str | None,
    drop: str | None,
    threshold: float,
    overwrite: bool,
    **output: bool,
) -> None:
    """Predict the label and decision value of every row of STORE, and write them to OUT.

    STORE may also be a file, or a quoted pattern, that `coremargin ingest` accepts: columns are matched by name and
    encoded as for the model.

    The suffix of OUT gives the format. .parquet, .csv and .jsonl: a table with columns row, label, code and
    decision. .zarr or no suffix: a Zarr group with arrays code and decision, and an attribute "classes" that
    decodes the codes. At an address (s3://, az://, gs://) OUT is one object, of the formats with a suffix but .zarr.
    Without --cluster all cores of this machine are used; the output is the same to the bit
    wherever it runs. --overwrite replaces predictions and nothing else.

    A model of sequences labels the rows of each group together. Its decision value of a row is how far the best
    labelling is ahead of the best one with another label for this row.

    \b
    Examples:
      coremargin predict rows.model new.zarr labels.parquet
      coremargin predict rows.model new.zarr labels.csv
      coremargin predict rows.model new.zarr labels.zarr
      coremargin predict s3://bucket/rows.model new.zarr \\
          s3://bucket/labels.parquet
    """
    from coremargin.models.predict import predict as predict_rows

    with terminable(), progress(quiet=output["quiet"]) as advance:
        result = predict_rows(
            model,
            store,
            out,
            C=C,
            gamma=gamma,
            kernel=kernel,
            structure=structure,
            cluster=cluster,
            overwrite=overwrite,
            drop=split(drop) or (),
            threshold=threshold,
            on_progress=_show_rows_progress(advance, "predicting", store),
            on_ingest=show_ingest_progress(advance),
        )
    if output["as_json"]:
        print_json(result.to_dict())
    else:
        counts = ", ".join(f"{rows:,} of {label!r}" for label, rows in result.counts.items())
        print_lines(f"{result.path}: {result.rows:,} rows: {counts}")


@click.command(no_args_is_help=True)
@_model
@_rows
@cost_option
@gamma_option
@kernel_option
@structure_option
@storage_option
@cluster_option
@_drop
@click.option(
    "--weights", callback=locate, metavar="WHERE", help="Sample weights of a file's rows, as in `coremargin ingest`."
)
@_threshold
@click.option(
    "--precision", type=float, metavar="P", help="Also find thresholds for this precision of the second class."
)
@click.option("--confidence", type=float, metavar="SHARE", help="Of the interval of --precision.  [default: 0.99]")
@json_option
@quiet_option
def evaluate(
    model: Path | Location, store: Path | Location, *, drop: str | None, as_json: bool, quiet: bool, **options: Any
) -> None:
    """Compare the predictions of MODEL for STORE with its labels.

    STORE may also be a file, or a quoted pattern, that `coremargin ingest` accepts: columns are matched by name and
    encoded as for the model.

    Accuracy, precision, recall and F1 of each class, confusion matrix, area under the ROC curve and average precision,
    in one pass and bounded memory. If the matrix is wider than the terminal, the most frequent confusions are shown
    instead; --json has the whole matrix. Rows without a label are counted and skipped. With weights, from the store or
    from --weights, weighted metrics are shown too. For a model of one class, rows outside are counted by label, unless
    labels are 1 and -1, as it predicts them.

    --precision shows two thresholds: the one of the largest recall whose precision on these rows is at least P, and
    the one of which the rows show, with --confidence, that its precision on further rows is. The second holds if rows
    are drawn independently from one source and the model was not trained on them.

    For rows in groups also the share of groups with correct labels for all rows and, if labels are such as B-NP, I-NP
    and O, precision, recall and F1 of chunks, counted as conlleval does. Labels that the model does not know are
    mistakes then.

    For a ranking, the share of the pairs of rows of a group with different
    labels that are in order.

    \b
    Examples:
      coremargin evaluate rows.model test.zarr
      coremargin evaluate rows.model test.zarr --precision 0.9
      coremargin evaluate adult.model adult-test.csv --weights fnlwgt
    """
    from coremargin.models.evaluate import OneClassEvaluation
    from coremargin.models.evaluate import evaluate as evaluate_rows
    from coremargin.models.rank_evaluation import RankEvaluation

    with terminable(), progress(quiet=quiet) as advance:
        show_rows, show_ingest = _show_rows_progress(advance, "evaluating", store), show_ingest_progress(advance)
        result = evaluate_rows(
            model, store, drop=split(drop) or (), on_progress=show_rows, on_ingest=show_ingest, **options
        )
    if as_json:
        print_json(result.to_dict())
    elif isinstance(result, OneClassEvaluation):
        print_lines(*describe_outside(result))
    elif isinstance(result, RankEvaluation):
        print_lines(*describe_order(result))
    else:
        print_lines(*describe_evaluation(result, screen_width()))


def _show_rows_progress(
    advance: Advance | None, what: str, store: Path | Location
) -> Callable[[int, int], None] | None:
    if advance is None:
        return None
    size = 0
    with suppress(OSError, CoremarginError):  # errors are raised later
        if isinstance(store, Path):
            size = sum(file.stat().st_size for file in store.rglob("*") if file.is_file())
        else:
            from coremargin.data.store import Store

            size = Store.open(store).scan_bytes

    def show(done: int, rows: int) -> None:
        advance(what, size * done // rows, size, f"{done:,} rows")

    return show


CONFUSIONS_SHOWN = 10


class _Format(NamedTuple):
    """How entries of a confusion matrix are written, in cells and in sentences."""

    cell: Callable[[Any], str]
    sentence: Callable[[Any], str]


_ROWS = _Format("{:,}".format, lambda rows: count(rows, "row"))
_WEIGHTS = _Format("{:,.6g}".format, "weight {:,.6g}".format)


def describe_evaluation(result: Evaluation, width: int) -> list[str]:
    """Metrics of rows and, if there are weights, weighted metrics, in lines of at most ``width`` characters."""
    unlabelled = f", {result.unlabelled:,} more without label" if result.unlabelled else ""
    pairs = [
        ("rows", f"{result.rows:,}{unlabelled}"),
        *_summary_metrics(result),
        *([] if result.groups is None else _group_metrics(result.groups)),
        ("lowest margin", f"{result.lowest_margin:.6g}"),
    ]
    labels = [repr(score.label) for score in result.classes]
    scores = [
        (label, f"{s.rows:,}", *(f"{value:.6f}" for value in (s.precision, s.recall, s.f1)))
        for label, s in zip(labels, result.classes, strict=True)
    ]
    head = ("label", "rows", "precision", "recall", "F1")
    if result.at_precision is not None:
        pairs += _describe_thresholds(result.at_precision)
    lines = [*facts(pairs), "", *_class_tables([head, *scores], result.confusion, labels, width, _ROWS)]
    if result.groups is not None and result.groups.chunks:
        lines += ["", *_chunk_table(result.groups)]
    if result.weighted is not None:
        matrix = result.weighted.confusion
        sums = [(label, f"{sum(row):,.6g}") for label, row in zip(labels, matrix, strict=True)]
        weighted = [("weights", f"{result.weighted.weight:,.6g} in total"), *_summary_metrics(result.weighted)]
        shown = _class_tables([("label", "weight"), *sums], matrix, labels, width, _WEIGHTS)
        lines += ["", "weighted:", "", *facts(weighted), "", *shown]
    return lines


def _group_metrics(groups: GroupScores) -> list[tuple[str, str]]:
    incomplete = f", {groups.incomplete:,} more without all labels" if groups.incomplete else ""
    pairs = [
        ("groups", f"{groups.groups:,}{incomplete}"),
        ("groups correct", f"{groups.accuracy:.6f} (all labels of a group)"),
    ]
    if groups.chunks:
        every = groups.chunks[0]
        shares = f"precision {every.precision:.6f}, recall {every.recall:.6f}"
        pairs.append(("chunk F1", f"{every.f1:.6f} ({shares})"))
    return pairs


def _chunk_table(groups: GroupScores) -> list[str]:
    head = ("type", "chunks", "predicted", "correct", "precision", "recall", "F1")
    lines = [
        (
            "all" if score.type is None else repr(score.type),
            *(f"{count:,}" for count in (score.chunks, score.predicted, score.correct)),
            *(f"{value:.6f}" for value in (score.precision, score.recall, score.f1)),
        )
        for score in groups.chunks
    ]
    return table([head, *lines])


def describe_order(result: RankEvaluation) -> list[str]:
    """How many pairs a ranking has in order."""
    unlabelled = f", {result.unlabelled:,} more without label" if result.unlabelled else ""
    share = "no pairs" if result.in_order is None else f"{result.in_order:.6f} (ties count half)"
    mean = [] if result.mean_in_order is None else [("mean by group", f"{result.mean_in_order:.6f}")]
    return facts(
        [
            ("rows", f"{result.rows:,}{unlabelled}"),
            ("groups", f"{result.groups:,} with pairs"),
            ("pairs", f"{result.pairs:,}, {result.ties:,} tied"),
            ("in order", share),
            *mean,
        ]
    )


def describe_outside(result: OneClassEvaluation) -> list[str]:
    """How many rows lie outside of what a model of one class encloses, in all and by label."""
    pairs = [("rows", f"{result.rows:,}"), ("outside", f"{result.outside:,}, {result.share:.4%}")]
    if result.weighted_share is not None:
        pairs.append(("weighted", f"{result.weighted_share:.4%} outside"))
    pairs.append(("lowest value", f"{result.lowest_decision:.6g}"))
    names = ["none" if one.label is None else repr(one.label) for one in result.classes]
    rows = [
        (name, f"{one.rows:,}", f"{one.outside:,}", f"{one.outside / one.rows:.4%}")
        for name, one in zip(names, result.classes, strict=True)
    ]
    return [*facts(pairs), "", *table([("label", "rows", "outside", "share"), *rows])]


def _class_tables(
    rows: Sequence[Sequence[str]],
    matrix: Sequence[Sequence[float]],
    labels: list[str],
    width: int,
    format_: _Format,
) -> list[str]:
    """Classes with the confusion matrix or, if that is too wide, with the most frequent confusions."""
    predicted = [[f"predicted {label}" for label in labels], *(map(format_.cell, line) for line in matrix)]
    whole = table([(*row, *more) for row, more in zip(rows, predicted, strict=True)])
    if max(map(len, whole)) <= width:
        return whole
    return [*table(rows), "", *_describe_confusions(matrix, labels, format_)]


def _describe_confusions(matrix: Sequence[Sequence[float]], labels: list[str], format_: _Format) -> list[str]:
    import numpy as np

    from coremargin.report.confusion import confusions

    kinds = sum(value > 0 for i, line in enumerate(matrix) for j, value in enumerate(line) if i != j)
    found = confusions(np.array(matrix), labels, CONFUSIONS_SHOWN)
    if not found:
        return ["no class was predicted for another"]
    which = f"the {len(found)} largest of {kinds:,} confusions" if kinds > len(found) else "all confusions"
    head = f"{which}; --json has the whole matrix:"
    return [head, *(f"  predicted {one['given']} for {one['of']}: {format_.sentence(one['rows'])}" for one in found)]


def _summary_metrics(result: Evaluation | Weighted) -> list[tuple[str, str]]:
    pairs = [
        ("accuracy", f"{result.accuracy:.6f}"),
        ("balanced", f"{result.balanced_accuracy:.6f}"),
        ("F1", f"{result.f1:.6f} (mean of the classes)"),
    ]
    if len(result.confusion) > 2:
        return pairs
    areas = [
        ("ROC AUC", result.roc_auc, result.roc_auc_error),
        ("avg precision", result.average_precision, result.average_precision_error),
    ]
    for name, value, error in areas:
        within = f" (within {error:.1g})" if error else ""
        pairs.append((name, "none: all rows have the same class" if value is None else f"{value:.6f}{within}"))
    return pairs


def _describe_thresholds(found: AtPrecision) -> list[tuple[str, str]]:
    """The thresholds for a wanted precision, each with all its digits, for `predict --threshold`."""
    best, assured = found.best, found.assured
    more = f", another at most {found.recall_error:.1g} more" if found.recall_error else ""
    on_rows = (
        f"no threshold has a precision of {found.precision:g} on these rows"
        if best is None
        else f"recall {best.recall:.6f}{more}, precision {best.precision:.6f}: threshold {best.threshold!r}"
    )
    if assured is not None:
        shown = (
            f"recall {assured.recall:.6f}, precision {assured.lower:.4f} to {assured.upper:.4f} on further rows, "
            f"confidence {found.confidence:g}: threshold {assured.threshold!r}"
        )
    elif found.trained_on:
        shown = "nothing: the model was trained on these rows; evaluate others"
    else:
        shown = f"no threshold, with confidence {found.confidence:g}: more rows, or a lower precision, may show one"
    return [(f"precision {found.precision:g}", on_rows), ("  shown", shown)]


COMMANDS = (verify, predict, evaluate)
