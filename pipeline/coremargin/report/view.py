"""What ``base.html.j2`` needs, whatever a page is about."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from coremargin.report import numbers, rounds

if TYPE_CHECKING:
    from coremargin.report.page import Json
    from coremargin.report.rounds import Column


def view(record: Json, run: Json, records: Sequence[Json], columns: Sequence[Column], name: str) -> dict[str, Any]:
    """The record of a model, its run, the table of its rounds, and commands.

    ``name`` is the model's folder, for the commands; the next one resumes the run where it goes on, else it is that
    which verifies. Missing and non-finite numbers become dashes.
    """
    parameters = record.get("parameters") or {}
    store, model = shlex.quote(str(run.get("store") or "STORE")), shlex.quote(name)
    verify = f"coremargin verify {model} {store}"
    words = run.get("resume")  # not known of older runs, nor what they were asked
    resume = shlex.join(map(str, words)) if words else f"coremargin train {store} --out {model} OPTIONS --resume"
    goes_on = record.get("status") == "stopped" and run.get("resumable") is not False  # of older runs it is not known
    return {
        "record": record,
        "run": run,
        "status": str(record.get("status")),
        "parameters": parameters,
        "map": parameters.get("map"),
        "scaling": numbers.SCALINGS.get(str(parameters.get("scaling"))),
        "classes": [numbers.label_text(label) for label in record.get("classes") or (numbers.DASH,) * 2],
        "rows": numbers.count(record.get("rows")),
        "rounds": rounds.table(records, columns),
        "reading": reading(run, records),
        "started": moment(run.get("started")),
        "goes_on": goes_on,
        "commands": {
            "verify": verify,
            "next": resume if goes_on else verify,
        },
    }


def moment(value: Any) -> str:
    """A time stamp for people; a dash for what is none."""
    try:
        then = datetime.fromisoformat(str(value))
        here = then if then.tzinfo is None else then.astimezone(UTC)
    except (ValueError, OverflowError):  # beyond the first or the last year in UTC
        return numbers.DASH
    return here.strftime("%Y-%m-%d %H:%M" if then.tzinfo is None else "%Y-%m-%d %H:%M UTC")


def reading(run: Json, records: Sequence[Json]) -> dict[str, Any]:
    """Totals over all rounds: bytes against the store, chunks skipped in scans."""
    store, total = numbers.finite(run.get("store_bytes")), numbers.finite(run.get("bytes_read"))
    scans = [r for r in records if r.get("kind") == "scan"]
    return {
        "times": total / store if store and total is not None else None,
        "skipped": sum(int(numbers.finite(r.get("chunks_skipped")) or 0) for r in scans),
        "chunks": sum(int(numbers.finite(r.get("chunks")) or 0) for r in scans),
        "again": sum(int(numbers.finite(r.get("chunks_read")) or 0) for r in scans) if run.get("stages") else 0,
    }
