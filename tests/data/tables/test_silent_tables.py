"""Tables that could be misread without a word: edges of fields, empty rows, lines of names, places of labels."""

from __future__ import annotations

import io
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import coremargin
from coremargin.data.ingest import ingest
from coremargin.data.store import Store
from coremargin.errors import BadRow, ColumnsUnclear, DataError, LabelError, UsageError
from coremargin.models.evaluate import evaluate
from coremargin.models.predict import predict

Make = Callable[..., tuple[list[str], list[list[float]], list[Any]]]


@pytest.fixture
def made(tmp_path: Path) -> Make:
    """``made(*texts, ending, **words)``: names of features, rows and labels of a store of files with these texts."""

    def make(*texts: str, ending: str = "csv", **words: Any) -> tuple[list[str], list[list[float]], list[Any]]:
        paths = [tmp_path / f"{number}.{ending}" for number, _ in enumerate(texts)]
        for path, text in zip(paths, texts, strict=True):
            path.write_bytes(text.encode())
        ingest(paths, tmp_path / "rows.zarr", overwrite=True, **words)
        store = Store.open(tmp_path / "rows.zarr")
        rows, codes = store.rows_at(np.arange(store.rows))[:2]
        names = [] if store.columns is None else list(store.columns.features)
        return names, rows.tolist(), [store.classes[code] if code >= 0 else None for code in codes]

    return make


@pytest.mark.parametrize("beside", ["2", " 2"])
@pytest.mark.parametrize(("text", "value"), [('" u"', "u"), ('"u "', "u"), ("\u00a0u", "\u00a0u"), ("\tu", "u")])
def test_a_field_means_the_same_whatever_stands_beside_it(made: Make, beside: str, text: str, value: str) -> None:
    """White space is taken from the edges of a field, quoted or not, whether or not other fields have some."""
    names, rows, _ = made(f"a,b,label\n{text},1,x\nu,{beside},y\n", categorical="a")
    assert names == [*sorted({"a=u", f"a={value}"}), "b"]
    assert [row[-1] for row in rows] == [1, 2]


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_a_row_whose_fields_are_all_empty_is_a_row(made: Make, end: str) -> None:
    """Tabs alone are fields without values, and no blank line, whatever ends the line."""
    lines = ["a\tb", "1\t2", "\t", "3\t4", "", "\t", ""]
    text = end.join(lines)
    assert made(text, ending="tsv", unlabelled=True, missing="mean")[1] == [[1, 2], [2, 3], [3, 4], [2, 3]]
    with pytest.raises(LabelError, match=r"0\.tsv, line 3: found no label"):
        made(text, ending="tsv", missing="mean")


@pytest.mark.parametrize("field", ['""', '""u', '"" '])
@pytest.mark.parametrize("beside", ["2", " 2"])
def test_text_behind_an_empty_quoted_field_is_refused(made: Make, field: str, beside: str) -> None:
    """What stands behind two quotes is no value, wherever it stands; two quotes alone are an empty field."""
    text = f"a,b,label\n{field},1,x\nu,{beside},y\n"
    if field == '""':
        assert made(text, categorical="a", missing="indicator")[0] == ["a=u", "a (missing)", "b"]
    else:
        with pytest.raises(BadRow, match=r"0\.csv, line 2: found text behind the closing quote"):
            made(text, categorical="a", missing="indicator")


def test_numbers_of_columns_beside_a_label_are_names(made: Make) -> None:
    """What pandas writes of a table whose columns are numbered has a header line, even if its labels are words."""
    frame = pd.DataFrame(np.arange(6.0).reshape(2, 3)).assign(label=["yes", "no"])
    names, rows, labels = made(frame.to_csv(index=False))
    assert (names, rows, labels) == (["0", "1", "2"], [[0, 1, 2], [3, 4, 5]], ["yes", "no"])
    frame.columns = pd.Index([12, 3, 7, "target"])
    assert made(frame.to_csv(index=False))[0] == ["12", "3", "7"]
    assert made("0,1,y\n1,0,n\n")[2] == ["y", "n"]


def test_a_feature_called_as_the_label_is_refused(made: Make) -> None:
    """Of two columns with the name of the label one would be a feature that gives the label away."""
    with pytest.raises(DataError, match="columns 0 and 2 are both named 'label', expected a name for each"):
        made("label,a,label\n0,5,0\n1,6,1\n")
    assert made("label,a,label\n0,5,0\n1,6,1\n", drop=0)[0] == ["a"]


