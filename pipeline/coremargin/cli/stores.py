"""``coremargin info``, ``check`` and ``synth``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coremargin.cli.common import BYTES, STORE, WHOLE, json_option, progress, quiet_option, storage_option
from coremargin.cli.printing import print_json, print_lines
from coremargin.interruption import terminable
from coremargin.report.text import class_table, count, describe_commit, facts
from coremargin.spec import format_size

if TYPE_CHECKING:
    from coremargin.cli.common import Advance
    from coremargin.data.store import Store
    from coremargin.formats.location import Location

SECTION = "Data"
_COMMITS = 8  #: that ``info`` shows


@click.command(no_args_is_help=True)
@click.argument("store", type=STORE)
@click.option("--commit", metavar="NUMBER|DIGEST", help="Show this commit.  [default: the last]")
@storage_option
@json_option
def info(store: Path | Location, *, commit: str | None, as_json: bool) -> None:
    """Show what a STORE holds: rows, bytes, chunks, classes, statistics, columns.

    \b
    Examples:
      coremargin info rows.zarr
      coremargin info rows.zarr --commit 3
      coremargin info rows.zarr --json | jq .rows
    """
    from coremargin.report.columns import column_lines, columns_json

    opened = open_commit(store, commit)
    found = _info_values(opened)
    if as_json:
        print_json({**found, **columns_json(opened.columns)})
    else:
        print_lines(*_info_lines(found, opened), *column_lines(opened.columns))


def _info_values(store: Store) -> dict[str, Any]:
    """The output of ``info --json``."""
    from coremargin.data.moments import overview

    scalars = store.scalars()
    counts = [int(rows) for rows in scalars.counts.sum(axis=0)]
    return {
        "store": store.name,
        "rows": store.rows,
        "features": store.features,
        "dtype": store.stored_dtype,
        "sparse": store.sparse,
        "nonzeros": store.nonzeros,
        "weighted": store.weighted,
        "groups": None if store.groups is None else int(store.groups.counts.sum()),
        "chunks": store.chunks,
        "chunk_rows": store.chunk_rows,
        "bytes": store.scan_bytes,
        "stored_bytes": store.stored_bytes if store.storage.lists else None,
        "compression": store.compression,
        "commits": store.commits,
        "digest": store.digest,
        "digest_kind": "sha256" if store.sha256 else "crc32c",
        "sha256": store.sha256 or None,
        "classes": [{"label": label, "rows": rows} for label, rows in zip(store.classes, counts, strict=True)],
        "unlabelled": int(scalars.unlabelled.sum()),
        "statistics": vars(overview(store)),
        "about": store.about,
    }


def _optional_facts(found: dict[str, Any]) -> list[tuple[str, str]]:
    lines = []
    if found["sparse"]:
        share = found["nonzeros"] / (found["rows"] * found["features"])
        lines.append(("sparse", f"{found['nonzeros']:,} nonzero values, {share:.2%} of all"))
    lines += [("weights", "one per row")] if found["weighted"] else []
    if found["groups"] is not None:
        lines.append(("groups", f"{found['groups']:,} of {found['rows'] / found['groups']:.1f} rows on average"))
    return lines


def _info_lines(found: dict[str, Any], store: Store) -> list[str]:
    numbers = found["statistics"]
    compression = {"none": "no compression"}.get(found["compression"], found["compression"])
    stored = "" if found["stored_bytes"] is None else f"{format_size(found['stored_bytes'])} on disk, "
    pairs = [
        ("store", found["store"]),
        ("rows", f"{found['rows']:,} of {found['features']:,} features, {found['dtype']}"),
        *_optional_facts(found),
        ("chunks", f"{found['chunks']:,} of up to {found['chunk_rows']:,} rows"),
        ("bytes", f"{format_size(found['bytes'])} as scanned, {stored}{compression}"),
        ("commits", f"{found['commits']:,}"),
        ("digest", found["digest"]),
        ("SHA-256", found["sha256"] or f"none, chunks have CRC-32C only; `coremargin compact {store.name}` adds it"),
        ("values", f"{numbers['low']:.6g} to {numbers['high']:.6g}"),
        ("deviation", f"{numbers['deviation_low']:.3g} to {numbers['deviation_high']:.3g}, by feature"),
        ("constant", f"{numbers['constant']:,} of {found['features']:,} features"),
        ("norm", f"up to {numbers['largest_norm']:.6g}"),
    ]
    lines = facts(pairs) + _history(store)
    if found["unlabelled"]:
        lines += ["", f"{found['unlabelled']:,} rows are unlabelled"]
    if found["classes"]:
        lines += ["", *class_table([(entry["label"], entry["rows"]) for entry in found["classes"]])]
    return lines


def _history(store: Store) -> list[str]:
    """The last commits, if there are several; `log` shows all."""
    if store.commits < 2:
        return []
    entries = store.log[-_COMMITS:]
    before = [f"{count(store.commits - len(entries), 'commit')} before these:"] if store.commits > len(entries) else []
    return ["", *before, *(f"{one.commit.digest}  {one.commit.rows:,} rows, {describe_commit(one)}" for one in entries)]


@click.command(no_args_is_help=True)
@click.argument("store", type=STORE)
@click.option("--commit", metavar="NUMBER|DIGEST", help="Check this commit; `log` lists them.  [default: the last]")
@storage_option
@json_option
@quiet_option
def check(store: Path | Location, *, commit: str | None, as_json: bool, quiet: bool) -> None:
    """Read every byte of a STORE and report damage.

    Finds missing, truncated and altered chunks, rows that are not finite, and statistics that do not match their
    rows, including labels that only earlier commits have. With --commit, checks that commit only. The exit code is
    0 if the store is whole, and 3 if it is not.

    \b
    Example:
      coremargin check rows.zarr
    """
    from coremargin.data.check import check_store
    from coremargin.errors import DamagedChunk

    digest = None if commit is None else open_commit(store, commit).digest
    with terminable(), progress(quiet=quiet) as advance:
        report = check_store(store, _show_check_progress(advance, store), digest=digest)
    found = [vars(damage) for damage in report.damaged]
    if as_json:
        known = {
            "store": str(report.path),
            "rows": report.rows,
            "chunks": report.chunks,
            "bytes_read": report.bytes_read,
        }
        print_json({**known, "whole": report.whole, "damaged": found})
    else:
        for damage in report.damaged:
            print_lines(damage.what)
    if not report.whole:
        chunks = sorted({damage.chunk for damage in report.damaged if damage.chunk is not None})
        named = (
            f"{len(chunks):,} of {count(report.chunks, 'chunk')} ({_list_chunks(chunks)})"
            if chunks
            else "the statistics"
        )
        raise DamagedChunk(
            f"{store}: damage in {named}: restore the store from a copy, or ingest again with --overwrite"
        )
    if not as_json:
        chunks_read = f"{count(report.chunks, 'chunk')}, {format_size(report.bytes_read)} read"
        print_lines(f"{store}: undamaged, {report.rows:,} rows in {chunks_read}")


def open_commit(path: Path | Location, commit: str | None) -> Store:
    """The store at a commit, by number or digest; None: the last commit."""
    from coremargin.data.store import Store

    if commit is None:
        return Store.open(path)
    return Store.open(path, commit=int(commit)) if commit.isdecimal() else Store.open(path, digest=commit)


def _list_chunks(chunks: list[int], limit: int = 12) -> str:
    shown = ", ".join(str(chunk) for chunk in chunks[:limit])
    return f"{shown}, ..." if len(chunks) > limit else shown


def _show_check_progress(advance: Advance | None, path: Path | Location) -> Callable[[int, int, Any], None] | None:
    if advance is None:
        return None
    from coremargin.data.store import Store

    size = Store.open(path).compressed_bytes

    def show(done: int, chunks: int, damage: Any) -> None:
        advance("checking", size * done // chunks, size, f"{count(done, 'chunk')}{', damage found' if damage else ''}")

    return show


@click.command(no_args_is_help=True)
@click.argument("store", type=STORE)
@click.option("--rows", type=WHOLE, help="Number of rows: 1000000, 1_000_000 or 1e6.")
@click.option("--size", "room", type=BYTES, help='Size instead of --rows, such as "30 GB".')
@click.option("--features", type=WHOLE, default=100, show_default=True, help="Features per row.")
@click.option("--margin", type=float, default=0.5, show_default=True, help="Smallest distance of a row from the plane.")
@click.option("--noise", type=float, default=0.0, show_default=True, help="Share of rows with the wrong label.")
@click.option("--density", type=float, default=1.0, show_default=True, help="Share of nonzero values; below 1: sparse.")
@click.option("--seed", type=WHOLE, default=0, show_default=True, help="Seed of the random generator.")
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float64"]),
    default="float32",
    metavar="TYPE",
    show_default=True,
    help="float32 or float64.",
)
@click.option("--chunk-size", "chunk_bytes", type=BYTES, help="Bytes per chunk. [default: 8 MiB]")
@click.option("--overwrite", is_flag=True, help="Replace an existing store.")
@click.option("--workers", type=click.IntRange(1), metavar="NUMBER", help="Threads. [default: one per core]")
@storage_option
@quiet_option
def synth(store: Path | Location, *, rows: int | None, room: int | None, quiet: bool, **options: Any) -> None:
    """Create a synthetic STORE of any size.

    Normal rows are pushed away from a random hyperplane by the margin; the side is the label, -1 or 1. The true
    margin is at least the one given. Memory does not depend on the size.

    \b
    Examples:
      coremargin synth million.zarr --rows 1e6
      coremargin synth large.zarr --size "30 GB" --features 100
      coremargin synth noisy.zarr --rows 1e5 --noise 0.02 --seed 7
      coremargin synth words.zarr --rows 1e5 --features 5e4 --density 0.002
    """
    from coremargin.data.sizes import CHUNK_BYTES
    from coremargin.data.synth import Recipe
    from coremargin.data.synth import synth as write_store

    overwrite, workers = options.pop("overwrite"), options.pop("workers")
    row_bytes = Recipe(1, options["features"], dtype=options["dtype"], density=options["density"]).row_bytes
    if (rows is None) == (room is None):
        raise click.UsageError("expected either --rows or --size", click.get_current_context())
    rows = max(1, (room or 0) // row_bytes) if rows is None else rows
    recipe = Recipe(rows, **options | {"chunk_bytes": options["chunk_bytes"] or CHUNK_BYTES})
    with terminable(), progress(quiet=quiet) as advance:

        def show(done: int, _: int) -> None:
            if advance is not None:
                advance("writing", done * row_bytes, rows * row_bytes, f"{done:,} rows")

        made = write_store(store, recipe, workers=workers, overwrite=overwrite, on_progress=show)
    print_lines(
        f"wrote {made.rows:,} rows of {made.features:,} features ({made.dtype}, {format_size(made.nbytes)}) to {store}"
    )


COMMANDS = (info, check, synth)
