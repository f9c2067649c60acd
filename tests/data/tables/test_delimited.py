"""Delimited text against Python's own csv module and pandas: records, quotes, line ends, heads of files."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coremargin.data.ingest import ingest
from coremargin.data.sources import text as text_source
from coremargin.data.store import Store
from coremargin.data.tables.delimited import DelimitedTable
from coremargin.errors import BadRow, DataError, UsageError

Text = Callable[[str, "str | bytes"], Path]


def rows_of(path: Path, **words: Any) -> list[tuple[list[str], int]]:
    """All rows as texts, each with the line on which it begins."""
    table, found = DelimitedTable(path, **words), []
    columns = list(range(table.width))
    for piece in table.pieces(columns):
        batch = table.batch(piece, columns, dict.fromkeys(columns, "label"))  # as they are
        values = [batch.columns[column].to_pylist() for column in columns]
        found += [(list(row), int(batch.place(k).rsplit(" ", 1)[1])) for k, row in enumerate(zip(*values, strict=True))]
    return found


FIELD = st.text(alphabet='ab1 ";,\n\r', max_size=6)


@given(
    st.lists(st.lists(FIELD, min_size=2, max_size=2), min_size=1, max_size=12),
    st.sampled_from(["\n", "\r\n"]),
    st.sampled_from([",", ";", "\t"]),
    st.sampled_from([8, 50, 1 << 20]),
    st.booleans(),
)
@example([["a\n\nb", "1"], ["", '"'], ['x"y', "\r\n"]], "\r\n", ",", 8, False)
def test_what_csv_writes_is_read(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]], end: str, mark: str, size: int, last: bool
) -> None:
    """Fields with delimiters, quotes and line ends come back as ``csv`` reads them, wherever pieces of the file end."""
    file = io.StringIO(newline="")
    csv.writer(file, delimiter=mark, lineterminator=end, quoting=csv.QUOTE_ALL).writerows(rows)
    text = file.getvalue() if last else file.getvalue().removesuffix(end)
    path = tmp_path_factory.mktemp("rows") / "rows.csv"
    path.write_text(text, newline="")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_source.read_pieces, "__defaults__", (size,))
        found = rows_of(path, delimiter=mark, header=False)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=mark)
    lines = [text[: text.index(text)].count("\n") + 1]  # of the first row
    expected = []
    for row in reader:
        expected.append((row, lines[-1]))
        lines.append(reader.line_num + 1)
    physical = [row for row, _ in expected]
    assert [row for row, _ in found] == physical
    feeds = [0, *np.cumsum([sum(one.count("\n") for one in row) + 1 for row in physical]).tolist()]
    assert [line for _, line in found] == [1 + feed for feed in feeds[:-1]]


def test_literal_quotes_within_fields_stay(tmp_path: Path) -> None:
    """A quote that does not begin a field is a character, as to csv and pandas; later fields are read as ever."""
    (tmp_path / "a.csv").write_text('size,note,label\n5",a"b,1\n6","c\nd",0\n')
    assert rows_of(tmp_path / "a.csv") == [(['5"', 'a"b', "1"], 2), (['6"', "c\nd", "0"], 3)]
    assert pd.read_csv(tmp_path / "a.csv")["note"].tolist() == ['a"b', "c\nd"]


@pytest.mark.parametrize(
    ("head", "names", "first"),
    [
        ("# made by hand\n# in May\na,b,label\n1,2,0\n", ("a", "b", "label"), 4),
        ("sep=;\na;b;label\n1;2;0\n", ("a", "b", "label"), 3),
        ('"sep=;"\r\na;b;label\r\n1;2;0\r\n', ("a", "b", "label"), 3),
        ("\ufeffsep=|\na|b|label\n1|2|0\n", ("a", "b", "label"), 3),
        ("#a,b,label\n1,2,0\n", ("#a", "b", "label"), 2),
        ("# by hand, in May, 2026\na,b,label\n1,2,0\n", ("a", "b", "label"), 3),
        ("#f00,1,0\n#0f0,2,1\nred,3,1\n", None, 1),
        ('"a\nb",b,label\n1,2,0\n', ("a\nb", "b", "label"), 3),
        ("\n\na,b,label\n\n1,2,0\n", ("a", "b", "label"), 5),
        ('"a;b",b,label\n1,2,0\n', ("a;b", "b", "label"), 2),
    ],
)
def test_heads_of_files(tmp_path: Path, head: str, names: tuple[str, ...] | None, first: int) -> None:
    """Comments and Excel's line about the separator are passed over, names and rows that begin with # are not."""
    (tmp_path / "a.csv").write_text(head, newline="")
    assert DelimitedTable(tmp_path / "a.csv").names == names
    found = rows_of(tmp_path / "a.csv")
    assert found[0][1] == first
    assert len(found[0][0]) == 3