def test_none_is_a_value_and_what_python_writes_is_not(made: Make) -> None:
    """Labels and values "none" and "some" have no gaps; None, NaN and the like are gaps, as in pandas."""
    names, _, labels = made("a,n,label\nnone,1,none\nsome,2,some\n", categorical="a")
    assert (names, labels) == (["a=none", "a=some", "n"], ["none", "some"])
    for gap in ("None", "NaN", "<NA>", "NULL", "#N/A", ""):
        text = f"a,n,label\n{gap},1,x\nsome,2,y\n"
        assert made(text, categorical="a", missing="indicator")[0] == ["a=some", "a (missing)", "n"]
        assert pd.read_csv(io.StringIO(text))["a"].isna().tolist() == [True, False]


@pytest.mark.parametrize("word", ["5", "u"])
def test_parts_without_names_have_those_of_the_first(made: Make, word: str) -> None:
    """A file that was split has its names in the first part; the label lies where it does there."""
    _, rows, labels = made(f"label,a,b\n0,{word},2\n1,{word},6\n", f"1,{word},1\n0,{word},0\n", categorical="a")
    assert [row[-1] for row in rows] == [2, 6, 1, 0]
    assert labels == [0, 1, 1, 0]
    _, rows, labels = made("label,a,b\n0,5,2\n1,5,6\n", "1,3,1\n0,4,0\n")
    assert (rows, labels) == ([[5, 2], [5, 6], [3, 1], [4, 0]], [0, 1, 1, 0])


def test_a_later_part_that_seems_to_have_names_is_refused(made: Make) -> None:
    """Where the first file has no names, the first line of another one may as well be a row: it is not dropped."""
    texts = ("a,b,yes\na,c,no\n", "a,b,yes\nc,d,no\n")
    with pytest.raises(UsageError, match=r"1\.csv: the first line seems to name columns, that of .*0\.csv does not"):
        made(*texts, categorical="auto")
    assert made(*texts, categorical="auto", header=False)[2] == ["yes", "no", "yes", "no"]


@pytest.mark.parametrize("order", ["label first", "label last", "label within", "weights before", "an id before"])
def test_labels_of_files_without_names_lie_where_they_did(tmp_path: Path, order: str) -> None:
    """A model knows which column held the labels when it was trained, or it refuses rows; it guesses no other one."""
    rng = np.random.default_rng(0)
    rows = np.round(rng.normal(size=(60, 3)), 3)
    label = (rows[:, 0] > -0.2).astype(int)
    frame = pd.DataFrame(rows)
    at = {"label first": 0, "label within": 2, "weights before": 4, "an id before": 4}.get(order, 3)
    words: dict[str, Any] = {"label": at}
    if order in ("weights before", "an id before"):
        frame.insert(0, "aside", 1)
        words["weights" if order == "weights before" else "drop"] = 0
    without = frame.copy()
    frame.insert(at, "label", label)
    for name, table in (("rows", frame), ("new", without), ("plain", pd.DataFrame(rows))):
        table.to_csv(tmp_path / f"{name}.csv", index=False, header=False)
    ingest(tmp_path / "rows.csv", tmp_path / "rows.zarr", **words)
    coremargin.train(tmp_path / "rows.zarr", out=tmp_path / "m", loss="hinge", C=1.0, epsilon=1e-2)
    drop = ["0"] if "drop" in words else []
    found = evaluate(tmp_path / "m", tmp_path / "rows.csv", drop=drop)
    assert found.accuracy > 0.9
    for name, out in (("rows", drop), ("new", drop), ("plain", [])):
        predict(tmp_path / "m", tmp_path / f"{name}.csv", tmp_path / "labels.csv", drop=out, overwrite=True)
        assert (pd.read_csv(tmp_path / "labels.csv")["label"] == label).mean() == found.accuracy
    if drop:
        with pytest.raises(DataError, match="found 4 columns of features, expected 3 as in the model"):
            predict(tmp_path / "m", tmp_path / "new.csv", tmp_path / "labels.csv", overwrite=True)


def test_names_that_are_lacking_are_not_guessed(tmp_path: Path) -> None:
    """A model of named columns takes no column for the labels of a file without names."""
    frame = pd.DataFrame({"label": [0, 1, 0, 1], "a": [0.0, 1, 0, 1], "b": [1.0, 1, 0, 0]})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_csv(tmp_path / "plain.csv", index=False, header=False)
    ingest(tmp_path / "rows.csv", tmp_path / "rows.zarr")
    coremargin.train(tmp_path / "rows.zarr", out=tmp_path / "m", epsilon=1e-2)
    for ask in (evaluate, lambda model, rows: predict(model, rows, tmp_path / "labels.csv")):
        with pytest.raises(
            DataError, match=r"plain\.csv: no line names the columns, so which of the 3 holds the labels"
        ):
            ask(tmp_path / "m", tmp_path / "plain.csv")
    predict(tmp_path / "m", tmp_path / "plain.csv", tmp_path / "labels.csv", drop=["0"])
    assert pd.read_csv(tmp_path / "labels.csv")["label"].tolist() == [0, 1, 0, 1]


