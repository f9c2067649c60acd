"""Texts are parsed once and kept until they are written: never with another result than where they are parsed twice."""

from __future__ import annotations

import gc
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from coremargin.data.ingest import ingest
from coremargin.data.sources import text as text_source
from coremargin.data.store import Store
from coremargin.data.tables.delimited import DelimitedTable
from coremargin.data.tables.spill import ParsedBatches, SpilledTable
from coremargin.errors import BadRow, CoremarginError, DataError, LabelError
from store_kit import unnamed_files

if TYPE_CHECKING:
    from coremargin.data.sources.base import Progress

WORDS: dict[str, Any] = {
    "categorical": "auto", "dates": "auto", "missing": "median", "label": "label", "weights": "weight",
}  # fmt: skip
ROWS = 4000

Parsed = Callable[[], int]
Change = Callable[[int, list[str]], list[str]]


def line(k: int) -> list[str]:
    """The fields of row k: a gap, a code, a word in quotes, a date with a time, a number, weight and label."""
    gap, word = "" if k % 7 == 0 else f"{k % 5}.5", f'"{"ab,c"[k % 4]}{k % 3}"'
    when = f"2024-02-{k % 28 + 1:02} {k % 24:02}:30:00"
    return [gap, f"0{k % 9}", word, when, f"{k * 0.25}", f"{k % 3 + 1}", ("no", "yes")[k % 2]]


def table(change: Change = lambda _, fields: fields) -> str:
    """A CSV of many pieces."""
    names = "gap,code,word,when,n,weight,label\n"
    return names + "".join(",".join(change(k, line(k))) + "\n" for k in range(ROWS))


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of some KiB have many pieces."""
    monkeypatch.setattr(text_source.read_pieces, "__defaults__", (2**13,))


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> Parsed:
    """``parsed()``: pieces of text that were parsed so far."""
    calls, batch = [], DelimitedTable.batch

    def counted(self: DelimitedTable, *words: Any) -> Any:
        calls.append(1)
        return batch(self, *words)

    monkeypatch.setattr(DelimitedTable, "batch", counted)
    return lambda: len(calls)


def files(store: Path) -> dict[str, bytes]:
    """What a store consists of, but for when it was made: the log, and what the root says of it."""
    found = {str(path.relative_to(store)): path.read_bytes() for path in store.rglob("*") if path.is_file()}
    del found["log.jsonl"]
    root = json.loads(found["zarr.json"])
    del root["attributes"]["log"]
    return found | {"zarr.json": json.dumps(root).encode()}


def parse_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept from now on."""
    monkeypatch.setattr(ParsedBatches, "begin", lambda *_: None)


def replaced(column: int, value: str, rows: Callable[[int], bool]) -> Change:
    """Some rows have another value in a column; {} in it is the value that was there."""

    def change(k: int, fields: list[str]) -> list[str]:
        return [*fields[:column], value.format(fields[column]), *fields[column + 1 :]] if rows(k) else fields

    return change


