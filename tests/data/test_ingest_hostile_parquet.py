"""Parquet files with columns of no use, or that are broken, lie, or hold lists without end: refused by column."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coremargin.data.ingest import ingest
from coremargin.data.sources import memory
from coremargin.errors import BadRow, ColumnsUnclear, DataError, LabelError, UsageError

Refused = Callable[..., str]

PARQUET: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "a name twice": (
        lambda pa: ([[1.0], [2.0]], ["a", "a"]),
        DataError,
        "columns 0 and 1 are both named 'a', expected a name",
    ),
    "lists as labels": (
        lambda pa: ([[1.0], [[1]]], ["a", "label"]),
        UsageError,
        "column 'label': found type list<element: int64>,",
    ),
    "structs as labels": (
        lambda pa: ([[1.0], [{"int": 1}]], ["a", "label"]),
        UsageError,
        "found type struct<int: int64>, expected",
    ),
    "times as labels": (
        lambda pa: ([[1.0], pa.array([1], pa.timestamp("ns"))], ["a", "label"]),
        UsageError,
        "found type timestamp[ns], expected",
    ),
    "nulls as labels": (
        lambda pa: ([[1.0], pa.nulls(1)], ["a", "label"]),
        LabelError,
        "column 'label': holds no label, expected",
    ),
    "bytes as labels": (
        lambda pa: ([[1.0], [b"\xff"]], ["a", "label"]),
        LabelError,
        "row 0: found the label b'\\xff', expected UTF-8",
    ),
    "a struct": (
        lambda pa: ([[{"int": 1}], [1]], ["a", "label"]),
        UsageError,
        "column 'a': found type struct<int: int64>, expected",
    ),
    "a map": (
        lambda pa: ([pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int32())), [1]], ["a", "label"]),
        UsageError,
        "found type map<",
    ),
    "lists of lists": (
        lambda pa: ([[[[1.0]]], [1]], ["a", "label"]),
        UsageError,
        "found type list<element: list<element: double>>,",
    ),
    "a dictionary of texts": (
        lambda pa: ([pa.array(["a"]).dictionary_encode(), [1]], ["a", "label"]),
        ColumnsUnclear,
        "column 'a': words ('a', ...): 1 different ones in 1 rows; say --categorical a",
    ),
    "empty lists": (
        lambda pa: ([pa.array([[]], pa.list_(pa.float64())), [1]], ["a", "label"]),
        UsageError,
        "row 0, column 'a': found an",
    ),
    "large whole numbers": (
        lambda pa: ([[2**53 + 1], [1]], ["a", "label"]),
        BadRow,
        f"row 0, column 'a': found {2**53 + 1}, expected",
    ),
}


@pytest.mark.parametrize(("make", "kind", "message"), PARQUET.values(), ids=PARQUET)
def test_odd_columns_of_parquet_are_named(
    refused: Refused, tmp_path: Path, make: Callable[[Any], Any], kind: type[Exception], message: str
) -> None:
    """Columns that share a name, and those whose type is neither numbers nor labels, are refused by name and type."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns, names = make(pa)
    pq.write_table(pa.Table.from_arrays([pa.array(column) for column in columns], names=names), tmp_path / "a.parquet")
    found = refused(tmp_path / "a.parquet", kind)
    assert found.startswith("a.parquet")
    assert message in found


def lists(pa: Any, counts: list[int]) -> Any:
    """A column of lists of so many zeros each."""
    ends = np.concatenate([[0], np.cumsum(counts)])
    return pa.LargeListArray.from_arrays(pa.array(ends), pa.array(np.zeros(ends[-1], bool)))


@pytest.mark.slow
def test_lists_without_end_are_refused(refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred million numbers in a kilobyte of Parquet are counted before they are read, by what the file says."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path, count = tmp_path / "a.parquet", (1 << 26) + 8
    pq.write_table(pa.table({"a": lists(pa, [count]), "label": [1]}), path, compression="zstd")
    assert path.stat().st_size < 5_000
    message = f"a.parquet, row group 0, column 'a': found {count:,} values in 1 rows, expected at most 67,108,864 a row"
    assert message in refused(path, DataError)
    data = path.read_bytes()
    said = bytes([0x90, 0x80, 0x80, 0x40])  # the number of values, twice it, in the file's description
    at = data.rindex(said, 0, data.rindex(said))
    path.write_bytes(data[:at] + bytes([0x90, 0x80, 0x80, 0x00]) + data[at + 4 :])
    assert pq.ParquetFile(path).metadata.row_group(0).column(0).num_values == 8
    assert f"a.parquet: found {count:,} features, expected at most 67,108,864" in refused(path, DataError)
    pq.write_table(pa.table({"a": lists(pa, [2, 1 << 20] + [2] * 1022), "label": [1] * 1024}), path)
    monkeypatch.setattr(memory, "available_bytes", lambda: 10 << 20)
    assert "row group 0: its pages and lists of 1,050,622 numbers: takes 16." in refused(path, DataError)


def test_pages_that_unpack_to_more_than_memory_are_refused(
    refused: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kilobyte that holds a gigabyte of one text is refused by what the file says, other large row groups are not."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path, rng = tmp_path / "a.parquet", np.random.default_rng(0)
    long = pa.table({"a": ["x" * (1 << 20)] * 64, "label": [1, 2] * 32})
    pq.write_table(long, path, compression="zstd", use_dictionary=False)
    assert path.stat().st_size < 100_000
    monkeypatch.setattr(memory, "available_bytes", lambda: 10 << 20)
    assert "row group 0: its pages: takes 64." in refused(path, DataError, categorical="a")
    plain = pa.table({"a": rng.random(1 << 21), "label": np.arange(1 << 21) % 2})
    pq.write_table(plain, path, row_group_size=1 << 21)
    assert ingest(path, tmp_path / "rows.zarr", dry_run=True).features == 1


def test_a_damaged_description_of_parquet_is_refused(refused: Refused, tmp_path: Path) -> None:
    """No byte of a Parquet file's description, whatever else it becomes, ends the process or takes gigabytes."""
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [[1.0, 2.0]] * 3, "b": [1.0, 2.0, 3.0], "label": ["x", None, "y"]}), path)
    data = path.read_bytes()
    for at in range(len(data) - 500, len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x11]) + data[at + 1 :])
        try:
            ingest(path, tmp_path / "rows.zarr", dry_run=True)
        except (DataError, UsageError) as error:
            assert "a.parquet" in str(error)  # noqa: PT017 - most, but not all, are refused
