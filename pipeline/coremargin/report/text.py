"""Text for terminals and pages: tables, facts in columns, numbers with their nouns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coremargin.formats.strict_json import cut
from coremargin.report.numbers import visible

LONGEST_CELL = 120


def table(rows: Sequence[Sequence[str]], *, indent: str = "  ", left: int = 1) -> list[str]:
    """Lines of columns as wide as their widest entry; so many columns to the left, the others to the right."""
    shown = [[cut(visible(cell), LONGEST_CELL) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
    lines = []
    for row in shown:
        cells = [c.ljust(w) if k < left else c.rjust(w) for k, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append((indent + "  ".join(cells)).rstrip())
    return lines


def facts(pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Lines "name   value" with the values in one column."""
    width = max((len(name) for name, _ in pairs), default=0)
    return [f"{name.ljust(width)}  {value}" for name, value in pairs]


def class_table(counts: Sequence[tuple[Any, int]], limit: int = 20) -> list[str]:
    """Labels with their rows and shares."""
    everything = sum(rows for _, rows in counts)
    shown = [(repr(label), f"{rows:,}", f"{rows / everything:.1%}") for label, rows in counts[:limit]]
    if len(counts) > limit:
        rest = sum(rows for _, rows in counts[limit:])
        shown.append((f"{len(counts) - limit} more", f"{rest:,}", f"{rest / everything:.1%}"))
    return table([("label", "rows", "share"), *shown])


def listed(labels: Sequence[str], limit: int = 10) -> str:
    """Labels with commas; of very many the first ones."""
    more = f" and {len(labels) - limit:,} more" if len(labels) > limit else ""
    return ", ".join(labels[:limit]) + more


def count(number_of: int, what: str) -> str:
    """A number and its noun: 1 chunk, 1,000 chunks."""
    return f"{number_of:,} {what}{'' if number_of == 1 else 's'}"


def reading_told(run: Mapping[str, Any]) -> str:
    """How a run read its store, by what ``run.json`` counts: a first read in stages, or a sample, and scans.

    Two reads in stages are of a job that came to ask another question.
    """
    scans, stages = int(run.get("scans", 0)), int(run.get("stages", 0))
    about = run.get("retrained")
    if isinstance(about, dict) and "from_nothing" not in about:
        return _again_told(scans, stages, int(run.get("staged_reads", 1)))
    if not stages:
        return count(scans, "scan") + (" and a sample" if run.get("sample_scans", 1) else "")
    reads = int(run.get("staged_reads", 1))
    first = f"one read in {count(stages, 'stage')}" if stages > 1 else "one read"
    if reads > 1:
        first = f"{reads:,} reads in {count(stages, 'stage')} in all"
    return f"{first} and {count(scans - reads, 'scan')} after it" if scans > reads else first


def _again_told(scans: int, stages: int, reads: int) -> str:
    """How a retraining read its store."""
    new = f"what is new in {count(stages, 'stage')}" if stages > 1 else "what is new"
    told = [new] if stages else []
    if scans > reads * bool(stages):
        told.append(f"{count(scans - reads * bool(stages), 'scan')} of what was left unproven")
    return " and ".join(told) or "no chunk"
