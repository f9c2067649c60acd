"""``coremargin ingest``: rows from files into a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coremargin.cli.common import (
    BYTES,
    PATH,
    STORE,
    WHOLE,
    GroupedCommand,
    json_option,
    progress,
    quiet_option,
    storage_option,
    storage_options_of,
)
from coremargin.cli.printing import print_json, print_lines
from coremargin.cli.tables import (
    column_options,
    load_columns,
    show_ingest_progress,
    split,
    suggest_columns,
    take_column_options,
)
from coremargin.formats.choices import ROW_TYPES
from coremargin.interruption import terminable
from coremargin.report.text import class_table
from coremargin.spec import format_seconds, format_size

if TYPE_CHECKING:
    from coremargin.data.ingest_pass import IngestReport
    from coremargin.formats.location import Location

SECTION = "Data"


@click.command(
    cls=GroupedCommand,
    no_args_is_help=True,
    important=("--label", "--labels", "--append", "--categorical", "--missing"),
)
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.argument("store", type=STORE)
@click.option("--labels", metavar="FILE", help="File of labels: .npy, or text with one per line.")
@click.option("--label", metavar="COLUMN", help="Label column: a name, or a number from 0 (-1 is the last).")
@click.option("--unlabelled", is_flag=True, help="The rows have no labels.")
@click.option(
    "--weights", metavar="WHERE", help="Sample weights: a column of CSV or Parquet, or a file like that of --labels."
)
@click.option("--key", metavar="COLUMN", help="Column of unique keys that identify rows later, such as order numbers.")
@click.option(
    "--group",
    metavar="WHERE",
    help="Groups of rows: a column, qid of SVMlight, or a file like that of --labels.",
)
@column_options
@click.option(
    "--columns-of",
    type=PATH,
    metavar="PATH",
    help="Encode columns as in this store or model, such as the one to be tested.",
)
@click.option("--names", metavar="FILE", help="File of feature names, one per line (SVMlight, .npy, .npz).")
@click.option("--new-labels", is_flag=True, help="Allow appended rows with new labels.")
@click.option("--sparse/--dense", default=None, help="Store rows as CSR or dense.  [default: as the data]")
@click.option("--only", metavar="LABELS", help="Keep only rows with these labels, such as 0,1.")
@click.option("--drop", metavar="COLUMNS", help="Columns to exclude, such as Id,date.")
@click.option("--append", is_flag=True, help="Append to an existing store.")
@click.option("--overwrite", is_flag=True, help="Replace an existing store.")
@click.option("--dry-run", is_flag=True, help="Show what would be written, from the first rows.")
@click.option(
    "--format",
    "format_",
    type=click.Choice(["npy", "npz", "csv", "parquet", "svmlight", "conll"]),
    metavar="KIND",
    help="npy, npz, csv, parquet, svmlight or conll. [default: by name, then content]",
)
@click.option("--delimiter", metavar="CHARACTER", help="CSV: field separator.  [default: detected]")
@click.option("--header/--no-header", default=None, help="CSV: the first line names the columns.  [default: detected]")
@click.option("--features", type=WHOLE, help="SVMlight: number of features.  [default: the largest index]")
@click.option("--zero-based/--one-based", default=None, help="SVMlight: first index.  [default: 0 if found]")
@click.option(
    "--dtype",
    type=click.Choice(ROW_TYPES),
    metavar="TYPE",
    help="float16, bfloat16, int8, uint8, int16, float32 or float64. [default: as rows come if narrow, else float32]",
)
@click.option(
    "--compression",
    type=click.Choice(["none", "lz4", "zstd", "auto"]),
    metavar="KIND",
    help="none (the fastest to scan), lz4, zstd or auto. [default: none]",
)
@click.option("--chunk-size", "chunk_bytes", type=BYTES, help="Bytes per chunk. [default: 8 MiB]")
@storage_option
@json_option
@quiet_option
def ingest(
    sources: tuple[str, ...],
    store: Path | Location,
    *,
    only: str | None,
    drop: str | None,
    format_: str | None,
    columns_of: Path | None,
    **options: Any,
) -> None:
    """Write rows from files into a STORE, all of them or none.

    SOURCE is one or more files, folders, or quoted patterns: CSV and other delimited text, SVMlight, Parquet, X.npy
    with labels in y.npy, numpy.savez(X=, y=), or scipy.sparse.save_npz with labels in y.npy. Text may be compressed
    with gzip, bzip2 or xz. Memory does not depend on the size (except for the CSR arrays of a sparse .npz). NaN,
    infinity, ragged lines and missing labels are errors that name file, line and column.

    Sparse rows stay sparse: SVMlight if less than a tenth of the values are present, .npz always. Explicit zeros are
    dropped and unsorted indices are sorted; the report counts them. Duplicate indices are refused.

    In a folder, all files of CSV, Parquet or SVMlight are read recursively, in the order of their paths, if they are
    of one kind. Files without rows, and names that begin with . or _, are skipped. Folders named year=2026 add a
    column to CSV and Parquet, as in pandas and pyarrow, if they lie below the given folder, or below the one that all
    files share. Folders above it are columns only if you name them, for instance with --label.

    Files, folders and patterns may be at addresses (s3://, az://, gs://), files at https://.

    The index of a data frame in a Parquet file is not read unless you name it.

    Labels are taken from the column label, target, class or y, else from the last one. They may be numbers or texts.

    --key names a column of CSV or Parquet with unique integers or texts. `remove`, `relabel` and `reweigh` find rows by
    these keys. The column is not a feature; appended rows must have it, rows to be predicted need not.

    --group names the column of the group of each row, such as a sentence or a query, or qid of SVMlight. Rows of a
    group must be adjacent, have one weight and fit into a chunk. Appended rows must be in new groups. Groups are
    removed and expired as a whole.

    --format conll reads a token in each line, its columns separated by spaces or tabs, the label last; a blank line
    ends a sentence, which is a group. Features are the words and tags around each token; see the guide.

    Columns of CSV and Parquet are matched by name later, in any order. --categorical, --dates and --text choose how
    columns that are not numeric are encoded, --missing how missing values are filled. If a choice is missing, one error
    names all such columns. Stores and models keep the encoding for later rows.

    \b
    Examples:
      coremargin ingest iris.tsv.gz iris.zarr --only 0,1
      coremargin ingest 'part-*.csv' rows.zarr --label outcome --drop Id
      coremargin ingest exported/ rows.zarr --label outcome
      coremargin ingest X_train.npy digits.zarr --labels y_train.npy
      coremargin ingest a9a a9a.zarr --features 123
      coremargin ingest rcv1.svm rcv1.zarr --weights weights.npy
      coremargin ingest monday.csv rows.zarr --append
      coremargin ingest 's3://bucket/2026-*/' rows.zarr \\
          --storage-option region=eu-central-1
      coremargin ingest orders.csv orders.zarr --label paid --key order
      coremargin ingest words.txt words.zarr --format svmlight --group qid
      coremargin ingest train.txt.gz chunks.zarr --format conll
      coremargin ingest rows.csv s3://bucket/rows.zarr \\
          --storage-option region=eu-central-1
      coremargin ingest adult.csv adult.zarr --label income \\
          --categorical auto --missing median
      coremargin ingest adult-test.csv test.zarr --columns-of adult.zarr
    """
    from coremargin.data.ingest import ingest as ingest_files

    as_json, quiet = options.pop("as_json"), options.pop("quiet")
    column_choices = take_column_options(options)
    with suggest_columns(), terminable(), progress(quiet=quiet) as advance:
        report = ingest_files(
            list(sources),
            store,
            only=split(only),
            drop=split(drop) or (),
            format=format_,
            columns=load_columns(columns_of),
            columns_of=str(columns_of or ""),
            storage_options=storage_options_of(click.get_current_context()),
            on_progress=show_ingest_progress(advance),
            **column_choices,
            **options,
        )
    if as_json:
        print_json(_as_json(report, dry_run=options["dry_run"]))
    else:
        print_lines(*report_lines(report, **options))


def _as_json(report: IngestReport, *, dry_run: bool) -> dict[str, Any]:
    entries = vars(report) | {"classes": [{"label": label, "rows": rows} for label, rows in report.classes.items()]}
    return {"dry_run": dry_run, **entries}


def report_lines(report: IngestReport, *, dry_run: bool = False, append: bool = False, **_: Any) -> list[str]:
    """The report of an ingest, for a terminal."""
    about = "about " if report.estimated else ""
    done = "would write" if dry_run else "wrote"
    text = (
        f"{done} {about}{report.rows:,} rows of {report.features:,} features ({report.dtype}, {about}"
        f"{format_size(report.nbytes)}) to {report.store} in {format_seconds(report.seconds)}"
    )
    lines = [text]
    if report.sparse:
        share = report.nonzeros / max(1, report.rows * report.features)
        lines.append(f"sparse: {about}{report.nonzeros:,} nonzero values, {share:.2%} of all (--dense stores all)")
    if report.zeros:
        lines.append(f"explicit zeros dropped: {about}{report.zeros:,}")
    if report.unsorted:
        lines.append(f"rows with unsorted indices, sorted: {about}{report.unsorted:,}")
    if report.rounded:
        keep = "" if report.dtype == "float64" else "; --dtype float64 keeps them"
        lines.append(f"whole numbers rounded to {report.dtype}: {about}{report.rounded:,}{keep}")
        lines.append(f"  the first: {report.rounded_at}")
    if report.left_out:
        shown = ", ".join(f"{name!r} ({what})" for name, what in report.left_out.items())
        lines.append(f"not features unless you name them: {shown}")
    if report.weight_from is not None:
        lines.append(f"weights from {report.weight_from}")
    if report.group_from is not None:
        lines.append(f"groups from {report.group_from}")
    if report.key_from is not None:
        lines.append(f"keys from column {report.key_from!r}")
    if append:
        lines.append(f"the store {'would have' if dry_run else 'has'} {about}{report.store_rows:,} rows")
    if report.skipped:
        lines.append(f"excluded {about}{report.skipped:,} rows with other labels")
    if report.classes:
        lines.append(f"labels from {report.label_from}:")
        lines += class_table(list(report.classes.items()))
    else:
        lines.append("no labels")
    if report.units:
        lines.append(
            f"units removed from numbers: {', '.join(f'{name} ({unit})' for name, unit in report.units.items())}"
        )
    lines += warning_lines(report)
    if report.estimated:
        lines.append("(estimated from the first rows; without --dry-run all rows are read and checked)")
    return lines


def warning_lines(report: IngestReport) -> list[str]:
    """Warnings about the rows."""
    return [f"warning: {text}" for text in report.warnings]


COMMANDS = (ingest,)
