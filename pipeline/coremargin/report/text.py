"""Text for terminals and pages: tables, numbers with nouns, terms with their explanations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from coremargin.formats.strict_json import cut
from coremargin.report.numbers import visible

if TYPE_CHECKING:
    from coremargin.formats.store_log import LogEntry

LONGEST_CELL = 120
WORKING_SET = "rows that the driver keeps in memory and solves on"
_CARRY = "rows that carry the proof: they alone show that no more is possible"
_NEAR = "rows near the margin with dual weights of their own: the proof rests on them, and on sums over all others"
#: Explanations for templates.
GLOSSARY = {"working_set": WORKING_SET, "coreset": _CARRY, "near": _NEAR}


def explain_coreset(*, value: bool) -> str:
    """What the coreset of a certificate is; value: of an objective, not of a margin."""
    return _NEAR if value else _CARRY


def table(rows: Sequence[Sequence[str]], *, indent: str = "  ", left: int = 1) -> list[str]:
    """Aligned columns, the first ``left`` of them to the left, the others to the right."""
    shown = [[cut(visible(cell), LONGEST_CELL) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines = []
    for row in shown:
        cells = [c.ljust(w) if k < left else c.rjust(w) for k, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append((indent + "  ".join(cells)).rstrip())
    return lines


def facts(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Lines "name   value" with aligned values."""
    width = max((len(name) for name, _ in pairs), default=0)
    return [f"{name.ljust(width)}  {value}" for name, value in pairs]


def class_table(counts: Sequence[tuple[Any, int]], limit: int = 20) -> list[str]:
    """Rows and shares by label, of at most ``limit`` labels."""
    total = sum(rows for _, rows in counts)
    shown = [(repr(label), f"{rows:,}", f"{rows / total:.1%}") for label, rows in counts[:limit]]
    if len(counts) > limit:
        rest = sum(rows for _, rows in counts[limit:])
        shown.append((f"{len(counts) - limit} more", f"{rest:,}", f"{rest / total:.1%}"))
    return table([("label", "rows", "share"), *shown])


def listed(labels: Sequence[str], limit: int = 10) -> str:
    """Labels separated by commas, at most ``limit`` of them."""
    more = f" and {len(labels) - limit:,} more" if len(labels) > limit else ""
    return ", ".join(labels[:limit]) + more


def count(number: int, noun: str) -> str:
    """1 chunk, 1,000 chunks."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def describe_reading(run: Mapping[str, Any]) -> str:
    """How a run read its store: in stages or with a sample, and in scans; two staged reads are of two problems."""
    scans, stages, reads = int(run.get("scans", 0)), int(run.get("stages", 0)), int(run.get("staged_reads", 1))
    retrained = run.get("retrained")
    if isinstance(retrained, dict) and "from_scratch" not in retrained:
        parts = [f"new rows in {count(stages, 'stage')}" if stages > 1 else "new rows"] if stages else []
        more = scans - reads * bool(stages)
        if more > 0:
            parts.append(f"{count(more, 'scan')} of rows left unproven")
        return " and ".join(parts) or "no chunk"
    if not stages:
        return count(scans, "scan") + (" and a sample" if run.get("sample_scans", 1) else "")
    first = f"one read in {count(stages, 'stage')}" if stages > 1 else "one read"
    if reads > 1:
        first = f"{reads:,} reads in {count(stages, 'stage')} in all"
    return f"{first} and {count(scans - reads, 'scan')} after it" if scans > reads else first


_CHANGES = {
    "added": "added",
    "removed": "removed",
    "returned": "restored",
    "reweighed": "with another weight",
    "labels_added": "with a first label",
    "labels_replaced": "with another label",
    "labels_removed": "without their label",
}


def describe_commit(entry: LogEntry) -> str:
    """What a commit of a store changed: "20 rows added"."""
    counts = entry.counts
    changes = [f"{count(counts[name], 'row')} {change}" for name, change in _CHANGES.items() if name in counts]
    return ", ".join(changes) or f"{entry.did}, number of rows not recorded"
