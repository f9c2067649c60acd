"""Folders as sources: which files are read, in which order, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coremargin.data.ingest import ingest
from coremargin.data.store import Store
from coremargin.errors import CoremarginError, DataError, UsageError

Refused = Callable[..., str]


def table(first: int, rows: int = 3) -> pa.Table:
    """Rows that count from ``first``, and words."""
    count = np.arange(first, first + rows)
    return pa.table({"a": count * 1.0, "job": ["clerk", "nurse", "smith"] * (rows // 3), "y": count % 2})


def write(path: Path, first: int, rows: int = 3) -> None:
    """A file of Parquet or CSV, by its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    found = table(first, rows)
    if path.suffix == ".parquet":
        pq.write_table(found, path)
    else:
        lines = [",".join(map(str, row.values())) for row in found.to_pylist()]
        path.write_text("\n".join(["a,job,y", *lines]) + "\n")


def first_column(store: Path) -> list[float]:
    """The first feature of all rows."""
    opened = Store.open(store)
    return np.concatenate([opened.read(chunk)[0][:, 0] for chunk in range(opened.chunks)]).tolist()


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_folder_is_its_files_in_order(tmp_path: Path, kind: str) -> None:
    """Files in a folder and below are read in the order of their paths; what marks, hides or holds nothing is not."""
    folder = tmp_path / "rows"
    write(folder / "year=2025" / f"part-1.{kind}", 3)
    write(folder / "year=2025" / f"part-0.{kind}", 0)
    write(folder / "year=2026" / f"part-0.{kind}", 6)
    write(folder / "_temporary" / f"part-9.{kind}", 90)
    write(folder / f".part-0.{kind}", 90)
    (folder / "_SUCCESS").touch()
    (folder / "_metadata").write_text("no rows")
    (folder / f"empty.{kind}").touch()
    if kind == "parquet":
        write(folder / "none.parquet", 0, rows=0)
    report = ingest(folder, tmp_path / "rows.zarr", categorical="auto")
    assert report.rows == 9
    assert report.features == 5  # the names of folders are a column, too
    assert first_column(tmp_path / "rows.zarr") == list(range(9))


def test_a_store_in_the_folder_is_no_file_of_it(tmp_path: Path) -> None:
    """The store may lie in the folder that it is made from, and rows may be appended to it from there."""
    write(tmp_path / "a.csv", 0)
    ingest(tmp_path, tmp_path / "rows.zarr", categorical="auto")
    ingest(str(tmp_path), tmp_path / "rows.zarr", append=True)
    assert first_column(tmp_path / "rows.zarr") == [0, 1, 2, 0, 1, 2]


def test_folders_and_files_are_listed_together(tmp_path: Path) -> None:
    """Folders, files and patterns make one source in the order in which they are named; ** names each file once."""
    write(tmp_path / "one" / "a.parquet", 0)
    write(tmp_path / "one" / "below" / "b.parquet", 3)
    write(tmp_path / "c.parquet", 6)
    ingest([tmp_path / "c.parquet", tmp_path / "one"], tmp_path / "rows.zarr", categorical="auto")
    assert first_column(tmp_path / "rows.zarr") == [6, 7, 8, 0, 1, 2, 3, 4, 5]
    ingest(f"{tmp_path}/one/**", tmp_path / "more.zarr", categorical="auto")
    assert first_column(tmp_path / "more.zarr") == [0, 1, 2, 3, 4, 5]


def mixed(folder: Path) -> None:
    """Files of two kinds."""
    write(folder / "a.csv", 0)
    write(folder / "b.csv", 0)
    write(folder / "b.parquet", 0)


def store(folder: Path) -> None:
    """A store of ours."""
    ingest(np.eye(2), folder, labels=[0, 1])


def lake(folder: Path) -> None:
    """A table of Delta Lake, of which some files are gone."""
    write(folder / "part-0.parquet", 0)
    (folder / "_delta_log").mkdir()


def others(folder: Path) -> None:
    """Files of other columns."""
    write(folder / "a.parquet", 0)
    pq.write_table(table(0).drop_columns("job"), folder / "b.parquet")


def text(folder: Path) -> None:
    """A file that is no table."""
    write(folder / "a.csv", 0)
    (folder / "README").write_text("Rows.\n")


def arrays(folder: Path) -> None:
    """An array, which would need its labels."""
    folder.mkdir()
    np.save(folder / "X.npy", np.eye(2))


def nothing(folder: Path) -> None:
    """Files without rows."""
    write(folder / "none.parquet", 0, rows=0)
    (folder / "empty.csv").touch()


BAD: dict[str, tuple[Callable[[Path], None], type[CoremarginError], str]] = {
    "several kinds": (
        mixed, UsageError,
        "rows: found 2 csv (a.csv, ...), 1 parquet (b.parquet), expected files of one kind; give a pattern such as",
    ),
    "a store": (store, UsageError, "rows: is a Zarr store, expected files of rows; train on a store as it is"),
    "Delta Lake": (lake, UsageError, "rows: is a table of Delta Lake, whose files hold rows that are gone, too"),
    "other columns": (others, DataError, "rows/b.parquet: other columns than those of rows/a.parquet: 'job' is"),
    "no table": (text, UsageError, "rows/README: cannot tell the format from name or content: say --format with one"),
    "arrays": (arrays, UsageError, "rows: found npy files, expected csv or parquet or svmlight or conll in a folder"),
    "no rows": (nothing, DataError, "rows: found no file with rows, expected at least one"),
    "no files": (Path.mkdir, DataError, "rows: found no file with rows, expected at least one"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_folders_that_are_no_rows_are_refused(refused: Refused, tmp_path: Path, kind: str) -> None:
    """A folder of several kinds, of none, or of something else is refused with what is in it and what to do."""
    make, error, text = BAD[kind]
    make(tmp_path / "rows")
    (tmp_path / "out").mkdir()
    assert refused(tmp_path / "rows", error).startswith(text)


def test_labels_are_no_folder(refused: Refused, tmp_path: Path) -> None:
    """Labels beside the rows are named file by file: a folder is refused without a guess at what it holds."""
    (tmp_path / "labels").mkdir()
    text = refused(np.eye(2), UsageError, labels=tmp_path / "labels")
    assert text == "labels: is a folder, expected a file; name its files, for instance 'labels/*'"


@pytest.mark.parametrize("group", [7, 100, 5_000])
def test_row_groups_of_any_size_come_in_order(tmp_path: Path, group: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups that are read in threads, together or alone, and larger ones, give all rows in their order."""
    monkeypatch.setattr("coremargin.data.tables.table.batch_rows", lambda features: 50 * features)
    rows = table(0, 3_000)
    pq.write_table(rows, tmp_path / "rows.parquet", row_group_size=group)
    ingest(tmp_path / "rows.parquet", tmp_path / "rows.zarr", categorical="auto")
    assert first_column(tmp_path / "rows.zarr") == list(range(3_000))
