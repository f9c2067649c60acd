"""``coremargin show``: a model, its certificate and its run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coremargin.cli.common import MODEL, json_option, storage_option
from coremargin.cli.printing import print_json, print_lines
from coremargin.errors import DataError
from coremargin.report.text import describe_reading
from coremargin.spec import format_seconds, format_size

if TYPE_CHECKING:
    from coremargin.formats.location import Location

SECTION = "Models"


@click.command(no_args_is_help=True)
@click.argument("model", type=MODEL)
@storage_option
@json_option
def show(model: Path | Location, *, as_json: bool) -> None:
    """Show a MODEL: its certificate, how it was trained, and its columns.

    The certificate is not checked; `coremargin verify` does that.

    \b
    Examples:
      coremargin show rows.model
      coremargin show rows.model --json | jq .certificate.ratio
    """
    from coremargin.models.kept import kept_bytes
    from coremargin.models.registry import load
    from coremargin.problems.registry import kind_of_model
    from coremargin.report.columns import column_lines, columns_json

    loaded, run = load(model), _read_run_record(model)
    if as_json:
        size = kept_bytes(model)
        print_json({**loaded.record, **columns_json(loaded.columns), "retraining_bytes": size, "run": run})
    else:
        kind = kind_of_model(loaded)
        facts = [*kind.describe_run(run), *_describe_run(run), *_describe_state(kept_bytes(model))]
        print_lines(*kind.describe(model, loaded, facts), *column_lines(loaded.columns))


def _read_run_record(model: Path | Location) -> dict[str, Any]:
    """``run.json``; empty if it is missing or damaged."""
    from coremargin.data.storages import open_storage
    from coremargin.formats.run_record import read_run_record

    try:
        return open_storage(model).read_whole(read_run_record)
    except (OSError, DataError):
        return {}


def _describe_run(run: dict[str, Any]) -> list[tuple[str, str]]:
    """Date and cost, if known."""
    numbers = {key: value for key, value in run.items() if isinstance(value, int | float)}
    pairs = [("trained", str(run["started"]))] if "started" in run else []
    about = run.get("retrained")
    if isinstance(about, dict) and "model" in about:
        pairs.append(("from", str(about["model"])))
    if {"scans", "bytes_read", "seconds"} <= set(numbers):
        how = describe_reading({**numbers, "retrained": about})
        cost = f"{how}, {format_size(numbers['bytes_read'])} in {format_seconds(numbers['seconds'])}"
        pairs.append(("cost", cost))
    return pairs


def _describe_state(size: int | None) -> list[tuple[str, str]]:
    return [] if size is None else [("state", f"{format_size(size)} of rows and bounds for `coremargin retrain`")]


COMMANDS = (show,)
