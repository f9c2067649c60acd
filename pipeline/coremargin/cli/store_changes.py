"""``coremargin remove``, ``relabel``, ``reweigh``, ``expire``, ``compact`` and ``log``: changes of a store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coremargin.cli.common import PATH, STORE, json_option, progress, quiet_option, storage_option
from coremargin.cli.printing import print_json, print_lines
from coremargin.errors import UsageError
from coremargin.interruption import terminable
from coremargin.report.text import count, describe_commit

if TYPE_CHECKING:
    from coremargin.data.amend import WeightReport
    from coremargin.formats.location import Location
    from coremargin.formats.store_log import LogEntry

SECTION = "Data"

_DIGITS = 18  #: most digits of a row id

_store = click.argument("store", type=STORE)
_note = click.option("--note", default="", metavar="TEXT", help="A comment for the store's log.")


@click.command(no_args_is_help=True)
@_store
@click.argument("rows", nargs=-1, metavar="[ROWS]...")
@click.option("--from", "file", type=PATH, help="CSV or Parquet with a column `row` or the key column.")
@click.option("--key", "keys", multiple=True, metavar="KEY", help="The key of a row (stores with keys).")
@click.option("--group", "groups", multiple=True, metavar="ID", help="The id of a group (stores with groups).")
@_note
@storage_option
@json_option
def remove(
    store: Path | Location,
    *,
    rows: tuple[str, ...],
    file: Path | None,
    keys: tuple[str, ...],
    groups: tuple[str, ...],
    note: str,
    as_json: bool,
) -> None:
    """Remove ROWS of a STORE in a commit: row ids, ranges such as 100-199, or rows by key or by group.

    Earlier commits still contain them. Only labels and weights of their chunks are read. A row that is removed
    already, the last row of a class, and parts of a group are refused.

    \b
    Examples:
      coremargin remove rows.zarr 17 100-199
      coremargin remove rows.zarr --from withdrawn.csv --note "asked to be forgotten"
      coremargin remove orders.zarr --key 4711 --key 4712
      coremargin remove words.zarr --group 17
    """
    from coremargin.data.amend import remove_rows

    with terminable():
        if [bool(rows), file is not None, bool(keys), bool(groups)].count(True) != 1:
            raise UsageError("expected row ids, --from FILE, --key KEY or --group ID, and only one of these")
        ids, row_keys = (None, keys or None) if keys or groups else _select_rows(store, rows, file)
        found = remove_rows(store, ids, keys=row_keys, groups=groups or None, note=note)
    _print_weight_changes(store, found, f"these rows of {store} were removed before", as_json=as_json)


@click.command(no_args_is_help=True)
@_store
@click.argument("file", type=PATH)
@_note
@storage_option
@json_option
def reweigh(store: Path | Location, *, file: Path, note: str, as_json: bool) -> None:
    """Set weights of rows of a STORE in a commit, from a FILE with columns row and weight.

    The column of the store's keys may stand in for row. Rows of a store without weights have weight 1; weight 0
    removes a row, and another weight restores it.

    \b
    Example:
      coremargin reweigh rows.zarr weights.csv
    """
    from coremargin.data.amend import set_weights
    from coremargin.data.corrections import read_corrections
    from coremargin.data.store import Store

    with terminable():
        corrections = read_corrections(file, Store.open(store), "weight")
        found = set_weights(store, corrections.ids, corrections.values, keys=corrections.keys, note=note or str(file))
    _print_weight_changes(store, found, f"{store} has these weights already", as_json=as_json)


@click.command(no_args_is_help=True)
@_store
@click.argument("file", type=PATH)
@click.option("--new-labels", is_flag=True, help="Allow labels that the store does not have yet.")
@_note
@storage_option
@json_option
def relabel(store: Path | Location, *, file: Path, new_labels: bool, note: str, as_json: bool) -> None:
    """Correct labels of a STORE in a commit, from a FILE with columns row and label.

    The column of the store's keys may stand in for row. Only labels of changed chunks are written; earlier commits
    keep theirs. Removed rows are refused.

    \b
    Example:
      coremargin relabel rows.zarr corrected.csv
    """
    from coremargin.data.amend import write_labels
    from coremargin.data.corrections import read_corrections
    from coremargin.data.store import Store

    with terminable():
        corrections = read_corrections(file, Store.open(store), "label", new_labels=new_labels)
        found = write_labels(
            store, corrections.ids, corrections.values, keys=corrections.keys, note=note or str(file), counting=True
        )
    if as_json:
        known = ("given", "added", "replaced", "removed", "digest")
        print_json({"store": str(store), **{name: getattr(found, name) for name in known}})
        return
    if not found.changed:
        print_lines(f"nothing to write: {store} has these labels already")
        return
    lines = [f"{store}: {count(found.added, 'row')} labelled, {count(found.replaced, 'row')} relabelled"]
    examples = zip(found.called, found.examples, strict=True)
    lines += [f"  {called}: {before!r} became {now!r}" for called, (_, before, now) in examples]
    print_lines(*lines, f"commit  {found.digest}")


@click.command(no_args_is_help=True)
@_store
@click.option("--older-than", "age", required=True, metavar="AGE", help='For instance "90 days".')
@click.option("--force", is_flag=True, help="Trust the clock even if commits lie in the future or far apart.")
@_note
@storage_option
@json_option
def expire(store: Path | Location, *, age: str, force: bool, note: str, as_json: bool) -> None:
    """Remove the rows of a STORE that are older than an age, in a commit; the log has their times.

    If the clock does not match these times, nothing expires and the exit code is 12.

    \b
    Example:
      coremargin expire rows.zarr --older-than "90 days"
    """
    from coremargin.data.expire import expire as expire_rows
    from coremargin.units import parse_seconds

    with terminable():
        found = expire_rows(store, parse_seconds(age), note=note or f"older than {age}", force=force)
    _print_weight_changes(store, found, f"{store} has no rows older than {age}", as_json=as_json)


def _select_rows(store: Path | Location, rows: Sequence[str], file: Path | None) -> tuple[Any, Any]:
    """Row ids of a command line, or those or the keys of a file."""
    import numpy as np

    from coremargin.data.corrections import read_corrections
    from coremargin.data.store import Store

    if file is not None:
        corrections = read_corrections(file, Store.open(store), None)
        return corrections.ids, corrections.keys
    store_rows, found = Store.open(store, map_bytes=0).rows, []
    for text in rows:
        first, dash, last = text.partition("-")
        if not first.isdecimal() or not (last.isdecimal() if dash else not last):
            raise UsageError(f"{text!r}: expected a row id or a range such as 100-199")
        start, stop = (int(digits) if len(digits) <= _DIGITS else store_rows for digits in (first, last or first))
        if not start <= stop < store_rows:
            raise UsageError(
                f"{text!r}: expected row ids from 0 to {store_rows - 1:,}; in a range the smaller id comes first"
            )
        found.append(np.arange(start, stop + 1))
    return np.concatenate(found), None


def _print_weight_changes(store: Path | Location, found: WeightReport, unchanged: str, *, as_json: bool) -> None:
    """unchanged: why there was nothing to write."""
    if as_json:
        print_json({"store": str(store), **vars(found)})
        return
    if not found.changed:
        print_lines(f"nothing to write: {unchanged}")
        return
    changes = []
    changes += [f"{count(found.removed, 'row')} removed"] if found.removed else []
    changes += [f"{count(found.returned, 'row')} restored"] if found.returned else []
    other = found.changed - found.removed - found.returned
    changes += [f"{count(other, 'row')} with another weight"] if other else []
    print_lines(f"{store}: {', '.join(changes)}", f"commit  {found.digest}")


@click.command(no_args_is_help=True)
@click.argument("store", type=STORE)
@click.option("--last", type=click.IntRange(1), metavar="NUMBER", help="Most commits to show.")
@storage_option
@json_option
def log(store: Path | Location, *, last: int | None, as_json: bool) -> None:
    """Show the commits of a STORE, latest first: number, time, user, operation.

    Every commit can be opened: `coremargin check STORE --commit NUMBER`, `coremargin.Store.open(path, commit=3)`.

    \b
    Examples:
      coremargin log rows.zarr
      coremargin log rows.zarr --last 10 --json
    """
    from coremargin.data.store import Store

    entries = Store.open(store).log[::-1][:last]
    if as_json:
        print_json({"store": str(store), "commits": [_as_json(entry) for entry in entries]})
    else:
        print_lines(*(line for entry in entries for line in _describe_entry(entry)))


def _as_json(entry: LogEntry) -> dict[str, Any]:
    commit = entry.commit
    return {
        "number": commit.number,
        "did": entry.did,
        "time": entry.time or None,
        "by": entry.by or None,
        "note": entry.note,
        "rows": commit.rows,
        "counts": dict(entry.counts),
        "digest": commit.digest,
    }


def _describe_entry(entry: LogEntry) -> list[str]:
    from datetime import UTC, datetime

    when = datetime.fromtimestamp(entry.time, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if entry.time else "unknown"
    commit = entry.commit
    lines = [f"{commit.number:>6}  {when}  {entry.did:<8}  {describe_commit(entry)}, {commit.rows:,} in total"]
    about = "  ".join(word for word in (entry.by, entry.note) if word)
    return [*lines, f"        {commit.digest}", *([f"        {about}"] if about else [])]


@click.command(no_args_is_help=True)
@_store
@click.option("--out", type=STORE, help="Path of a new store.  [default: replace STORE]")
@storage_option
@json_option
@quiet_option
def compact(store: Path | Location, *, out: Path | Location | None, as_json: bool, quiet: bool) -> None:
    """Rewrite a STORE without removed rows; earlier commits and row ids are lost.

    The times of rows are kept. Models trained before can no longer be verified or retrained: train new ones. The
    store changes only once everything is written; on disk, a store that is being read is refused.

    \b
    Examples:
      coremargin compact rows.zarr
      coremargin compact rows.zarr --out smaller.zarr
    """
    from coremargin.data.compact import compact as compact_store
    from coremargin.spec import format_size

    with terminable(), progress(quiet=quiet) as advance:

        def show(done: int, rows: int) -> None:
            if advance is not None:
                advance("compacting", done, rows, f"{done:,} rows")

        found = compact_store(store, out, on_rows=show)
    if as_json:
        print_json({"store": str(out or store), **vars(found)})
        return
    print_lines(
        f"{out or store}: {count(found.rows, 'row')}, {count(found.removed, 'row')} less, in "
        f"{format_size(found.stored_bytes)} instead of {format_size(found.stored_bytes_before)}",
        f"commit  {found.digest}",
    )


@click.command(no_args_is_help=True)
@click.argument("address", type=STORE)
@click.option("--older-than", "age", default="7 days", show_default=True, metavar="AGE", help="Keep what is younger.")
@click.option("--dry-run", is_flag=True, help="Only show what would be removed.")
@storage_option
@json_option
def vacuum(address: Path | Location, *, age: str, dry_run: bool, as_json: bool) -> None:
    """Remove what killed writers and replaced stores or models left at an ADDRESS.

    What a commit names stays. Readers that opened a store before `compact` or --overwrite replaced it need the old
    objects until they end. On disk nothing is left: each writer removes what killed ones left.

    \b
    Examples:
      coremargin vacuum s3://bucket/rows.zarr --dry-run
      coremargin vacuum s3://bucket/rows.zarr --older-than "2 days"
    """
    from coremargin.data.vacuum import vacuum as remove_leftovers
    from coremargin.spec import format_size
    from coremargin.units import parse_seconds

    with terminable():
        found = remove_leftovers(address, older_than=parse_seconds(age), dry_run=dry_run)
    if as_json:
        lists = {name: [vars(one) for one in getattr(found, name)] for name in ("removed", "kept")}
        print_json({"address": str(address), "dry_run": dry_run, **lists})
        return
    done = "would be removed" if dry_run else "removed"
    lines = [f"{address}: {count(found.objects, 'object')} of {format_size(found.nbytes)} {done}"]
    lines += [f"  {one.what}: {count(one.objects, 'object')}, {format_size(one.nbytes)}" for one in found.removed]
    lines += [f"  {one.what}: {count(one.objects, 'object')} kept, younger than {age}" for one in found.kept]
    print_lines(*lines)


COMMANDS = (remove, relabel, reweigh, expire, compact, vacuum, log)
