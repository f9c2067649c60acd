"""Folders that are called column=value: columns as pyarrow and pandas read them, or refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from coremargin.data.ingest import ingest
from coremargin.data.store import Store
from coremargin.errors import BadRow, ColumnsUnclear, CoremarginError, DataError, LabelError, UsageError

Refused = Callable[..., str]
FRAME = pd.DataFrame({"a": [1.0, 2.0, -1.0, -2.0], "b": [0, 1, 0, 1], "label": ["p", "p", "n", "n"]})


def hive(folder: Path, folders: Sequence[str], kind: str = "parquet") -> Path:
    """A file of two rows in each of these folders: columns a, and b that counts the files."""
    for number, name in enumerate(folders):
        place = folder / name
        place.mkdir(parents=True, exist_ok=True)
        rows = pd.DataFrame({"a": [number + 0.25, number + 0.5], "b": [number, number]})
        if kind == "csv":
            rows.to_csv(place / "part.csv", index=False)
        elif kind == "svm":
            (place / "part.svm").write_text(f"{number} 1:{number}.5\n")
        elif kind == "npy":
            np.save(place / "X.npy", rows.to_numpy())
            np.save(place / "y.npy", [number, number])
        else:
            rows.to_parquet(place / "part.parquet", index=False)
    return folder


def read(path: Path) -> tuple[list[str], list[list[float]], list[Any]]:
    """Names of the features, rows and labels of a store."""
    store = Store.open(path)
    assert store.columns is not None
    rows, codes = store.rows_at(np.arange(store.rows))
    labels = [None if code < 0 else store.classes[code] for code in codes]
    return list(store.columns.features), np.asarray(rows).tolist(), labels


def test_labels_come_from_the_names_of_folders(tmp_path: Path) -> None:
    """A folder that pandas writes by label, its pattern and the list of its files give the labels that pandas reads."""
    FRAME.to_parquet(tmp_path / "hive", partition_cols=["label"])
    wanted = pd.read_parquet(tmp_path / "hive")
    files = sorted((tmp_path / "hive").glob("*/*.parquet"))
    sources = [tmp_path / "hive", f"{tmp_path}/hive/*", f"{tmp_path}/hive/**/*.parquet", files]
    for number, source in enumerate(sources):
        report = ingest(source, tmp_path / f"{number}.zarr")
        assert report.label_from == "column 'label'"
        assert read(tmp_path / f"{number}.zarr") == (
            ["a", "b"], wanted[["a", "b"]].to_numpy().tolist(), wanted["label"].tolist()
        )  # fmt: skip


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize(
    "folders",
    [
        ["year=2024", "year=2025"],
        ["year=2024/month=01", "year=2024/month=12", "year=2025/month=01"],
        ["n=-1", "n=3"],
        ["x%3Dy%20z=1", "x%3Dy%20z=2"],
        ["n=1/plain", "n=2/plain/below"],
    ],
)
def test_numbers_in_names_are_as_pyarrow_infers_them(tmp_path: Path, folders: list[str], kind: str) -> None:
    """Whole numbers in names of folders are features, in the order in which pyarrow has them."""
    hive(tmp_path / "rows", folders, kind)
    wanted = ds.dataset(tmp_path / "rows", format=kind, partitioning="hive").to_table().to_pandas()
    ingest(tmp_path / "rows", tmp_path / "rows.zarr", label="b", dtype="float64")
    names, rows, labels = read(tmp_path / "rows.zarr")
    assert names == [name for name in wanted.columns if name != "b"]
    assert rows == wanted.drop(columns="b").to_numpy(float).tolist()
    assert labels == wanted["b"].tolist()


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_words_in_names_are_decoded(tmp_path: Path, kind: str) -> None:
    """Words in names of folders are decoded, are categories or labels, as pyarrow reads them."""
    folders = ["label=a b/city=S%C3%A3o%2FX", "label=3e9x/city=A=B", "label=%zz/city=A=B"]
    hive(tmp_path / "rows", folders, kind)
    wanted = ds.dataset(tmp_path / "rows", format=kind, partitioning="hive").to_table()
    ingest(tmp_path / "rows", tmp_path / "rows.zarr", categorical="city")
    names, _, labels = read(tmp_path / "rows.zarr")
    assert names == ["a", "b", "city=A=B", "city=São/X"]
    assert list(map(str, labels)) == wanted["label"].to_pylist()


def test_what_is_missing_in_names_is_missing(refused: Refused, tmp_path: Path) -> None:
    """Hive's word for null, and a file outside of the folders, have no value: filled in, or refused by row."""
    hive(tmp_path / "rows", ["n=1", "n=__HIVE_DEFAULT_PARTITION__", "n=5", ""])
    assert "missing" in refused(tmp_path / "rows", ColumnsUnclear, label="b")
    ingest(tmp_path / "rows", tmp_path / "out.zarr", label="b", missing="mean")
    _, rows, labels = read(tmp_path / "out.zarr")
    assert dict(zip(labels, [row[1] for row in rows], strict=True)) == {0: 1, 1: 3, 2: 5, 3: 3}
    hive(tmp_path / "labels", ["label=1", "label=__HIVE_DEFAULT_PARTITION__"])
    assert "row 0: found no label" in refused(tmp_path / "labels", LabelError)