@pytest.mark.specimens(1)
@pytest.mark.parametrize("words", [{}, {"categories": 2}])
def test_categories_that_are_numbers_are_found_however_they_are_written(tmp_path: Path, words: dict[str, Any]) -> None:
    """A gap makes pandas write 1.0 for 1; the model knows both, in files and in frames, and tells 02 from 2."""
    frame = pd.DataFrame({"k": [1, 2, 3] * 20, "a": np.arange(60) % 7})
    frame["label"] = np.where(frame["k"] == 2, "yes", "no")
    gap = frame.astype({"k": float})
    gap.loc[0, "k"] = np.nan
    gap.to_csv(tmp_path / "gap.csv", index=False)
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet")
    ingest(tmp_path / "gap.csv", tmp_path / "rows.zarr", categorical="k", missing="indicator", **words)
    coremargin.train(tmp_path / "rows.zarr", out=tmp_path / "m", loss="hinge", C=10.0, epsilon=1e-2)
    for name in ("gap.csv", "rows.csv", "rows.parquet"):
        assert evaluate(tmp_path / "m", tmp_path / name).accuracy == 1.0
    model = coremargin.load(tmp_path / "m")
    for table in (frame, gap, frame.astype({"k": str})):
        assert (model.predict(table[["k", "a"]]) == frame["label"]).all()
    (tmp_path / "zip.csv").write_text("k,a,label\n02,1,no\n2,1,no\n")
    ingest(tmp_path / "zip.csv", tmp_path / "zip.zarr", columns=model.columns)
    first, second = Store.open(tmp_path / "zip.zarr").rows_at(np.arange(2))[0].tolist()
    assert first != second


def test_hashed_categories_that_are_numbers_are_one(tmp_path: Path) -> None:
    """A bucket is that of the number, whatever type or spelling it has."""
    frame = pd.DataFrame({"k": np.arange(1500.0), "label": np.arange(1500) % 2})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    ingest(tmp_path / "rows.csv", tmp_path / "rows.zarr", categorical="k")
    frame.astype({"k": int}).to_csv(tmp_path / "more.csv", index=False)
    frame.to_parquet(tmp_path / "more.parquet")
    for number, name in enumerate(("more.csv", "more.parquet"), 1):
        ingest(tmp_path / name, tmp_path / "rows.zarr", append=True)
        store = Store.open(tmp_path / "rows.zarr")
        first, more = (store.rows_at(np.arange(1500) + at)[0] for at in (0, 1500 * number))
        assert (first != more).nnz == 0


def test_numbers_in_a_column_of_booleans_are_one_or_zero(tmp_path: Path) -> None:
    """True and false may come as 1 and 0; 7 is neither."""
    (tmp_path / "a.csv").write_text("f,n,label\ntrue,1,x\nfalse,2,y\n")
    (tmp_path / "b.csv").write_text("f,n,label\n1,1,x\n0,2,y\n")
    (tmp_path / "c.csv").write_text("f,n,label\n1,1,x\n7,2,y\n")
    ingest(tmp_path / "a.csv", tmp_path / "rows.zarr")
    ingest(tmp_path / "b.csv", tmp_path / "rows.zarr", append=True)
    with pytest.raises(BadRow, match=r"c\.csv, line 3, column 'f': found '7', expected true or false"):
        ingest(tmp_path / "c.csv", tmp_path / "rows.zarr", append=True)


def test_decimals_are_the_nearest_numbers(tmp_path: Path) -> None:
    """A decimal of Parquet is the float64 that its digits are."""
    values = [Decimal("1.100000"), Decimal("-0.100000"), None, Decimal("123456789012.345678")]
    pq.write_table(
        pa.table({"d": pa.array(values, pa.decimal128(30, 6)), "label": [0, 1, 0, 1]}), tmp_path / "d.parquet"
    )
    ingest(tmp_path / "d.parquet", tmp_path / "d.zarr", missing="median", dtype="float64")
    rows = Store.open(tmp_path / "d.zarr").rows_at(np.arange(4))[0]
    assert rows[[0, 1, 3], 0].tolist() == [1.1, -0.1, 123456789012.345678]