CHANGES: dict[str, Change] = {
    "plain": lambda _, fields: fields,
    "padded": lambda k, fields: [*(f" {one} " for one in fields[:-1]), fields[-1]] if k % 100 == 3 else fields,
    "a word late among numbers": replaced(1, "none", lambda k: k == ROWS - 9),
    "numbers that Arrow does not read": replaced(4, "+{}", lambda k: k % 900 == 5),
    "missing at first": replaced(0, "", lambda k: k < ROWS // 2),
    "fractions of seconds": replaced(3, "{}.25", lambda k: k == ROWS - 1),
    "true and false": lambda k, fields: ["True" if k % 2 else "false", *fields[1:]],
    "a blank line": replaced(0, "\n{}", lambda k: k == ROWS // 2),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_store_is_the_same_whether_texts_are_parsed_once_or_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Every file of the store, to the byte, whatever a column turns out to hold, and however late."""
    path = tmp_path / "rows.csv"
    path.write_text(table(CHANGES[change]))
    ingest(path, tmp_path / "once.zarr", **WORDS)
    parse_again(monkeypatch)
    ingest(path, tmp_path / "twice.zarr", **WORDS)
    assert files(tmp_path / "once.zarr") == files(tmp_path / "twice.zarr")


def test_each_piece_is_parsed_once(tmp_path: Path, parsed: Parsed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one file, of several, and of what is compressed."""
    (tmp_path / "a.csv").write_text(table())
    with gzip.open(tmp_path / "b.csv.gz", "wt") as file:
        file.write(table())
    ingest([tmp_path / "a.csv", tmp_path / "b.csv.gz"], tmp_path / "rows.zarr", **WORDS)
    once = parsed()
    assert once > 20
    parse_again(monkeypatch)
    ingest([tmp_path / "a.csv", tmp_path / "b.csv.gz"], tmp_path / "again.zarr", **WORDS)
    assert parsed() == 3 * once
    assert files(tmp_path / "rows.zarr") == files(tmp_path / "again.zarr")


def test_lines_between_blank_ones_are_parsed_twice(tmp_path: Path, parsed: Parsed) -> None:
    """The numbers of such lines would have to be kept in memory."""
    (tmp_path / "rows.csv").write_text(table(CHANGES["a blank line"]))
    ingest(tmp_path / "rows.csv", tmp_path / "rows.zarr", **WORDS)
    twice = parsed()
    (tmp_path / "rows.csv").write_text(table())
    ingest(tmp_path / "rows.csv", tmp_path / "plain.zarr", **WORDS)
    assert twice == 2 * (parsed() - twice)


class Full(SpilledTable):
    """A disk that is full after some batches."""

    def add(self, *words: Any) -> None:
        """Fails from 64 KiB on."""
        if self.kept_bytes > 2**16:
            raise OSError(28, "No space left on device")
        super().add(*words)


class Crowded(SpilledTable):
    """A disk on which little is free."""

    def room(self) -> int:
        """Not four times what is kept."""
        return 2**18


class Nowhere(SpilledTable):
    """A folder in which no file can be made."""

    def __init__(self, *_: Any) -> None:
        raise OSError(30, "Read-only file system")


@pytest.mark.parametrize("disk", [Full, Crowded, Nowhere])
def test_without_room_texts_are_parsed_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parsed: Parsed, disk: type[SpilledTable]
) -> None:
    """A disk that has no room for what is kept is no reason to fail: the store is the same, and nothing stays open."""
    (tmp_path / "rows.csv").write_text(table())
    ingest(tmp_path / "rows.csv", tmp_path / "rows.zarr", **WORDS)
    once = parsed()
    monkeypatch.setattr("coremargin.data.tables.spill.SpilledTable", disk)
    before = unnamed_files()
    ingest(tmp_path / "rows.csv", tmp_path / "again.zarr", **WORDS)
    gc.collect()
    assert parsed() == 3 * once
    assert unnamed_files() <= before
    assert files(tmp_path / "rows.zarr") == files(tmp_path / "again.zarr")


def test_what_is_kept_has_no_name_and_goes(tmp_path: Path) -> None:
    """No folder shows it while it is there, and it is closed at the end, also where a row is refused."""
    (tmp_path / "rows.csv").write_text(table(replaced(6, "", lambda k: k == ROWS - 1)))
    (tmp_path / "out").mkdir()
    gc.collect()
    seen, before = set[Path](), unnamed_files()

    def look(progress: Progress) -> None:
        if progress.stage == "reading columns":
            seen.update((tmp_path / "out").iterdir())

    with pytest.raises(LabelError, match=rf"rows\.csv, line {ROWS + 1}: found no label"):
        ingest(tmp_path / "rows.csv", tmp_path / "out" / "rows.zarr", on_progress=look, **WORDS)
    gc.collect()
    assert seen == set()
    assert unnamed_files() <= before


def changed_between_the_passes(path: Path, store: Path, text: str) -> None:
    """Ingest a file that becomes another one as soon as its columns are known."""
    stages = list[int]()

    def change(progress: Progress) -> None:
        if progress.stage == "reading columns" and progress.done_bytes == progress.total_bytes and not stages:
            stages.append(1)
            path.write_text(text)

    ingest(path, store, on_progress=change, overwrite=True, **WORDS)
    assert stages


def test_a_file_that_changes_between_the_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is of what was there when columns were found out; where that was not kept, other rows are refused."""
    path = tmp_path / "rows.csv"
    path.write_text(table())
    ingest(path, tmp_path / "rows.zarr", **WORDS)
    changed_between_the_passes(path, tmp_path / "changed.zarr", table()[:-200])
    assert Store.open(tmp_path / "changed.zarr").digest == Store.open(tmp_path / "rows.zarr").digest
    parse_again(monkeypatch)
    for text, kind, message in (
        (table() + ",".join(line(0)) + "\n", DataError, rf"found {ROWS + 1:,} rows, expected {ROWS:,} by its end"),
        (table() + "1,2\n", BadRow, rf"rows\.csv, line {ROWS + 2}: found 2 fields, expected 7"),
    ):
        path.write_text(table())
        with pytest.raises(kind, match=message):
            changed_between_the_passes(path, tmp_path / "changed.zarr", text)


REFUSED = {
    "label": (6, "", LabelError, "found no label"),
    "weight": (5, "much", BadRow, "column 'weight': found 'much', expected a number as the row's weight"),
    "negative weight": (5, "-1", BadRow, "found weight -1.0"),
    "quote": (2, '"a"b', BadRow, "found text behind the closing quote of a field"),
    "infinite": (4, "inf", BadRow, "column 'n': found infinity"),
    "too many fields": (4, "1,2", BadRow, "found 8 fields, expected 7"),
}


@pytest.mark.parametrize("fault", REFUSED)
@pytest.mark.parametrize("row", [5, ROWS - 5])
def test_places_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, row: int) -> None:
    """What is refused is refused in the same words, by its line, whether texts are parsed once or twice."""
    column, value, kind, message = REFUSED[fault]
    path = tmp_path / "rows.csv"
    path.write_text(table(replaced(column, value, lambda k: k == row)))
    told = []
    for _ in range(2):
        with pytest.raises(CoremarginError) as caught:
            ingest(path, tmp_path / "rows.zarr", **WORDS)
        assert type(caught.value) is kind
        told.append(str(caught.value))
        parse_again(monkeypatch)
    assert told[0] == told[1]
    assert f"rows.csv, line {row + 2}" in told[0]
    assert message in told[0]


def test_times_mean_the_same_beside_fractions_of_seconds(tmp_path: Path) -> None:
    """Whole seconds are looked up in a table: with the same bits as where they are computed."""
    rows = [[f"{k:02}:{k:02}:{(7 * k) % 60:02}" for k in range(24)], ["23:59:59.999999"]]
    stores = []
    for name, times in (("whole", rows[0]), ("parts", rows[0] + rows[1])):
        lines = [f"2024-02-{k + 1:02} {time},{k % 2}" for k, time in enumerate(times)]
        (tmp_path / f"{name}.csv").write_text("when,label\n" + "\n".join(lines) + "\n")
        ingest(tmp_path / f"{name}.csv", tmp_path / f"{name}.zarr", dates="when", dtype="float64")
        stores.append(Store.open(tmp_path / f"{name}.zarr").rows_at(np.arange(24))[0])
    assert stores[0].tobytes() == stores[1].tobytes()
