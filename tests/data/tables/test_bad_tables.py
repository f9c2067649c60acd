"""Tables that are not what they seem: refused by file, line and column, with what to say or to do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from coremargin.data.ingest import ingest
from coremargin.data.store import Store
from coremargin.errors import BadRow, ColumnsUnclear, DataError, LabelError, StoreError, UsageError

Write = Callable[[str, str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """``write(name, text)``: a file with this text."""

    def write(name: str, text: str) -> Path:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return write


def test_all_columns_that_need_a_word_are_named_at_once(write: Write, tmp_path: Path) -> None:
    """Words, dates, gaps and names: each with what was seen, and options that work."""
    lines = [
        f"{k},{'ab'[k % 2]},{'' if k == 7 else k % 5},2024-02-{k % 28 + 1:02},person {k},{k // 3 % 2}"
        for k in range(100)
    ]
    path = write("rows.csv", "n,job,gap,when,name,label\n" + "\n".join(lines) + "\n")
    with pytest.raises(ColumnsUnclear) as caught:
        ingest(path, tmp_path / "rows.zarr")
    message = str(caught.value)
    assert message.startswith(f"{path}: these columns need a decision on how to encode them:")
    for said in (
        "job   words ('a', 'b', ...): 2 different ones in 100 rows",
        "when  dates",
        "name  words ('person 0', 'person 1', 'person 2', ...): 100 different ones in 100 rows; --text if it is prose",
        f"gap   1 values are missing (1.0%), the first in {path}, line 9",
    ):
        assert said in message
    options = caught.value.options
    assert options == ("--categorical", "job", "--dates", "when", "--drop", "name", "--missing", "median")
    words = {name.removeprefix("--"): value for name, value in zip(options[::2], options[1::2], strict=True)}
    assert ingest(path, tmp_path / "rows.zarr", **words).rows == 100


@pytest.mark.parametrize("late", [2000, 60_000])
def test_a_column_that_is_numbers_for_long_and_text_after(write: Write, tmp_path: Path, late: int) -> None:
    """The first word is named with its line; as a category, all values before it count, too."""
    lines = [f"{'x' if k == late else k % 7},{k},{k % 2}" for k in range(late + 1000)]
    path = write("rows.csv", "code,n,label\n" + "\n".join(lines) + "\n")
    place = f"{path}, line {late + 2}, column 'code': found 'x', expected a number, as the values before it are"
    with pytest.raises(ColumnsUnclear) as caught:
        ingest(path, tmp_path / "rows.zarr")
    assert str(caught.value).startswith(place)
    report = ingest(path, tmp_path / "rows.zarr", categorical="auto")
    columns = Store.open(tmp_path / "rows.zarr").columns
    assert columns is not None
    assert [f"code={value}" for value in "0123456x"] == list(columns.features)[:8]
    assert report.rows == late + 1000


def test_names_twice_are_refused(write: Write, tmp_path: Path) -> None:
    """Two columns of one name are refused in text as in Parquet, unless one of them is left out."""
    path = write("rows.csv", "a,b,a,label\n1,2,3,0\n4,5,6,1\n")
    with pytest.raises(DataError, match=r"rows.csv: columns 0 and 2 are both named 'a', expected a name for each"):
        ingest(path, tmp_path / "rows.zarr")
    assert ingest(path, tmp_path / "rows.zarr", drop=[2]).features == 2


@pytest.mark.parametrize(
    ("text", "words", "message"),
    [
        ("2024-02-30", {"dates": "when"}, "found '2024-02-30', expected a date of ISO 8601"),
        ("31/02/2024", {"dates": "when", "date_format": "%d/%m/%Y"}, "found '31/02/2024', expected a date as '%d/%m"),
        ("soon", {"dates": "when"}, "found 'soon', expected a date of ISO 8601"),
        ("2023-13-01", {}, "found '2023-13-01', expected a date of ISO 8601"),
    ],
)  # fmt: skip
def test_a_date_that_does_not_exist_is_named(
    write: Write, tmp_path: Path, text: str, words: dict[str, Any], message: str
) -> None:
    """31 February is no date, in whatever format."""
    good = "01/02/2024" if "date_format" in words else "2024-02-01"
    path = write("rows.csv", f"when,n,label\n{good},1,0\n{good},2,1\n{text},1,1\n")
    with pytest.raises((BadRow, ColumnsUnclear)) as caught:
        ingest(path, tmp_path / "rows.zarr", **words)
    assert str(caught.value).startswith(f"{path}, line 4, column 'when': {message}")


def test_a_category_that_comes_later(write: Write, tmp_path: Path) -> None:
    """It is none of those there are, the other one, or refused, as was said when the store was made."""
    first = write("a.csv", "job,n,label\n" + "x,1,0\ny,2,1\nx,1,0\nz,3,1\n" * 5)
    later = write("b.csv", "label,job,n\n1,new,5\n")
    for words, expected in (({}, [0, 0, 0, 5]), ({"categories": 2}, [0, 0, 1, 5])):
        ingest(first, tmp_path / "rows.zarr", categorical="job", overwrite=True, **words)  # type: ignore[arg-type]
        ingest(later, tmp_path / "rows.zarr", append=True)
        store = Store.open(tmp_path / "rows.zarr")
        assert store.rows_at(np.array([store.rows - 1]))[0].tolist() == [expected]
    ingest(first, tmp_path / "rows.zarr", categorical="job", unknown="refuse", overwrite=True)
    with pytest.raises(BadRow, match=r"b.csv, line 2, column 'job': found 'new', which the store's rows did not have"):
        ingest(later, tmp_path / "rows.zarr", append=True)


def test_a_gap_that_comes_later(write: Write, tmp_path: Path) -> None:
    """Without a policy a value that is missing in later rows is refused; with one it is filled in."""
    first, later = write("a.csv", "n,m,label\n1,2,0\n3,4,1\n5,6,1\n"), write("b.csv", "n,m,label\n7,,1\n")
    ingest(first, tmp_path / "rows.zarr")
    with pytest.raises(BadRow, match=r"b.csv, line 2, column 'm': found no value, expected one"):
        ingest(later, tmp_path / "rows.zarr", append=True)
    ingest(first, tmp_path / "rows.zarr", missing="median", overwrite=True)
    ingest(later, tmp_path / "rows.zarr", append=True)
    assert Store.open(tmp_path / "rows.zarr").rows_at(np.array([3]))[0].tolist() == [[7, 4]]


def test_other_columns_are_refused_and_another_order_is_put_right(write: Write, tmp_path: Path) -> None:
    """Rows that are appended go by the names of their columns."""
    ingest(write("a.csv", "x,y,label\n1,2,0\n3,4,1\n"), tmp_path / "rows.zarr", label="label")
    digest = Store.open(tmp_path / "rows.zarr").digest
    for text, message in (
        ("y,label\n2,0\n2,1\n", "'x' is missing; rename or add what is missing"),
        ("x,y,z,label\n1,2,3,0\n", "'z' is not known; leave out what is more with --drop z"),
        ("x,yy,label\n1,2,0\n", "'y' is missing (is it 'yy' here?), 'yy' is not known"),
        ("1,2,3,0\n1,2,3,1\n", "found 3 columns of features, expected 2 as in"),
        ("x,y,kind\n1,2,0\n", "found no column 'label', which holds the labels"),
    ):
        with pytest.raises(DataError) as caught:
            ingest(write("b.csv", text), tmp_path / "rows.zarr", append=True)
        assert message in str(caught.value)
        assert Store.open(tmp_path / "rows.zarr").digest == digest
    pq.write_table(pa.table({"label": [1], "y": [6.0], "x": [5]}), tmp_path / "c.parquet")
    ingest(tmp_path / "c.parquet", tmp_path / "rows.zarr", append=True)
    plain = write("d.csv", "7,8,0\n9,10,1\n")
    with pytest.raises(
        DataError, match=r"d.csv: no line names the columns, so which of the 3 holds the labels, 'label' in"
    ):
        ingest(plain, tmp_path / "rows.zarr", append=True)
    ingest(plain, tmp_path / "rows.zarr", append=True, label=-1)
    rows = Store.open(tmp_path / "rows.zarr").rows_at(np.arange(5))[0]
    assert rows.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]]


def test_a_new_label_is_refused_unless_it_is_said(write: Write, tmp_path: Path) -> None:
    """A slip in a label is no new class."""
    ingest(write("a.csv", "x,label\n1,yes\n3,no\n"), tmp_path / "rows.zarr")
    later = write("b.csv", "x,label\n1,yes\n2,ja\n")
    with pytest.raises(LabelError, match=r"b.csv, line 3: found the label 'ja', which no row of the store has"):
        ingest(later, tmp_path / "rows.zarr", append=True)
    ingest(later, tmp_path / "rows.zarr", append=True, new_labels=True)
    assert Store.open(tmp_path / "rows.zarr").classes == ("yes", "no", "ja")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"missing": "middle"}, "--missing 'middle': expected one of mean, median"),
        ({"missing": ("mean", "median")}, "expected one policy for each column and one for all others"),
        ({"categorical": "x", "text": "x"}, "column 'x': named twice"),
        ({"categorical": "nothing"}, "no column named 'nothing'"),
        ({"categorical": "label"}, "column 'label' is no feature: it is the label, or left out"),
        ({"text": "auto"}, "--text auto: expected names of columns"),
        ({"unknown": "guess", "categorical": "x"}, "--unknown 'guess': expected one of other, refuse"),
    ],
)
def test_words_that_do_not_fit_are_refused(write: Write, tmp_path: Path, words: dict[str, Any], message: str) -> None:
    """What is said of columns must be about columns that are there, and once."""
    with pytest.raises(UsageError) as caught:
        ingest(write("a.csv", "x,label\na,0\nb,1\n"), tmp_path / "rows.zarr", **words)
    assert message in str(caught.value)


def test_what_is_said_of_arrays_is_refused(tmp_path: Path) -> None:
    """Columns without names are numbers: nothing is to be said of them."""
    with pytest.raises(UsageError, match="do not apply to array, whose columns are numbers"):
        ingest(np.ones((2, 2)), tmp_path / "rows.zarr", labels=[0, 1], missing="median")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.unlink(), "expected what the columns of the store are, found no file"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b'"x"', b'"z"')), "expected the content sha256:"),
        (lambda path: path.write_bytes(b""), "expected the content sha256:"),
    ],
)  # fmt: skip
def test_columns_that_are_lost_or_altered_are_noticed(
    write: Write, tmp_path: Path, change: Callable[[Path], object], message: str
) -> None:
    """Names of columns lie in a file of their own, whose digest the store has."""
    ingest(write("a.csv", "x,y,label\n1,2,0\n3,4,1\n"), tmp_path / "rows.zarr", label="label")
    change(tmp_path / "rows.zarr" / "columns.json")
    with pytest.raises(StoreError, match=message):
        Store.open(tmp_path / "rows.zarr").columns  # noqa: B018 - it is read when it is asked for


def test_columns_of_a_newer_version_are_refused() -> None:
    """A record that a newer coremargin wrote is not read as an older one."""
    from coremargin.formats.columns import ColumnsRecord, plain_columns, read_columns

    data = ColumnsRecord(columns=plain_columns(["x"])).encoded()
    assert read_columns(data, "columns.json").names == ("x",)
    with pytest.raises(DataError, match="expected version 1, found 2; it was made by a newer coremargin: upgrade"):
        read_columns(data.replace(b'"version": 1', b'"version": 2'), "columns.json")