@pytest.mark.parametrize("word", ["categorical", "text", "dates"])
def test_lists_are_nothing_else(tmp_path: Path, word: str) -> None:
    """A column of lists is numbers; who says that it is something else is told so."""
    pq.write_table(pa.table({"v": [[1, 2], [3, 4]], "label": [0, 1]}), tmp_path / "v.parquet")
    with pytest.raises(UsageError, match=r"column 'v': found type list<element: int64>, expected no lists, as"):
        ingest(tmp_path / "v.parquet", tmp_path / "v.zarr", **{word: "v"})


@pytest.mark.parametrize(("name", "said"), [('"a,b"', "0"), ("", "0"), ("my job", "'my job'"), ("job", "job")])
def test_what_is_advised_names_the_column(tmp_path: Path, name: str, said: str) -> None:
    """Options name a column that has commas, or no name, by its number, and words with spaces in quotes."""
    path = tmp_path / "rows.csv"
    path.write_text(f"{name},n,label\nu,1,x\nv,2,y\n")
    with pytest.raises(ColumnsUnclear) as caught:
        ingest(path, tmp_path / "rows.zarr")
    assert str(caught.value).endswith(f"say --categorical {said}")
    assert caught.value.options == ("--categorical", said.strip("'"))
    assert ingest(path, tmp_path / "rows.zarr", categorical=said.strip("'")).features == 3
    path.write_text(f"n,{name},label\n1,u,x\n2,v,y\n")
    ingest(path, tmp_path / "n.zarr", drop=1)
    number = said.replace("0", "1")
    with pytest.raises(DataError, match=f"is not known; leave out what is more with --drop {number}$"):
        ingest(path, tmp_path / "n.zarr", append=True)
    assert ingest(path, tmp_path / "n.zarr", append=True, drop=number.strip("'")).store_rows == 4


def test_digits_are_dates_only_where_somebody_says_so(tmp_path: Path) -> None:
    """Texts as 20240105 may be codes: --dates auto asks for a word, and takes them by name or in a given format."""
    frame = pd.DataFrame({"code": ["20240105", None, "20231231"], "label": [0, 1, 0]})
    for words in ({}, {"dates": "auto"}, {"dates": "auto", "categorical": "auto"}):
        with pytest.raises(ColumnsUnclear, match="dates, or codes: .20240105., ...; say --dates code if"):
            ingest(frame[::2], tmp_path / "rows.zarr", **words)
    for words in ({"dates": "code"}, {"dates": ["auto", "code"]}, {"dates": "auto", "date_format": "%Y%m%d"}):
        assert ingest(frame, tmp_path / "rows.zarr", overwrite=True, missing="mean", **words).features == 10
    assert ingest(frame, tmp_path / "rows.zarr", overwrite=True, missing="mean", categorical="code").features == 3
    frame.loc[1, "code"] = "2024-01-06"
    assert ingest(frame, tmp_path / "rows.zarr", overwrite=True, dates="auto").features == 10


ZONED, BARE = "2024-01-05T10:00:00+01:00", "2024-01-05 09:00:00"


@pytest.mark.parametrize(("first", "other", "found"), [(ZONED, BARE, "without"), (BARE, ZONED, "with")])
@pytest.mark.parametrize("rows", [3, 200_000])
def test_dates_with_and_without_time_zones_are_no_one_column(
    made: Make, first: str, other: str, found: str, rows: int
) -> None:
    """The first date that is not as those before it is named, near or far behind them, whatever the format."""
    text = "\n".join(["d,label", f"{first},0", *[f"{first},1"] * rows, "", f"{other},1", ""])
    for words in ({"dates": "auto"}, {"dates": "d"}):
        with pytest.raises(BadRow, match=rf"0\.csv, line {rows + 4}, column 'd': found a date {found} time zone"):
            made(text, **words)


def test_later_dates_have_time_zones_as_the_first_had(tmp_path: Path) -> None:
    """A store and a model keep whether dates had zones: of rows that come later, others are refused."""
    dates = {"zoned": [ZONED, "2024-03-05T10:00:00Z"] * 4, "bare": [BARE, "2024-03-05 10:00:00"] * 4}
    frames = {kind: pd.DataFrame({"d": texts, "label": [0, 1] * 4}) for kind, texts in dates.items()}
    for kind, frame in frames.items():
        store = tmp_path / f"{kind}.zarr"
        ingest(frame, store, dates="auto")
        assert ingest(frame, store, append=True).store_rows == 16
        model = coremargin.train(store)
        other = frames["bare" if kind == "zoned" else "zoned"]
        assert model.predict(frame).tolist() == [0, 1] * 4
        typed = other.assign(d=pd.to_datetime(other["d"], utc=kind == "bare"))
        for given in (other, typed):
            with pytest.raises(BadRow, match=r"row 0, column .d.: found a date with(out)? time zone"):
                ingest(given, store, append=True)
            with pytest.raises(BadRow, match="X, row 0, column 'd': found a date with"):
                model.predict(given)
    coremargin.train(tmp_path / "zoned.zarr", out=tmp_path / "m")
    with pytest.raises(DataError, match=r"dates of 12 features .*, in the model it is dates with time zones"):
        evaluate(tmp_path / "m", tmp_path / "bare.zarr")


