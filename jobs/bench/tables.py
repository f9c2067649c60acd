"""(k) Tables: how fast a CSV of mixed columns becomes a store.

The table is like the records of New York's taxis: 20 columns, of which two are dates with times, two zones of a city,
and two have gaps. As a script it writes one::

    python jobs/bench/tables.py 10000000 taxi.csv
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from measure import Sample, coremargin_command, interleaved, median, run_process
from table import Group, Row

if TYPE_CHECKING:
    from stores import Settings

_STEP = 500_000  # rows that are made at a time
WORDS = ("--categorical", "auto,from,to", "--dates", "auto", "--missing", "median")


def write_taxi(path: Path, rows: int) -> None:
    """Write a table of so many rows; the same bytes each time."""
    rng = np.random.default_rng(0)
    schema = _part(rng, 1).schema
    with pyarrow.csv.CSVWriter(os.fspath(path), schema) as writer:
        for start in range(0, rows, _STEP):
            writer.write_table(_part(rng, min(_STEP, rows - start)))


def _part(rng: np.random.Generator, rows: int) -> pa.Table:
    start = np.datetime64("2023-01-01T00:00:00", "s") + rng.integers(0, 31_536_000, rows)
    end = start + rng.integers(60, 7200, rows)
    miles = np.round(rng.gamma(2, 1.5, rows), 2)
    fare = np.round(3 + 2.5 * miles + rng.normal(size=rows), 2)
    tip = np.round(np.maximum(0, fare * 0.2 + rng.normal(size=rows)), 2)
    return pa.table({
        "vendor": rng.integers(1, 3, rows), "pickup": _times(start), "dropoff": _times(end),
        "passengers": pa.array(rng.integers(1, 7, rows).astype(float), mask=rng.random(rows) < 0.03),
        "distance": miles, "rate": _words(rng, ("standard", "JFK", "Newark", "negotiated"), rows),
        "flag": _words(rng, ("N", "Y"), rows), "from": rng.integers(1, 266, rows), "to": rng.integers(1, 266, rows),
        "payment": _words(rng, ("Credit card", "Cash", "No charge", "Dispute"), rows), "fare": fare,
        "extra": np.round(rng.choice([0, 0.5, 1, 2.5], rows), 2), "tax": np.full(rows, 0.5), "tip": tip,
        "tolls": np.where(rng.random(rows) < 0.05, 6.55, 0.0), "improvement": np.full(rows, 0.3),
        "total": np.round(fare + tip + 1.3, 2),
        "congestion": pa.array(np.full(rows, 2.5), mask=rng.random(rows) < 0.05),
        "airport": np.where(rng.random(rows) < 0.08, 1.25, 0.0),
        "generous": pa.array(np.where(tip > fare * 0.2, "yes", "no")),
    })  # fmt: skip


def _times(values: np.ndarray) -> pa.Array:
    return pa.array(np.char.replace(values.astype(str), "T", " "))


def _words(rng: np.random.Generator, words: tuple[str, ...], rows: int) -> pa.Array:
    return pa.array(np.array(words)[rng.integers(0, len(words), rows)])


def tables(settings: Settings) -> Iterator[Group]:
    """One group: the whole process, start-up included, in seconds and in those of all cores."""
    path = settings.work / f"taxi-{settings.taxi_rows}.csv"
    if not path.exists():
        write_taxi(path, settings.taxi_rows)
    size, store = path.stat().st_size, settings.work / "taxi.zarr"
    command = coremargin_command("ingest", path, store, "--label", "generous", *WORDS, "--overwrite", "--json", "-q")
    runs = interleaved({"ingest": lambda: _cpu(command)}, min(3, settings.repetitions), warm_up=False)["ingest"]
    cpu = float(np.median([sample.answer["cpu"] for sample in runs]))
    group = Group("k", f"a CSV of {settings.taxi_rows:,} rows x 20 mixed columns, {size / 1e6:,.0f} MB")
    memory = max(sample.tree_bytes for sample in runs)
    note = f"{size / 1e6 / median(runs):.0f} MB/s; {size / 1e6 / cpu:.0f} MB/s a core"
    group.rows.append(Row("coremargin ingest", median(runs), memory=memory, note=note))
    yield group


def _cpu(command: list[str]) -> Sample:
    """A run of a command, with the seconds of all cores that it took."""
    before = os.times()
    sample = run_process(command, watch=True)
    after = os.times()
    used = after.children_user - before.children_user + after.children_system - before.children_system
    return Sample(sample.seconds, {**sample.answer, "cpu": used}, sample.tree_bytes)


def main(words: list[str]) -> dict[str, Any]:
    """Write a table: rows, file."""
    rows, path = int(words[0]), Path(words[1])
    write_taxi(path, rows)
    return {"rows": rows, "bytes": path.stat().st_size}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:])))
