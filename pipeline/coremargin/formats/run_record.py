"""The record of a run (``run.json``, ``rounds.jsonl``). No proof depends on it, but commands show it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct

from coremargin.formats.storage import ReadableStorage, read_object_bytes
from coremargin.formats.strict_json import LARGEST, read_object, typed

RUN, ROUNDS = "run.json", "rounds.jsonl"
PARTS = 100

_Count = Annotated[int, Meta(ge=0)]


class Memory(Struct, frozen=True, kw_only=True):
    """Memory for rows. wanted_bytes, wanted_rows: what would be useful, if known; short: consequence of having less."""

    bytes: _Count
    wanted_bytes: _Count | None = None
    wanted_rows: _Count | None = None
    short: str | None = None


class WarmStartState(Struct, frozen=True, kw_only=True):
    """Warm-start state: its size, limit and computing time; wanted_bytes: its size if it exceeded the limit."""

    bytes: _Count
    most_bytes: _Count
    wanted_bytes: _Count | None = None
    seconds: Annotated[float, Meta(ge=0, le=1e12)]


class Run(Struct, frozen=True, kw_only=True):
    """Fields of ``run.json`` that commands use; there may be more."""

    scans: _Count
    stages: _Count = 0
    bytes_read: _Count
    sample_bytes: _Count
    store_bytes: Annotated[int, Meta(ge=1)]
    working_set_rows: _Count
    seconds: Annotated[float, Meta(ge=0, le=1e12)]
    seconds_before_report: Annotated[float, Meta(ge=0, le=1e12)] | None = None
    peak_rss_bytes: _Count
    resumed: _Count
    resume: list[str] | None = None  #: command that resumes the run; None for rows in memory
    store: str
    out: str
    reason: str
    memory: Memory | None = None
    retraining: WarmStartState | None = None
    bounds: list[tuple[float, float | None, float | None]] = []  #: seconds, lower, upper: between scans


class FleetRun(Run, frozen=True, kw_only=True):
    """Of a multi-model job."""

    members: _Count
    members_certified: _Count
    as_read: list[dict[str, Any]] | None = None


class PublishedRun(Struct, frozen=True, kw_only=True):
    """Result of a published algorithm for k outliers; margin: of its own best hyperplane."""

    k: _Count
    algorithm: str
    subsets: _Count
    subsets_at_most: _Count
    subset_rows: _Count
    ended: bool
    margin: float | None


class OutlierWork(Struct, frozen=True):
    """Lemma 5.2 of Har-Peled, Roth and Zimak 2006 for the proven margin, for comparison with the search.

    coreset: c = 64 (R / margin)^2 / epsilon; log10_subsets: of rows^(c + 1); log10_leaves: of (features + 2)^k.
    """

    coreset: float
    log10_subsets: float
    log10_leaves: float


class OutlierRun(Run, frozen=True, kw_only=True):
    """Of a margin with outliers."""

    work: OutlierWork | None = None
    published: list[PublishedRun] = []
    outliers: _Count | None = None
    wrong: _Count | None = None
    least: _Count | None = None
    gap_later: float | None = None


def step_name(line: Mapping[str, Any]) -> str:
    """Name of a round in ``rounds.jsonl``: a sample, changed rows, a stage or a scan."""
    if line.get("kind") == "stage":
        return "one read" if line.get("stages") == 1 else f"stage {line.get('stage')} of {line.get('stages')}"
    if line.get("kind") == "sample":
        return "changed rows" if line.get("changed") else "sample"
    return f"scan {line.get('round')}"


def parts_of(chunks: int) -> list[int]:
    """Chunks in each of at most PARTS equal parts of a store; ``where`` counts the chunks read in each of them."""
    parts = min(PARTS, chunks)
    return [chunks * (k + 1) // parts - chunks * k // parts for k in range(parts)]


def in_parts(rounds: Iterable[Mapping[str, Any]]) -> bool:
    """Whether scans were made in parts without stages; rounds: lines of ``rounds.jsonl``."""
    lines = list(rounds)
    return any("part" in line for line in lines) and not any(line.get("kind") == "stage" for line in lines)


def read_run_record(model: ReadableStorage) -> dict[str, Any]:
    """``run.json``. Raises DataError; ``MISSING`` pass."""
    return read_object(read_object_bytes(model, RUN, LARGEST), f"{model.name}/{RUN}", names=True)


def read_run(model: ReadableStorage, kind: type[Run]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """``run.json`` and the lines of ``rounds.jsonl`` of a finished model; kind: type of the run.

    Raises DataError (invalid records); ``MISSING`` pass.
    """
    run, place = read_run_record(model), f"{model.name}/{ROUNDS}"
    typed(kind, run, f"{model.name}/{RUN}")
    parts = enumerate(read_object_bytes(model, ROUNDS, LARGEST).splitlines(), start=1)
    return run, [read_object(line, f"{place}, line {i}", names=True) for i, line in parts if line.strip()]