@pytest.mark.parametrize("marked", ["# label a b", "# made by us\n# label a b", "# label,a,b", "#label,a,b"])
def test_names_behind_the_mark_of_a_comment_name_columns(made: Make, marked: str) -> None:
    """As numpy.savetxt writes them; the first one may be the label."""
    mark = "," if "," in marked else " "
    rows = "".join(mark.join(row) + "\n" for row in (("1", "0.5", "7"), ("0", "0.25", "8"), ("1", "0.75", "9")))
    assert made(f"{marked}\n{rows}") == (["a", "b"], [[0.5, 7], [0.25, 8], [0.75, 9]], [1, 0, 1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('"a","b","label"\n"1",2,3,"p"\n"2",3,4,"n"\n', "found 3 fields in the first line and 4 in all rows below"),
        ("a b label\nr1 2 3 p\nr2 3 4 n\n", r"as R's write\.table puts them, write the file with row\.names=FALSE"),
        ("a,b,label\n2,3,p,\n3,4,n,\n", "of which the last is empty: remove the delimiter at the end of the rows"),
    ],
)
def test_rows_with_a_field_more_than_names_are_refused(made: Make, text: str, message: str) -> None:
    """With names of rows in front as R writes them, or a delimiter at the end."""
    with pytest.raises(DataError, match=message):
        made(text)


def test_times_in_a_first_column_without_a_name_are_an_index(made: Make) -> None:
    """Numbers with decimals that ascend throughout, such as the index of a series."""
    rows = "".join(f"{number / 4},{number % 3},{'pn'[number % 2]}\n" for number in range(12))
    with pytest.raises(DataError, match=r"the first column has no name and numbers or names the rows \(0\.0, 0\.25"):
        made(f",a,label\n{rows}")


def test_a_hidden_index_and_a_column_that_are_both_called_like_labels_are_refused(tmp_path: Path) -> None:
    """Unless one of them is named."""
    frame = pd.DataFrame({"a": [0.0, 1, 2, 3], "target": [0, 1, 0, 1]}, index=pd.Index([0, 0, 1, 1], name="label"))
    frame.to_parquet(tmp_path / "rows.parquet")
    for source in (tmp_path / "rows.parquet", frame):
        with pytest.raises(UsageError, match="column 'target' and .label. .*are called like labels"):
            ingest(source, tmp_path / "rows.zarr", overwrite=True)
        report = ingest(source, tmp_path / "rows.zarr", label="target", overwrite=True)
        assert dict(report.classes) == {0: 2, 1: 2}


@pytest.mark.parametrize("whole", ["9007199254740993", "9007199254740993.0", "-9007199254740993.00"])
def test_whole_numbers_that_would_be_rounded_are_refused_in_text(made: Make, whole: str) -> None:
    """With a decimal point or without."""
    with pytest.raises(BadRow, match=f"line 3, column 'a': found '{whole}', expected whole numbers up to 2\\^53"):
        made(f"a,label\n1,p\n{whole},n\n", dtype="float64")


@pytest.mark.parametrize("kind", ["decimal128(20, 0)", "decimal128(20, 2)", "list"])
def test_whole_decimals_that_would_be_rounded_are_refused(tmp_path: Path, kind: str) -> None:
    """As integers are, in Parquet and tables of Arrow; so are those in lists."""
    values = [Decimal(2**53 + 1), Decimal(5)]
    types = {"decimal128(20, 0)": pa.decimal128(20, 0), "decimal128(20, 2)": pa.decimal128(20, 2)}
    column = pa.array([[one] for one in values]) if kind == "list" else pa.array(values, types[kind])
    table = pa.table({"a": column, "label": [0, 1]})
    pq.write_table(table, tmp_path / "rows.parquet")
    for source in (tmp_path / "rows.parquet", table):
        with pytest.raises(BadRow, match="row 0, column 'a': found .*9007199254740993.*, expected whole numbers up to"):
            ingest(source, tmp_path / "rows.zarr", dtype="float64")
    assert ingest(table.slice(1), tmp_path / "rows.zarr", dtype="float64").rows == 1