def test_no_other_column_is_taken_for_the_label(refused: Refused, tmp_path: Path) -> None:
    """Where no column is called like a label, that may be the last one or one of a folder, and must be named."""
    hive(tmp_path / "rows", ["risk=1", "risk=0"])
    text = refused(tmp_path / "rows", UsageError)
    assert "it may be 'b', the last one of the file, or one that folders name ('risk'); name it with --label" in text
    hive(tmp_path / "y", ["y=1", "y=0"])
    for source in (tmp_path / "y" / "y=1", tmp_path / "y" / "y=1" / "part.parquet"):
        text = refused(source, UsageError)
        assert "no column is called like a label, but 'y' (from a folder above) is: say --label y" in text
    ingest(tmp_path / "y" / "y=1", tmp_path / "out.zarr", label="y")
    assert read(tmp_path / "out.zarr")[2] == [1, 1]
    hive(tmp_path / "c", ["y=1"], "csv")
    assert "(from a folder above)" in refused(tmp_path / "c" / "y=1", UsageError)


def test_folders_above_are_no_columns_until_they_are_known(tmp_path: Path) -> None:
    """A single file has its own columns, as in pandas; where others of its table have those of folders, so has it."""
    hive(tmp_path / "rows", ["n=1", "n=2"])
    one = tmp_path / "rows" / "n=2" / "part.parquet"
    assert "n" not in pd.read_parquet(one).columns
    report = ingest(one, tmp_path / "one.zarr", label="b")
    assert (report.features, report.left_out) == (1, {"n": "from a folder above"})
    ingest(tmp_path / "rows", tmp_path / "rows.zarr", label="b")
    ingest(one, tmp_path / "rows.zarr", append=True)
    assert read(tmp_path / "rows.zarr")[1] == [[0.25, 1], [0.5, 1], [1.25, 2], [1.5, 2], [1.25, 2], [1.5, 2]]


def both(folder: Path) -> None:
    """A column in the file and in the folder."""
    pq.write_table(pa.table({"a": [1.0], "n": [5], "label": [1]}), hive(folder, ["n=1"]) / "n=1" / "part.parquet")


BAD: dict[str, tuple[Callable[[Path], object], dict[str, Any], type[CoremarginError], str]] = {
    "a column in both": (
        both, {}, DataError,
        "rows/n=1/part.parquet: the column 'n' is in the file and in the names of its folders, expected one of them",
    ),
    "twice": (
        lambda folder: hive(folder, ["n=1/n=2"]), {}, DataError,
        "rows/n=1/n=2/part.parquet: its folders name the column 'n', expected a name, and each once",
    ),
    "no name": (lambda folder: hive(folder, ["=2"]), {}, DataError, "its folders name the column '', expected a name"),
    "no text": (lambda folder: hive(folder, ["n=%ff"]), {}, DataError, "its folders cannot be read as columns"),
    "SVMlight": (
        lambda folder: hive(folder, ["n=1", "n=2"], "svm"), {}, UsageError,
        "part.svm: its folders name the column 'n', but files of svmlight have no columns that it could join",
    ),
    "words": (
        lambda folder: hive(folder, ["n=one", "n=two"]), {"label": "b"}, ColumnsUnclear,
        "column 'n': words ('one', 'two', ...): 2 different ones in 4 rows; say --categorical n",
    ),
    "words for some": (
        lambda folder: hive(folder, ["n=1", "n=two"]), {"label": "b"}, ColumnsUnclear,
        "column 'n': words ('1', 'two', ...)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_folders_that_make_no_columns_are_refused(refused: Refused, tmp_path: Path, kind: str) -> None:
    """Names of folders that pyarrow cannot read, or that no column can be made of, are refused, never passed over."""
    make, options, error, text = BAD[kind]
    make(tmp_path / "rows")
    assert text in refused(tmp_path / "rows", error, **options)


def test_columns_of_folders_can_be_left_out(tmp_path: Path) -> None:
    """--drop leaves the names of folders out, those of files without columns, and those of columns of files, too."""
    hive(tmp_path / "svm", ["n=1", "n=2"], "svm")
    assert ingest(tmp_path / "svm", tmp_path / "a.zarr", drop="n").features == 1
    both(tmp_path / "both")
    assert ingest(tmp_path / "both", tmp_path / "b.zarr", drop="n").features == 1
    hive(tmp_path / "npy", ["n=1", "n=2"], "npy")
    with pytest.raises(UsageError, match="its folders name the column 'n', but files of npy have no columns"):
        ingest(f"{tmp_path}/npy/*/X.npy", tmp_path / "c.zarr")
    assert ingest(f"{tmp_path}/npy/*/X.npy", tmp_path / "c.zarr", drop="n").rows == 4


def test_a_word_where_numbers_were_is_refused(refused: Refused, tmp_path: Path) -> None:
    """Rows that are appended are of the kind that the column has: a folder of another kind is refused."""
    ingest(hive(tmp_path / "rows", ["n=1", "n=2"]), tmp_path / "rows.zarr", label="b")
    with pytest.raises((BadRow, DataError), match="column 'n'"):
        ingest(hive(tmp_path / "more", ["n=x"]), tmp_path / "rows.zarr", append=True)
