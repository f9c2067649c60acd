"""Data for templates: what all pages of models have in common, and the claims of a certificate."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from coremargin.errors import DataError
from coremargin.formats.model_record import FILE
from coremargin.report import numbers, rounds
from coremargin.report.numbers import Precision, finite, precision_for

if TYPE_CHECKING:
    from coremargin.report.page import Json
    from coremargin.report.rounds import Column


def view(record: Json, run: Json, records: Sequence[Json], columns: Sequence[Column], name: str) -> dict[str, Any]:
    """Record, run, rounds and commands of a model, for ``base.html.j2``.

    name: the model's folder, for the commands. The next command resumes a stopped run, or else verifies the model.
    Missing and non-finite numbers become dashes.
    """
    parameters = record.get("parameters") or {}
    store, model = shlex.quote(str(run.get("store") or "STORE")), shlex.quote(name)
    verify = f"coremargin verify {model} {store}"
    words = run.get("resume")
    resume = shlex.join(map(str, words)) if words else f"coremargin train {store} --out {model} OPTIONS --resume"
    resumable = record.get("status") == "stopped" and run.get("resumable") is not False
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
        "resumable": resumable,
        "commands": {
            "verify": verify,
            "next": resume if resumable else verify,
        },
    }


def moment(value: Any) -> str:
    """A time stamp for people; a dash for anything else."""
    try:
        then = datetime.fromisoformat(str(value))
        here = then if then.tzinfo is None else then.astimezone(UTC)
    except (ValueError, OverflowError):  # outside of the years that datetime knows
        return numbers.DASH
    return here.strftime("%Y-%m-%d %H:%M" if then.tzinfo is None else "%Y-%m-%d %H:%M UTC")


def reading(run: Json, records: Sequence[Json]) -> dict[str, Any]:
    """Totals over all rounds: reads of the store, chunks read and skipped in scans."""
    store, total = numbers.finite(run.get("store_bytes")), numbers.finite(run.get("bytes_read"))
    scans = [r for r in records if r.get("kind") == "scan"]
    return {
        "times": total / store if store and total is not None else None,
        "skipped": sum(int(numbers.finite(r.get("chunks_skipped")) or 0) for r in scans),
        "chunks": sum(int(numbers.finite(r.get("chunks")) or 0) for r in scans),
        "again": sum(int(numbers.finite(r.get("chunks_read")) or 0) for r in scans) if run.get("stages") else 0,
    }


@dataclass(frozen=True)
class Claims:
    """Bounds of a certificate (None: not claimed), and the digits that distinguish them.

    ratio: of the bounds, never rounded up; epsilon: of the job.
    """

    certificate: Json
    lower: float | None
    upper: float | None
    ratio: float | None
    epsilon: float
    precision: Precision

    def view(self) -> dict[str, Any]:
        """As a dict for templates."""
        return dict(vars(self))


def claims_of(model: Json, name: str) -> Claims:
    """Claims in the record of the model ``name``. Raises DataError if it has no epsilon."""
    certificate = model.get("certificate") or {}
    lower, upper = finite(certificate.get("lower")), finite(certificate.get("upper"))
    ratio = _ratio(certificate, lower, upper)
    return Claims(certificate, lower, upper, ratio, _epsilon(model, name), precision_for(lower, upper))


def _epsilon(model: Json, name: str) -> float:
    for holder in (model.get("certificate"), model.get("parameters")):
        found = finite((holder or {}).get("epsilon"))
        if found is not None and 0.0 < found < 1.0:
            return found
    raise DataError(f"{name}/{FILE}: expected an epsilon between 0 and 1, found none; is this a model's folder?")


def _ratio(certificate: Json, lower: float | None, upper: float | None) -> float | None:
    if lower is None or upper is None or upper <= 0.0:
        return None
    proven = math.nextafter(lower / upper, -math.inf) if lower < upper else 1.0
    claimed = finite(certificate.get("ratio"))
    return proven if claimed is None else min(claimed, 1.0)
