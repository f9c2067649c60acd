"""Labels of any two kinds are kept as they are, and read the same from every source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coremargin.data.ingest import ingest
from coremargin.data.labels import label_from_text, label_from_value
from coremargin.data.store import Store
from coremargin.data.tables.delimited import DelimitedTable
from coremargin.errors import UsageError

TEXTS = {
    "1": 1,
    "+1": 1,
    "-1": -1,
    "1.0": 1,
    "-1e0": -1,
    " 3 ": 3,
    "0.5": 0.5,
    "01": "01",
    "007.5": "007.5",
    "True": True,
    "false": False,
    "yes": "yes",
    "Iris-setosa": "Iris-setosa",
    "1_0": "1_0",
    "": None,
    "NaN": None,
    "?": None,
    "null": None,
}


@pytest.mark.parametrize(("text", "label"), TEXTS.items(), ids=repr)
def test_a_text_stands_for_one_label(text: str, label: Any) -> None:
    """Whole numbers become integers, other numbers floats, yes and no stay text, and some texts mean: missing."""
    found = label_from_text(text)
    assert found == label
    assert type(found) is type(label)


def test_a_value_stands_for_one_label() -> None:
    """Whole floats are integers; NaN, None and the empty text are missing; NumPy's scalars are Python's."""
    given = [np.float32(2.0), np.int8(-1), np.bool_(True), np.str_("a"), b"b", 2.5, float("nan"), None, " "]
    labels = [label_from_value(value) for value in given]
    assert labels == [2, -1, True, "a", "b", 2.5, None, None, None]
    assert [type(label) for label in labels[:3]] == [int, int, bool]


ARRAYS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "integers": (np.array([7, -7, 7]), (7, -7)),
    "unsigned bytes": (np.array([9, 0, 9], dtype="uint8"), (9, 0)),
    "big-endian integers": (np.array([256, 1, 256], dtype=">i4"), (256, 1)),
    "whole floats": (np.array([1.0, -1.0, 1.0]), (1, -1)),
    "fractions": (np.array([0.5, 1.5, 0.5]), (0.5, 1.5)),
    "texts": (np.array(["spam", "ham", "spam"]), ("spam", "ham")),
    "texts of digits": (np.array(["1", "0", "1"]), ("1", "0")),
    "variable texts": (np.array(["spam", "ham", "spam"], dtype=np.dtypes.StringDType()), ("spam", "ham")),
    "bytes": (np.array([b"spam", b"ham", b"spam"]), ("spam", "ham")),
    "booleans": (np.array([True, False, True]), (True, False)),
    "objects": (np.array(["é", "ü", "é"], dtype=object), ("é", "ü")),
    "a list of texts": (["b", "a", "b"], ("b", "a")),
}


@pytest.mark.parametrize(("labels", "classes"), ARRAYS.values(), ids=ARRAYS)
def test_labels_of_any_kind_are_kept(tmp_path: Path, labels: Any, classes: tuple[Any, ...]) -> None:
    """The classes of the store are the labels as they were given, in order of first appearance."""
    report = ingest(np.eye(3), tmp_path / "rows.zarr", labels=labels)
    store = Store.open(tmp_path / "rows.zarr")
    assert store.classes == classes
    assert [type(label) for label in store.classes] == [type(label) for label in classes]
    assert store.read(0)[1].tolist() == [0, 1, 0]
    assert report.classes == {classes[0]: 2, classes[1]: 1}


@pytest.mark.parametrize("label", [None, "class", 1, "1", -2])
def test_the_label_column_is_found_or_named(tmp_path: Path, label: str | int | None) -> None:
    """The label column is the one called like a label, or the one named, or counted from either end."""
    (tmp_path / "rows.csv").write_text("a,class,b\n1,x,2\n3,y,4\n")
    report = ingest(tmp_path / "rows.csv", tmp_path / "rows.zarr", label=label)
    assert report.label_from == "column 'class'"
    assert report.classes == {"x": 1, "y": 1}


def test_the_last_column_is_the_label_by_default(tmp_path: Path) -> None:
    """Without a telling name the last column is the label; of two telling names neither is preferred, but refused."""
    (tmp_path / "a.csv").write_text("1,2,x\n3,4,y\n")
    (tmp_path / "b.csv").write_text("y,label,z\n1,2,5\n3,4,6\n")
    assert ingest(tmp_path / "a.csv", tmp_path / "a.zarr").label_from == "column 2"
    with pytest.raises(UsageError, match=r"columns 'y' and 'label' are called like labels, expected one; name it with"):
        ingest(tmp_path / "b.csv", tmp_path / "b.zarr")
    assert ingest(tmp_path / "b.csv", tmp_path / "b.zarr", drop="y").label_from == "column 'label'"


IRIS = "5.1,3.5,setosa\n4.9,3,virginica\n6.2,3.4,virginica\n5.9,3,setosa\n"
HEADERS = {
    "names": ("a,b,c\n1,2,0\n3,4,1\n", True),
    "numbers only": ("1,2,0\n3,4,1\n", False),
    "numbers and a text label": ("1,2,spam\n3,4,ham\n", False),
    "column numbers and a name": ("0,1,target\n3,4,1\n5,6,0\n", True),
    "column numbers and a name above words": (f"0,1,outcome\n{IRIS}", True),
    "one column number and a name above words": ("0,outcome\n1,no\n2,yes\n0,no\n", True),
    "years and a name above words": (f"2010,2015,outcome\n{IRIS}", True),
    "column numbers and a name above numbers": ("0,1,outcome\n3,4,1\n?,6,0\n", True),
    "column numbers and a name above a gap": ("0,1,outcome\n3,4,\n5,6,0\n", True),
    "column numbers, a name and the index of pandas": (",0,1,outcome\n0,3,4,no\n1,5,6,yes\n2,7,8,no\n", True),
    "numbers that count up before a label of others": ("0,1,setosa\n" + IRIS, False),
    "numbers that count up before a label alone": ("0,1,outcome\n3,4,a\n5,6,b\n7,8,c\n", False),
    "numbers that count up before one other label": ("0,1,no\n3,4,yes\n5,6,yes\n", False),
    "numbers that do not count up": (f"5,3,outcome\n{IRIS}", False),
    "one number and a label": ("5,outcome\n3,no\n4,yes\n5,no\n", False),
    "one number twice": ("1,x,1\n3,4,0\n5,6,1\n", False),
    "a missing value in the first row": ("1,?,0\n3,4,1\n", False),
    "a slip in the first row": ("0.5,x,0\n3,4,1\n", False),
    "a column of codes": ("1,a1,0\n3,4,1\n5,b6,1\n", False),
    "negative numbers": ("-1,x,0\n3,4,1\n", False),
    "words only": ("colour,outcome\nred,yes\nblue,no\nred,no\n", True),
    "words only, repeated": ("x,s,e\nx,y,p\n", False),
    "words only, most of them repeated later": ("x,s,e\nb,y,p\nx,s,p\n", False),
    "words only, one of them repeated later": ("colour,no\nred,yes\nblue,no\n", True),
    "words, one of them repeated, beside numbers": ("age,no\n31,no\n32,yes\n", True),
    "words only, of two files": ("a,b\nx,y\na,b\nu,v\n", True),
}


@pytest.mark.parametrize(("text", "header"), HEADERS.values(), ids=HEADERS)
def test_a_header_line_is_told_from_a_row(tmp_path: Path, text: str, header: bool) -> None:
    """The first line is a header when it names columns, never when it may be a row with a slip."""
    (tmp_path / "rows.csv").write_text(text)
    found = DelimitedTable(tmp_path / "rows.csv")
    assert found.names == (tuple(text.split("\n", maxsplit=1)[0].split(",")) if header else None)


NAMES_MEANT = {
    "the label": ("7,3,outcome\n1.5,2,yes\n2.5,3,no\n", {"label": "outcome"}, True),
    "the label, beside what is no name": ("0.5,-1,outcome\n1.5,2,yes\n", {"label": "outcome"}, True),
    "what is left out": ("7,3,id,z\n1,2,u,yes\n1,2,v,no\n", {"drop": ["id"]}, True),
    "the weights": ("7,z,w\n1,yes,1\n2,no,2\n", {"weights": "w", "label": 1}, True),
    "categories": ("colour,7\nred,1\nblue,0\n", {"categorical": "colour"}, True),
    "a policy": ("colour,7\nred,1\nblue,0\n", {"missing": "colour=indicator"}, True),
    "a label of rows": ("0,1,y\n1,0,n\n0,1,y\n", {"label": "y"}, False),
    "a number": ("0,1,y\n1,0,n\n0,1,y\n", {"label": "2"}, False),
    "no name of the line": ("0,1,y\n1,0,n\n0,1,y\n", {"label": "outcome"}, False),
}


@pytest.mark.parametrize(("text", "words", "header"), NAMES_MEANT.values(), ids=NAMES_MEANT)
def test_a_line_with_the_name_of_a_column_that_is_meant_is_a_header(
    tmp_path: Path, text: str, words: dict[str, Any], header: bool
) -> None:
    """Who names a column knows that there are names; but a label that rows have, too, is none."""
    (tmp_path / "rows.csv").write_text(text)
    rows = text.count("\n") - header
    if header or words["label"] == "2":
        words = {"categorical": "auto", **words} if "categorical" not in words else words
        assert ingest(tmp_path / "rows.csv", tmp_path / "rows.zarr", **words).rows == rows
    else:
        with pytest.raises(UsageError, match="the file has no header line, so give a number from 0"):
            ingest(tmp_path / "rows.csv", tmp_path / "rows.zarr", **words)


def test_rows_that_come_later_have_the_names_of_the_store(tmp_path: Path) -> None:
    """Of one row below numbers and a name nothing tells what it is, but that the store has a column of this name."""
    (tmp_path / "rows.csv").write_text("0,1,outcome\n1,2,yes\n2,3,no\n")
    (tmp_path / "more.csv").write_text("0,1,outcome\n4,5,yes\n")
    ingest(tmp_path / "rows.csv", tmp_path / "rows.zarr", label="outcome")
    assert ingest(tmp_path / "more.csv", tmp_path / "rows.zarr", append=True).rows == 1
    assert ingest(tmp_path / "more.csv", tmp_path / "alone.zarr").rows == 2


def test_a_header_can_be_forced(tmp_path: Path) -> None:
    """`header` decides where the guess would be wrong."""
    (tmp_path / "rows.csv").write_text("0,1,2\n3,4,0\n5,6,1\n")
    assert ingest(tmp_path / "rows.csv", tmp_path / "a.zarr").rows == 3
    assert ingest(tmp_path / "rows.csv", tmp_path / "b.zarr", header=True).rows == 2


def test_npy_labels_are_found_by_name(tmp_path: Path) -> None:
    """X_train.npy takes its labels from y_train.npy beside it, several files from theirs in the same order."""
    for part in (0, 1):
        np.save(tmp_path / f"X_{part}.npy", np.full((2, 2), part))
        np.save(tmp_path / f"y_{part}.npy", np.array([part, 5]))
    report = ingest(str(tmp_path / "X_*.npy"), tmp_path / "rows.zarr")
    assert report.label_from == "2 label files"
    store = Store.open(tmp_path / "rows.zarr")
    assert [store.classes[code] for code in store.read(0)[1]] == [0, 5, 1, 5]


@pytest.mark.parametrize("column", ["1_0", "\uff11", " 1 ", "9" * 5000])
def test_a_column_is_a_name_or_plain_digits(column: str, tmp_path: Path) -> None:
    """What Python takes for a number and no person writes names no column."""
    rows = tmp_path / "rows.csv"
    rows.write_text("".join(",".join(line) + "\n" for line in ("abcdefghijk", "01234567890", "01234567891")))
    with pytest.raises(UsageError, match="no column named") as caught:
        ingest(rows, tmp_path / "rows.zarr", label=column)
    assert len(str(caught.value)) < 1000
