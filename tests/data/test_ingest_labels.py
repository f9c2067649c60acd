"""Labels of any two kinds are kept as they are, and read the same from every source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from coremargin.data.ingest import ingest
from coremargin.data.sources.vocabulary import label_from_text, label_from_value
from coremargin.data.store import Store
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
    """Without a telling name the last column is the label; of two telling names neither is preferred."""
    (tmp_path / "a.csv").write_text("1,2,x\n3,4,y\n")
    (tmp_path / "b.csv").write_text("y,label,z\n1,2,x\n3,4,y\n")
    assert ingest(tmp_path / "a.csv", tmp_path / "a.zarr").label_from == "column 2"
    assert ingest(tmp_path / "b.csv", tmp_path / "b.zarr").label_from == "column 'z'"


HEADERS = {
    "names": ("a,b,c\n1,2,0\n3,4,1\n", True),
    "numbers only": ("1,2,0\n3,4,1\n", False),
    "numbers and a text label": ("1,2,spam\n3,4,ham\n", False),
    "column numbers and a name": ("0,1,target\n3,4,1\n5,6,0\n", True),
    "a missing value in the first row": ("1,?,0\n3,4,1\n", False),
    "a slip in the first row": ("0.5,x,0\n3,4,1\n", False),
    "negative numbers": ("-1,x,0\n3,4,1\n", False),
    "words only, repeated": ("x,s,e\nx,y,p\n", False),
}


@pytest.mark.parametrize(("text", "header"), HEADERS.values(), ids=HEADERS)
def test_a_header_line_is_told_from_a_row(text: str, header: bool) -> None:
    """The first line is a header when it names columns, never when it may be a row with a slip."""
    from coremargin.data.sources.delimited_lines import looks_like_header

    first, second = (line.split(",") for line in text.splitlines()[:2])
    assert looks_like_header(first, second) is header


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