def test_a_hash_within_rows_is_no_comment(tmp_path: Path) -> None:
    """Only lines before the first row are comments."""
    (tmp_path / "a.csv").write_text("colour,n,label\nred,1,0\n#f00,2,1\na # b,3,1\n")
    assert [row[0] for row, _ in rows_of(tmp_path / "a.csv")] == ["red", "#f00", "a # b"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_utf_16_is_refused_by_name(refused: Callable[..., str], text: Text, encoding: str) -> None:
    """What Excel calls Unicode text is named, whether it has a mark or not; so are labels and SVMlight."""
    content = "a,b,label\n1,2,0\n".encode(encoding)
    name = encoding[:6].upper()
    assert f"rows.csv: is text in {name}, expected UTF-8; convert" in refused(text("rows.csv", content), DataError)
    assert f"y.txt: is text in {name}" in refused(np.ones((2, 1)), DataError, labels=text("y.txt", content))


def test_a_byte_order_mark_is_no_part_of_any_text(tmp_path: Path, text: Text) -> None:
    """It is passed over in CSV, SVMlight, files of labels, weights and names alike."""
    svm = text("rows.svm", "\ufeff1 1:2\n-1 1:3\n")
    ingest(svm, tmp_path / "rows.zarr", names=text("names.txt", "\ufeffsize\n"), weights=text("w.txt", "\ufeff1\n2\n"))
    store = Store.open(tmp_path / "rows.zarr")
    assert store.classes == (1, -1)
    assert store.columns is not None
    assert store.columns.names == ("size",)
    ingest(np.ones((2, 1)), tmp_path / "y.zarr", labels=text("y.txt", "\ufeffa\nb\n"))
    assert Store.open(tmp_path / "y.zarr").classes == ("a", "b")


def test_blank_lines_at_the_end_of_labels_and_weights_are_none(tmp_path: Path, text: Text) -> None:
    """They are no rows; a blank line before others is a label that is missing."""
    report = ingest(
        np.ones((2, 1)), tmp_path / "a.zarr", labels=text("y.txt", "a\nb\n\n\n"), weights=text("w.txt", "1\n2\n \n")
    )
    assert report.classes == {"a": 1, "b": 1}
    with pytest.raises(DataError, match=r"row 1: found no label in .*y.txt"):
        ingest(np.ones((3, 1)), tmp_path / "b.zarr", labels=text("y.txt", "a\n\nb\n\n"))


def test_a_label_in_quotes_may_span_lines(tmp_path: Path, text: Text) -> None:
    """In a file of its own as in CSV; a quote alone belongs to its label."""
    ingest(np.ones((3, 1)), tmp_path / "a.zarr", labels=text("y.txt", '"a\nb"\n"c\n"d ""e"""\n'))
    assert Store.open(tmp_path / "a.zarr").classes == ("a\nb", '"c', 'd "e"')


def test_svmlight_has_words_for_labels(tmp_path: Path, text: Text) -> None:
    """As scikit-learn and pandas name classes; beside numbers they are refused."""
    ingest(text("a.svm", "spam 1:2\nham 1:3 # one\n\nspam\n"), tmp_path / "a.zarr")
    assert Store.open(tmp_path / "a.zarr").classes == ("spam", "ham")
    with pytest.raises(DataError, match="line 2: found the label 'ham', expected one of the same kind as 1"):
        ingest(text("b.svm", "1 1:2\nham 1:3\n"), tmp_path / "b.zarr")


def test_an_index_that_pandas_writes_is_refused(tmp_path: Path, refused: Callable[..., str]) -> None:
    """Whatever the index holds, and whatever other columns are called; the option that is named leaves it out."""
    values = {"a": np.arange(12) % 5 + 0.5, "b": np.arange(12) % 3, "label": list("pn" * 6)}
    frame = pd.DataFrame(values)
    numbered = pd.DataFrame({"0": values["a"], "1": values["b"], "label": values["label"]})
    for table, index, option in (
        (frame, range(12), "0"),
        (frame, range(1, 13), "0"),
        (frame, np.random.default_rng(0).permutation(12), "0"),
        (frame, [0, 1, 2, 3, 4, 5, 0, 1, 2, 0, 1, 2], "0"),
        (frame, [7, 3, 3, 9, 0, 1, 8, 8, 5, 2, 0, 11], "0"),
        (frame, pd.date_range("2026-01-01", periods=12), "0"),
        (numbered, range(12), "-4"),
    ):
        path = tmp_path / "rows.csv"
        table.set_axis(index).to_csv(path)
        message = refused(path, DataError, overwrite=True)
        assert f"leave it out with --drop {option}, or name it in the first line" in message
        ingest(path, tmp_path / "rows.zarr", drop=option, overwrite=True)
        columns = Store.open(tmp_path / "rows.zarr").columns
        assert columns is not None
        assert columns.names == tuple(table.columns[:2])
    pd.read_csv(path).to_csv(path, index=False)
    assert "leave it out with --drop 'Unnamed: 0', or" in refused(path, DataError, overwrite=True)
    frame.to_csv(path, index=False)
    ingest(path, tmp_path / "rows.zarr", overwrite=True)


def test_rows_that_are_repeated_keep_their_index(tmp_path: Path, refused: Callable[..., str]) -> None:
    """Each number comes several times; a first column of few whole numbers in any order is a feature."""
    rows = pd.DataFrame({"a": np.arange(40) % 7 + 0.5, "label": list("pn" * 20)})
    rows.set_axis(np.arange(40) // 4).to_csv(tmp_path / "rows.csv")
    assert "leave it out with --drop 0" in refused(tmp_path / "rows.csv", DataError)
    rows.set_axis(np.arange(40) * 7 % 4).to_csv(tmp_path / "rows.csv")
    assert ingest(tmp_path / "rows.csv", tmp_path / "rows.zarr").features == 2


@pytest.mark.parametrize("content", ["a,b,label\r1,2,0\r3,4,1\r", '"a","b",label\r1,2,0\r', "1,2,0\r3,4,1\r"])
def test_carriage_returns_alone_end_no_rows(refused: Callable[..., str], text: Text, content: str) -> None:
    """Files of old Macs are refused for what they are, with names or without."""
    assert "line 1: found a carriage return inside of the line" in refused(text("rows.csv", content), BadRow)


def test_a_line_that_numbers_the_columns_is_neither_names_nor_a_row_unasked(
    tmp_path: Path, refused: Callable[..., str]
) -> None:
    """pandas writes 0, 1, 2, ... where columns have no names, behind an empty field where there is an index."""
    frame, path = pd.DataFrame(np.arange(12).reshape(4, 3) % 5 * 0.5), tmp_path / "rows.csv"
    frame[3] = [0, 1, 0, 1]
    for index in (False, True):
        frame.to_csv(path, index=index)
        assert "say --header if it names columns, --no-header if it is a row" in refused(path, DataError)
    assert "leave it out with --drop -5" in refused(path, DataError, header=True)
    frame.to_csv(path, index=False)
    report = ingest(path, tmp_path / "rows.zarr", header=True)
    assert (report.rows, report.classes) == (4, {0: 2, 1: 2})
    frame[[2, 1, 0]].to_csv(path, index=False)
    report = ingest(path, tmp_path / "later.zarr", columns=Store.open(tmp_path / "rows.zarr").columns, unlabelled=True)
    assert report.rows == 4
    assert ingest(path, tmp_path / "plain.zarr", header=False, unlabelled=True).rows == 5
    path.write_text("0,1,2\n3,4,5\n6,7,8\n")
    assert ingest(path, tmp_path / "counted.zarr").rows == 3


@pytest.mark.parametrize("names", ["label,target,a", "a,Label,TARGET", "y,class,label,a", "a,target ,Class"])
def test_two_columns_called_like_labels_are_refused(refused: Callable[..., str], text: Text, names: str) -> None:
    """Both are named, whatever their case; one may be left out, or named."""
    path = text(
        "rows.csv",
        f"{names}\n" + "".join(f"{k},{k % 2},{k % 3},{k}\n"[: 2 * len(names.split(",")) - 1] + "\n" for k in range(6)),
    )
    message = refused(path, UsageError)
    called = [name.strip() for name in names.split(",") if name != "a"]
    assert message.startswith(
        f"rows.csv: columns {', '.join(map(repr, called[:-1]))} and {called[-1]!r} are called like"
    )
    ingest(path, path.with_suffix(".zarr"), drop=called[1:])
    ingest(path, path.with_suffix(".zarr"), label=called[0], overwrite=True)


@pytest.mark.parametrize("number", ["9007199254740993", "-9007199254740993", "+18446744073709551615", "1" + "0" * 30])
@pytest.mark.parametrize("words", [{}, {"categorical": "w"}])
def test_whole_numbers_beyond_float64_are_refused(
    tmp_path: Path, text: Text, number: str, words: dict[str, Any]
) -> None:
    """As those of Parquet are, in tables of numbers and of words; measurements with a point or an exponent are not."""
    content = "id,w,label\n1,1,0\n{},2,1\n9007199254740992,1,1\n"
    with pytest.raises(BadRow, match=r"line 3, column 'id': found .*, expected whole numbers up to 2\^53"):
        ingest(text("a.csv", content.format(number)), tmp_path / "a.zarr", **words)
    for fine in ("9007199254740993.5", "1e30", "9007199254740992", "1" + "0" * 22):
        ingest(text("a.csv", content.format(fine)), tmp_path / "a.zarr", overwrite=True, dtype="float64", **words)
        rows = Store.open(tmp_path / "a.zarr").rows_at(np.arange(2))[0]
        assert rows[1, 0] == float(fine)


def test_many_columns_are_read_as_few_are(tmp_path: Path, text: Text, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers of wide tables, which are parsed together, are those of narrow ones; so is all beside them."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(40, 30)).round(4)
    lines = [",".join([f"k{k}", *map(repr, row.tolist()), f"{k % 3 + 1}", "pn"[k % 2]]) for k, row in enumerate(X)]
    names = ",".join(["key", *(f"f{k}" for k in range(30)), "weight", "label"])
    content = "\n".join([names, *lines[:20], "", *lines[20:]])
    value = repr(float(X[30, 7]))
    words: dict[str, Any] = {"key": "key", "weights": "weight", "drop": "f3", "overwrite": True}
    for wide in (2, 1000):
        monkeypatch.setattr("coremargin.data.tables.delimited._WIDE", wide)
        ingest(text("rows.csv", content), tmp_path / "rows.zarr", **words)
        store = Store.open(tmp_path / "rows.zarr")
        assert store.rows_at(np.arange(40))[0].tolist() == np.float32(np.delete(X, 3, axis=1)).tolist()
        assert store.classes == ("p", "n")
        for old, new, message in (
            (lines[30], lines[30].replace("k30", "k30,1"), "line 33: found 34 fields, expected 33"),
            (lines[30], lines[30].replace(value, "x"), "line 33, column 'f7': found 'x', expected a number"),
            (lines[30], lines[30].replace(value, ""), "line 33, column 'f7': found no value, expected one"),
            (lines[30], lines[30].replace(value, f"{2**53 + 1}"), "line 33, column 'f7': found '90071"),
        ):
            with pytest.raises(DataError, match=message):
                ingest(text("bad.csv", content.replace(old, new)), tmp_path / "bad.zarr", **words)
