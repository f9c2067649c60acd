"""The index of a data frame is no feature, of frames, of Parquet and of Arrow, unless it is asked for by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coremargin
from coremargin.cli.ingest import report_lines
from coremargin.data.ingest import ingest
from coremargin.data.store import Store
from coremargin.errors import DataError, UsageError

Refused = Callable[..., str]
ROWS = 12
FRAME = pd.DataFrame({"a": np.arange(ROWS) * 0.25, "b": np.arange(ROWS) % 3, "label": ["p", "n"] * (ROWS // 2)})
INDICES: dict[str, Any] = {
    "a range": pd.RangeIndex(ROWS),
    "a named range": pd.RangeIndex(ROWS, name="customer"),
    "numbers": pd.Index(np.arange(ROWS)[::-1] + 1000),
    "named": pd.Index(np.arange(ROWS) + 1000, name="customer"),
    "dates": pd.date_range("2026-01-01", periods=ROWS, tz="UTC"),
    "words": pd.Index([f"row {k}" for k in range(ROWS)], name="customer"),
    "several": pd.MultiIndex.from_product([range(3), list("uvwx")], names=["shop", None]),
    "one like a feature": pd.Index(np.arange(ROWS) + 1000, name="a"),
    "one like the label": pd.Index(np.arange(ROWS), name="y"),
}
WAYS: dict[str, Callable[[pd.DataFrame, Path], Any]] = {
    "frame": lambda frame, folder: frame,
    "frames": lambda frame, folder: iter([frame[:5], frame[5:]]),
    "Dask": lambda frame, folder: dd.from_pandas(frame, npartitions=2, sort=False),
    "Arrow": lambda frame, folder: pa.Table.from_pandas(frame),
    "stream": lambda frame, folder: pa.Table.from_pandas(frame).to_reader(5),
    "without metadata": lambda frame, folder: pa.Table.from_pandas(frame.rename_axis(None)).replace_schema_metadata(),
    "Parquet": lambda frame, folder: _written(frame, folder / "rows.parquet"),
    "fastparquet's way": lambda frame, folder: _written(frame.reset_index(drop=True), folder / "rows.parquet"),
    "Dask's Parquet": lambda frame, folder: _by_dask(frame, folder / "rows"),
}


def _written(frame: pd.DataFrame, path: Path) -> Path:
    frame.to_parquet(path)
    return path


def _by_dask(frame: pd.DataFrame, path: Path) -> Path:
    dd.from_pandas(frame, npartitions=2, sort=False).to_parquet(path)
    return path


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("way", WAYS)
def test_an_index_is_no_feature(tmp_path: Path, way: str, index: str) -> None:
    """Whatever the index is and however the frame comes, the features are its columns, and the labels are right."""
    several = isinstance(INDICES[index], pd.MultiIndex)
    if several and way in ("Dask", "Dask's Parquet", "without metadata"):
        pytest.skip("Dask has no index of several levels, and names of levels that pandas lost are columns")
    if index == "one like a feature" and way == "Dask's Parquet":
        pytest.skip("Dask does not write it")
    ingest(WAYS[way](FRAME.set_axis(INDICES[index]), tmp_path), tmp_path / "rows.zarr", dtype="float64")
    store = Store.open(tmp_path / "rows.zarr")
    assert store.columns is not None
    assert store.columns.names == ("a", "b")
    rows, codes = store.rows_at(np.arange(ROWS))
    assert rows.tolist() == FRAME[["a", "b"]].to_numpy().tolist()
    assert [store.classes[code] for code in codes] == FRAME["label"].tolist()


def test_the_report_says_what_is_left_out(tmp_path: Path) -> None:
    """An index that is left out is named, also to people."""
    frame = FRAME.set_axis(INDICES["named"])
    for number, source in enumerate([frame, _written(frame, tmp_path / "rows.parquet"), pa.Table.from_pandas(frame)]):
        report = ingest(source, tmp_path / f"{number}.zarr")
        assert report.left_out == {"customer": "an index of a data frame"}
        assert "not features unless you name them: 'customer' (an index of a data frame)" in report_lines(report)
    assert ingest(FRAME, tmp_path / "plain.zarr").left_out == {}


@pytest.mark.parametrize("way", ["frame", "frames", "Arrow", "stream", "Parquet"])
def test_an_index_that_is_asked_for_is_read(tmp_path: Path, way: str) -> None:
    """The label, the key, the weights or a column may be an index that is named."""
    frame = FRAME.set_axis(INDICES["named"].rename("row number")).set_index("label", append=True)
    ingest(WAYS[way](frame, tmp_path), tmp_path / "rows.zarr", label="label")
    store = Store.open(tmp_path / "rows.zarr")
    assert store.columns is not None
    assert (store.columns.names, store.classes) == (("a", "b"), ("p", "n"))
    ingest(WAYS[way](frame, tmp_path), tmp_path / "keys.zarr", label="label", key="row number")
    found = Store.open(tmp_path / "keys.zarr").columns
    assert found is not None
    assert (found.names, found.key) == (("a", "b"), "row number")


@pytest.mark.parametrize("way", ["frame", "frames", "Arrow", "Parquet"])
def test_an_index_called_like_a_label_must_be_named(refused: Refused, tmp_path: Path, way: str) -> None:
    """Where the labels may be the index, no column is taken for them."""
    (tmp_path / "in").mkdir()
    text = refused(WAYS[way](FRAME.set_index("label"), tmp_path / "in"), UsageError)
    assert "no column is called like a label, but 'label' (an index of a data frame) is: say --label label" in text


def test_a_model_of_parquet_takes_frames_with_any_index(tmp_path: Path) -> None:
    """Rows to predict and to append need no index, or may have another one."""
    model = coremargin.train(_written(FRAME.set_axis(INDICES["named"]), tmp_path / "a.parquet"), loss="hinge")
    plain = model.decision_function(FRAME[["a", "b"]]).tolist()
    assert model.decision_function(FRAME.set_axis(INDICES["dates"])).tolist() == plain
    assert model.decision_function(pa.Table.from_pandas(FRAME.set_axis(INDICES["words"]))).tolist() == plain
    ingest(tmp_path / "a.parquet", tmp_path / "rows.zarr")
    _written(FRAME.set_axis(INDICES["words"]), tmp_path / "b.parquet")
    assert ingest(tmp_path / "b.parquet", tmp_path / "rows.zarr", append=True).store_rows == 2 * ROWS
    ingest([tmp_path / "b.parquet", tmp_path / "a.parquet"], tmp_path / "both.zarr")


def test_metadata_that_cannot_be_read_are_refused(refused: Refused, tmp_path: Path) -> None:
    """What was the index, broken metadata do not say, so the file is refused."""
    table = pa.table({"a": [1.0], "label": [1]})
    for words in (b"{", b"[1]", b"\xff", b"[" * 100_000, b'{"index_columns": 7}'):
        (tmp_path / "a.parquet").unlink(missing_ok=True)
        pq.write_table(table.replace_schema_metadata({b"pandas": words}), tmp_path / "a.parquet")
        assert "a.parquet: pandas' metadata cannot be read" in refused(tmp_path / "a.parquet", DataError)


@pytest.mark.parametrize("cuts", [[0], [20], [40], [0, 0, 7, 7, 7, 40, 40], []])
@pytest.mark.parametrize("coded", [False, True])
def test_row_groups_without_rows_are_passed_over(tmp_path: Path, cuts: list[int], *, coded: bool) -> None:
    """Empty row groups at the beginning, in the middle and at the end, also of dictionaries and lists."""
    count = np.arange(40)
    rows = pa.table({"a": count * 0.5, "b": list(np.stack([count, -count], 1)), "label": np.where(count % 3, "p", "n")})
    rows = rows.set_column(2, "label", rows["label"].dictionary_encode()) if coded else rows
    with pq.ParquetWriter(tmp_path / "rows.parquet", rows.schema) as writer:
        for start, stop in zip([0, *cuts], [*cuts, 40], strict=True):
            writer.write_table(rows.slice(start, stop - start))
    assert pq.ParquetFile(tmp_path / "rows.parquet").metadata.num_row_groups == len(cuts) + 1
    ingest(tmp_path / "rows.parquet", tmp_path / "rows.zarr")
    store = Store.open(tmp_path / "rows.zarr")
    found, codes = store.rows_at(count)
    assert np.asarray(found).tolist() == np.column_stack([count * 0.5, count, -count]).tolist()
    assert [store.classes[code] for code in codes] == rows["label"].to_pylist()


def test_files_without_rows_are_passed_over(refused: Refused, tmp_path: Path) -> None:
    """Of several files some may have no rows, with or without row groups; where none has any, that is said."""
    rows = pa.table({"a": [1.0, 2.0], "label": [0, 1]})
    pq.write_table(rows, tmp_path / "1.parquet")
    pq.write_table(rows.slice(0, 0), tmp_path / "0.parquet")
    with pq.ParquetWriter(tmp_path / "2.parquet", rows.schema) as writer:
        writer.write_table(rows.slice(0, 0))
        writer.write_table(rows.slice(0, 0))
    assert ingest(f"{tmp_path}/*.parquet", tmp_path / "out.zarr").rows == 2
    assert "2.parquet: no rows" in refused(tmp_path / "2.parquet", coremargin.errors.NoRows)
