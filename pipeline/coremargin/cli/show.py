"""``coremargin show``: what a model is, what it claims and how it was made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from coremargin.cli.common import MODEL, json_option
from coremargin.cli.printing import print_json, print_lines
from coremargin.errors import DataError
from coremargin.report.text import reading_told
from coremargin.spec import format_seconds, format_size

SECTION = "Models"


@click.command(no_args_is_help=True)
@click.argument("model", type=MODEL)
@json_option
def show(model: Path, *, as_json: bool) -> None:
    """Show what a MODEL is, what it claims, how it was trained, and its columns.

    Claims are not checked here: `coremargin verify` does that.

    \b
    Examples:
      coremargin show rows.model
      coremargin show rows.model --json | jq .certificate.ratio
    """
    from coremargin.models.kept import kept_bytes
    from coremargin.models.registry import load
    from coremargin.problems.registry import kind_of_model
    from coremargin.report.columns import column_lines, columns_json

    loaded, run = load(model), _run_of(model)
    if as_json:
        kept = {"retraining_bytes": kept_bytes(model)}
        print_json({**loaded.record, **columns_json(loaded.columns), **kept, "run": run})
    else:
        made = [*_made(run), *_kept(kept_bytes(model))]
        print_lines(*kind_of_model(loaded).describe(model, loaded, made), *column_lines(loaded.columns))


def _run_of(model: Path) -> dict[str, Any]:
    """How the run went; empty when the file is missing or broken, as nothing rests on it."""
    from coremargin.formats.plain_file import read_plain
    from coremargin.formats.run_record import RUN
    from coremargin.formats.strict_json import LARGEST, read_object

    path = model / RUN
    try:
        return read_object(read_plain(path, LARGEST), str(path), names=True)
    except (OSError, DataError):
        return {}


def _made(run: dict[str, Any]) -> list[tuple[str, str]]:
    """When, and what it cost, as far as that is known."""
    numbers = {key: value for key, value in run.items() if isinstance(value, int | float)}
    pairs = [("made", str(run["started"]))] if "started" in run else []
    about = run.get("retrained")
    if isinstance(about, dict) and "model" in about:
        pairs.append(("from", str(about["model"])))
    if {"scans", "bytes_read", "seconds"} <= set(numbers):
        how = reading_told({**numbers, "retrained": about})
        took = f"{how}, {format_size(numbers['bytes_read'])} in {format_seconds(numbers['seconds'])}"
        pairs.append(("took", took))
    return pairs


def _kept(size: int | None) -> list[tuple[str, str]]:
    """What lies beside the model for later rows."""
    return [] if size is None else [("kept", f"{format_size(size)} of rows and bounds for `coremargin retrain`")]


COMMANDS = (show,)
